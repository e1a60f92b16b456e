//! The suite finds what it is there to find: each backend here breaks one rule on purpose.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use vitistack_machine::{
    Backend, BackendError, ErrorKind, Order, Part, Progress, Target, Update,
    conformance::{Bench, Failure, Fault, Harness, Interleaving, NAMESPACE, Report, Thing, interleave, run},
    simulated::{Settings, Simulated, world::Intervention},
};
use vitistack_plan::machine::{Capabilities, Identity, Observed};
use vitistack_types::v1alpha1::Domain;

use crate::{bench::Simulations, fixture::latency};

/// What a backend does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    GoesByUid,
    ForgetsTheNamespace,
    TakesVolumesAlong,
    TakesWhatIsForeign,
    CreatesWhenItLooks,
    KeepsRestartsQuiet,
    KeepsFailuresQuiet,
    KeepsFailuresForEver,
    DropsDomain,
    RestartsEveryTime,
    PrintsSecret,
    CallsEverythingFailed,
    ForgetsToUpdate,
    LacksFaults,
}

struct Sabotage(Defect, Settings);

struct SabotagedBench {
    inner: Box<dyn Bench>,
    backend: Saboteur,
}

struct Saboteur {
    defect: Defect,
    inner: Simulated,
    calls: AtomicUsize,
    failures: Mutex<BTreeMap<Identity, String>>,
}

#[async_trait]
impl Harness for Sabotage {
    async fn fresh(&self) -> Result<Box<dyn Bench>, Failure> {
        let simulation = Simulations(self.1.clone()).simulation().await?;
        let inner = simulation.process().backend.clone();
        let backend =
            Saboteur { defect: self.0, inner, calls: AtomicUsize::new(0), failures: Mutex::default() };
        Ok(Box::new(SabotagedBench { inner: Box::new(simulation), backend }))
    }
}

#[async_trait]
impl Bench for SabotagedBench {
    fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    fn zones(&self) -> Vec<String> {
        self.inner.zones()
    }

    async fn things(&self) -> Result<Vec<Thing>, Failure> {
        self.inner.things().await
    }

    async fn settle(&self) -> Result<(), Failure> {
        self.inner.settle().await
    }

    async fn inject(&self, fault: &Fault) -> Result<(), Failure> {
        if self.backend.defect == Defect::LacksFaults {
            return Err(Failure::LackHook { hook: "inject a fault" });
        }
        self.inner.inject(fault).await
    }

