//! What to do about one machine now.

use vitistack_types::{
    ObjectName, Placement,
    conditions::reason,
    labels,
    v1alpha1::{Machine, PowerState, ReclaimPolicy},
};

use super::{
    Action, Desired, Identity, Observed, ObservedDisk, ObservedMachine, Part, Power, Problem, Snapshot, Step,
    StepFailure, Update, has_finalizer, is_held_by_others,
};
use crate::{Refusal, datacenter::is_passed_over_by, is_paused, refusals};

/// How things stand once the steps are done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The observed state matches the desired state.
    Settled,
    /// Something is in progress. Holds a noun phrase that completes "waiting for …".
    Waiting(String),
    /// The provider's last task failed. The steps, if there are any, retry it with growing delay.
    Failing(Refusal),
    /// The provider did not answer.
    Unknown(Refusal),
    /// A person has to change something first.
    Blocked(Refusal),
    /// Paused by the annotation.
    Paused,
    /// The machine is being deleted. Holds a noun phrase that completes "waiting for …".
    Deleting(String),
}

/// The decision about one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) steps: Vec<Step>,
    pub(crate) verdict: Verdict,
}

impl Decision {
    pub(super) fn without_steps(verdict: Verdict) -> Self {
        Self { steps: Vec::new(), verdict }
    }

    fn one(action: Action, why: &str, verdict: Verdict) -> Self {
        Self { steps: vec![step(action, why)], verdict }
    }
}

/// Returns the identity of a Machine: the one it carries, the one it lost, otherwise the one it will get.
#[must_use]
pub fn identity(machine: &Machine) -> Identity {
    let known = annotation(machine, labels::IDENTITY).or_else(|| lost_identity(machine));
    Identity::new(known.or(machine.metadata.uid.as_deref()).unwrap_or_default())
}

/// Whether a Machine was adopted and no longer carries the identity. Applying the manifest that it was first created from
/// may remove the annotation, and without it a second machine would be created.
pub(crate) fn is_identity_lost(machine: &Machine) -> bool {
    let uid = machine.metadata.uid.as_deref();
    uid.is_some()
        && annotation(machine, labels::ADOPTED) == uid
        && annotation(machine, labels::IDENTITY).is_none()
}

/// The identity that an adopted Machine lost, as its status reports it. Nothing is done to a Machine in this state, so the
/// status is only used to repair it.
pub(crate) fn lost_identity(machine: &Machine) -> Option<&str> {
    let known = machine.status.as_ref()?.identity.as_deref()?;
    (is_identity_lost(machine) && machine.metadata.uid.as_deref() != Some(known)).then_some(known)
}

/// Whether the identity it carries, if any, is its own or was adopted. A restored Machine that was not adopted is left
/// alone.
pub(crate) fn has_own_identity(machine: &Machine) -> bool {
    let uid = machine.metadata.uid.as_deref();
    let carried = annotation(machine, labels::IDENTITY);
    carried.is_none() || carried == uid || annotation(machine, labels::ADOPTED) == uid
}

pub(crate) fn annotation<'a>(machine: &'a Machine, name: &str) -> Option<&'a str> {
    machine.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Whether a Datacenter chooses its provider, and may choose another.
#[must_use]
pub fn is_placed_by_datacenter(machine: &Machine) -> bool {
    machine.spec.datacenter_ref.is_some() && machine.spec.provider_ref.is_none()
}

/// Returns why nothing is done about a Machine, whatever its provider has.
pub(crate) fn refusal_before_provider(
    machine: &Machine,
    desired: Result<&Desired, &Refusal>,
    twin: Option<&ObjectName>,
) -> Option<Refusal> {
    let is_deleting = machine.metadata.deletion_timestamp.is_some();
    held(machine, twin).or_else(|| desired.err().filter(|_| !is_deleting).cloned())
}

/// Decides what to do. Pure, and the only place that does.
pub(crate) fn decide(snapshot: &Snapshot<'_>) -> Decision {
    let decision = decide_from_observation(snapshot);

    // A step that just failed ends the reconcile: nothing more is done, and the failure is reported.
    match &snapshot.last.failure {
        None => decision,
        Some(StepFailure::Refused(refusal)) => Decision::without_steps(Verdict::Blocked(refusal.clone())),
        Some(StepFailure::Failed(refusal)) => Decision::without_steps(Verdict::Unknown(refusal.clone())),
    }
}

