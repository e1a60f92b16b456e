//! Why a Datacenter places nothing, or not this Machine.

use vitistack_types::{
    conditions::reason,
    labels,
    v1alpha1::{Datacenter, Machine, MachineProvider, ProviderReference},
};

use super::{
    Cause, Link, Standing, Story, World, count, deletion, ended, name, not_looked_at, not_ready, object,
    operators, paused, provider, ready, refused, told,
};
use crate::{
    Refusal,
    datacenter::{Candidate, Member, Problem, Snapshot, Usage, Verdict, candidate, decide, usage_of},
    machine::{full_name, placement},
    permits,
};

pub fn explain(datacenter: &Datacenter, world: &World) -> Story {
    let own = object("Datacenter", &datacenter.metadata);
    let conditions =
        datacenter.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let machines = members(datacenter, world).count();
    let mut chain = vec![Link {
        object: own.clone(),
        standing: Standing::Well,
        says: format!("region {}, named by {}", datacenter.spec.region, count(machines, "Machine")),
    }];
    chain.extend(providers(datacenter, world).into_iter().map(|(reference, found)| {
        let (own, problem) = usable(datacenter, reference, found, world);
        Link {
            object: own,
            standing: Standing::unless(problem.is_some()),
            says: problem.map_or_else(
                || "can be used".to_owned(),
                |problem| format!("{}: {}", problem.reason, problem.message),
            ),
        }
    }));
    let is_looked_at = ready(conditions).is_some();
    let (operator, absent) = operators::look(operators::DATACENTER, is_looked_at, world);
    let cause = deletion(&own, &datacenter.metadata)
        .or_else(|| paused(&own, &datacenter.metadata, conditions))
        .or_else(|| not_ready(conditions).map(|condition| told(own.clone(), condition)))
        .or_else(|| {
            let waits_for = "the operator datacenter to look at it";
            (!is_looked_at).then(|| {
                absent.clone().unwrap_or_else(|| not_looked_at(&own, &datacenter.metadata, waits_for))
            })
        });
    if cause.is_some() {
        chain.push(operator);
    }
    ended(chain, cause)
}

/// The Datacenter that a Machine names, or why it cannot be used.
pub fn named<'a>(machine: &Machine, world: &'a World) -> Option<Result<&'a Datacenter, Refusal>> {
    let reference = machine.spec.datacenter_ref.as_ref()?;
    let own = machine.metadata.namespace.as_deref().unwrap_or_default();
    let wanted = full_name(reference, own);
    let found = world.datacenters.iter().find(|datacenter| name(&datacenter.metadata) == wanted);
    Some(match found {
        None => Err(Refusal::new(
            reason::DATACENTER_NOT_FOUND,
            format!(
                "spec.datacenterRef names {wanted:?}, which is not there: create a Datacenter of that name"
            ),
        )),
        Some(datacenter) if !permits(&datacenter.metadata, own) => Err(Refusal::new(
            reason::REFERENCE_NOT_PERMITTED,
            format!(
                "spec.datacenterRef names {wanted:?}, which does not allow references from namespace {own:?}: add it to the annotation {} of that Datacenter",
                labels::ALLOW_REFERENCES_FROM
            ),
        )),
        Some(datacenter) => Ok(datacenter),
    })
}

/// Why a Datacenter does not place a Machine that it could place: its quotas, its providers, itself.
pub fn obstacle(datacenter: &Datacenter, machine: &Machine, world: &World) -> (Vec<Link>, Option<Cause>) {
    let own = object("Datacenter", &datacenter.metadata);
    let conditions =
        datacenter.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let told_of_machine =
        machine.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let mut link =
        Link { object: own.clone(), standing: Standing::Well, says: "decides where it goes".to_owned() };
    if let Some(cause) = paused(&own, &datacenter.metadata, conditions) {
        link = Link { standing: Standing::Blocking, says: cause.message.clone(), ..link };
        return (vec![link], Some(cause));
    }
    let found = providers(datacenter, world);
    let problems: Vec<(String, Option<Cause>)> =
        found.iter().map(|(reference, found)| usable(datacenter, reference, *found, world)).collect();
    let refusal = refusal(datacenter, machine, &problems, world);
    if let Some(refusal) = refusal.clone().filter(|refusal| refusal.reason == reason::QUOTA_EXCEEDED) {
        link = Link {
            standing: Standing::Blocking,
            says: format!("{}: {}", refusal.reason, refusal.message),
            ..link
        };
        return (vec![link], Some(refused(own, refusal, told_of_machine)));
    }
    let mut links = vec![link];
    links.extend(problems.iter().filter(|_| refusal.is_some()).map(|(object, problem)| Link {
        object: object.clone(),
        standing: Standing::Blocking,
        says: problem.as_ref().map_or_else(
            || "cannot take it".to_owned(),
            |problem| format!("{}: {}", problem.reason, problem.message),
        ),
    }));
    let cause = refusal.map(|refusal| match problems.as_slice() {
        // With one provider, whatever is wrong with it is the cause; with several, that none can take it.
        [(_, Some(only))] => only.clone(),
        _ => refused(own, refusal, told_of_machine),
    });
    (links, cause)
}

