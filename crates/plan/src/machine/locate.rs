//! Which provider a Machine is on, or goes to.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use vitistack_types::{
    ObjectReference,
    conditions::reason,
    labels,
    v1alpha1::{Datacenter, Machine, MachineProvider},
};

use crate::{Refusal, reference::permits};

/// What there is to be found, and what is offered where there is nothing.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// Every MachineProvider.
    pub providers: &'a [&'a MachineProvider],
    /// Every Datacenter.
    pub datacenters: &'a [&'a Datacenter],
    /// Whether the cluster itself takes Machines as long as there is no MachineProvider.
    pub is_own_cluster_offered: bool,
}

/// Where a Machine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// On this provider, or to be made there: `namespace/name`, or [`labels::OWN_CLUSTER`].
    At(String),
    /// Its Datacenter has not decided yet.
    Undecided,
    /// Nobody can say; somebody has to change something first.
    Nowhere(Refusal),
}

/// Where a Machine is. The placement is a durable fact, but one that any tenant can write: it counts only where the
/// Machine's references and permissions agree.
#[must_use]
pub fn locate(machine: &Machine, places: &Places<'_>) -> Location {
    match placement(machine) {
        Some(provider_name) => agreed(machine, provider_name, places).map_or_else(Location::Nowhere, |()| {
            if is_provider(provider_name, places) {
                Location::At(provider_name.to_owned())
            } else if machine.spec.datacenter_ref.is_some() && !may_be_made(&machine.metadata) {
                // Nothing was made there, so another provider can take it.
                Location::Undecided
            } else {
                Location::Nowhere(gone(provider_name))
            }
        }),
        None if machine.spec.datacenter_ref.is_some() => Location::Undecided,
        None => match &machine.spec.provider_ref {
            Some(reference) => referred(machine, reference, places),
            None => default(machine, places),
        },
    }
    .unless_own_cluster_is_gone(places)
}

impl Location {
    fn unless_own_cluster_is_gone(self, places: &Places<'_>) -> Self {
        match self {
            Self::At(place) if place == labels::OWN_CLUSTER && !places.is_own_cluster_offered => {
                // Another operator's; this one has nothing to say about it.
                Self::Undecided
            }
            other => other,
        }
    }
}

/// The provider that a Machine was placed on, as it says itself.
#[must_use]
pub fn placement(machine: &Machine) -> Option<&str> {
    machine.metadata.annotations.as_ref()?.get(labels::PLACEMENT).map(String::as_str)
}

/// Whether something real may have been made for it.
#[must_use]
pub fn has_finalizer(machine: &Machine) -> bool {
    machine.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == labels::MACHINE_CLEANUP)
}

/// Whether it is deleted and nothing of it is ours any more: who else has a finalizer on it decides when it goes.
#[must_use]
pub fn is_let_go(machine: &Machine) -> bool {
    machine.metadata.deletion_timestamp.is_some() && !has_finalizer(machine)
}

/// Whether something real may be on the provider of its placement that we have to see to: it has the finalizer, or came
/// with the identity of a machine that was made there before it was restored, and may get the finalizer yet.
#[must_use]
pub fn may_be_made(machine: &ObjectMeta) -> bool {
    let carried = machine.annotations.as_ref().and_then(|annotations| annotations.get(labels::IDENTITY));
    let is_restored = carried.is_some_and(|carried| machine.uid.as_ref() != Some(carried));
    machine.finalizers.iter().flatten().any(|finalizer| finalizer == labels::MACHINE_CLEANUP)
        || (is_restored && machine.deletion_timestamp.is_none())
}

/// `namespace/name` of what is referred to from a namespace.
#[must_use]
pub fn full_name(reference: &ObjectReference, own_namespace: &str) -> String {
    format!("{}/{}", reference.namespace.as_deref().unwrap_or(own_namespace), reference.name)
}

fn namespace(machine: &Machine) -> &str {
    machine.metadata.namespace.as_deref().unwrap_or_default()
}

fn name_of(provider: &MachineProvider) -> String {
    let metadata = &provider.metadata;
    format!(
        "{}/{}",
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default()
    )
}

fn find<'a>(name: &str, places: &Places<'a>) -> Option<&'a MachineProvider> {
    places.providers.iter().copied().find(|provider| name_of(provider) == name)
}

fn is_provider(provider_name: &str, places: &Places<'_>) -> bool {
    provider_name == labels::OWN_CLUSTER || find(provider_name, places).is_some()
}

fn gone(provider_name: &str) -> Refusal {
    Refusal::new(
        reason::PROVIDER_NOT_FOUND,
        format!(
            "MachineProvider {provider_name:?}, where this machine was made, is gone: create it again, or let the machine go with \"vitistack release\""
        ),
    )
}