fn decide_from_observation(snapshot: &Snapshot<'_>) -> Decision {
    let machine = snapshot.machine;
    if is_paused(&machine.metadata) {
        return Decision::without_steps(Verdict::Paused);
    }
    if let Some(refusal) = held(machine, snapshot.twin) {
        return Decision::without_steps(Verdict::Blocked(refusal));
    }
    if machine.metadata.deletion_timestamp.is_some() {
        return delete(snapshot);
    }

    let desired = match snapshot.desired {
        Ok(desired) => desired,
        Err(refusal) => return Decision::without_steps(Verdict::Blocked(refusal.clone())),
    };
    let observed = match snapshot.observed {
        Ok(observed) => observed,
        Err(refusal) => return Decision::without_steps(Verdict::Unknown(refusal.clone())),
    };
    if let Some(elsewhere) = &observed.elsewhere {
        let own = machine.metadata.namespace.as_deref().unwrap_or_default();
        return Decision::without_steps(Verdict::Blocked(elsewhere.refusal(&identity(machine), own)));
    }

    let Some(placement) = snapshot.placement else {
        return Decision::without_steps(Verdict::Waiting("the machine to be placed".to_owned()));
    };
    let unlisted = unlisted_disks(machine, desired, observed);
    if !unlisted.is_empty() {
        return Decision::without_steps(Verdict::Blocked(refusals::disks_not_listed(&sized(&unlisted))));
    }
    let decision = match (&observed.task, &observed.machine) {
        (Some(task), _) => Decision::without_steps(Verdict::Waiting(task.clone())),
        (None, None) => create(snapshot, placement, observed),
        (None, Some(backing)) => maintain(snapshot.machine, placement, desired, observed, backing),
    };
    with_last_failure(decision, observed)
}

/// Reports the same steps as another attempt if the provider's last task failed, also while that attempt is in progress,
/// so that the status does not go back and forth.
fn with_last_failure(decision: Decision, observed: &Observed) -> Decision {
    let Some(failure) = &observed.failure else { return decision };
    let message = match &decision.verdict {
        Verdict::Waiting(_) => format!("{failure}: retrying"),
        Verdict::Deleting(what) => format!("{failure}: retrying, waiting for {what}"),
        _ => return decision,
    };
    Decision { verdict: Verdict::Failing(refusals::task_failed(message)), ..decision }
}

/// Returns why the Machine must not be acted on, whatever its spec is.
fn held(machine: &Machine, twin: Option<&ObjectName>) -> Option<Refusal> {
    let uid = machine.metadata.uid.as_deref();

    // The identity is the UID of the Machine that created the backing machine. A Machine that copies it is held; the
    // original is not.
    let is_original = identity(machine).as_str() == uid.unwrap_or_default();
    if let Some(twin) = twin.filter(|_| !is_original) {
        return Some(refusals::identity_shared(twin));
    }

    if is_identity_lost(machine) {
        return Some(refusals::identity_lost(machine, lost_identity(machine)));
    }

    (!has_own_identity(machine)).then(|| refusals::identity_not_adopted(uid.unwrap_or_default()))
}

/// Returns the disks that would be detached or deleted by an adoption because the spec does not list them. Once the Machine
/// has claimed the backing machine, a disk that is missing in the spec was removed from it on purpose.
fn unlisted_disks<'a>(machine: &Machine, desired: &Desired, observed: &'a Observed) -> Vec<&'a ObservedDisk> {
    let uid = machine.metadata.uid.as_deref();
    let is_adopted = annotation(machine, labels::IDENTITY).is_some_and(|carried| Some(carried) != uid);
    if !is_adopted || has_finalizer(machine) {
        return Vec::new();
    }
    let is_retained = |disk: &ObservedDisk| !disk.is_attached && disk.reclaim_policy == ReclaimPolicy::Retain;
    let unlisted = observed.disks.iter().filter(|disk| !is_listed(desired, disk));
    unlisted.filter(|disk| !is_retained(disk)).collect()
}

fn is_listed(desired: &Desired, disk: &ObservedDisk) -> bool {
    desired.disks.iter().any(|wanted| wanted.name == disk.name)
}

/// Lists disks with their sizes, such as `root (20Gi), data (100Gi)`.
fn sized(disks: &[&ObservedDisk]) -> String {
    let print = |disk: &&ObservedDisk| match &disk.size {
        Some(size) => format!("{} ({size})", disk.name),
        None => disk.name.clone(),
    };
    disks.iter().map(print).collect::<Vec<_>>().join(", ")
}

fn step(action: Action, why: impl Into<String>) -> Step {
    Step { action, why: why.into() }
}

/// The first write, unless it was made.
fn claim(machine: &Machine, placement: &Placement) -> Option<Step> {
    let is_claimed = has_finalizer(machine)
        && annotation(machine, labels::IDENTITY).is_some()
        && annotation(machine, labels::PLACEMENT) == Some(placement.to_string().as_str());
    (!is_claimed).then(|| step(Action::Claim, format!("it is placed on {placement}")))
}

