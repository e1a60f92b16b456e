//! The operator of one type of provider: makes the machines that Machines on its providers ask for, and keeps them so.

mod act;
mod configuration;
mod load;
mod provider;
mod report;
mod series;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures::{StreamExt, stream};
use kube::{ResourceExt, runtime::reflector::ObjectRef};
use tokio::{sync::mpsc, time::Instant};
use vitistack_clients::kubernetes::explain;
use vitistack_machine::{Backend, BackendError, ErrorKind};
use vitistack_plan::{
    Refusal,
    machine::{Decision, Desired, Observed, Snapshot, Verdict, decide, is_let_go},
};
use vitistack_runtime::{
    Controller, Lane, Outcome, Process, ReconcileError, Reconciler, Urgency, events::Events,
};
use vitistack_types::{
    conditions::reason,
    v1alpha1::{Machine, MachinePhase},
};

use self::{
    act::{Acted, Hands, StepError},
    configuration::ConfigurationReconciler,
    load::{
        Charge, UNPLACED, changed_word, class_word, network_word, order, provider_word, refused_fields,
        secret_word, target,
    },
    provider::ProviderReconciler,
    series::Series,
};
use crate::{
    Caches, Index,
    backends::{Backends, Changed, News, Opener},
    caches::reference,
};

/// The name under which fields of Machines are written. One for all operators, because a Machine's status is told by one
/// of them at a time.
pub const FIELD_MANAGER: &str = "vitistack-machine";

/// How often a Machine is decided about in one go: making, looking, and once more for what only then can be done.
const ROUNDS: usize = 6;

/// How long a provider may be silent before its machines say so: a watch that breaks is back in a moment, and a word of
/// it on every machine would be noise.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest time until something that is waited for is looked at without an event.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// The time until a provider that refused is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// Settings of an operator for one type of provider.
pub struct MachineOperator {
    /// Name of the operator.
    pub name: &'static str,
    /// Opens its backends.
    pub opener: Arc<dyn Opener>,
    /// Whether the cluster itself takes Machines as long as there is no MachineProvider, by whichever operator: two that
    /// disagree would each tell something else of one Machine, for ever.
    pub is_own_cluster_offered: bool,
    /// Whether it tells of Machines that nobody can act on.
    pub tells_homeless: bool,
}

impl MachineOperator {
    /// Adds the operator to a process.
    pub fn add(self, process: &mut Process, caches: &Caches) {
        let (backends, news) = Backends::new(self.opener);
        let index = Index::new(&caches.machines, load::words);
        let series = Series::register(process.series(self.name), caches);
        let mut operator = process.operator(self.name);
        let reconciler = MachineReconciler {
            caches: caches.clone(),
            backends: backends.clone(),
            index: index.clone(),
            events: operator.events(),
            series,
            is_own_cluster_offered: self.is_own_cluster_offered,
            tells_homeless: self.tells_homeless,
            silent_since: Mutex::default(),
            written: Mutex::default(),
        };
        let providers = ProviderReconciler::new(caches, &backends, self.is_own_cluster_offered);
        operator.control(providers.controller());
        let configurations = || ConfigurationReconciler(caches.clone());
        operator.control(Controller::new("MachineClass", &caches.classes, configurations()));
        operator.control(Controller::new("NetworkConfiguration", &caches.networks, configurations()));
        operator.control(controller(reconciler, caches, &index, news));
        process.add(operator);
    }
}

/// The controller and everything that wakes it.
fn controller(
    reconciler: MachineReconciler,
    caches: &Caches,
    index: &Index<Machine>,
    news: mpsc::UnboundedReceiver<News>,
) -> Controller<Machine> {
    let find = |index: &Index<Machine>| {
        let index = index.clone();
        move |word: &str| index.get(word)
    };
    let (by_network, by_class, by_secret, by_provider, by_datacenter) =
        (find(index), find(index), find(index), find(index), find(index));
    let by_news = index.clone();
    let woken = stream::unfold(news, |mut news| async { Some((news.recv().await?, news)) }).flat_map(
        move |(provider, changed)| {
            let urgency = if changed == Changed::Back { Urgency::Change } else { Urgency::Event };
            let machines = match changed {
                Changed::One(identity) => by_news.get(&changed_word(&identity)),
                Changed::All | Changed::Back => {
                    [by_news.get(&provider_word(&provider)), by_news.get(UNPLACED)].concat()
                }
            };
            stream::iter(machines.into_iter().map(move |machine| (machine, urgency)))
        },
    );
    Controller::new("Machine", &caches.machines, reconciler)
        .watches(&caches.networks, move |network| {
            by_network(&network_word(&network.namespace().unwrap_or_default(), &network.name_any()))
        })
        .watches(&caches.classes, move |class| by_class(&class_word(&class.name_any())))
        .watches(caches.secrets.metadata(), move |secret| {
            let metadata = &secret.metadata;
            by_secret(&secret_word(
                metadata.namespace.as_deref().unwrap_or_default(),
                metadata.name.as_deref().unwrap_or_default(),
            ))
        })
        .watches(&caches.providers, move |provider| {
            let name = format!("{}/{}", provider.namespace().unwrap_or_default(), provider.name_any());
            [by_provider(&provider_word(&name)), by_provider(UNPLACED)].concat()
        })
        .watches(&caches.datacenters, move |_| by_datacenter(UNPLACED))
        .woken_by(woken)
}

