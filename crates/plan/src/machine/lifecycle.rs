//! What is to be done about one machine now.

use vitistack_types::{
    conditions::reason,
    labels,
    v1alpha1::{Machine, PowerState, ReclaimPolicy},
};

use super::{
    Action, Desired, Identity, Observed, ObservedMachine, Part, Power, Problem, Step, Update, has_finalizer,
    is_let_go,
};
use crate::{Refusal, datacenter::is_passed_over_by, is_paused};

/// Everything that was read of one machine.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    /// The Machine.
    pub machine: &'a Machine,
    /// What it shall be, or why that cannot be said.
    pub desired: Result<&'a Desired, &'a Refusal>,
    /// What the provider has for it, or why that is not known.
    pub observed: Result<&'a Observed, &'a Refusal>,
    /// Another Machine, as `namespace/name`, that claims the same identity.
    pub twin: Option<&'a str>,
    /// Where it is, or is to be: `namespace/name` of the provider.
    pub placement: &'a str,
    /// The provider's answer to a create that was just sent: it has no room.
    pub no_room: Option<&'a Refusal>,
    /// Why nothing is made on the provider any more: it is being deleted, or gone.
    pub leaving: Option<&'a Refusal>,
}

/// What happens next, once the steps are done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is as it shall be.
    Settled,
    /// Something is on its way. Holds what is waited for.
    Waiting(String),
    /// The provider's last task failed. The steps, if there are any, try it again: whoever takes them pauses first, longer
    /// each time.
    Failing(Refusal),
    /// The provider could not be asked; it is asked again.
    Unknown(Refusal),
    /// Somebody has to change something first.
    Blocked(Refusal),
    /// All action is stopped by the annotation.
    Paused,
    /// It is on its way out. Holds what is waited for.
    Deleting(String),
}

/// The decision about one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What is to be done, in this order, up to the first that has to wait.
    pub steps: Vec<Step>,
    /// How things stand.
    pub verdict: Verdict,
}

/// The identity of a Machine: the one it carries, else the one it will get.
#[must_use]
pub fn identity(machine: &Machine) -> Identity {
    let annotations = machine.metadata.annotations.as_ref();
    let carried = annotations.and_then(|annotations| annotations.get(labels::IDENTITY));
    Identity::new(carried.or(machine.metadata.uid.as_ref()).cloned().unwrap_or_default())
}

/// Whether the identity it carries, if any, is its own or was made its own. Nothing is done to one that was restored
/// and not adopted yet.
pub(crate) fn has_own_identity(machine: &Machine) -> bool {
    let uid = machine.metadata.uid.as_deref();
    let carried = annotation(machine, labels::IDENTITY);
    carried.is_none() || carried == uid || annotation(machine, labels::ADOPTED) == uid
}

pub(crate) fn annotation<'a>(machine: &'a Machine, name: &str) -> Option<&'a str> {
    machine.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

fn step(action: Action, why: impl Into<String>) -> Step {
    Step { action, why: why.into() }
}

/// Decides. Pure, and the only place that does.
#[must_use]
pub fn decide(snapshot: &Snapshot<'_>) -> Decision {
    let still = |verdict| Decision { steps: Vec::new(), verdict };
    let machine = snapshot.machine;
    if is_paused(&machine.metadata) {
        return still(Verdict::Paused);
    }
    if let Some(refusal) = held(snapshot) {
        return still(Verdict::Blocked(refusal));
    }
    if machine.metadata.deletion_timestamp.is_some() {
        return delete(snapshot);
    }
    let desired = match snapshot.desired {
        Ok(desired) => desired,
        Err(refusal) => return still(Verdict::Blocked(refusal.clone())),
    };
    let observed = match snapshot.observed {
        Ok(observed) => observed,
        Err(refusal) => return still(Verdict::Unknown(refusal.clone())),
    };
    if let Some(elsewhere) = &observed.elsewhere {
        let own = machine.metadata.namespace.as_deref().unwrap_or_default();
        return still(Verdict::Blocked(elsewhere.refusal(&identity(machine), own)));
    }
    let decision = match (&observed.task, &observed.machine) {
        (Some(task), _) => still(Verdict::Waiting(task.clone())),
        (None, None) => create(snapshot, observed),
        (None, Some(real)) => keep(snapshot, desired, observed, real),
    };
    retried(decision, observed)
}

