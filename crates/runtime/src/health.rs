//! What the process says about itself on its probes.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// A loop that has not turned for so long counts as stuck. Loops turn every few seconds even when idle.
const STUCK_AFTER: Duration = Duration::from_mins(1);

#[derive(Debug)]
enum Pulse {
    Beating(Instant),
    Finished,
    Died,
}

#[derive(Debug, Default)]
struct State {
    readiness: BTreeMap<String, Result<String, String>>,
    pulses: BTreeMap<String, Pulse>,
}

/// The shared book of checks of one process.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<State>>);

/// What a probe answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whether every check passes.
    pub is_good: bool,
    /// One line per check: `[+] name: why` or `[-] name: why`.
    pub text: String,
}

impl Health {
    /// Adds a readiness check, which fails until it is told otherwise.
    #[must_use]
    pub fn readiness(&self, name: impl Into<String>) -> Readiness {
        let name = name.into();
        self.lock().readiness.insert(name.clone(), Err("not started".to_owned()));
        Readiness { health: self.clone(), name }
    }

    /// Adds a loop that has to keep turning for the process to be alive.
    #[must_use]
    pub fn heart(&self, name: impl Into<String>, now: Instant) -> Heart {
        let name = name.into();
        self.lock().pulses.insert(name.clone(), Pulse::Beating(now));
        Heart { health: self.clone(), name }
    }

    /// The answer of `/readyz`.
    #[must_use]
    pub fn ready(&self) -> Report {
        report(self.lock().readiness.iter().map(|(name, state)| (name.as_str(), state.clone())))
    }

    /// The answer of `/healthz`.
    #[must_use]
    pub fn live(&self, now: Instant) -> Report {
        report(self.lock().pulses.iter().map(|(name, pulse)| (name.as_str(), judge(pulse, now))))
    }

    // A panic while holding the lock leaves plain data behind, which is still true.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn judge(pulse: &Pulse, now: Instant) -> Result<String, String> {
    match pulse {
        Pulse::Finished => Ok("finished".to_owned()),
        Pulse::Died => Err("its task died".to_owned()),
        Pulse::Beating(last) => {
            let silence = now.saturating_duration_since(*last);
            if silence < STUCK_AFTER {
                Ok("turning".to_owned())
            } else {
                Err(format!("has not turned for {} s", silence.as_secs()))
            }
        }
    }
}

fn report<'a>(checks: impl Iterator<Item = (&'a str, Result<String, String>)>) -> Report {
    let mut report = Report { is_good: true, text: String::new() };
    for (name, state) in checks {
        let (sign, why) = match state {
            Ok(why) => ('+', why),
            Err(why) => {
                report.is_good = false;
                ('-', why)
            }
        };
        // Writing to a String cannot fail.
        let _ = writeln!(report.text, "[{sign}] {name}: {why}");
    }
    report
}

/// The handle by which the owner of a readiness check reports.
#[derive(Debug)]
pub struct Readiness {
    health: Health,
    name: String,
}

impl Readiness {
    /// The check passes.
    pub fn pass(&self, why: impl Into<String>) {
        self.health.lock().readiness.insert(self.name.clone(), Ok(why.into()));
    }

    /// The check fails.
    pub fn fail(&self, why: impl Into<String>) {
        self.health.lock().readiness.insert(self.name.clone(), Err(why.into()));
    }
}

/// The handle by which a loop says that it turns. Dropped without [`Heart::finish`], the loop counts as dead.
#[derive(Debug)]
pub struct Heart {
    health: Health,
    name: String,
}

impl Heart {
    /// The loop turned.
    pub fn beat(&self, now: Instant) {
        self.set(Pulse::Beating(now));
    }

    /// The loop ended because it was asked to.
    pub fn finish(self) {
        self.set(Pulse::Finished);
    }

    fn set(&self, pulse: Pulse) {
        self.health.lock().pulses.insert(self.name.clone(), pulse);
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        if let Some(pulse @ Pulse::Beating(_)) = self.health.lock().pulses.get_mut(&self.name) {
            *pulse = Pulse::Died;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_fails_until_it_passes_and_says_why() {
        let health = Health::default();
        assert!(health.ready().is_good, "nothing to check is ready");
        let cache = health.readiness("cache widgets");
        assert_eq!(health.ready().text, "[-] cache widgets: not started\n");
        cache.fail("connection refused");
        assert_eq!(
            health.ready(),
            Report { is_good: false, text: "[-] cache widgets: connection refused\n".into() }
        );
        cache.pass("synced");
        assert_eq!(health.ready(), Report { is_good: true, text: "[+] cache widgets: synced\n".into() });
    }

    #[test]
    fn one_failing_check_is_enough() {
        let health = Health::default();
        health.readiness("a").pass("fine");
        health.readiness("b").fail("broken");
        let report = health.ready();
        assert!(!report.is_good);
        assert_eq!(report.text, "[+] a: fine\n[-] b: broken\n");
    }

    #[test]
    fn a_loop_that_stops_turning_is_not_alive() {
        let health = Health::default();
        let start = Instant::now();
        let heart = health.heart("controller", start);
        assert!(health.live(start + Duration::from_secs(59)).is_good);
        let stuck = health.live(start + Duration::from_secs(75));
        assert_eq!(
            stuck,
            Report { is_good: false, text: "[-] controller: has not turned for 75 s\n".into() }
        );
        heart.beat(start + Duration::from_secs(70));
        assert!(health.live(start + Duration::from_secs(75)).is_good);
    }

    #[test]
    fn a_loop_that_ends_by_itself_is_dead_and_one_that_was_asked_is_not() {
        let health = Health::default();
        let now = Instant::now();
        health.heart("asked", now).finish();
        assert!(health.live(now).is_good);
        drop(health.heart("panicked", now));
        assert_eq!(health.live(now).text, "[+] asked: finished\n[-] panicked: its task died\n");
    }
}