    /// The process of a saboteur never ends: its rules are not about that.
    async fn restart(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

impl Saboteur {
    fn order(&self, order: &Order) -> Order {
        let mut order = order.clone();
        match self.defect {
            Defect::GoesByUid => order.target.identity = Identity::new(order.target.uid.clone()),
            Defect::ForgetsTheNamespace => {
                NAMESPACE.clone_into(&mut order.target.namespace);
                NAMESPACE.clone_into(&mut order.desired.namespace);
            }
            Defect::DropsDomain => order.desired.domain = Domain::default(),
            _ => {}
        }
        order
    }

    fn spoil(&self, error: BackendError, order: Option<&Order>) -> BackendError {
        let secret = order.and_then(|order| order.desired.cloud_init.as_ref()?.secret.as_ref());
        match (self.defect, secret) {
            (Defect::CallsEverythingFailed, _) => {
                BackendError::new(ErrorKind::Failed, error.reason, error.message)
            }
            (Defect::PrintsSecret, Some(secret)) => BackendError::new(
                error.kind,
                error.reason,
                format!("{} with {}", error.message, secret.content.reveal()),
            ),
            _ => error,
        }
    }
}

#[async_trait]
impl Backend for Saboteur {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn observe(&self, target: &Target, order: Option<&Order>) -> Result<Observed, BackendError> {
        let order = order.map(|order| self.order(order));
        if let (Defect::CreatesWhenItLooks, Some(order)) = (self.defect, &order) {
            let _ = self.inner.create(order).await;
        }
        let target = order.as_ref().map_or(target, |order| &order.target);
        let mut observed = self.inner.observe(target, order.as_ref()).await;
        if let (Defect::KeepsRestartsQuiet, Ok(Observed { machine: Some(machine), .. })) =
            (self.defect, &mut observed)
        {
            machine.restart_needed = false;
        }
        match (self.defect, &mut observed) {
            (Defect::KeepsFailuresQuiet, Ok(observed)) => observed.failure = None,
            (Defect::KeepsFailuresForEver, Ok(observed)) => {
                let mut failures = self.failures.lock().unwrap();
                failures.extend(observed.failure.take().map(|failure| (target.identity.clone(), failure)));
                observed.failure = failures.get(&target.identity).cloned();
            }
            _ => {}
        }
        observed.map_err(|error| self.spoil(error, order.as_ref()))
    }

    async fn create(&self, order: &Order) -> Result<Progress, BackendError> {
        let order = self.order(order);
        self.inner.create(&order).await.map_err(|error| self.spoil(error, Some(&order)))
    }

    async fn update(&self, order: &Order, update: &Update) -> Result<Progress, BackendError> {
        let order = self.order(order);
        let update = match (self.defect, update) {
            (Defect::RestartsEveryTime, Update::Restart { request }) => {
                let call = self.calls.fetch_add(1, Ordering::SeqCst);
                Update::Restart { request: format!("{request}-{call}") }
            }
            (Defect::ForgetsToUpdate, Update::Specification) => Update::Start,
            _ => update.clone(),
        };
        self.inner.update(&order, &update).await.map_err(|error| self.spoil(error, Some(&order)))
    }

    async fn delete(&self, target: &Target, part: &Part) -> Result<Progress, BackendError> {
        let own = self.inner.delete(target, part).await.map_err(|error| self.spoil(error, None))?;
        if *part == Part::Machine && own == Progress::Done {
            match self.defect {
                Defect::TakesVolumesAlong => {
                    let disks = vec!["root".to_owned(), "data".to_owned()];
                    self.inner.delete(target, &Part::Disks(disks)).await?;
                }
                Defect::TakesWhatIsForeign => {
                    let gone = Intervention::Delete {
                        namespace: target.namespace.clone(),
                        name: target.name.clone(),
                    };
                    self.inner.intervene(|world, now| world.intervene(now, &gone)).await?;
                }
                _ => {}
            }
        }
        Ok(own)
    }
}

fn broken(report: &Report) -> Vec<&'static str> {
    report.results.iter().filter(|(_, result)| result.is_err()).map(|(check, _)| check.name).collect()
}

#[tokio::test]
async fn every_defect_is_found_by_the_rule_that_is_there_for_it() {
    for (defect, rule) in [
        (Defect::GoesByUid, "identity_counts_and_not_the_uid"),
        (Defect::ForgetsTheNamespace, "other_namespaces_get_nothing"),
        (Defect::TakesVolumesAlong, "volumes_go_only_on_request"),
        (Defect::TakesWhatIsForeign, "delete_hits_no_other_machine"),
        (Defect::TakesWhatIsForeign, "foreign_machine_blocks"),
        (Defect::CreatesWhenItLooks, "observe_changes_nothing"),
        (Defect::KeepsRestartsQuiet, "capabilities_are_honest"),
        (Defect::DropsDomain, "every_field_is_honoured"),
        (Defect::RestartsEveryTime, "restart_happens_once"),
        (Defect::PrintsSecret, "secrets_do_not_print"),
        (Defect::CallsEverythingFailed, "unreachable_is_told"),
        (Defect::CallsEverythingFailed, "unauthenticated_is_told"),
        (Defect::CallsEverythingFailed, "lost_reply_makes_no_second_machine"),
        (Defect::ForgetsToUpdate, "current_follows_the_order"),
        (Defect::ForgetsToUpdate, "failed_update_is_made_good"),
        (Defect::LacksFaults, "foreign_volume_blocks"),
    ] {
        let report = run(&Sabotage(defect, Settings::default())).await;
        assert!(broken(&report).contains(&rule), "{defect:?} was not found by {rule}:\n{report}");
    }
    // What fails at once is told at once: only tasks that take their time can fail unheard.
    for defect in [Defect::KeepsFailuresQuiet, Defect::KeepsFailuresForEver] {
        let report = run(&Sabotage(defect, latency(5))).await;
        assert!(broken(&report).contains(&"failed_task_is_told"), "{defect:?} was not found:\n{report}");
    }
}

#[tokio::test]
async fn random_orders_of_calls_find_defects_too_and_name_the_seed() {
    for defect in [Defect::TakesVolumesAlong, Defect::TakesWhatIsForeign] {
        let mut found = Vec::new();
        for seed in 0..20 {
            let harness = Sabotage(defect, Settings { reuse_ids: true, ..latency(5) });
            let played = interleave(&harness, Interleaving { seed, steps: 60 }).await;
            found.extend(played.err().map(|failure| (seed, failure.to_string())));
        }
        assert!(!found.is_empty(), "{defect:?} was not found");
        assert!(found.iter().all(|(seed, text)| text.contains(&format!("seed {seed}, "))), "{found:?}");
    }
}
