//! Why a Machine does not run, does not change, or is not deleted.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use vitistack_types::{
    ObjectId, OperatorName, Placement,
    conditions::{self, reason},
    labels,
    v1alpha1::{Machine, MachineProvider, PowerState, ProviderType},
};

use super::{
    Cause, Facts, Finding, Link, LinkState, LinkTarget, datacenter, deletion, not_reconciled, operator,
    paused, provider, ready,
};
use crate::{
    Inventory, Refusal,
    command::command,
    inventory::{OwnCluster, current_ready, is_ready, lacks_default_provider, secret_of_machine},
    machine::{
        Location, Observed, PlacementContext, Snapshot, StepResult, annotation, datacenter_of,
        has_own_identity, is_held_by_others, locate, may_have_backing_machine, not_ready_while_paused,
        placement, plan, provider_of, refusal_before_provider,
    },
    permits, refusals,
};

/// Explains a Machine in the order in which the operators decide, so that the cause is the one that they report.
pub(super) fn explain(machine: &Machine, facts: &Facts<'_>) -> Finding {
    let own = ObjectId::of(machine);
    let mut chain = vec![Link::healthy(own.clone(), summary(machine))];
    if is_held_by_others(machine) {
        return Finding::new(chain, Some(held_by_others(machine, facts)));
    }

    let own_cluster = own_cluster(machine, facts);
    let location = location(machine, own_cluster, facts);
    let (links, cause) = match &location {
        // What is reported as ready stays so: a refusal here comes from an object that may not be read.
        Location::Refused(_) | Location::Unplaced if is_ready(machine) => {
            (Vec::new(), outdated_spec(machine))
        }
        Location::Refused(refusal) => refused(machine, refusal.clone(), facts),
        Location::Unplaced => unplaced(machine, facts),
        Location::At(placement) => placed(machine, placement, own_cluster, facts),
    };
    chain.extend(links);

    let further = match &cause {
        Some(cause) if has_further_causes(machine) => further_causes(machine, &location, cause, facts),
        _ => Vec::new(),
    };
    for link in further.iter().filter_map(|cause| missing_link(cause, facts)) {
        if !chain.iter().any(|known| known.object == link.object) {
            chain.push(link);
        }
    }
    Finding { further, ..Finding::new(chain, cause) }
}

/// Whether what a Machine refers to matters for it now: a machine that runs, is paused or is being deleted does without.
fn has_further_causes(machine: &Machine) -> bool {
    let is_deleting = machine.metadata.deletion_timestamp.is_some();
    !is_deleting && !is_ready(machine) && !crate::is_paused(&machine.metadata) && has_own_identity(machine)
}

/// What would block a Machine next, if the first cause were gone. The condition has only the first.
fn further_causes(machine: &Machine, location: &Location, first: &Cause, facts: &Facts<'_>) -> Vec<Cause> {
    let inventory = facts.inventory;
    let refused = |refusal| Cause::refused(ObjectId::of(machine), refusal, conditions_of(machine));
    let of_placement = match location {
        Location::Refused(refusal) => Some(refused(refusal.clone())),
        Location::Unplaced => datacenter_of(machine).and_then(|name| match inventory.datacenter(&name) {
            Some(datacenter) => datacenter::refusal_to_place(datacenter, machine, facts).1,
            None => Some(datacenter::not_found(machine, &name, facts)),
        }),
        Location::At(placement) => placement
            .provider()
            .and_then(|name| inventory.provider(name))
            .and_then(|provider| problem_for(machine, provider, inventory)),
    };

    let mut further: Vec<Cause> = Vec::new();
    for cause in inventory.problems(machine).into_iter().map(refused).chain(of_placement) {
        let is_same = |known: &Cause| (&known.reason, &known.message) == (&cause.reason, &cause.message);
        if !is_same(first) && !further.iter().any(is_same) {
            further.push(cause);
        }
    }
    further
}

