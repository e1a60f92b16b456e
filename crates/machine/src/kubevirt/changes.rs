//! What has to be written so that the provider's cluster has what was planned. Nothing, if it has.

use std::fmt;

use kube::{ResourceExt, core::DynamicObject};
use serde_json::Value;
use vitistack_clients::kubernetes::{Child, Ownership, is_applied};
use vitistack_plan::machine::Identity;
use vitistack_types::{labels, v1alpha1::PowerState};

use super::{
    MANAGER, Settings,
    kind::{Kind, Object, belongs_to, describe, named, part},
    plan::{self, Planned, Volume},
    read::Found,
    storage,
    virtual_machine::{ALWAYS, HALTED, run_strategy},
};
use crate::{Order, Target};

/// One request to the provider's cluster. It prints what it is about and never what is in it, which may be secret.
#[derive(Clone)]
pub enum Write {
    /// Make an object that is written once.
    Create {
        /// Its kind.
        kind: Kind,
        /// The object.
        child: Child,
    },
    /// Make an object what it shall be, field by field.
    Apply {
        /// Its kind.
        kind: Kind,
        /// The object.
        child: Child,
        /// The label that an object of this name must carry to be ours.
        owner: Ownership,
        /// The object as it is.
        observed: Option<Object>,
    },
    /// Change a few fields of an object that is there.
    Amend {
        /// Its kind.
        kind: Kind,
        /// The object as it is.
        object: Object,
        /// The fields, as a merge patch.
        patch: Value,
    },
    /// Delete an object.
    Delete {
        /// Its kind.
        kind: Kind,
        /// The object as it is.
        object: Object,
    },
}

impl fmt::Display for Write {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, kind, object) = match self {
            Self::Create { kind, child } => ("create", kind, &child.object),
            Self::Apply { kind, child, .. } => ("apply", kind, &child.object),
            Self::Amend { kind, object, .. } => ("change", kind, object.as_ref()),
            Self::Delete { kind, object } => ("delete", kind, object.as_ref()),
        };
        write!(formatter, "{verb} {} {}", kind.name(), place(object))?;
        match self {
            Self::Amend { patch, .. } => write!(formatter, " {patch}"),
            _ => Ok(()),
        }
    }
}

/// Namespace and name of an object, as users write them.
#[must_use]
pub fn place(object: &DynamicObject) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// Everything that has to be written, in the order in which it is: what a machine needs comes before it. With no power
/// state the machine stays switched on or off as it is.
#[must_use]
pub fn changes(
    settings: &Settings,
    order: &Order,
    planned: &Planned,
    found: &Found,
    power: Option<PowerState>,
) -> Vec<Write> {
    let identity = &order.target.identity;
    let mine = Ownership::new(labels::IDENTITY, identity.as_str());
    let ours = Ownership::new(labels::MANAGED_BY, MANAGER);
    let secret = planned.secret.as_ref().and_then(|derived| {
        applied(Kind::Secret, plan::secret(settings, order, derived), &mine, found.secret.as_ref())
    });
    let attachments = planned.attachments.iter().filter_map(|child| {
        let observed = named(&found.attachments, &child.object.name_any());
        applied(Kind::NetworkAttachmentDefinition, child.clone(), &ours, observed)
    });
    let volumes = planned.volumes.iter().filter_map(|volume| volume_change(&order.target, volume, found));
    let machine = machine_change(planned, &mine, found.virtual_machine.as_ref(), power);
    let stale = stale_secret(planned, found, identity)
        .map(|object| Write::Delete { kind: Kind::Secret, object: Object::clone(object) });
    secret.into_iter().chain(attachments).chain(volumes).chain(machine).chain(stale).collect()
}

/// The write that makes an object stand, unless it does.
fn applied(kind: Kind, child: Child, owner: &Ownership, observed: Option<&Object>) -> Option<Write> {
    let stands = observed.is_some_and(|observed| is_applied(owner, &child, observed).unwrap_or(false));
    (!stands).then(|| Write::Apply { kind, child, owner: owner.clone(), observed: observed.cloned() })
}

