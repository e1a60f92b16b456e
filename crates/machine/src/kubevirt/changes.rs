//! The writes that bring the provider's cluster to the planned state.

use std::fmt;

use kube::{ResourceExt, core::DynamicObject};
use serde_json::Value;
use vitistack_clients::kubernetes::{Child, Ownership, is_applied};
use vitistack_plan::machine::Identity;
use vitistack_types::{labels, v1alpha1::PowerState};

use super::{
    MANAGER, Settings, foreign_text,
    kind::{Kind, Object, belongs_to, describe, named, part},
    plan::{self, Planned, Volume},
    read::Found,
    storage,
    virtual_machine::{ALWAYS, HALTED, run_strategy},
};
use crate::{Order, Target};

/// One request to the provider's cluster. Its text names the object and never shows the content, which may be secret.
#[derive(Clone)]
pub enum Write {
    /// Create an object that is written once.
    Create {
        /// Its kind.
        kind: Kind,
        /// The object.
        child: Child,
    },
    /// Apply an object with server-side apply.
    Apply {
        /// Its kind.
        kind: Kind,
        /// The object.
        child: Child,
        /// The label that an existing object of this name must have.
        owner: Ownership,
        /// The observed object.
        observed: Option<Object>,
    },
    /// Change a few fields of an existing object.
    Amend {
        /// Its kind.
        kind: Kind,
        /// The observed object.
        object: Object,
        /// The fields, as a merge patch.
        patch: Value,
    },
    /// Delete an object.
    Delete {
        /// Its kind.
        kind: Kind,
        /// The observed object.
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

/// Returns the namespace and name of an object, as users write them. Both may come from the provider's cluster.
#[must_use]
pub fn place(object: &DynamicObject) -> String {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let namespace = if namespace.is_empty() { "" } else { foreign_text::name(&namespace) };
    format!("{namespace}/{}", foreign_text::name(&name))
}

/// Returns the required writes in order: what a machine depends on comes first. Without a power state the machine stays on
/// or off.
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

/// Returns the write that applies an object, unless it is already as planned.
fn applied(kind: Kind, child: Child, owner: &Ownership, observed: Option<&Object>) -> Option<Write> {
    let is_current = observed.is_some_and(|observed| is_applied(owner, &child, observed).unwrap_or(false));
    (!is_current).then(|| Write::Apply { kind, child, owner: owner.clone(), observed: observed.cloned() })
}

/// Returns the write that applies the machine with the given power state, or else with its current one.
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
    // Any other strategy was set by hand and is replaced.
    let strategy = current.filter(|current| [ALWAYS, HALTED].contains(&current.as_str()));
    let (Some(strategy), Some(observed)) = (strategy, observed) else {
        return applied(kind, planned.virtual_machine.clone(), owner, observed);
    };
    // The run strategy may have changed since the last apply: the machine is current if it was with either one.
    let is_current = [ALWAYS, HALTED].iter().any(|strategy| {
        let mut observed = DynamicObject::clone(observed);
        switch(&mut observed, strategy);
        is_applied(owner, &powered(strategy), &observed).unwrap_or(false)
    });
    (!is_current).then(|| Write::Apply {
        kind,
        child: powered(&strategy),
        owner: owner.clone(),
        observed: Some(Object::clone(observed)),
    })
}

fn switch(machine: &mut DynamicObject, strategy: &str) {
    if let Some(field) = machine.data.pointer_mut("/spec/runStrategy") {
        *field = strategy.into();
    }
}

fn volume_change(target: &Target, volume: &Volume, found: &Found) -> Option<Write> {
    let name = volume.child.object.name_any();
    match named(&found.claims, &name) {
        Some(claim) => {
            let patch = storage::amendment(&volume.disk, &target.namespace, claim, &found.storage_classes)?;
            Some(Write::Amend { kind: Kind::PersistentVolumeClaim, object: Object::clone(claim), patch })
        }
        // CDI creates the claim later.
        None if named(&found.data_volumes, &name).is_some() => None,
        None => Some(Write::Create { kind: volume.kind, child: volume.child.clone() }),
    }
}

/// Returns the Secret that nothing refers to any more. The Secret of a running machine stays, because a migration reads it
/// again.
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

/// Returns an object of another owner that has a name the machine requires.
#[must_use]
pub fn foreign(target: &Target, planned: Option<&Planned>, found: &Found) -> Option<String> {
    let identity = &target.identity;
    let other = |kind: Kind, object: Option<&Object>| {
        object.filter(|object| !belongs_to(object, identity)).map(|object| describe(kind, object))
    };
    let machine = other(Kind::VirtualMachine, found.virtual_machine.as_ref())
        .or_else(|| other(Kind::VirtualMachineInstance, found.instance.as_ref()));
    let needed = || {
        let planned = planned?;
        let volumes = planned.volumes.iter().find_map(|volume| {
            let name = volume.child.object.name_any();
            other(Kind::PersistentVolumeClaim, named(&found.claims, &name))
                .or_else(|| other(Kind::DataVolume, named(&found.data_volumes, &name)))
        });
        let secret = || other(Kind::Secret, found.secret.as_ref().filter(|_| planned.secret.is_some()));
        let is_ours =
            |object: &&Object| object.labels().get(labels::MANAGED_BY).is_some_and(|by| by == MANAGER);
        let attachment = || found.attachments.iter().find(|object| !is_ours(object));
        volumes
            .or_else(secret)
            .or_else(|| attachment().map(|object| describe(Kind::NetworkAttachmentDefinition, object)))
    };
    machine.or_else(needed)
}