/// What is wrong with a provider for a Machine that is not ready. A provider that is paused keeps the machines it has.
fn problem_for(machine: &Machine, provider: &MachineProvider, inventory: &Inventory) -> Option<Cause> {
    let is_kept = crate::is_paused(&provider.metadata) && may_have_backing_machine(&machine.metadata);
    if is_kept { None } else { provider::problem(provider, inventory) }
}

/// Links after the Machine's own, and the cause.
type Links = (Vec<Link>, Option<Cause>);

fn conditions_of(machine: &Machine) -> &[Condition] {
    machine.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
}

/// The desired state of a Machine in a few words.
fn summary(machine: &Machine) -> String {
    let spec = &machine.spec;
    let state = match (&machine.metadata.deletion_timestamp, spec.power_state) {
        (Some(_), _) => "deleted",
        (None, Some(PowerState::Stopped)) => "stopped",
        (None, _) => "running",
    };
    let template = spec.template.as_ref().map(|template| format!(", template {template}"));
    let place = match (provider_of(machine), datacenter_of(machine)) {
        (Some(provider), _) => format!(", on MachineProvider {provider}"),
        (None, Some(datacenter)) => format!(", in Datacenter {datacenter}"),
        (None, None) => ", on the default provider".to_owned(),
    };
    format!("desired: {state}{}{place}", template.unwrap_or_default())
}

/// Whether the operators' own cluster hosts this Machine, as far as they report it.
fn own_cluster(machine: &Machine, facts: &Facts<'_>) -> OwnCluster {
    if placement(machine) == Some(Placement::OwnCluster) {
        OwnCluster::Offered
    } else if lacks_default_provider(machine) {
        OwnCluster::NotOffered
    } else {
        facts.own_cluster
    }
}

fn location(machine: &Machine, own_cluster: OwnCluster, facts: &Facts<'_>) -> Location {
    let context = PlacementContext {
        providers: &facts.providers,
        datacenters: &facts.datacenters,
        watched: &facts.watched,
        is_own_cluster_offered: own_cluster != OwnCluster::NotOffered,
    };
    locate(machine, &context)
}

/// A Machine that is gone at its provider and that finalizers of others hold, in the sentence of its operator.
fn held_by_others(machine: &Machine, facts: &Facts<'_>) -> Cause {
    let own = ObjectId::of(machine);
    let (desired, last, placement) = (refusals::deleting(), StepResult::default(), placement(machine));
    let planned = plan(&Snapshot {
        machine,
        desired: Err(&desired),
        observed: Ok(&Observed::default()),
        capabilities: None,
        twin: facts.twin(machine),
        placement: placement.as_ref(),
        provider_deleting: false,
        provider_paused: false,
        last: &last,
        silent_since: None,
        last_step_at: None,
        now: facts.inventory.now,
    });

    let conditions =
        planned.status.map_or_else(|| conditions_of(machine).to_vec(), |status| status.conditions);
    let since = machine.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    match ready(&conditions) {
        Some(condition) => Cause { since, ..Cause::reported(own, condition) },
        None => Cause::new(own, reason::DELETING, desired.message, since),
    }
}

/// A Machine that is refused, with the object that has to be created or changed.
fn refused(machine: &Machine, refusal: Refusal, facts: &Facts<'_>) -> Links {
    let cause = Cause::refused(ObjectId::of(machine), refusal, conditions_of(machine));
    let deleting = deleting_provider(machine, facts.inventory);
    (missing_link(&cause, facts).or(deleting).into_iter().collect(), Some(cause))
}

/// The provider of a Machine, if it is being deleted.
fn deleting_provider(machine: &Machine, inventory: &Inventory) -> Option<Link> {
    let own = machine.metadata.namespace.as_deref().unwrap_or_default();
    let provider = provider_for(machine, inventory).filter(|provider| permits(&provider.metadata, own))?;
    provider.metadata.deletion_timestamp.as_ref()?;
    Some(Link::blocking(ObjectId::of(provider), "being deleted"))
}

