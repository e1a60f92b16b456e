//! Which provider a Machine is on, or is to be created on.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use vitistack_types::{
    ObjectId, ObjectName, Placement, WatchedNamespaces, labels,
    v1alpha1::{Datacenter, Machine, MachineProvider},
};

use crate::{Refusal, reference::permits, refusals};

/// The objects that a placement is judged by.
#[derive(Clone, Copy, Debug)]
pub struct PlacementContext<'a> {
    /// Every MachineProvider in the watched namespaces.
    pub providers: &'a [&'a MachineProvider],
    /// Every Datacenter in the watched namespaces.
    pub datacenters: &'a [&'a Datacenter],
    /// The namespaces whose objects are known.
    pub watched: &'a WatchedNamespaces,
    /// Whether the operator's own cluster hosts Machines while the platform's namespace has no MachineProvider.
    pub is_own_cluster_offered: bool,
}

impl<'a> PlacementContext<'a> {
    fn provider(&self, name: &ObjectName) -> Option<&'a MachineProvider> {
        self.providers.iter().copied().find(|provider| name.is_of(&provider.metadata))
    }

    fn datacenter(&self, name: &ObjectName) -> Option<&'a Datacenter> {
        self.datacenters.iter().copied().find(|datacenter| name.is_of(&datacenter.metadata))
    }

    /// Checks that the namespace of an object that is not among the others is watched: otherwise it may exist.
    fn check_watched(&self, field: &str, kind: &str, name: &ObjectName) -> Result<(), Refusal> {
        if self.watched.contains(&name.namespace) {
            return Ok(());
        }
        Err(refusals::not_watched(field, &ObjectId::new(kind, name.clone())))
    }
}

/// Where a Machine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// On this provider, or to be created there.
    At(Placement),
    /// Its Datacenter has not decided yet, or another operator decides.
    Unplaced,
    /// It cannot be placed until a person changes something.
    Refused(Refusal),
}

/// Returns where a Machine is. The placement is durable, but any tenant can write the annotation: it counts only where the
/// Machine's references and permissions agree.
#[must_use]
pub fn locate(machine: &Machine, context: &PlacementContext<'_>) -> Location {
    let location = match placement(machine) {
        Some(placement) => placed(machine, placement, context),
        None if machine.spec.datacenter_ref.is_some() => Location::Unplaced,
        None if machine.spec.provider_ref.is_some() => referenced(machine, context),
        None => default(machine, context),
    };

    match location {
        // Another operator's own cluster.
        Location::At(Placement::OwnCluster) if !context.is_own_cluster_offered => Location::Unplaced,
        location => location,
    }
}

/// Returns the placement of a Machine, as its annotation states it.
#[must_use]
pub fn placement(machine: &Machine) -> Option<Placement> {
    placement_in(&machine.metadata)
}

/// Returns the placement in a Machine's metadata.
#[must_use]
pub fn placement_in(metadata: &ObjectMeta) -> Option<Placement> {
    let Ok(placement) = metadata.annotations.as_ref()?.get(labels::PLACEMENT)?.parse();
    Some(placement)
}

/// Returns the Datacenter that a Machine refers to.
#[must_use]
pub fn datacenter_of(machine: &Machine) -> Option<ObjectName> {
    Some(machine.spec.datacenter_ref.as_ref()?.resolve(namespace(machine)))
}

/// Returns the MachineProvider that a Machine refers to.
#[must_use]
pub fn provider_of(machine: &Machine) -> Option<ObjectName> {
    Some(machine.spec.provider_ref.as_ref()?.resolve(namespace(machine)))
}

/// Whether a backing machine may have been created for it.
#[must_use]
pub fn has_finalizer(machine: &Machine) -> bool {
    has_cleanup(&machine.metadata)
}

fn has_cleanup(metadata: &ObjectMeta) -> bool {
    metadata.finalizers.iter().flatten().any(|finalizer| finalizer == labels::MACHINE_CLEANUP)
}

/// Whether it is being deleted and only finalizers of others hold it: nothing real is left of it.
#[must_use]
pub fn is_held_by_others(machine: &Machine) -> bool {
    machine.metadata.deletion_timestamp.is_some() && !has_finalizer(machine)
}

/// Whether the provider of its placement may have something that we have to clean up: it has the finalizer, or was
/// restored with the identity of a machine that was created there, and may get the finalizer later.
#[must_use]
pub fn may_have_backing_machine(machine: &ObjectMeta) -> bool {
    let carried = machine.annotations.as_ref().and_then(|annotations| annotations.get(labels::IDENTITY));
    let is_restored = carried.is_some_and(|carried| machine.uid.as_ref() != Some(carried));
    has_cleanup(machine) || (is_restored && machine.deletion_timestamp.is_none())
}

fn namespace(machine: &Machine) -> &str {
    machine.metadata.namespace.as_deref().unwrap_or_default()
}

/// Where a Machine with a placement is.
fn placed(machine: &Machine, placement: Placement, context: &PlacementContext<'_>) -> Location {
    if let Err(refusal) = check_placement(machine, &placement, context) {
        return Location::Refused(refusal);
    }
    match placement.provider() {
        Some(provider) if context.provider(provider).is_none() => {
            let field = format!("metadata.annotations[{}]", labels::PLACEMENT);
            if let Err(refusal) = context.check_watched(&field, "MachineProvider", provider) {
                return Location::Refused(refusal);
            }
            let is_movable =
                machine.spec.datacenter_ref.is_some() && !may_have_backing_machine(&machine.metadata);
            if is_movable {
                // Nothing was created there, so another provider can host it.
                Location::Unplaced
            } else {
                Location::Refused(refusals::provider_gone(provider))
            }
        }
        _ => Location::At(placement),
    }
}