/// The write that makes the machine stand, switched on or off as asked, else as it is.
fn machine_change(
    planned: &Planned,
    owner: &Ownership,
    observed: Option<&Object>,
    power: Option<PowerState>,
) -> Option<Write> {
    let kind = Kind::VirtualMachine;
    let powered = |strategy: &str| {
        let mut child = planned.virtual_machine.clone();
        switch(&mut child.object, strategy);
        child
    };
    if let Some(power) = power {
        return applied(kind, powered(run_strategy(power)), owner, observed);
    }
    let current = observed.map(|observed| part::<String>(observed, "/spec/runStrategy"));
    // Any other strategy is somebody's experiment, and ends here.
    let kept = current.filter(|current| [ALWAYS, HALTED].contains(&current.as_str()));
    let (Some(kept), Some(observed)) = (kept, observed) else {
        return applied(kind, planned.virtual_machine.clone(), owner, observed);
    };
    // Whoever used the switch: it stands if it would with the switch as it was when it was last applied.
    let stands = [ALWAYS, HALTED].iter().any(|strategy| {
        let mut observed = DynamicObject::clone(observed);
        switch(&mut observed, strategy);
        is_applied(owner, &powered(strategy), &observed).unwrap_or(false)
    });
    (!stands).then(|| Write::Apply {
        kind,
        child: powered(&kept),
        owner: owner.clone(),
        observed: Some(Object::clone(observed)),
    })
}

fn switch(machine: &mut DynamicObject, strategy: &str) {
    if let Some(place) = machine.data.pointer_mut("/spec/runStrategy") {
        *place = strategy.into();
    }
}

fn volume_change(target: &Target, volume: &Volume, found: &Found) -> Option<Write> {
    let name = volume.child.object.name_any();
    match named(&found.claims, &name) {
        Some(claim) => {
            let patch = storage::amendment(&volume.disk, &target.namespace, claim, &found.storage_classes)?;
            Some(Write::Amend { kind: Kind::PersistentVolumeClaim, object: Object::clone(claim), patch })
        }
        // CDI makes the claim in its own time.
        None if named(&found.data_volumes, &name).is_some() => None,
        None => Some(Write::Create { kind: volume.kind, child: volume.child.clone() }),
    }
}

/// The Secret that nothing refers to any more. One that a running machine was started with stays: it may have to
/// migrate, and then it is read again.
fn stale_secret<'a>(planned: &Planned, found: &'a Found, identity: &Identity) -> Option<&'a Object> {
    let secret = found.secret.as_ref().filter(|secret| belongs_to(secret, identity))?;
    let name = secret.name_any();
    let is_used = found.instance.as_ref().is_some_and(|instance| {
        let volumes: Vec<Value> = part(instance, "/spec/volumes");
        volumes.iter().any(|volume| {
            ["secretRef", "networkDataSecretRef"].iter().any(|reference| {
                let pointer = format!("/cloudInitNoCloud/{reference}/name");
                volume.pointer(&pointer).and_then(Value::as_str) == Some(name.as_str())
            })
        })
    });
    (planned.secret.is_none() && !is_used).then_some(secret)
}

/// Something that has a name that is needed and is not ours.
#[must_use]
pub fn foreign(target: &Target, planned: Option<&Planned>, found: &Found) -> Option<String> {
    let identity = &target.identity;
    let strange = |kind: Kind, object: Option<&Object>| {
        object.filter(|object| !belongs_to(object, identity)).map(|object| describe(kind, object))
    };
    let machine = strange(Kind::VirtualMachine, found.virtual_machine.as_ref())
        .or_else(|| strange(Kind::VirtualMachineInstance, found.instance.as_ref()));
    let needed = || {
        let planned = planned?;
        let volumes = planned.volumes.iter().find_map(|volume| {
            let name = volume.child.object.name_any();
            strange(Kind::PersistentVolumeClaim, named(&found.claims, &name))
                .or_else(|| strange(Kind::DataVolume, named(&found.data_volumes, &name)))
        });
        let secret = || strange(Kind::Secret, found.secret.as_ref().filter(|_| planned.secret.is_some()));
        let is_ours =
            |object: &&Object| object.labels().get(labels::MANAGED_BY).is_some_and(|by| by == MANAGER);
        let attachment = || found.attachments.iter().find(|object| !is_ours(object));
        volumes
            .or_else(secret)
            .or_else(|| attachment().map(|object| describe(Kind::NetworkAttachmentDefinition, object)))
    };
    machine.or_else(needed)
}