/// The object that has to be created or changed.
fn missing_link(cause: &Cause, facts: &Facts<'_>) -> Option<Link> {
    let missing = cause.missing.clone()?;
    let message = if facts.inventory.has(&missing) { "exists, but has to be changed" } else { "not found" };
    Some(Link::blocking(missing, message))
}

/// A Machine that a Datacenter has not placed yet.
fn unplaced(machine: &Machine, facts: &Facts<'_>) -> Links {
    let own = ObjectId::of(machine);
    if let Some(cause) = deletion(&own, &machine.metadata) {
        return (Vec::new(), Some(cause));
    }
    if !has_own_identity(machine)
        && let Some(cause) = blocked(machine, None, facts)
    {
        return (Vec::new(), Some(cause));
    }
    if let Some(cause) = paused(&own, &machine.metadata, conditions_of(machine), not_ready_while_paused()) {
        return (Vec::new(), Some(cause));
    }
    let Some(name) = datacenter_of(machine) else {
        return (Vec::new(), Some(reported(machine, "an operator to place it", facts.inventory)));
    };
    let Some(datacenter) = facts.inventory.datacenter(&name) else {
        let cause = datacenter::not_found(machine, &name, facts);
        return (missing_link(&cause, facts).into_iter().collect(), Some(cause));
    };

    let (mut links, cause) = datacenter::refusal_to_place(datacenter, machine, facts);
    links.extend(cause.as_ref().and_then(|cause| missing_link(cause, facts)));
    let (operator, absent) =
        operator::check(OperatorName::Datacenter, is_reconciled(machine), facts.inventory);
    if cause.is_none() || absent.is_some() {
        links.push(operator);
    }
    let place = || reported(machine, &format!("{} to place it", ObjectId::of(datacenter)), facts.inventory);
    (links, Some(cause.or(absent).unwrap_or_else(place)))
}

/// A Machine that is on its provider, or is to be created there.
fn placed(machine: &Machine, placement: &Placement, own_cluster: OwnCluster, facts: &Facts<'_>) -> Links {
    let inventory = facts.inventory;
    let mut links: Vec<Link> = datacenter_link(machine, inventory).into_iter().collect();
    let provider = placement.provider().and_then(|name| inventory.provider(name));
    if is_ready(machine) {
        // A machine that runs continues to run whatever its provider reports.
        let problem = provider.and_then(|provider| provider::problem(provider, inventory));
        let problems = problem
            .iter()
            .map(|problem| Link::new(problem.object.clone(), LinkState::Degraded, problem.summary()));
        links.extend(problems);
        links.retain(|link| link.state == LinkState::Degraded);
        return (links, outdated_spec(machine));
    }

    let problem = provider.and_then(|provider| problem_for(machine, provider, inventory));
    let own = ObjectId::of(machine);
    let own_refusal = paused(&own, &machine.metadata, conditions_of(machine), not_ready_while_paused())
        .or_else(|| blocked(machine, provider, facts));
    if let Some(cause) = own_refusal {
        return (missing_link(&cause, facts).into_iter().collect(), Some(cause));
    }

    let type_ = provider.map_or(ProviderType::OWN_CLUSTER, |provider| provider.spec.type_);
    let operator = OperatorName::Machine(type_);
    let (operator_link, absent) = operator::check(operator, is_reconciled(machine), inventory);
    links.extend(unread_secret(machine, inventory));
    links.push(provider_link(provider, problem.as_ref(), own_cluster));
    links.push(operator_link);
    links.extend(aspects(machine));

    let problem = problem.filter(|problem| is_caused_by(machine, problem));
    let cause = problem
        .or(absent)
        .unwrap_or_else(|| reported(machine, &format!("the operator {operator} to reconcile it"), inventory));
    (links, Some(cause))
}