/// Checks that what the Machine refers to agrees with its placement.
fn check_placement(
    machine: &Machine,
    placement: &Placement,
    context: &PlacementContext<'_>,
) -> Result<(), Refusal> {
    let own = namespace(machine);
    let conflict = |how: String| Err(refusals::placement_not_permitted(placement, &how));

    if let Some(named) = provider_of(machine)
        && placement.provider() != Some(&named)
    {
        return conflict(format!("spec.providerRef names \"{named}\": revert spec.providerRef"));
    }

    if let Some(named) = datacenter_of(machine) {
        // A Datacenter that is gone, or dropped the provider, does not displace its machines. The status says that they
        // were created there: a tenant can write annotations and finalizers.
        if was_created_on(machine, placement) {
            return Ok(());
        }
        context.check_watched("spec.datacenterRef", "Datacenter", &named)?;
        return match context.datacenter(&named).filter(|found| permits(&found.metadata, own)) {
            None if named.namespace == own => {
                conflict(format!("Datacenter \"{named}\" does not exist: create it"))
            }
            // The same words whether it exists or not: it is in the namespace of another tenant.
            None => conflict(refusals::not_available("Datacenter", &named, own)),
            Some(datacenter) if lists(datacenter, placement) => Ok(()),
            Some(_) => conflict(format!(
                "Datacenter \"{named}\" does not list that provider: add it to the Datacenter's spec.machineProviders"
            )),
        };
    }

    match placement.provider().and_then(|name| context.provider(name)) {
        Some(provider) if !may_use(machine, provider) => conflict(format!(
            "that provider does not allow references from namespace {own:?}: add the namespace to its annotation {}",
            labels::ALLOW_REFERENCES_FROM
        )),
        _ => Ok(()),
    }
}

/// Whether a Datacenter lists the provider of a placement.
fn lists(datacenter: &Datacenter, placement: &Placement) -> bool {
    let own = datacenter.metadata.namespace.as_deref().unwrap_or_default();
    let mut providers = datacenter.spec.machine_providers.iter().map(|reference| reference.resolve(own));
    placement.provider().is_some_and(|name| providers.any(|listed| listed == *name))
}

/// Whether the operators reported that the Machine is on this provider.
fn was_created_on(machine: &Machine, placement: &Placement) -> bool {
    let reported = machine.status.as_ref().and_then(|status| status.provider.as_ref());
    reported.is_some_and(|reported| placement.provider() == Some(&reported.resolve("")))
}

/// Whether a Machine may be created on a provider without a Datacenter.
fn may_use(machine: &Machine, provider: &MachineProvider) -> bool {
    let is_platform_default =
        provider.metadata.namespace.as_deref() == Some(labels::SYSTEM_NAMESPACE) && is_default(provider);
    permits(&provider.metadata, namespace(machine)) || is_platform_default
}

/// Where a Machine that refers to a provider is to be created.
fn referenced(machine: &Machine, context: &PlacementContext<'_>) -> Location {
    let Some(named) = provider_of(machine) else { return Location::Unplaced };
    if let Err(refusal) = context.check_watched("spec.providerRef", "MachineProvider", &named) {
        return Location::Refused(refusal);
    }
    let provider = context.provider(&named).filter(|provider| may_use(machine, provider));
    let Some(provider) = provider else {
        return Location::Refused(refusals::provider_not_available(&named, namespace(machine)));
    };
    let placement = Placement::Provider(named);
    if provider.metadata.deletion_timestamp.is_some() {
        return Location::Refused(refusals::provider_deleting(&placement));
    }
    Location::At(placement)
}

/// Whether the platform has a MachineProvider, so that its own cluster no longer hosts Machines without one. Providers of
/// other namespaces do not count: a tenant must not change what all others get.
pub(crate) fn has_platform_provider<'a>(providers: impl IntoIterator<Item = &'a MachineProvider>) -> bool {
    let mut namespaces = providers.into_iter().map(|provider| provider.metadata.namespace.as_deref());
    namespaces.any(|namespace| namespace == Some(labels::SYSTEM_NAMESPACE))
}

/// Whether a provider is annotated as a default.
pub(crate) fn is_default(provider: &MachineProvider) -> bool {
    let annotations = provider.metadata.annotations.as_ref();
    annotations
        .and_then(|annotations| annotations.get(labels::IS_DEFAULT_PROVIDER))
        .is_some_and(|value| value == "true")
}

/// The default provider of the namespace, otherwise that of the platform, otherwise the operator's own cluster.
fn default(machine: &Machine, context: &PlacementContext<'_>) -> Location {
    for namespace in [namespace(machine), labels::SYSTEM_NAMESPACE] {
        if !context.watched.contains(namespace) {
            return Location::Refused(refusals::default_provider_unknown(namespace));
        }
        let mut defaults: Vec<ObjectName> = context
            .providers
            .iter()
            .filter(|provider| provider.metadata.namespace.as_deref() == Some(namespace))
            .filter(|provider| is_default(provider) && provider.metadata.deletion_timestamp.is_none())
            .map(|provider| ObjectName::from_metadata(&provider.metadata))
            .collect();
        defaults.sort();

        match defaults.as_slice() {
            [] => {}
            [one] => return Location::At(Placement::Provider(one.clone())),
            several => return Location::Refused(refusals::several_default_providers(several)),
        }
    }

    if !has_platform_provider(context.providers.iter().copied()) && context.is_own_cluster_offered {
        return Location::At(Placement::OwnCluster);
    }
    Location::Refused(refusals::no_default_provider(namespace(machine)))
}