/// What acts on Machines.
struct MachineReconciler {
    caches: Caches,
    backends: Backends,
    index: Index<Machine>,
    events: Events,
    series: Series,
    is_own_cluster_offered: bool,
    tells_homeless: bool,
    /// Since when the provider of a Machine cannot be asked.
    silent_since: Mutex<HashMap<ObjectRef<Machine>, Instant>>,
    /// The versions that were written and may not be in the cache yet, by UID: what is older is the past, and a machine that
    /// was just given back must not be made from it.
    written: Mutex<HashMap<String, u64>>,
}

#[async_trait]
impl Reconciler<Machine> for MachineReconciler {
    fn lane(&self, machine: &Machine) -> Lane {
        let status = machine.status.as_ref();
        let is_settled = status.is_some_and(|status| {
            status.observed_generation == machine.metadata.generation
                && matches!(status.phase, Some(MachinePhase::Running | MachinePhase::Stopped))
        });
        if machine.metadata.deletion_timestamp.is_some() {
            Lane::Delete
        } else if is_settled {
            Lane::Observe
        } else {
            Lane::Create
        }
    }

    async fn reconcile(&self, machine: Arc<Machine>) -> Result<Outcome, ReconcileError> {
        if self.is_past(&machine) {
            return Ok(outdated());
        }
        match self.charge(&machine) {
            Charge::Others => {
                self.series.forget(&machine);
                Ok(Outcome::Done)
            }
            Charge::Nobody(_) if !self.tells_homeless => Ok(Outcome::Done),
            _ if is_let_go(&machine) => self.see_off(&machine).await,
            Charge::Nobody(refusal) => self.refuse(&machine, refusal).await,
            Charge::Ours(placement) => match self.backends.get(&placement) {
                // It is being opened, and tells when it is; saying so on every machine at every start would be noise.
                None => {
                    Ok(Outcome::Wait { waiting_for: format!("{placement} to be opened"), after: LOOK_AGAIN })
                }
                Some(backend) => self.keep(Machine::clone(&machine), &placement, backend).await,
            },
        }
    }