fn create(snapshot: &Snapshot<'_>, placement: &Placement, observed: &Observed) -> Decision {
    let machine = snapshot.machine;
    if let Some(foreign) = &observed.foreign {
        return Decision::without_steps(Verdict::Blocked(refusals::name_taken(foreign)));
    }
    if snapshot.provider_deleting || snapshot.last.provider_deleting {
        return provider_deleting(machine, placement, observed);
    }
    if snapshot.provider_paused {
        return Decision::without_steps(Verdict::Blocked(refusals::provider_paused(placement)));
    }

    // A full provider is left for another one where a Datacenter has others.
    let is_full = |refusal: &&Refusal| refusal.reason == reason::INSUFFICIENT_RESOURCES;
    let mut problems = observed.problems.iter().map(Problem::refusal);
    if let Some(refusal) = snapshot.last.no_capacity.as_ref().or_else(|| problems.clone().find(is_full)) {
        return no_capacity(machine, placement, observed, refusal);
    }

    // A process that never received the provider's answer finishes what was started.
    if is_placed_by_datacenter(machine) && is_passed_over_by(machine, placement) && is_blank(observed) {
        return no_capacity(machine, placement, observed, &refusals::no_capacity(placement));
    }

    if let Some(refusal) = problems.next() {
        return Decision::without_steps(Verdict::Blocked(refusal.clone()));
    }
    let create = step(Action::Create, "the provider has no machine with this identity");
    Decision {
        steps: claim(machine, placement).into_iter().chain([create]).collect(),
        verdict: Verdict::Waiting("the provider to create the machine".to_owned()),
    }
}

/// Nothing is started on a provider that is being deleted. A claim without a machine is given up, because it would block
/// the deletion.
fn provider_deleting(machine: &Machine, placement: &Placement, observed: &Observed) -> Decision {
    let refusal = refusals::provider_deleting(placement);
    let is_claimed = has_finalizer(machine);
    let is_given_up = is_claimed && is_blank(observed);

    let verdict = if is_placed_by_datacenter(machine) && (is_given_up || !is_claimed) {
        Verdict::Waiting(another_provider(&refusal))
    } else {
        Verdict::Blocked(refusal.clone())
    };
    if !is_given_up {
        return Decision::without_steps(verdict);
    }

    let mut steps = delete_blank_leftovers(observed, "the provider is being deleted and created no machine");
    if steps.is_empty() {
        steps.push(step(Action::ReturnToDatacenter, refusal.message));
    }
    Decision { steps, verdict }
}

fn another_provider(refusal: &Refusal) -> String {
    format!("the Datacenter to choose another provider: {}", refusal.message)
}

