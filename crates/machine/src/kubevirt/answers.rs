//! What was answered and what was not, so that nothing is taken for absent that was asked for.
//!
//! Whoever lets a Machine go asks the cluster itself whether anything is left of it: a cache may lag, and a watch that is cut
//! unnoticed stays silent for minutes. A server answers a list at once if it need not be newer than a version that it told
//! before, and makes sure of having the newest otherwise, which takes a tenth of a second. What was answered is at most as new
//! as the newest version that was told; only what was asked and not answered may be newer. Such a request takes effect within
//! the time that a server gives it, or never, whoever asked.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::core::DynamicObject;
use tokio::time::Instant;
use vitistack_plan::machine::Identity;

use super::kind::Kind;
use crate::{BackendError, ErrorKind};

/// An API server gives a request a minute; as long again is for its own caches.
const HORIZON: Duration = Duration::from_mins(2);

/// What became of the requests to one cluster.
pub struct Answers {
    /// When this process began to act here: others may have asked for anything until then.
    opened: Instant,
    unheard: Mutex<HashMap<Identity, Instant>>,
    newest: Mutex<HashMap<Kind, u64>>,
}

impl Answers {
    /// Nothing was asked by this process before `now`.
    pub fn new(now: Instant) -> Self {
        Self { opened: now, unheard: Mutex::default(), newest: Mutex::default() }
    }

    /// Something is asked for a machine, until it is told how that ended. A call that is given up in between leaves it
    /// unheard.
    pub fn asking(&self, identity: &Identity) -> Asking<'_> {
        Asking { answers: self, identity: Some(identity.clone()) }
    }

    /// Hears what the cluster made of a write.
    pub fn heard(&self, kind: Kind, object: &DynamicObject) {
        let version = object.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        if let Some(version) = version {
            let mut newest = lock(&self.newest);
            let known = newest.entry(kind).or_insert(version);
            *known = version.max(*known);
        }
    }

    /// Whether something was asked for a machine a moment ago and not answered.
    pub fn has_unheard(&self, identity: &Identity, now: Instant) -> bool {
        let mut unheard = lock(&self.unheard);
        unheard.retain(|_, asked| is_recent(*asked, now));
        unheard.contains_key(identity)
    }

    /// The version of a kind that an answer has to have reached to show everything that was made for a machine; none if only
    /// the newest will do.
    pub fn sufficient(&self, kind: Kind, identity: &Identity, now: Instant) -> Option<u64> {
        let is_open_question = is_recent(self.opened, now) || self.has_unheard(identity, now);
        lock(&self.newest).get(&kind).copied().filter(|_| !is_open_question)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_recent(asked: Instant, now: Instant) -> bool {
    now.saturating_duration_since(asked) < HORIZON
}

/// Something that is being asked.
pub struct Asking<'a> {
    answers: &'a Answers,
    identity: Option<Identity>,
}

impl Asking<'_> {
    /// Hears how it ended.
    pub fn ended<T>(mut self, answer: Result<T, BackendError>) -> Result<T, BackendError> {
        let is_unheard = answer
            .as_ref()
            .is_err_and(|error| matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Failed));
        if !is_unheard {
            self.identity = None;
        }
        answer
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(identity) = self.identity.take() {
            lock(&self.answers.unheard).insert(identity, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CLAIM: Kind = Kind::PersistentVolumeClaim;

    fn claim(version: &str) -> DynamicObject {
        serde_json::from_value(json!({ "metadata": { "name": "a", "resourceVersion": version } })).unwrap()
    }

    fn failure(kind: ErrorKind) -> Result<(), BackendError> {
        Err(BackendError::new(kind, "Reason", "message"))
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_acted_before_may_have_asked_for_anything_a_moment_ago() {
        let answers = Answers::new(Instant::now());
        let identity = Identity::new("a");
        answers.heard(CLAIM, &claim("7"));
        assert_eq!(answers.sufficient(CLAIM, &identity, Instant::now()), None);
        tokio::time::advance(HORIZON).await;
        assert_eq!(answers.sufficient(CLAIM, &identity, Instant::now()), Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_answered_is_at_most_as_new_as_the_newest_answer() {
        let answers = Answers::new(Instant::now());
        tokio::time::advance(HORIZON).await;
        for version in ["7", "12", "9", "not a number"] {
            answers.heard(CLAIM, &claim(version));
        }
        let identity = Identity::new("a");
        assert_eq!(answers.sufficient(CLAIM, &identity, Instant::now()), Some(12));
        assert_eq!(answers.sufficient(Kind::DataVolume, &identity, Instant::now()), None, "nothing was told");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_answered_may_be_newer_for_a_while() {
        let answers = Answers::new(Instant::now());
        tokio::time::advance(HORIZON).await;
        answers.heard(CLAIM, &claim("7"));
        let is_enough = |name: &str| {
            let (identity, now) = (Identity::new(name), Instant::now());
            answers.sufficient(CLAIM, &identity, now).is_some() && !answers.has_unheard(&identity, now)
        };
        for (name, answer) in [("done", Ok(())), ("refused", failure(ErrorKind::Refused))] {
            let _ = answers.asking(&Identity::new(name)).ended(answer);
            assert!(is_enough(name), "{name}");
        }
        for kind in [ErrorKind::Unreachable, ErrorKind::Failed] {
            let name = format!("{kind:?}");
            let _ = answers.asking(&Identity::new(&name)).ended(failure(kind));
            assert!(!is_enough(&name), "{name}");
            let _ = answers.asking(&Identity::new(&name)).ended(Ok(()));
            assert!(!is_enough(&name), "an answer does not make up for an earlier one that was not heard");
        }
        drop(answers.asking(&Identity::new("given up")));
        assert!(!is_enough("given up"));
        tokio::time::advance(HORIZON).await;
        assert!(is_enough("given up"));
        assert!(lock(&answers.unheard).is_empty(), "nothing is kept for ever");
    }
}
