//! Which requests were answered, so that an object that was requested is not taken for absent.
//!
//! Before a Machine is released, the cluster itself is asked whether anything of it is left: a cache may lag, and a watch
//! that is cut silently stays silent for minutes. An API server answers a list immediately if the list need not be newer
//! than a version that the server has returned before; otherwise it first makes sure to have the newest state, which takes
//! about 100 ms. Objects of answered requests are at most as new as the newest version that was returned. Only a request
//! without an answer may have created something newer, and it takes effect within the request timeout of the server, or
//! never, whichever process sent it.

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

/// How long a request without an answer may still take effect: the request timeout of an API server, one minute, and the
/// same again for its caches.
const HORIZON: Duration = Duration::from_mins(2);

/// The requests to one cluster.
pub struct Requests {
    /// When this process started to act on the cluster. Until then another process may have sent any request.
    opened: Instant,
    unanswered: Mutex<HashMap<Identity, Instant>>,
    newest: Mutex<HashMap<Kind, u64>>,
}

impl Requests {
    /// Returns the log of a process that has sent no request before `now`.
    pub fn new(now: Instant) -> Self {
        Self { opened: now, unanswered: Mutex::default(), newest: Mutex::default() }
    }

    /// Starts a request for a machine. It counts as unanswered if the returned value is dropped without
    /// [`PendingRequest::finish`].
    pub fn start(&self, identity: &Identity) -> PendingRequest<'_> {
        PendingRequest { requests: self, identity: Some(identity.clone()) }
    }

    /// Records the answer to a write.
    pub fn answered(&self, kind: Kind, object: &DynamicObject) {
        let version = object.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        if let Some(version) = version {
            let mut newest = lock(&self.newest);
            let known = newest.entry(kind).or_insert(version);
            *known = version.max(*known);
        }
    }

    /// Whether a recent request for a machine was not answered.
    pub fn has_unanswered(&self, identity: &Identity, now: Instant) -> bool {
        let mut unanswered = lock(&self.unanswered);
        unanswered.retain(|_, sent| is_recent(*sent, now));
        unanswered.contains_key(identity)
    }

    /// Returns the version of a kind that shows everything that was created for a machine; none if only the newest does.
    pub fn sufficient_version(&self, kind: Kind, identity: &Identity, now: Instant) -> Option<u64> {
        let needs_newest = is_recent(self.opened, now) || self.has_unanswered(identity, now);
        lock(&self.newest).get(&kind).copied().filter(|_| !needs_newest)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_recent(sent: Instant, now: Instant) -> bool {
    now.saturating_duration_since(sent) < HORIZON
}

/// A request that is being sent.
pub struct PendingRequest<'a> {
    requests: &'a Requests,
    identity: Option<Identity>,
}

impl PendingRequest<'_> {
    /// Records how the request ended.
    pub fn finish<T>(mut self, result: Result<T, BackendError>) -> Result<T, BackendError> {
        let is_unanswered = result
            .as_ref()
            .is_err_and(|error| matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Failed));
        if !is_unanswered {
            self.identity = None;
        }
        result
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        if let Some(identity) = self.identity.take() {
            lock(&self.requests.unanswered).insert(identity, Instant::now());
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
    async fn another_process_may_have_sent_requests_until_the_horizon() {
        let requests = Requests::new(Instant::now());
        let identity = Identity::new("a");
        requests.answered(CLAIM, &claim("7"));
        assert_eq!(requests.sufficient_version(CLAIM, &identity, Instant::now()), None);
        tokio::time::advance(HORIZON).await;
        assert_eq!(requests.sufficient_version(CLAIM, &identity, Instant::now()), Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn answered_requests_are_at_most_as_new_as_the_newest_answer() {
        let requests = Requests::new(Instant::now());
        tokio::time::advance(HORIZON).await;
        for version in ["7", "12", "9", "not a number"] {
            requests.answered(CLAIM, &claim(version));
        }
        let identity = Identity::new("a");
        assert_eq!(requests.sufficient_version(CLAIM, &identity, Instant::now()), Some(12));
        assert_eq!(
            requests.sufficient_version(Kind::DataVolume, &identity, Instant::now()),
            None,
            "no version is known"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_unanswered_request_needs_the_newest_state_until_the_horizon() {
        let requests = Requests::new(Instant::now());
        tokio::time::advance(HORIZON).await;
        requests.answered(CLAIM, &claim("7"));
        let is_enough = |name: &str| {
            let (identity, now) = (Identity::new(name), Instant::now());
            requests.sufficient_version(CLAIM, &identity, now).is_some()
                && !requests.has_unanswered(&identity, now)
        };
        for (name, answer) in [("done", Ok(())), ("refused", failure(ErrorKind::Refused))] {
            let _ = requests.start(&Identity::new(name)).finish(answer);
            assert!(is_enough(name), "{name}");
        }
        for kind in [ErrorKind::Unreachable, ErrorKind::Failed] {
            let name = format!("{kind:?}");
            let _ = requests.start(&Identity::new(&name)).finish(failure(kind));
            assert!(!is_enough(&name), "{name}");
            let _ = requests.start(&Identity::new(&name)).finish(Ok(()));
            assert!(!is_enough(&name), "a later answer does not settle an earlier request");
        }
        drop(requests.start(&Identity::new("dropped")));
        assert!(!is_enough("dropped"));
        tokio::time::advance(HORIZON).await;
        assert!(is_enough("dropped"));
        assert!(lock(&requests.unanswered).is_empty(), "entries expire");
    }
}