/// The Datacenter of a Machine that is placed.
fn datacenter_link(machine: &Machine, inventory: &Inventory) -> Option<Link> {
    let name = datacenter_of(machine)?;
    let exists = inventory.datacenter(&name).is_some();
    let object = ObjectId::new("Datacenter", name);
    if !exists {
        let message = "not found: the machine stays on its provider";
        return Some(Link::new(object, LinkState::Degraded, message));
    }
    Some(Link::healthy(object, annotation(machine, labels::PLACEMENT_REASON).unwrap_or("exists")))
}

fn provider_link(
    provider: Option<&MachineProvider>,
    problem: Option<&Cause>,
    own_cluster: OwnCluster,
) -> Link {
    match (provider, problem) {
        (Some(provider), None) if crate::is_paused(&provider.metadata) => {
            let (_, reason, message) = crate::provider::paused();
            Link::new(ObjectId::of(provider), LinkState::Degraded, format!("{reason}: {message}"))
        }
        (Some(provider), None) => {
            Link::healthy(ObjectId::of(provider), format!("type {}, accepts machines", provider.spec.type_))
        }
        (Some(provider), Some(problem)) => Link::blocking(ObjectId::of(provider), problem.summary()),
        (None, _) if own_cluster == OwnCluster::Unknown => {
            let message = "no operator has reported yet whether it hosts Machines";
            Link::new(LinkTarget::OwnCluster, LinkState::Unknown, message)
        }
        (None, _) => Link::healthy(
            LinkTarget::OwnCluster,
            "hosts Machines while namespace vitistack-system has no MachineProvider",
        ),
    }
}

/// Whether the problem of a provider explains what is reported of a Machine: it is the same, or the Machine only waits.
fn is_caused_by(machine: &Machine, problem: &Cause) -> bool {
    current_ready(machine).is_none_or(|ready| {
        let is_progress = [reason::CREATING, reason::UPDATING, reason::STARTING, reason::DELETING];
        let is_paused = problem.reason == reason::PAUSED && ready.reason == reason::PROVIDER_PAUSED;
        is_paused || ready.reason == problem.reason || is_progress.contains(&ready.reason.as_str())
    })
}

/// What blocks a Machine whatever its provider has: its identity, where the provider acts, or what it refers to.
fn blocked(machine: &Machine, provider: Option<&MachineProvider>, facts: &Facts<'_>) -> Option<Cause> {
    let (own, inventory) = (ObjectId::of(machine), facts.inventory);
    let permitted = provider.map_or(Ok(()), |provider| inventory.check_namespace(machine, provider));
    let desired = permitted.and_then(|()| inventory.desired(machine));
    let twin = facts.twin(machine);
    let refusal = refusal_before_provider(machine, desired.as_ref(), twin)?;

    let is_restored = refusal.reason == reason::IDENTITY_HELD && twin.is_none();
    let fix = is_restored.then(|| format!("run `{}`", command("adopt", &own)));
    Some(Cause { fix, ..Cause::refused(own, refusal, conditions_of(machine)) })
}

/// The Secret that a Machine refers to, if it could not be read.
fn unread_secret(machine: &Machine, inventory: &Inventory) -> Option<Link> {
    let secret = secret_of_machine(machine)?;
    (!inventory.secrets.contains_key(&secret))
        .then(|| Link::new(ObjectId::new("Secret", secret), LinkState::Unknown, "could not be read"))
}

/// The other conditions that are false: disks, networks, the backing machine.
fn aspects(machine: &Machine) -> impl Iterator<Item = Link> {
    let types = [conditions::STORAGE_READY, conditions::NETWORK_READY, conditions::VIRTUAL_MACHINE_READY];
    let is_false = move |condition: &&Condition| {
        types.contains(&condition.type_.as_str()) && condition.status == "False"
    };
    conditions_of(machine).iter().filter(is_false).map(|condition| {
        let object = LinkTarget::Condition { type_: condition.type_.clone(), object: ObjectId::of(machine) };
        Link::blocking(object, format!("{}: {}", condition.reason, condition.message))
    })
}

