//! The conformance suite detects defects: each backend here breaks one rule on purpose.

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
    conformance::{
        Failure, Fault, Harness, Interleaving, NAMESPACE, Report, Resource, Testbed, interleave, run,
    },
    simulated::{Settings, Simulated, world::Intervention},
};
use vitistack_plan::machine::{Capabilities, Identity, Observed};
use vitistack_types::v1alpha1::Domain;

use crate::{fixture::latency, testbed::SimulatedHarness};

/// A defect of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    IdentifiesByUid,
    IgnoresNamespace,
    DeletesVolumesWithMachine,
    DeletesForeignMachine,
    CreatesOnObserve,
    HidesRestartNeeded,
    HidesFailures,
    NeverClearsFailures,
    IgnoresDomain,
    RestartsEveryTime,
    PrintsSecret,
    ReportsWrongErrorKind,
    IgnoresUpdates,
    LacksFaultInjection,
}

struct DefectiveHarness(Defect, Settings);

struct DefectiveTestbed {
    inner: Box<dyn Testbed>,
    backend: DefectiveBackend,
}

struct DefectiveBackend {
    defect: Defect,
    inner: Simulated,
    calls: AtomicUsize,
    failures: Mutex<BTreeMap<Identity, String>>,
}

#[async_trait]
impl Harness for DefectiveHarness {
    async fn testbed(&self) -> Result<Box<dyn Testbed>, Failure> {
        let testbed = SimulatedHarness(self.1.clone()).start().await?;
        let inner = testbed.process().backend.clone();
        let backend = DefectiveBackend {
            defect: self.0,
            inner,
            calls: AtomicUsize::new(0),
            failures: Mutex::default(),
        };
        Ok(Box::new(DefectiveTestbed { inner: Box::new(testbed), backend }))
    }
}

#[async_trait]
impl Testbed for DefectiveTestbed {
    fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    fn zones(&self) -> Vec<String> {
        self.inner.zones()
    }

    async fn resources(&self) -> Result<Vec<Resource>, Failure> {
        self.inner.resources().await
    }

    async fn settle(&self) -> Result<(), Failure> {
        self.inner.settle().await
    }

    async fn inject(&self, fault: &Fault) -> Result<(), Failure> {
        if self.backend.defect == Defect::LacksFaultInjection {
            return Err(Failure::LackHook { hook: "inject a fault" });
        }
        self.inner.inject(fault).await
    }