/// Whether what the Machine refers to agrees with its placement.
fn agreed(machine: &Machine, provider_name: &str, places: &Places<'_>) -> Result<(), Refusal> {
    let own = namespace(machine);
    let disagrees = |with: String| {
        Refusal::new(
            reason::PLACEMENT_NOT_PERMITTED,
            format!(
                "the annotation {} says {provider_name:?}, and {with}: remove the annotation if nothing was made there",
                labels::PLACEMENT
            ),
        )
    };
    if let Some(reference) = &machine.spec.provider_ref {
        let named = full_name(reference, own);
        if named != provider_name {
            return Err(disagrees(format!("spec.providerRef names {named:?}")));
        }
    }
    if let Some(reference) = &machine.spec.datacenter_ref {
        let named = full_name(reference, own);
        let found = places.datacenters.iter().find(|datacenter| {
            let metadata = &datacenter.metadata;
            metadata.name.as_deref() == Some(&reference.name)
                && metadata.namespace.as_deref() == Some(reference.namespace.as_deref().unwrap_or(own))
        });
        let lists = |datacenter: &&&Datacenter| {
            let place = datacenter.metadata.namespace.as_deref().unwrap_or_default();
            let providers = &datacenter.spec.machine_providers;
            providers.iter().any(|provider| {
                format!("{}/{}", provider.namespace.as_deref().unwrap_or(place), provider.name)
                    == provider_name
            })
        };
        let permitted = found.filter(|datacenter| permits(&datacenter.metadata, own));
        // A Datacenter that is gone, or dropped the provider, does not make its machines homeless. What says that they were
        // made there is the status: a tenant can write annotations and finalizers.
        return match (found, permitted) {
            _ if was_made_on(machine, provider_name) => Ok(()),
            (_, Some(datacenter)) if lists(&datacenter) => Ok(()),
            (None, _) => Err(disagrees(format!("Datacenter {named:?} is not there"))),
            (Some(_), None) => Err(disagrees(format!(
                "Datacenter {named:?} does not allow references from namespace {own:?}"
            ))),
            (Some(_), Some(_)) => Err(disagrees(format!("Datacenter {named:?} has no such provider"))),
        };
    }
    match find(provider_name, places) {
        Some(provider) if !may_use(machine, provider) => {
            Err(disagrees(format!("that provider does not allow references from namespace {own:?}")))
        }
        _ => Ok(()),
    }
}

/// Whether the operators said that the Machine is on this provider.
fn was_made_on(machine: &Machine, provider_name: &str) -> bool {
    let provider = machine.status.as_ref().and_then(|status| status.provider.as_ref());
    provider.is_some_and(|provider| full_name(provider, "") == provider_name)
}

/// Whether a Machine may be made on a provider that it does not reach through a Datacenter.
fn may_use(machine: &Machine, provider: &MachineProvider) -> bool {
    let place = provider.metadata.namespace.as_deref().unwrap_or_default();
    permits(&provider.metadata, namespace(machine))
        || place == labels::SYSTEM_NAMESPACE && is_default(provider)
}

fn referred(machine: &Machine, reference: &ObjectReference, places: &Places<'_>) -> Location {
    let named = full_name(reference, namespace(machine));
    let Some(provider) = find(&named, places) else {
        return Location::Nowhere(Refusal::new(
            reason::PROVIDER_NOT_FOUND,
            format!(
                "spec.providerRef names {named:?}, which is not there: create a MachineProvider of that name"
            ),
        ));
    };
    if provider.metadata.deletion_timestamp.is_some() {
        return Location::Nowhere(Refusal::new(
            reason::PROVIDER_NOT_FOUND,
            format!(
                "spec.providerRef names {named:?}, which is being deleted: make the Machine on another one"
            ),
        ));
    }
    if may_use(machine, provider) {
        return Location::At(named);
    }
    let own = namespace(machine);
    Location::Nowhere(Refusal::new(
        reason::REFERENCE_NOT_PERMITTED,
        format!(
            "spec.providerRef names {named:?}, which does not allow references from namespace {own:?}: add it to the annotation {} of that MachineProvider",
            labels::ALLOW_REFERENCES_FROM
        ),
    ))
}

fn is_default(provider: &MachineProvider) -> bool {
    let annotations = provider.metadata.annotations.as_ref();
    annotations
        .and_then(|annotations| annotations.get(labels::IS_DEFAULT_PROVIDER))
        .is_some_and(|value| value == "true")
}

/// The default provider of the namespace, else that of the platform, else the cluster itself.
fn default(machine: &Machine, places: &Places<'_>) -> Location {
    for place in [namespace(machine), labels::SYSTEM_NAMESPACE] {
        let mut defaults: Vec<String> = places
            .providers
            .iter()
            .filter(|provider| provider.metadata.namespace.as_deref() == Some(place) && is_default(provider))
            .filter(|provider| provider.metadata.deletion_timestamp.is_none())
            .map(|provider| name_of(provider))
            .collect();
        defaults.sort();
        match defaults.as_slice() {
            [] => {}
            [one] => return Location::At(one.clone()),
            several => {
                return Location::Nowhere(Refusal::new(
                    reason::SEVERAL_DEFAULT_PROVIDERS,
                    format!(
                        "the Machine names no provider, and {} are all annotated {}: leave the annotation on one of them, or set spec.providerRef",
                        several.join(" and "),
                        labels::IS_DEFAULT_PROVIDER
                    ),
                ));
            }
        }
    }
    if places.providers.is_empty() && places.is_own_cluster_offered {
        return Location::At(labels::OWN_CLUSTER.to_owned());
    }
    Location::Nowhere(Refusal::new(
        reason::NO_DEFAULT_PROVIDER,
        format!(
            "the Machine names no provider and no default is there: set spec.providerRef or spec.datacenterRef, or annotate a MachineProvider with {}: \"true\"",
            labels::IS_DEFAULT_PROVIDER
        ),
    ))
}
