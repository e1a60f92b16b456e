//! The simulated backend passes the conformance suite, with and without random faults.

use vitistack_machine::{
    conformance::{CHECKS, Interleaving, interleave, run},
    simulated::Settings,
};

use crate::{fixture::latency, testbed::SimulatedHarness};

async fn passes_every_check(settings: Settings) {
    let report = run(&SimulatedHarness(settings)).await;
    assert_eq!(report.results.len(), CHECKS.len());
    assert!(report.is_clean(), "\n{report}");
}

#[tokio::test]
async fn it_passes_every_check_without_latency() {
    passes_every_check(Settings::default()).await;
}

#[tokio::test]
async fn it_passes_every_check_with_latency() {
    passes_every_check(latency(5)).await;
}

#[tokio::test]
async fn it_passes_every_check_with_reused_ids() {
    passes_every_check(Settings { reuse_ids: true, ..latency(5) }).await;
}

/// Returns `count` seeds, or the number in `VITISTACK_SEEDS` if that is larger, for long runs.
fn seeds(first: u64, count: u64) -> std::ops::Range<u64> {
    let requested = std::env::var("VITISTACK_SEEDS").map_or(0, |text| text.parse().unwrap());
    first..first + count.max(requested)
}

/// Runs the interleaving with each seed; a failure message contains the seed that repeats it.
async fn survives(settings: Settings, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let settings = Settings { seed, ..settings.clone() };
        let result = interleave(&SimulatedHarness(settings), Interleaving { seed, steps: 60 }).await;
        assert!(result.is_ok(), "{}", result.unwrap_err());
    }
}

#[tokio::test]
async fn no_order_of_calls_and_faults_breaks_a_rule() {
    survives(Settings::default(), seeds(0, 50)).await;
    survives(Settings { reuse_ids: true, ..latency(5) }, seeds(50, 100)).await;
}

#[tokio::test]
async fn no_order_of_calls_breaks_a_rule_with_random_faults() {
    let settings =
        Settings { reuse_ids: true, failed_tasks_percent: 30, lost_replies_percent: 30, ..latency(5) };
    survives(settings, seeds(150, 50)).await;
}
