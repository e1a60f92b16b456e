//! The simulated backend keeps the rules of all backends, calm and with everything going wrong.

use vitistack_machine::{
    conformance::{CHECKS, Interleaving, interleave, run},
    simulated::Settings,
};

use crate::{bench::Simulations, fixture::latency};

async fn keeps_every_rule(settings: Settings) {
    let report = run(&Simulations(settings)).await;
    assert_eq!(report.results.len(), CHECKS.len());
    assert!(report.is_clean(), "\n{report}");
}

#[tokio::test]
async fn it_keeps_every_rule_when_all_is_done_at_once() {
    keeps_every_rule(Settings::default()).await;
}

#[tokio::test]
async fn it_keeps_every_rule_when_tasks_take_their_time() {
    keeps_every_rule(latency(5)).await;
}

#[tokio::test]
async fn it_keeps_every_rule_when_ids_are_reused() {
    keeps_every_rule(Settings { reuse_ids: true, ..latency(5) }).await;
}

/// As many seeds as `VITISTACK_SEEDS` says, for long runs; so many if it says nothing or less.
fn seeds(first: u64, count: u64) -> std::ops::Range<u64> {
    let asked = std::env::var("VITISTACK_SEEDS").map_or(0, |asked| asked.parse().unwrap());
    first..first + count.max(asked)
}

/// Runs with seeds of their own; the message of a failure holds the seed that repeats it.
async fn survives(settings: Settings, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let settings = Settings { seed, ..settings.clone() };
        let played = interleave(&Simulations(settings), Interleaving { seed, steps: 60 }).await;
        assert!(played.is_ok(), "{}", played.unwrap_err());
    }
}

#[tokio::test]
async fn no_order_of_calls_and_faults_breaks_a_rule() {
    survives(Settings::default(), seeds(0, 50)).await;
    survives(Settings { reuse_ids: true, ..latency(5) }, seeds(50, 100)).await;
}

#[tokio::test]
async fn no_order_of_calls_breaks_a_rule_while_the_dice_break_things_too() {
    let settings =
        Settings { reuse_ids: true, failed_tasks_percent: 30, lost_replies_percent: 30, ..latency(5) };
    survives(settings, seeds(150, 50)).await;
}