/// The same steps, told as another attempt if the provider failed with the last one: also while that attempt is under way,
/// so that what is told does not go back and forth.
fn retried(decision: Decision, observed: &Observed) -> Decision {
    let Some(failure) = &observed.failure else { return decision };
    let message = match &decision.verdict {
        Verdict::Waiting(_) => format!("{failure}: it is tried again"),
        Verdict::Deleting(what) => format!("waiting: {what}; {failure}"),
        _ => return decision,
    };
    Decision { verdict: Verdict::Failing(Refusal::new(reason::VM_FAILED, message)), ..decision }
}

/// Why the Machine must not be acted on, whatever its spec says.
fn held(snapshot: &Snapshot<'_>) -> Option<Refusal> {
    let machine = snapshot.machine;
    // The identity is the UID of the Machine that made the real one. Whoever else writes it down is held, and cannot hold that one.
    let is_original = identity(machine).as_str() == machine.metadata.uid.as_deref().unwrap_or_default();
    if let Some(twin) = snapshot.twin.filter(|_| !is_original) {
        let message = format!(
            "Machine {twin} has the same identity: delete one of the two, or have an operator of the platform remove the annotation {} from one",
            labels::IDENTITY
        );
        return Some(Refusal::new(reason::IDENTITY_HELD, message));
    }
    let uid = machine.metadata.uid.as_deref();
    // An apply of the manifest that the Machine was first made from may take it away again, and would make it anew.
    let is_lost = uid.is_some()
        && annotation(machine, labels::ADOPTED) == uid
        && annotation(machine, labels::IDENTITY).is_none();
    if is_lost {
        let known = machine.status.as_ref().and_then(|status| status.identity.as_deref());
        let message = format!(
            "it was adopted, and its annotation {} is gone: set it to {}, or remove the annotation {} to make a new machine",
            labels::IDENTITY,
            known.map_or_else(|| "what it was".to_owned(), |identity| format!("{identity:?}")),
            labels::ADOPTED,
        );
        return Some(Refusal::new(reason::IDENTITY_HELD, message));
    }
    (!has_own_identity(machine)).then(|| {
        let message = format!(
            "it carries the identity of another Machine, as after a restore: if the real machine is to be this one's, set the annotation {} to {:?}",
            labels::ADOPTED,
            uid.unwrap_or_default()
        );
        Refusal::new(reason::IDENTITY_HELD, message)
    })
}

/// The first write, unless it was made.
fn claim(snapshot: &Snapshot<'_>) -> Option<Step> {
    let machine = snapshot.machine;
    let is_claimed = has_finalizer(machine)
        && annotation(machine, labels::IDENTITY).is_some()
        && annotation(machine, labels::PLACEMENT) == Some(snapshot.placement);
    (!is_claimed).then(|| step(Action::Claim, format!("it is placed on {}", snapshot.placement)))
}

fn create(snapshot: &Snapshot<'_>, observed: &Observed) -> Decision {
    if let Some(foreign) = &observed.foreign {
        let message =
            format!("{foreign} is not ours and is left alone: remove it, or give the Machine another name");
        return Decision {
            steps: Vec::new(),
            verdict: Verdict::Blocked(Refusal::new(reason::NAME_TAKEN, message)),
        };
    }
    if let Some(refusal) = snapshot.leaving {
        return provider_leaves(snapshot, observed, refusal);
    }
    let full = |refusal: &&Refusal| refusal.reason == reason::INSUFFICIENT_RESOURCES;
    let mut problems = observed.problems.iter().map(Problem::refusal);
    if let Some(refusal) = snapshot.no_room.or_else(|| problems.clone().find(full)) {
        return no_room(snapshot, observed, refusal);
    }
    // What was begun is ended, also by whoever did not hear the provider's answer.
    if is_placed_by_datacenter(snapshot.machine)
        && is_passed_over_by(snapshot.machine, snapshot.placement)
        && holds_nothing(observed)
    {
        let message = format!("{} had no room for it", snapshot.placement);
        return no_room(snapshot, observed, &Refusal::new(reason::INSUFFICIENT_RESOURCES, message));
    }
    if let Some(refusal) = problems.next() {
        return Decision { steps: Vec::new(), verdict: Verdict::Blocked(refusal.clone()) };
    }
    let create = step(Action::Create, "the provider has no machine with its identity");
    Decision {
        steps: claim(snapshot).into_iter().chain([create]).collect(),
        verdict: Verdict::Waiting("the machine is being made".to_owned()),
    }
}

