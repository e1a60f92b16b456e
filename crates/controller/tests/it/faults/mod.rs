//! Fault plans: whatever fails on the way, the operators end in the state of the fault-free run.
//!
//! `README.md` in this folder explains the framework, how to replay a seed and how to extend it.

#![expect(clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

mod api_faults;
mod checked_store;
mod context;
mod control_plane;
mod crash_points;
mod incarnation;
mod invariants;
mod plan;
mod process;
mod provider_faults;
mod random;
mod run;
mod scenario;
mod settled_state;

use std::{
    collections::HashMap,
    env,
    io::{Write, stderr},
    panic::AssertUnwindSafe,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use futures::FutureExt;
use tokio::runtime::Builder;

use self::{
    control_plane::{ControlPlane, RunResult},
    plan::Plan,
    scenario::Scenario,
    settled_state::SettledState,
};

/// The number of plans that share one scenario, and with it one fault-free run.
const PLANS_PER_SCENARIO: u64 = 20;

/// Returns the value of a numeric environment variable, if it is set.
fn variable(name: &str) -> Option<u64> {
    env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

/// Runs a future on a runtime whose clock advances only while every task is idle.
fn with_paused_clock<R>(work: impl Future<Output = R>) -> R {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(work)
}

/// Runs a scenario without faults. Its settled states are what every plan of the scenario is compared with.
async fn fault_free_run(control_plane: &ControlPlane, scenario: &Scenario) -> Result<RunResult, String> {
    let result = control_plane.run(scenario, &Plan::fault_free(), None).await;
    match &result.problem {
        None => Ok(result),
        Some(problem) => Err(format!("the fault-free run fails: {problem}\n{}", result.log.join("\n"))),
    }
}

/// Runs plans on one control plane and remembers the fault-free runs of their scenarios.
struct PlanRunner {
    control_plane: ControlPlane,
    /// The settled states of the fault-free runs, by scenario seed.
    expected: HashMap<u64, Vec<SettledState>>,
}

impl PlanRunner {
    async fn new() -> Self {
        Self { control_plane: ControlPlane::new().await, expected: HashMap::new() }
    }

    /// Runs the plan of a seed and returns its log; the error holds the plan, the log and the problem.
    async fn run(&mut self, seed: u64) -> Result<Vec<String>, String> {
        let result = AssertUnwindSafe(self.run_plan(seed)).catch_unwind().await;
        result.unwrap_or_else(|_| Err(format!("VITISTACK_FAULT_SEED={seed} panics, see the message above")))
    }

    async fn run_plan(&mut self, seed: u64) -> Result<Vec<String>, String> {
        let scenario_seed = seed / PLANS_PER_SCENARIO;
        let scenario = Scenario::new(scenario_seed);
        if !self.expected.contains_key(&scenario_seed) {
            let result = fault_free_run(&self.control_plane, &scenario).await;
            let result = result.map_err(|problem| format!("scenario {scenario_seed}: {problem}"))?;
            self.expected.insert(scenario_seed, result.settled);
        }

        let plan = Plan::new(seed);
        let result = self.control_plane.run(&scenario, &plan, Some(&self.expected[&scenario_seed])).await;
        match result.problem {
            None => Ok(result.log),
            Some(problem) => Err(format!(
                "replay with VITISTACK_FAULT_SEED={seed}\n{plan}{}\n\n{problem}\n",
                result.log.join("\n")
            )),
        }
    }
}

/// Runs the plans `first..first + count` on every core until one fails, and returns the failures.
fn run_plans(first: u64, count: u64) -> Vec<String> {
    // Each thread takes whole scenarios, so that the fault-free run of a scenario happens once.
    let next = AtomicU64::new(first / PLANS_PER_SCENARIO);
    let failures: Mutex<Vec<String>> = Mutex::default();
    let threads = thread::available_parallelism().map_or(2, usize::from);

    let work = async || {
        let mut runner = PlanRunner::new().await;
        loop {
            let from = next.fetch_add(1, Ordering::SeqCst) * PLANS_PER_SCENARIO;
            let until = (from + PLANS_PER_SCENARIO).min(first + count);
            if from >= until || !failures.lock().unwrap().is_empty() {
                return;
            }

            for seed in from..until {
                if let Err(failure) = runner.run(seed).await {
                    failures.lock().unwrap().push(failure);
                    return;
                }
            }
            runner.expected.clear();
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| with_paused_clock(work()));
        }
    });

    failures.into_inner().unwrap()
}

#[test]
fn plans_of_mixed_faults_end_in_the_fault_free_state() {
    if let Some(seed) = variable("VITISTACK_FAULT_SEED") {
        let log = with_paused_clock(async { PlanRunner::new().await.run(seed).await });
        let log = log.unwrap_or_else(|failure| panic!("{failure}"));
        writeln!(stderr(), "{}{}\nthe plan passes", Plan::new(seed), log.join("\n")).unwrap();
        return;
    }

    let first = variable("VITISTACK_FAULT_FIRST").unwrap_or_default();
    // One plan in ten is a plan of the disk, in `crates/apiserver/tests/it/disk_plans`.
    let count = variable("VITISTACK_FAULT_PLANS").unwrap_or(1_000).div_ceil(10) * 9;
    let failures = run_plans(first, count);
    assert!(failures.is_empty(), "{} plans failed:\n{}", failures.len(), failures.join("\n\n"));
}
