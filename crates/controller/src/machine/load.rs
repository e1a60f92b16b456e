//! Everything that is read of one Machine before anything is decided.

use std::{collections::BTreeMap, sync::Arc};

use kube::{ResourceExt, runtime::reflector::ObjectRef};
use vitistack_machine::{Order, Target};
use vitistack_plan::{
    Redacted, Refusal,
    machine::{Capabilities, Desired, Location, Places, References, identity, locate, resolve},
};
use vitistack_runtime::ReconcileError;
use vitistack_types::{
    conditions::reason,
    labels,
    v1alpha1::{Datacenter, Machine, MachineProvider, ProviderType},
};

use super::MachineReconciler;

/// Who acts on a Machine.
pub(super) enum Charge {
    /// This operator: the Machine is on this provider.
    Ours(String),
    /// Somebody else, or nobody yet.
    Others,
    /// Nobody can, and whoever reads it first tells why.
    Nobody(Refusal),
}

/// The word by which Machines without any place are found in the index.
pub(super) const UNPLACED: &str = "unplaced";

impl MachineReconciler {
    /// Who acts on the Machine.
    pub(super) fn charge(&self, machine: &Machine) -> Charge {
        let providers = self.caches.providers.list();
        let providers: Vec<&MachineProvider> = providers.iter().map(Arc::as_ref).collect();
        let datacenters = self.caches.datacenters.list();
        let datacenters: Vec<&Datacenter> = datacenters.iter().map(Arc::as_ref).collect();
        let places = Places {
            providers: &providers,
            datacenters: &datacenters,
            is_own_cluster_offered: self.is_own_cluster_offered,
        };
        match locate(machine, &places) {
            Location::Nowhere(refusal) => Charge::Nobody(refusal),
            Location::At(place) if self.type_of(&place) == Some(self.backends.provider_type()) => {
                Charge::Ours(place)
            }
            Location::At(_) | Location::Undecided => Charge::Others,
        }
    }

    fn type_of(&self, place: &str) -> Option<ProviderType> {
        if place == labels::OWN_CLUSTER {
            return Some(ProviderType::Kubevirt);
        }
        let (namespace, name) = place.split_once('/')?;
        let provider = self.caches.providers.get(&ObjectRef::new(name).within(namespace))?;
        Some(provider.spec.type_)
    }

    /// Another Machine that claims the same identity.
    pub(super) fn twin(&self, machine: &Machine) -> Option<String> {
        let own = ObjectRef::from_obj(machine);
        let mut others: Vec<String> = self
            .index
            .get(&identity_word(identity(machine).as_str()))
            .into_iter()
            .filter(|other| *other != own)
            .map(|other| format!("{}/{}", other.namespace.unwrap_or_default(), other.name))
            .collect();
        others.sort();
        others.into_iter().next()
    }

    /// The machine as it shall be, or why that cannot be said.
    pub(super) async fn desired(
        &self,
        machine: &Machine,
    ) -> Result<Result<Desired, Refusal>, ReconcileError> {
        let namespace = machine.namespace().unwrap_or_default();
        let class =
            machine.spec.template.as_deref().and_then(|name| self.caches.classes.get(&ObjectRef::new(name)));
        let networks = machine.spec.networks.iter().filter_map(|interface| {
            let name = &interface.network_name;
            let network = self.caches.networks.get(&ObjectRef::new(name).within(&namespace))?;
            Some((name.clone(), network.as_ref().clone()))
        });
        let mut references = References {
            class: class.map(|class| class.as_ref().clone()),
            networks: networks.collect(),
            secret: None,
        };
        if let Some(reference) =
            machine.spec.cloud_init.as_ref().and_then(|cloud_init| cloud_init.secret_ref.as_ref())
            && let Some(data) = self.caches.secrets.get(&namespace, &reference.name).await?
        {
            let mut texts = BTreeMap::new();
            if let Some(bytes) = data.get(&reference.key) {
                match String::from_utf8(bytes.reveal().clone()) {
                    Ok(text) => {
                        texts.insert(reference.key.clone(), Redacted::new(text));
                    }
                    Err(_) => return Ok(Err(not_text(&reference.name, &reference.key))),
                }
            }
            references.secret = Some(texts);
        }
        Ok(resolve(machine, &references))
    }
}

fn not_text(name: &str, key: &str) -> Refusal {
    Refusal::new(
        reason::SECRET_KEY_NOT_FOUND,
        format!(
            "spec.cloudInit.secretRef.key {key:?} of Secret {name:?} is not UTF-8 text: store it as text"
        ),
    )
}

/// Which real machine a Machine stands for.
pub(super) fn target(machine: &Machine) -> Target {
    Target {
        identity: identity(machine),
        uid: machine.uid().unwrap_or_default(),
        name: machine.name_any(),
        namespace: machine.namespace().unwrap_or_default(),
    }
}

/// What is ordered, if that can be said.
pub(super) fn order(target: &Target, desired: &Result<Desired, Refusal>) -> Option<Order> {
    let desired = desired.as_ref().ok()?.clone();
    Some(Order { target: target.clone(), desired })
}

/// The fields that the Machine sets and the backend cannot honour.
pub(super) fn refused_fields(
    machine: &Machine,
    desired: &Desired,
    capabilities: &Capabilities,
) -> Vec<String> {
    let mut refused = Vec::new();
    if !capabilities.refused_fields.is_empty() {
        let spec = serde_json::to_value(&machine.spec).unwrap_or_default();
        let is_set = |path: &&&str| spec.pointer(&format!("/{}", path.replace('.', "/"))).is_some();
        refused.extend(capabilities.refused_fields.iter().filter(is_set).map(|path| format!("spec.{path}")));
    }
    if desired.zone.is_some() && !capabilities.zones {
        refused.push("spec.zone".to_owned());
    }
    refused
}

fn identity_word(identity: &str) -> String {
    format!("identity {identity}")
}

/// The word by which Machines on a provider are found.
pub(super) fn provider_word(provider: &str) -> String {
    format!("provider {provider}")
}

pub(super) fn network_word(namespace: &str, name: &str) -> String {
    format!("network {namespace}/{name}")
}

pub(super) fn class_word(name: &str) -> String {
    format!("class {name}")
}

pub(super) fn secret_word(namespace: &str, name: &str) -> String {
    format!("secret {namespace}/{name}")
}

/// The identity that a change in a provider names, as the index spells it.
pub(super) fn changed_word(identity: &vitistack_plan::machine::Identity) -> String {
    identity_word(identity.as_str())
}

/// Everything that a Machine is found by.
pub(super) fn words(machine: &Machine) -> Vec<String> {
    let namespace = machine.namespace().unwrap_or_default();
    let spec = &machine.spec;
    let mut words = vec![identity_word(identity(machine).as_str())];
    match (vitistack_plan::machine::placement(machine), &spec.provider_ref) {
        (Some(placed), _) => words.push(provider_word(placed)),
        (None, Some(reference)) => {
            words.push(provider_word(&vitistack_plan::machine::full_name(reference, &namespace)));
        }
        (None, None) => words.push(UNPLACED.to_owned()),
    }
    words.extend(spec.networks.iter().map(|interface| network_word(&namespace, &interface.network_name)));
    words.extend(spec.template.as_deref().map(class_word));
    let secret = spec.cloud_init.as_ref().and_then(|cloud_init| cloud_init.secret_ref.as_ref());
    words.extend(secret.map(|secret| secret_word(&namespace, &secret.name)));
    words
}