/// Whether a Datacenter chooses its provider, and may choose another.
#[must_use]
pub fn is_placed_by_datacenter(machine: &Machine) -> bool {
    machine.spec.datacenter_ref.is_some() && machine.spec.provider_ref.is_none()
}

/// Nothing is begun on a provider that goes. A claim that nothing came of is given up: it would hold the provider.
fn provider_leaves(snapshot: &Snapshot<'_>, observed: &Observed, refusal: &Refusal) -> Decision {
    let machine = snapshot.machine;
    let is_claimed = has_finalizer(machine);
    let is_given_up = is_claimed && holds_nothing(observed);
    let verdict = if is_placed_by_datacenter(machine) && (is_given_up || !is_claimed) {
        Verdict::Waiting(format!("another provider is chosen: {}", refusal.message))
    } else {
        Verdict::Blocked(refusal.clone())
    };
    if !is_given_up {
        return Decision { steps: Vec::new(), verdict };
    }
    let mut steps = clearing(observed, "its provider goes, and no machine came of it");
    if steps.is_empty() {
        steps.push(step(Action::HandBack, refusal.message.clone()));
    }
    Decision { steps, verdict }
}

/// The steps that remove what a create left and nobody wrote to.
fn clearing(observed: &Observed, why: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    if !observed.disks.is_empty() {
        let names = observed.disks.iter().map(|disk| disk.name.clone()).collect();
        steps.push(step(Action::Delete(Part::BlankDisks(names)), why));
    }
    if !observed.leftovers.is_empty() {
        steps.push(step(Action::Delete(Part::Leftovers), why));
    }
    steps
}

/// Whether nothing is there that a machine could have written.
fn holds_nothing(observed: &Observed) -> bool {
    observed.disks.iter().all(|disk| disk.is_blank)
}

/// The provider has no room. A Datacenter has others, once nothing of the machine is left here.
fn no_room(snapshot: &Snapshot<'_>, observed: &Observed, refusal: &Refusal) -> Decision {
    // Disks may hold what a machine wrote before somebody took it away, so they stay and the Machine with them.
    if !is_placed_by_datacenter(snapshot.machine) || !holds_nothing(observed) {
        return Decision { steps: Vec::new(), verdict: Verdict::Blocked(refusal.clone()) };
    }
    let mut steps = clearing(observed, "it was made for a machine that found no room");
    if steps.is_empty() {
        steps.push(step(Action::HandBack, refusal.message.clone()));
    } else if !is_passed_over_by(snapshot.machine, snapshot.placement) {
        // Noted first: else, once it is gone, the same would be made again.
        steps.insert(0, step(Action::PassOver, refusal.message.clone()));
    }
    Decision { steps, verdict: Verdict::Waiting(format!("another provider is chosen: {}", refusal.message)) }
}

