//! The state behind the probes of the process.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;

use crate::lock::lock;

/// A loop without a heartbeat for this long is stuck. Loops send one every few seconds even when idle.
const STUCK_AFTER: Duration = Duration::from_mins(1);

#[derive(Debug)]
enum Pulse {
    Running(Instant),
    Finished,
    Died,
}

#[derive(Debug, Default)]
struct State {
    readiness: BTreeMap<String, Result<String, String>>,
    pulses: BTreeMap<String, Pulse>,
}

/// The checks of one process.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<State>>);

/// The state of all checks of one sort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whether every check passes.
    pub is_good: bool,
    /// The names of the checks that fail.
    pub failing: Vec<String>,
    /// One line per check: `[+] name: why` or `[-] name: why`. It may contain addresses and errors of other systems.
    pub details: String,
}

impl Health {
    /// Adds a readiness check, which fails until its first report.
    #[must_use]
    pub fn readiness(&self, name: impl Into<String>) -> Readiness {
        let name = name.into();
        lock(&self.0).readiness.insert(name.clone(), Err("not started".to_owned()));
        Readiness { health: self.clone(), name }
    }

    /// Adds a loop that must send heartbeats for the process to be alive.
    #[must_use]
    pub fn heart(&self, name: impl Into<String>, now: Instant) -> Heart {
        let name = name.into();
        lock(&self.0).pulses.insert(name.clone(), Pulse::Running(now));
        Heart { health: self.clone(), name }
    }

    /// Returns whether the process is ready.
    #[must_use]
    pub fn ready(&self) -> Report {
        report(lock(&self.0).readiness.iter().map(|(name, state)| (name.as_str(), state.clone())))
    }

    /// Returns whether the process is alive.
    #[must_use]
    pub fn live(&self, now: Instant) -> Report {
        report(lock(&self.0).pulses.iter().map(|(name, pulse)| (name.as_str(), judge(pulse, now))))
    }
}

/// Returns why a loop is alive, or why it is not.
fn judge(pulse: &Pulse, now: Instant) -> Result<String, String> {
    match pulse {
        Pulse::Finished => Ok("finished".to_owned()),
        Pulse::Died => Err("the task ended unexpectedly".to_owned()),
        Pulse::Running(last) => {
            let silence = now.saturating_duration_since(*last);
            if silence < STUCK_AFTER {
                Ok("running".to_owned())
            } else {
                Err(format!("no heartbeat for {} s", silence.as_secs()))
            }
        }
    }
}

fn report<'a>(checks: impl Iterator<Item = (&'a str, Result<String, String>)>) -> Report {
    let mut report = Report { is_good: true, failing: Vec::new(), details: String::new() };
    for (name, state) in checks {
        let (sign, why) = match state {
            Ok(why) => ('+', why),
            Err(why) => {
                report.is_good = false;
                report.failing.push(name.to_owned());
                ('-', why)
            }
        };
        // Writing to a String cannot fail.
        let _ = writeln!(report.details, "[{sign}] {name}: {why}");
    }
    report
}

/// The handle of a readiness check.
#[derive(Debug)]
pub struct Readiness {
    health: Health,
    name: String,
}

impl Readiness {
    /// Reports that the check passes.
    pub fn pass(&self, why: impl Into<String>) {
        lock(&self.health.0).readiness.insert(self.name.clone(), Ok(why.into()));
    }

    /// Reports that the check fails.
    pub fn fail(&self, why: impl Into<String>) {
        lock(&self.health.0).readiness.insert(self.name.clone(), Err(why.into()));
    }
}

/// The heartbeat of a loop. If it is dropped without [`Heart::finish`], the loop counts as dead.
#[derive(Debug)]
pub struct Heart {
    health: Health,
    name: String,
}

impl Heart {
    /// Reports that the loop is running.
    pub fn beat(&self, now: Instant) {
        self.set(Pulse::Running(now));
    }

    /// Reports that the loop ended as requested.
    pub fn finish(self) {
        self.set(Pulse::Finished);
    }

    fn set(&self, pulse: Pulse) {
        lock(&self.health.0).pulses.insert(self.name.clone(), pulse);
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        if let Some(pulse @ Pulse::Running(_)) = lock(&self.health.0).pulses.get_mut(&self.name) {
            *pulse = Pulse::Died;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_fails_until_it_passes_and_reports_why() {
        let health = Health::default();
        assert!(health.ready().is_good, "no checks: ready");
        let cache = health.readiness("cache widgets");
        assert_eq!(health.ready().details, "[-] cache widgets: not started\n");
        cache.fail("connection refused");
        assert_eq!(
            health.ready(),
            Report {
                is_good: false,
                failing: vec!["cache widgets".to_owned()],
                details: "[-] cache widgets: connection refused\n".to_owned(),
            }
        );
        cache.pass("synced");
        let ready = health.ready();
        assert!(ready.is_good && ready.failing.is_empty());
        assert_eq!(ready.details, "[+] cache widgets: synced\n");
    }

    #[test]
    fn one_failing_check_makes_the_process_unready() {
        let health = Health::default();
        health.readiness("a").pass("fine");
        health.readiness("b").fail("broken");
        let report = health.ready();
        assert!(!report.is_good);
        assert_eq!(report.details, "[+] a: fine\n[-] b: broken\n");
    }

    #[test]
    fn a_loop_without_heartbeats_is_not_alive() {
        let health = Health::default();
        let start = Instant::now();
        let heart = health.heart("controller", start);
        assert!(health.live(start + Duration::from_secs(59)).is_good);
        let stuck = health.live(start + Duration::from_secs(75));
        assert!(!stuck.is_good);
        assert_eq!(stuck.details, "[-] controller: no heartbeat for 75 s\n");
        heart.beat(start + Duration::from_secs(70));
        assert!(health.live(start + Duration::from_secs(75)).is_good);
    }

    #[test]
    fn a_loop_that_ends_by_itself_is_dead_and_one_that_was_stopped_is_not() {
        let health = Health::default();
        let now = Instant::now();
        health.heart("stopped", now).finish();
        assert!(health.live(now).is_good);
        drop(health.heart("panicked", now));
        assert_eq!(
            health.live(now).details,
            "[-] panicked: the task ended unexpectedly\n[+] stopped: finished\n"
        );
    }
}