/// The steps that delete what a failed create left and no machine wrote to.
fn delete_blank_leftovers(observed: &Observed, why: &str) -> Vec<Step> {
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

/// Whether no disk can hold data that a machine wrote.
fn is_blank(observed: &Observed) -> bool {
    observed.disks.iter().all(|disk| disk.is_blank)
}

/// The provider has no capacity. A Datacenter has other providers, once nothing of the machine is left here.
fn no_capacity(machine: &Machine, placement: &Placement, observed: &Observed, refusal: &Refusal) -> Decision {
    // Disks may hold data of a machine that was deleted at the provider, so they stay and the Machine with them.
    if !is_placed_by_datacenter(machine) || !is_blank(observed) {
        return Decision::without_steps(Verdict::Blocked(refusal.clone()));
    }

    let mut steps = delete_blank_leftovers(observed, "the provider had no capacity for the machine");
    if steps.is_empty() {
        steps.push(step(Action::ReturnToDatacenter, refusal.message.clone()));
    } else if !is_passed_over_by(machine, placement) {
        // Recorded first: otherwise the same leftovers would be created again once they are deleted.
        steps.insert(0, step(Action::MarkPassedOver, refusal.message.clone()));
    }
    Decision { steps, verdict: Verdict::Waiting(another_provider(refusal)) }
}

/// Brings a machine that exists to its desired state.
fn maintain(
    machine: &Machine,
    placement: &Placement,
    desired: &Desired,
    observed: &Observed,
    backing: &ObservedMachine,
) -> Decision {
    let mut steps: Vec<Step> = claim(machine, placement).into_iter().collect();
    if !backing.is_current {
        steps.push(step(Action::Update(Update::Specification), "the spec has changed"));
    }

    let (switch, mut verdict) = power(desired.power, observed, backing);
    steps.extend(switch);
    if let Some(restart) = restart(machine, backing) {
        steps.push(restart);
        verdict = Verdict::Waiting("the machine to restart".to_owned());
    }
    steps.extend(delete_unused_disks(desired, observed));

    if verdict == Verdict::Settled && !steps.is_empty() {
        verdict = Verdict::Waiting("the change to take effect".to_owned());
    }
    Decision { steps, verdict }
}

/// Compares the desired with the observed power state.
fn power(desired: PowerState, observed: &Observed, backing: &ObservedMachine) -> (Option<Step>, Verdict) {
    let start = || Verdict::Waiting("the machine to start".to_owned());
    let stop = || Verdict::Waiting("the machine to stop".to_owned());
    match (desired, &backing.power) {
        (PowerState::Running, Power::Stopped) => {
            let why = "spec.powerState is Running and the machine is stopped";
            (Some(step(Action::Update(Update::Start), why)), start())
        }
        (PowerState::Stopped, Power::Running | Power::Starting | Power::Failing(_)) => {
            let why = "spec.powerState is Stopped and the machine is running";
            (Some(step(Action::Update(Update::Stop), why)), stop())
        }
        (PowerState::Running, Power::Starting) => (None, start()),
        (_, Power::Stopping) => (None, stop()),
        (PowerState::Running, Power::Failing(why)) => {
            // A backend that knows the cause reports it as a problem, with its own reason.
            let cause = observed.problems.first().map(|problem| problem.refusal().clone());
            (None, Verdict::Blocked(cause.unwrap_or_else(|| refusals::task_failed(why.clone()))))
        }
        (PowerState::Running, Power::Running) | (PowerState::Stopped, Power::Stopped) => {
            (None, Verdict::Settled)
        }
    }
}

/// The restart that the annotation requests, unless it was carried out. A failing machine can be restarted too.
fn restart(machine: &Machine, backing: &ObservedMachine) -> Option<Step> {
    let request = annotation(machine, labels::RESTART_AT)?;
    let is_up = matches!(backing.power, Power::Running | Power::Failing(_));
    let is_done = backing.restarted_for.as_deref() == Some(request);
    (is_up && !is_done).then(|| {
        let restart = Update::Restart { request: request.to_owned() };
        step(Action::Update(restart), format!("requested by the annotation {}", labels::RESTART_AT))
    })
}

/// Deletes the disks that the spec no longer lists, unless they are to be retained.
fn delete_unused_disks(desired: &Desired, observed: &Observed) -> Option<Step> {
    let unused: Vec<&ObservedDisk> = observed
        .disks
        .iter()
        .filter(|disk| !disk.is_attached && disk.reclaim_policy == ReclaimPolicy::Delete)
        .filter(|disk| !is_listed(desired, disk))
        .collect();
    (!unused.is_empty()).then(|| {
        let (action, sizes) = delete_disks(&unused);
        step(action, format!("the spec no longer lists them{sizes}"))
    })
}

/// Returns the deletion of disks, and their sizes as the end of a sentence.
fn delete_disks(disks: &[&ObservedDisk]) -> (Action, String) {
    let names = disks.iter().map(|disk| disk.name.clone()).collect();
    let sizes: Vec<String> = disks.iter().filter_map(|disk| Some(disk.size.as_ref()?.to_string())).collect();
    let sizes = if sizes.is_empty() { String::new() } else { format!(" ({})", sizes.join(", ")) };
    (Action::Delete(Part::Disks(names)), sizes)
}

fn delete(snapshot: &Snapshot<'_>) -> Decision {
    let machine = snapshot.machine;
    if is_held_by_others(machine) {
        let others = machine.metadata.finalizers.as_deref().unwrap_or_default();
        let noun = if others.len() == 1 { "finalizer" } else { "finalizers" };
        let waiting_for = format!("{noun} {} to be removed", others.join(", "));
        return Decision::without_steps(Verdict::Deleting(waiting_for));
    }
    let observed = match snapshot.observed {
        Ok(observed) => observed,
        // Without an answer absence is unknown, and a machine could be left behind.
        Err(refusal) => return Decision::without_steps(Verdict::Unknown(refusal.clone())),
    };

    let deleting = |what: &str| Verdict::Deleting(what.to_owned());
    let volumes: Vec<&ObservedDisk> =
        observed.disks.iter().filter(|disk| disk.reclaim_policy == ReclaimPolicy::Delete).collect();
    let decision = if let Some(task) = &observed.task {
        Decision::without_steps(deleting(task))
    } else if observed.machine.is_some() {
        let verdict = deleting("the provider to delete the machine");
        Decision::one(Action::Delete(Part::Machine), "the Machine is being deleted", verdict)
    } else if !volumes.is_empty() {
        let verdict = deleting("the disks to be deleted");
        let (action, sizes) = delete_disks(&volumes);
        Decision::one(action, &format!("the machine is gone{sizes}"), verdict)
    } else if !observed.leftovers.is_empty() {
        let verdict = deleting("the leftovers to be deleted");
        Decision::one(Action::Delete(Part::Leftovers), "the machine is gone", verdict)
    } else {
        // With nothing left, an earlier failure does not matter any more.
        let verdict = deleting("the Machine to be removed");
        return Decision::one(Action::RemoveFinalizer, "nothing is left at the provider", verdict);
    };
    with_last_failure(decision, observed)
}
