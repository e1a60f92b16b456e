//! Whatever goes wrong on the way, the end is that of a calm run.

#![expect(clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

mod check;
mod gate;
mod life;
mod plan;
mod play;
mod process;
mod provider;
mod random;
mod scenario;
mod scene;
mod store;
mod stories;
mod witness;

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
    check::State,
    plan::Plan,
    play::{House, Play},
    scenario::Scenario,
};

/// So many plans share one scenario, and with it one calm run.
const PLANS_PER_SCENARIO: u64 = 20;

fn variable(name: &str) -> Option<u64> {
    env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

/// Runs work in a runtime whose clock stands still while anybody has something to do.
fn play<R>(work: impl Future<Output = R>) -> R {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(work)
}

/// The calm play of a scenario: how things stood each time they had settled.
async fn calm(house: &House, scenario: &Scenario) -> Result<Play, String> {
    let play = house.play(scenario, &Plan::calm(), None).await;
    match &play.problem {
        None => Ok(play),
        Some(problem) => Err(format!("the calm play fails: {problem}\n{}", play.story.join("\n"))),
    }
}

/// A house, and the calm plays that were seen in it.
struct Company {
    house: House,
    calm: HashMap<u64, Vec<State>>,
}

impl Company {
    async fn new() -> Self {
        Self { house: House::new().await, calm: HashMap::new() }
    }

    /// Plays the plan of a seed; the error is the whole story.
    async fn play(&mut self, seed: u64) -> Result<Vec<String>, String> {
        let played = AssertUnwindSafe(self.play_out(seed)).catch_unwind().await;
        played.unwrap_or_else(|_| Err(format!("VITISTACK_FAULT_SEED={seed} panics, as is told above")))
    }

    async fn play_out(&mut self, seed: u64) -> Result<Vec<String>, String> {
        let of = seed / PLANS_PER_SCENARIO;
        let scenario = Scenario::new(of);
        if !self.calm.contains_key(&of) {
            let calm = calm(&self.house, &scenario).await.map_err(|told| format!("scenario {of}: {told}"))?;
            self.calm.insert(of, calm.settled);
        }
        let plan = Plan::new(seed);
        let played = self.house.play(&scenario, &plan, Some(&self.calm[&of])).await;
        match played.problem {
            None => Ok(played.story),
            Some(problem) => Err(format!(
                "VITISTACK_FAULT_SEED={seed} plays it again\n{plan}{}\n\n{problem}\n",
                played.story.join("\n")
            )),
        }
    }
}

#[test]
fn plans_of_mixed_faults_end_as_the_calm_run_does() {
    if let Some(seed) = variable("VITISTACK_FAULT_SEED") {
        let story = play(async { Company::new().await.play(seed).await });
        let story = story.unwrap_or_else(|story| panic!("{story}"));
        writeln!(stderr(), "{}{}\nit ends well", Plan::new(seed), story.join("\n")).unwrap();
        return;
    }
    let first = variable("VITISTACK_FAULT_FIRST").unwrap_or_default();
    let count = variable("VITISTACK_FAULT_PLANS").unwrap_or(1_000);
    // Whole scenarios, so that each is played calmly once.
    let next = AtomicU64::new(first / PLANS_PER_SCENARIO);
    let failures: Mutex<Vec<String>> = Mutex::default();
    let threads = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                play(async {
                    let mut company = Company::new().await;
                    loop {
                        let from = next.fetch_add(1, Ordering::SeqCst) * PLANS_PER_SCENARIO;
                        let until = (from + PLANS_PER_SCENARIO).min(first + count);
                        if from >= until || !failures.lock().unwrap().is_empty() {
                            return;
                        }
                        for seed in from..until {
                            if let Err(story) = company.play(seed).await {
                                failures.lock().unwrap().push(story);
                                return;
                            }
                        }
                        company.calm.clear();
                    }
                });
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{} plans went wrong, the first:\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}