    fn rest(&self) {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.silent_since.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// What was found out about a Machine in one round.
struct Round {
    observed: Result<Observed, Refusal>,
    decision: Decision,
    no_room: Option<Refusal>,
    leaving: Option<Refusal>,
}

impl MachineReconciler {
    /// Whether the cache has not caught up with what was written to the Machine.
    fn is_past(&self, machine: &Machine) -> bool {
        let (Some(uid), Some(version)) = (&machine.metadata.uid, version(machine)) else { return false };
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        match written.get(uid) {
            Some(known) if version < *known => true,
            Some(_) => {
                written.remove(uid);
                false
            }
            None => false,
        }
    }

    /// Notes what was written.
    fn wrote(&self, machine: &Machine) {
        if let (Some(uid), Some(version)) = (machine.metadata.uid.clone(), version(machine)) {
            self.written.lock().unwrap_or_else(PoisonError::into_inner).insert(uid, version);
        }
    }

    /// Tells why nobody can act on the Machine.
    async fn refuse(&self, machine: &Machine, refusal: Refusal) -> Result<Outcome, ReconcileError> {
        let snapshot = Snapshot {
            machine,
            desired: Err(&refusal),
            observed: Err(&refusal),
            twin: None,
            placement: vitistack_plan::machine::placement(machine).unwrap_or_default(),
            no_room: None,
            leaving: None,
        };
        self.report(&snapshot, &Verdict::Blocked(refusal.clone()), &[], (self.caches.clock)()).await?;
        Ok(blocked(&refusal))
    }

    /// Tells who holds a Machine of which nothing is left. No provider is asked, and whoever lets it go is heard of.
    async fn see_off(&self, machine: &Machine) -> Result<Outcome, ReconcileError> {
        let (desired, observed) = (Err(leaving()), Ok(Observed::default()));
        let twin = self.twin(machine);
        let placement = vitistack_plan::machine::placement(machine).unwrap_or_default();
        let snapshot = snapshot(machine, &desired, &observed, twin.as_deref(), placement, [None, None]);
        self.report(&snapshot, &decide(&snapshot).verdict, &[], (self.caches.clock)()).await?;
        Ok(Outcome::Done)
    }

    /// Looks, decides, acts and looks again, as long as there is something that can be done now.
    async fn keep(
        &self,
        mut machine: Machine,
        placement: &str,
        backend: Result<Arc<dyn Backend>, Refusal>,
    ) -> Result<Outcome, ReconcileError> {
        let now = (self.caches.clock)();
        let is_leaving = machine.metadata.deletion_timestamp.is_some();
        let desired = if is_leaving { Err(leaving()) } else { self.desired(&machine).await? };
        let target = target(&machine);
        let order = order(&target, &desired);
        let twin = self.twin(&machine);
        let refused = match (&desired, &backend) {
            (Ok(desired), Ok(backend)) => refused_fields(&machine, desired, &backend.capabilities()),
            _ => Vec::new(),
        };
        let mut no_room = None;
        let mut leaving = self.leaves(placement).then(|| act::leaving(placement));
        let mut is_confirmed = false;
        let mut failure = None;
        let mut round = None;
        for _ in 0..ROUNDS {
            let observed = match &backend {
                Ok(backend) => backend.observe(&target, order.as_ref()).await.map_err(refusal),
                Err(refusal) => Err(refusal.clone()),
            };
            let decision = decide(&snapshot(
                &machine,
                &desired,
                &observed,
                twin.as_deref(),
                placement,
                [no_room.as_ref(), leaving.as_ref()],
            ));
            let Some(backend) = backend.as_ref().ok().filter(|_| !decision.steps.is_empty()) else {
                round = Some(Round { observed, decision, no_room, leaving });
                break;
            };
            let hands =
                Hands { backend: backend.as_ref(), target: &target, order: order.as_ref(), placement, now };
            let acted = self.act(&mut machine, &decision.steps, &hands, &mut is_confirmed).await;
            self.tell_steps(&machine, &decision.steps).await;
            let steps_left = match acted {
                Ok(Acted::Ended) => {
                    self.series.forget(&machine);
                    return Ok(Outcome::Done);
                }
                Ok(acted) => matches!(acted, Acted::Done),
                Err(StepError::Outdated) => return Ok(outdated()),
                Err(StepError::Write(error)) => {
                    return Err(ReconcileError::new("WriteMachine", explain(&error)));
                }
                Err(StepError::ReadMachine(error)) => {
                    return Err(ReconcileError::new("ReadMachine", explain(&error)));
                }
                Err(StepError::ReadProvider(error)) => {
                    return Err(ReconcileError::new("ReadProvider", explain(&error)));
                }
                Err(StepError::Provider(error))
                    if error.kind == ErrorKind::NoCapacity && no_room.is_none() =>
                {
                    no_room = Some(refusal(error));
                    true
                }
                Err(StepError::ProviderLeaves(refusal)) => {
                    leaving = Some(refusal);
                    true
                }
                Err(StepError::Provider(error)) => {
                    failure = Some(error);
                    false
                }
            };
            round = Some(Round { observed, decision, no_room: no_room.clone(), leaving: leaving.clone() });
            if !steps_left {
                break;
            }
        }
        let Some(round) = round else { return Ok(outdated()) };
        self.conclude(&machine, &desired, twin.as_deref(), placement, &refused, round, failure).await
    }

    /// Tells how it ended.
    #[expect(clippy::too_many_arguments, reason = "everything that was read of one Machine, for one report")]
    async fn conclude(
        &self,
        machine: &Machine,
        desired: &Result<Desired, Refusal>,
        twin: Option<&str>,
        placement: &str,
        refused: &[String],
        round: Round,
        failure: Option<BackendError>,
    ) -> Result<Outcome, ReconcileError> {
        let Round { observed, decision, no_room, leaving } = round;
        // A create that found no room was an attempt too, and is made again.
        let full = no_room.as_ref().map(|_| ErrorKind::NoCapacity);
        let kind = failure.as_ref().map(|failure| failure.kind).or(full);
        let verdict = match failure {
            None => decision.verdict,
            Some(error) if error.kind == ErrorKind::Refused || error.kind == ErrorKind::NoCapacity => {
                Verdict::Blocked(refusal(error))
            }
            Some(error) => Verdict::Unknown(refusal(error)),
        };
        let is_quiet = self.is_quiet(machine, &verdict);
        if !is_quiet {
            let stops = [no_room.as_ref(), leaving.as_ref()];
            let snapshot = snapshot(machine, desired, &observed, twin, placement, stops);
            self.report(&snapshot, &verdict, refused, (self.caches.clock)()).await?;
        }
        outcome(&verdict, kind)
    }

    /// Whether a provider is on its way out, as far as the cache shows.
    fn leaves(&self, placement: &str) -> bool {
        let provider = reference(placement).and_then(|key| self.caches.providers.get(&key));
        provider.is_some_and(|provider| provider.metadata.deletion_timestamp.is_some())
    }

    /// Whether a provider's silence is too short to be told.
    fn is_quiet(&self, machine: &Machine, verdict: &Verdict) -> bool {
        let key = ObjectRef::from_obj(machine);
        let mut silent = self.silent_since.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(verdict, Verdict::Unknown(_)) {
            silent.remove(&key);
            return false;
        }
        let since = *silent.entry(key).or_insert_with(Instant::now);
        machine.status.is_some() && since.elapsed() < PATIENCE
    }
}

/// The version of a Machine as a number, which it is in every server that we know.
fn version(machine: &Machine) -> Option<u64> {
    machine.metadata.resource_version.as_deref()?.parse().ok()
}

fn snapshot<'a>(
    machine: &'a Machine,
    desired: &'a Result<Desired, Refusal>,
    observed: &'a Result<Observed, Refusal>,
    twin: Option<&'a str>,
    placement: &'a str,
    [no_room, leaving]: [Option<&'a Refusal>; 2],
) -> Snapshot<'a> {
    let (desired, observed) = (desired.as_ref(), observed.as_ref());
    Snapshot { machine, desired, observed, twin, placement, no_room, leaving }
}

fn refusal(error: BackendError) -> Refusal {
    Refusal::new(error.reason, error.message)
}

/// Stands for what a Machine that leaves shall be: nothing.
fn leaving() -> Refusal {
    Refusal::new(reason::DELETING, "the Machine is deleted")
}

fn outdated() -> Outcome {
    Outcome::Wait { waiting_for: "the Machine as it is now".to_owned(), after: Duration::from_secs(1) }
}

fn blocked(refusal: &Refusal) -> Outcome {
    Outcome::Blocked { reason: refusal.reason.to_owned(), fix: refusal.message.clone() }
}

fn outcome(verdict: &Verdict, failure: Option<ErrorKind>) -> Result<Outcome, ReconcileError> {
    let wait = |what: &String| Ok(Outcome::Wait { waiting_for: what.clone(), after: LOOK_AGAIN });
    // Tried again, ever less often, and counted by its reason.
    let fail = |refusal: &Refusal| ReconcileError::new(refusal.reason, refusal.message.clone());
    match verdict {
        Verdict::Settled | Verdict::Paused => Ok(Outcome::Done),
        Verdict::Waiting(what) | Verdict::Deleting(what) => wait(what),
        Verdict::Unknown(refusal) | Verdict::Failing(refusal) => Err(fail(refusal)),
        // No room and a refusal may end without any change here: a quota that was raised tells nobody.
        Verdict::Blocked(refusal) if failure.is_some() => Err(fail(refusal).again_after(ASK_AGAIN)),
        // One that was found full before anything was asked of it is looked at again; that is no failure.
        Verdict::Blocked(refusal) if refusal.reason == reason::INSUFFICIENT_RESOURCES => {
            Ok(Outcome::Wait { waiting_for: refusal.message.clone(), after: ASK_AGAIN })
        }
        Verdict::Blocked(refusal) => Ok(blocked(refusal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_for_which_there_is_no_room_is_looked_at_again_by_itself() {
        let full = Verdict::Blocked(Refusal::new(reason::INSUFFICIENT_RESOURCES, "no room"));
        let found_full = outcome(&full, None).unwrap();
        assert!(matches!(found_full, Outcome::Wait { after: ASK_AGAIN, .. }), "{found_full:?}");
        assert!(outcome(&full, Some(ErrorKind::NoCapacity)).is_err(), "an attempt that failed");
        let wrong = Verdict::Blocked(Refusal::new(reason::INVALID_SPEC, "wrong"));
        assert!(matches!(outcome(&wrong, None), Ok(Outcome::Blocked { .. })), "somebody has to change it");
    }
}