/// Whether an operator has reported on the Machine as it is now.
fn is_reconciled(machine: &Machine) -> bool {
    current_ready(machine).is_some()
}

/// A machine that runs without everything that its spec has.
fn outdated_spec(machine: &Machine) -> Option<Cause> {
    let condition = conditions::find(conditions_of(machine), conditions::UP_TO_DATE)
        .filter(|condition| condition.status == "False")?;
    let own = ObjectId::of(machine);
    let needs_restart = condition.reason == reason::RESTART_REQUIRED;
    let fix = needs_restart.then(|| format!("run `{}`", command("power restart", &own)));
    Some(Cause { fix, ..Cause::reported(own, condition) })
}

/// What an operator last reported, or that none has reconciled the Machine yet.
fn reported(machine: &Machine, waiting_for: &str, inventory: &Inventory) -> Cause {
    let own = ObjectId::of(machine);
    let Some(condition) = ready(conditions_of(machine)) else {
        return not_reconciled(&own, &machine.metadata, waiting_for.to_owned());
    };

    if let Some(since) = &machine.metadata.deletion_timestamp {
        // The status reports a deletion only if it takes long.
        let is_progress = [reason::CREATING, reason::UPDATING, reason::STARTING];
        let is_reported = current_ready(machine).is_some()
            && condition.status != "True"
            && !is_progress.contains(&condition.reason.as_str());
        if !is_reported {
            let cause = Cause::new(own, reason::DELETING, refusals::deleting().message, Some(since.0));
            return Cause { waiting_for: Some("the provider to delete the machine".to_owned()), ..cause };
        }
    } else if current_ready(machine).is_none() || is_outdated(condition, machine, inventory) {
        let message =
            format!("the last reported status is out of date ({}: {})", condition.reason, condition.message);
        let cause = Cause { message, ..Cause::reported(own, condition) };
        return Cause { waiting_for: Some(waiting_for.to_owned()), ..cause };
    }
    Cause::reported(own, condition)
}

/// Whether a condition reports something as missing that exists by now. Only asked when nothing is missing.
fn is_outdated(condition: &Condition, machine: &Machine, inventory: &Inventory) -> bool {
    let is_provider_deleting = || {
        let provider = provider_for(machine, inventory);
        provider.is_some_and(|provider| provider.metadata.deletion_timestamp.is_some())
    };
    match condition.reason.as_str() {
        reason::TEMPLATE_NOT_FOUND
        | reason::NETWORK_CONFIGURATION_NOT_FOUND
        | reason::PAUSED
        | reason::DATACENTER_NOT_FOUND
        | reason::PLACEMENT_NOT_PERMITTED
        | reason::NO_DEFAULT_PROVIDER
        | reason::SEVERAL_DEFAULT_PROVIDERS => true,
        // Without the Namespaces it is not known whether the one that the provider acts in permits it.
        reason::REFERENCE_NOT_PERMITTED => {
            inventory.namespaces.is_some() || !acts_elsewhere(machine, inventory)
        }
        reason::PROVIDER_NOT_FOUND => !is_provider_deleting(),
        reason::PROVIDER_PAUSED => {
            !provider_for(machine, inventory).is_some_and(|provider| crate::is_paused(&provider.metadata))
        }
        reason::SECRET_NOT_FOUND => {
            secret_of_machine(machine).is_some_and(|secret| inventory.secrets.contains_key(&secret))
        }
        _ => false,
    }
}

/// The provider that a Machine is on, or refers to.
fn provider_for<'a>(machine: &Machine, inventory: &'a Inventory) -> Option<&'a MachineProvider> {
    let placed = placement(machine).or_else(|| provider_of(machine).map(Placement::Provider))?;
    inventory.provider(placed.provider()?)
}

/// Whether the provider of a Machine names a namespace of the operators' own cluster.
fn acts_elsewhere(machine: &Machine, inventory: &Inventory) -> bool {
    provider_for(machine, inventory).is_some_and(|provider| provider.spec.own_cluster_namespace().is_some())
}