    /// Does nothing, because no defect here concerns restarts.
    async fn restart(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

impl DefectiveBackend {
    fn order(&self, order: &Order) -> Order {
        let mut order = order.clone();
        match self.defect {
            Defect::IdentifiesByUid => order.target.identity = Identity::new(order.target.uid.clone()),
            Defect::IgnoresNamespace => {
                NAMESPACE.clone_into(&mut order.target.namespace);
                NAMESPACE.clone_into(&mut order.desired.namespace);
            }
            Defect::IgnoresDomain => order.desired.domain = Domain::default(),
            _ => {}
        }
        order
    }

    fn spoil_error(&self, error: BackendError, order: Option<&Order>) -> BackendError {
        let secret = order.and_then(|order| order.desired.cloud_init.as_ref()?.secret.as_ref());
        match (self.defect, secret) {
            (Defect::ReportsWrongErrorKind, _) => {
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
impl Backend for DefectiveBackend {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn observe(&self, target: &Target, order: Option<&Order>) -> Result<Observed, BackendError> {
        let order = order.map(|order| self.order(order));
        if let (Defect::CreatesOnObserve, Some(order)) = (self.defect, &order) {
            let _ = self.inner.create(order).await;
        }
        let target = order.as_ref().map_or(target, |order| &order.target);
        let mut observed = self.inner.observe(target, order.as_ref()).await;
        if let (Defect::HidesRestartNeeded, Ok(Observed { machine: Some(machine), .. })) =
            (self.defect, &mut observed)
        {
            machine.restart_needed = false;
        }
        match (self.defect, &mut observed) {
            (Defect::HidesFailures, Ok(observed)) => observed.failure = None,
            (Defect::NeverClearsFailures, Ok(observed)) => {
                let mut failures = self.failures.lock().unwrap();
                failures.extend(observed.failure.take().map(|failure| (target.identity.clone(), failure)));
                observed.failure = failures.get(&target.identity).cloned();
            }
            _ => {}
        }
        observed.map_err(|error| self.spoil_error(error, order.as_ref()))
    }

    async fn create(&self, order: &Order) -> Result<Progress, BackendError> {
        let order = self.order(order);
        self.inner.create(&order).await.map_err(|error| self.spoil_error(error, Some(&order)))
    }

    async fn update(&self, order: &Order, update: &Update) -> Result<Progress, BackendError> {
        let order = self.order(order);
        let update = match (self.defect, update) {
            (Defect::RestartsEveryTime, Update::Restart { request }) => {
                let call = self.calls.fetch_add(1, Ordering::SeqCst);
                Update::Restart { request: format!("{request}-{call}") }
            }
            (Defect::IgnoresUpdates, Update::Specification) => Update::Start,
            _ => update.clone(),
        };
        self.inner.update(&order, &update).await.map_err(|error| self.spoil_error(error, Some(&order)))
    }

    async fn delete(&self, target: &Target, part: &Part) -> Result<Progress, BackendError> {
        let progress =
            self.inner.delete(target, part).await.map_err(|error| self.spoil_error(error, None))?;
        if *part == Part::Machine && progress == Progress::Done {
            match self.defect {
                Defect::DeletesVolumesWithMachine => {
                    let disks = vec!["root".to_owned(), "data".to_owned()];
                    self.inner.delete(target, &Part::Disks(disks)).await?;
                }
                Defect::DeletesForeignMachine => {
                    let deletion = Intervention::Delete {
                        namespace: target.namespace.clone(),
                        name: target.name.clone(),
                    };
                    self.inner.intervene(|world, now| world.intervene(now, &deletion)).await?;
                }
                _ => {}
            }
        }
        Ok(progress)
    }
}

fn failed_checks(report: &Report) -> Vec<&'static str> {
    report.results.iter().filter(|(_, result)| result.is_err()).map(|(check, _)| check.name).collect()
}

#[tokio::test]
async fn every_defect_is_detected_by_its_rule() {
    for (defect, rule) in [
        (Defect::IdentifiesByUid, "identity_matters_and_not_the_uid"),
        (Defect::IgnoresNamespace, "other_namespaces_have_no_access"),
        (Defect::DeletesVolumesWithMachine, "volumes_are_deleted_only_on_request"),
        (Defect::DeletesForeignMachine, "replaced_machine_is_not_touched"),
        (Defect::DeletesForeignMachine, "foreign_machine_blocks_creation"),
        (Defect::CreatesOnObserve, "observe_changes_nothing"),
        (Defect::HidesRestartNeeded, "capabilities_are_accurate"),
        (Defect::IgnoresDomain, "every_field_is_honored"),
        (Defect::RestartsEveryTime, "restart_happens_once"),
        (Defect::PrintsSecret, "secrets_are_not_printed"),
        (Defect::ReportsWrongErrorKind, "unreachable_is_reported"),
        (Defect::ReportsWrongErrorKind, "unauthenticated_is_reported"),
        (Defect::ReportsWrongErrorKind, "lost_reply_creates_no_duplicate"),
        (Defect::IgnoresUpdates, "is_current_follows_the_order"),
        (Defect::IgnoresUpdates, "failed_update_can_be_retried"),
        (Defect::LacksFaultInjection, "foreign_volume_blocks_creation"),
    ] {
        let report = run(&DefectiveHarness(defect, Settings::default())).await;
        assert!(failed_checks(&report).contains(&rule), "{defect:?} was not detected by {rule}:\n{report}");
    }
    // Without latency a call reports its failure itself, so these defects need latency.
    for defect in [Defect::HidesFailures, Defect::NeverClearsFailures] {
        let report = run(&DefectiveHarness(defect, latency(5))).await;
        assert!(
            failed_checks(&report).contains(&"failed_task_is_reported"),
            "{defect:?} was not detected:\n{report}"
        );
    }
}

#[tokio::test]
async fn interleavings_detect_defects_and_report_the_seed() {
    for defect in [Defect::DeletesVolumesWithMachine, Defect::DeletesForeignMachine] {
        let mut found = Vec::new();
        for seed in 0..20 {
            let harness = DefectiveHarness(defect, Settings { reuse_ids: true, ..latency(5) });
            let result = interleave(&harness, Interleaving { seed, steps: 60 }).await;
            found.extend(result.err().map(|failure| (seed, failure.to_string())));
        }
        assert!(!found.is_empty(), "{defect:?} was not detected");
        assert!(found.iter().all(|(seed, text)| text.contains(&format!("seed {seed}, "))), "{found:?}");
    }
}