fn keep(snapshot: &Snapshot<'_>, desired: &Desired, observed: &Observed, real: &ObservedMachine) -> Decision {
    let mut steps: Vec<Step> = claim(snapshot).into_iter().collect();
    if !real.is_current {
        steps.push(step(Action::Update(Update::Specification), "the spec has changed"));
    }
    let waiting = |what: &str| Verdict::Waiting(what.to_owned());
    let mut verdict = match (desired.power, &real.power) {
        (PowerState::Running, Power::Stopped) => {
            steps.push(step(Action::Update(Update::Start), "the spec says Running and it is off"));
            waiting("the machine starts")
        }
        (PowerState::Stopped, Power::Running | Power::Starting | Power::Failing(_)) => {
            steps.push(step(Action::Update(Update::Stop), "the spec says Stopped and it is on"));
            waiting("the machine stops")
        }
        (PowerState::Running, Power::Starting) => waiting("the machine starts"),
        (_, Power::Stopping) => waiting("the machine stops"),
        (PowerState::Running, Power::Failing(why)) => {
            // A backend that knows the cause tells it as a problem, with its own reason; the rest only fails.
            let cause = observed.problems.first().map(|problem| problem.refusal().clone());
            Verdict::Blocked(cause.unwrap_or_else(|| Refusal::new(reason::VM_FAILED, why.clone())))
        }
        (PowerState::Running, Power::Running) | (PowerState::Stopped, Power::Stopped) => Verdict::Settled,
    };
    let request = annotation(snapshot.machine, labels::RESTART_AT);
    if let Some(request) =
        request.filter(|request| is_up(&real.power) && real.restarted_for.as_deref() != Some(*request))
    {
        let restart = Update::Restart { request: request.to_owned() };
        steps.push(step(
            Action::Update(restart),
            format!("the annotation {} asks for it", labels::RESTART_AT),
        ));
        verdict = waiting("the machine restarts");
    }
    let unused: Vec<String> = observed
        .disks
        .iter()
        .filter(|disk| !disk.is_attached && disk.reclaim_policy == ReclaimPolicy::Delete)
        .filter(|disk| !desired.disks.iter().any(|wanted| wanted.name == disk.name))
        .map(|disk| disk.name.clone())
        .collect();
    if !unused.is_empty() {
        steps.push(step(Action::Delete(Part::Disks(unused)), "the spec no longer has them"));
    }
    if verdict == Verdict::Settled && !steps.is_empty() {
        verdict = waiting("the change takes effect");
    }
    Decision { steps, verdict }
}

/// Whether there is something that can be restarted, be it only to get it going again.
fn is_up(power: &Power) -> bool {
    matches!(power, Power::Running | Power::Failing(_))
}

fn delete(snapshot: &Snapshot<'_>) -> Decision {
    let machine = snapshot.machine;
    let one = |action, why: &str, waits_for: &str| Decision {
        steps: vec![step(action, why)],
        verdict: Verdict::Deleting(waits_for.to_owned()),
    };
    if is_let_go(machine) {
        let others = machine.metadata.finalizers.as_deref().unwrap_or_default().join(", ");
        let waits_for = format!("whoever set {others} removes it; of the machine nothing is left");
        return Decision { steps: Vec::new(), verdict: Verdict::Deleting(waits_for) };
    }
    let observed = match snapshot.observed {
        Ok(observed) => observed,
        // Without an answer absence cannot be known, and a machine would be left behind.
        Err(refusal) => return Decision { steps: Vec::new(), verdict: Verdict::Unknown(refusal.clone()) },
    };
    if let Some(task) = &observed.task {
        let still = Decision { steps: Vec::new(), verdict: Verdict::Deleting(task.clone()) };
        return retried(still, observed);
    }
    if observed.machine.is_some() {
        let machine = one(Action::Delete(Part::Machine), "the Machine is deleted", "the machine goes");
        return retried(machine, observed);
    }
    let volumes: Vec<String> = observed
        .disks
        .iter()
        .filter(|disk| disk.reclaim_policy == ReclaimPolicy::Delete)
        .map(|disk| disk.name.clone())
        .collect();
    if !volumes.is_empty() {
        let disks = one(
            Action::Delete(Part::Disks(volumes)),
            "the machine is gone and its disks are not to be kept",
            "the disks go",
        );
        return retried(disks, observed);
    }
    if !observed.leftovers.is_empty() {
        return retried(
            one(Action::Delete(Part::Leftovers), "the machine is gone", "the rest goes"),
            observed,
        );
    }
    // With nothing left, what failed before is of no interest any more.
    one(Action::Release, "the provider has nothing left of it", "the Machine goes")
}