/// The Machines that name a Datacenter.
fn members<'a>(datacenter: &Datacenter, world: &'a World) -> impl Iterator<Item = &'a Machine> {
    let own = name(&datacenter.metadata);
    world.machines.iter().filter(move |machine| is_member(&own, machine))
}

/// Whether a Machine names the Datacenter of that name.
fn is_member(datacenter: &str, machine: &Machine) -> bool {
    let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
    let reference = machine.spec.datacenter_ref.as_ref();
    reference.is_some_and(|reference| full_name(reference, namespace) == datacenter)
}

/// What the operator decides about a Machine, if that is not to place it.
fn refusal(
    datacenter: &Datacenter,
    machine: &Machine,
    problems: &[(String, Option<Cause>)],
    world: &World,
) -> Option<Refusal> {
    let candidates: Vec<Candidate> = providers(datacenter, world)
        .into_iter()
        .zip(problems)
        .map(|((reference, found), (_, problem))| {
            // In the words of the chain, which also says what only it knows: that nobody looks after the provider.
            let problem =
                problem.as_ref().map(|cause| Problem { why: cause.message.clone(), is_temporary: true });
            Candidate { problem, ..candidate(datacenter, reference, found) }
        })
        .collect();
    let snapshot = snapshot(datacenter, candidates, world);
    decide(&snapshot).verdicts.into_iter().find_map(|(each, verdict)| match verdict {
        Verdict::Refuse(refusal) | Verdict::Withdraw(refusal)
            if name(&each.metadata) == name(&machine.metadata) =>
        {
            Some(refusal)
        }
        _ => None,
    })
}

/// Everything that the decision about a Datacenter needs, with what others use of its candidates.
pub fn snapshot<'a>(
    datacenter: &'a Datacenter,
    mut candidates: Vec<Candidate>,
    world: &'a World,
) -> Snapshot<'a> {
    let usage = |machine: &Machine| {
        usage_of(machine, world.classes.iter().find(|class| class.metadata.name == machine.spec.template))
    };
    let own = name(&datacenter.metadata);
    let is_other = |machine: &&Machine| !is_member(&own, machine);
    for candidate in &mut candidates {
        let placed =
            world.machines.iter().filter(|machine| placement(machine) == Some(candidate.name.as_str()));
        for machine in placed.filter(is_other).collect::<Vec<_>>() {
            candidate.count(machine, usage(machine).unwrap_or(Usage { machines: 1, ..Usage::default() }));
        }
    }
    let members =
        members(datacenter, world).map(|machine| Member { machine, usage: usage(machine) }).collect();
    Snapshot { datacenter, members, candidates, now: world.now }
}

/// The providers that a Datacenter names, each with what was found of it.
pub fn providers<'a>(
    datacenter: &'a Datacenter,
    world: &'a World,
) -> Vec<(&'a ProviderReference, Option<&'a MachineProvider>)> {
    let own = datacenter.metadata.namespace.as_deref().unwrap_or_default();
    let found = |reference: &ProviderReference| {
        let wanted = format!("{}/{}", reference.namespace.as_deref().unwrap_or(own), reference.name);
        world.providers.iter().find(|provider| name(&provider.metadata) == wanted)
    };
    datacenter.spec.machine_providers.iter().map(|reference| (reference, found(reference))).collect()
}

/// A provider of a Datacenter, and why it cannot be used now.
fn usable(
    datacenter: &Datacenter,
    reference: &ProviderReference,
    found: Option<&MachineProvider>,
    world: &World,
) -> (String, Option<Cause>) {
    let place = datacenter.metadata.namespace.as_deref().unwrap_or_default();
    let wanted = format!("{}/{}", reference.namespace.as_deref().unwrap_or(place), reference.name);
    let own = format!("MachineProvider {wanted}");
    let refusal = match found {
        None => Refusal::new(
            reason::PROVIDER_NOT_FOUND,
            format!(
                "the Datacenter names {wanted:?}, which is not there: create a MachineProvider of that name"
            ),
        ),
        Some(provider) if !permits(&provider.metadata, place) => Refusal::new(
            reason::REFERENCE_NOT_PERMITTED,
            format!(
                "it does not allow references from namespace {place:?}: add it to the annotation {} of that MachineProvider",
                labels::ALLOW_REFERENCES_FROM
            ),
        ),
        Some(provider) => return (own, provider::problem(provider, world)),
    };
    let cause = refused(own.clone(), refusal, &[]);
    (own, Some(cause))
}
