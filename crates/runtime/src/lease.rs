//! Leader election on a `Lease`, one per operator.
//!
//! The holder renews the lease every 12 s. It considers itself the leader for 20 s after the start of its last
//! successful write; other replicas wait for 30 s after the last write that they *saw*. Each replica uses its own clock,
//! so clocks are never compared, and the holder has stopped acting before another replica may start. The lease is
//! watched, so a released lease is acquired at once.

use std::time::Duration;

use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::PostParams,
    runtime::{WatchStreamExt, watcher},
};
use snafu::{ResultExt, Snafu};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use vitistack_clients::kubernetes::{explain, is_conflict};
use vitistack_types::{WatchedNamespaces, labels};

use crate::{
    cache::explain_watch,
    health::{Health, Heart, Readiness},
};

/// How long other replicas wait after the last write that they saw.
const LEASE_DURATION: Duration = Duration::from_secs(30);
const LEASE_SECONDS: i32 = 30;
/// How often the holder renews the lease. These are most requests of an idle operator, and a longer interval delays only
/// the replacement of a killed leader: one that shuts down releases the lease.
const RENEW_EVERY: Duration = Duration::from_secs(12);
/// When a holder that cannot renew stops acting, counted from the start of its last successful write.
const STOP_AFTER: Duration = Duration::from_secs(20);
/// The delay after a failed write.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The maximum time to wait for one response.
const RESPONSE_LIMIT: Duration = Duration::from_secs(5);

/// Why the lease could not be written.
#[derive(Debug, Snafu)]
enum LeaseError {
    #[snafu(display("failed to write lease {name:?}: {}", explain(source)))]
    WriteLease {
        name: String,
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    #[snafu(display("failed to write lease {name:?}: no response within {limit:?}"))]
    AwaitResponse { name: String, limit: Duration },
}

/// What to do with the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// It does not exist: create it.
    Create,
    /// It has no holder, or its holder did not renew it in time: acquire it.
    Acquire,
    /// This replica holds it.
    Renew,
    /// Another replica holds it at least until then.
    Wait { until: Instant },
}

/// Decides from the last seen lease, which last changed at `changed` on the clock of this replica.
fn decide(lease: Option<&Lease>, me: &str, changed: Instant, now: Instant) -> Decision {
    let Some(lease) = lease else { return Decision::Create };
    match holder(lease) {
        None => Decision::Acquire,
        Some(holder) if holder == me => Decision::Renew,
        Some(_) => {
            let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
            let duration = seconds
                .and_then(|seconds| u64::try_from(seconds).ok())
                .map_or(LEASE_DURATION, Duration::from_secs);
            let until = changed + duration;
            if until <= now { Decision::Acquire } else { Decision::Wait { until } }
        }
    }
}

/// Returns the holder of the lease, if any.
fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// Returns the lease with `me` as holder. Counts a transition unless `me` held it before.
fn held(lease: Option<&Lease>, name: &str, me: &str, now: Timestamp) -> Lease {
    let before = lease.and_then(|lease| lease.spec.clone()).unwrap_or_default();
    let is_ours = lease.and_then(holder) == Some(me);
    let transitions = match lease {
        None => 0,
        Some(_) => before.lease_transitions.unwrap_or(0).saturating_add(i32::from(!is_ours)),
    };
    let metadata = lease.map_or_else(
        || ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        |lease| lease.metadata.clone(),
    );
    Lease {
        metadata,
        spec: Some(LeaseSpec {
            holder_identity: Some(me.to_owned()),
            lease_duration_seconds: Some(LEASE_SECONDS),
            acquire_time: if is_ours { before.acquire_time } else { Some(MicroTime(now)) },
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }),
    }
}

/// Records on the lease which namespaces its holder watches, so that clients can explain what it does not see.
fn record_namespaces(lease: &mut Lease, watched: &WatchedNamespaces) {
    let annotations = lease.metadata.annotations.get_or_insert_default();
    match watched.to_setting() {
        Some(names) => annotations.insert(labels::WATCHED_NAMESPACES.to_owned(), names),
        None => annotations.remove(labels::WATCHED_NAMESPACES),
    };
    if annotations.is_empty() {
        lease.metadata.annotations = None;
    }
}

/// Returns the lease without a holder.
fn released(lease: &Lease, now: Timestamp) -> Lease {
    let mut lease = lease.clone();
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(String::new());
    spec.renew_time = Some(MicroTime(now));
    lease
}

/// The last seen state of the lease.
#[derive(Debug)]
struct Seen {
    lease: Option<Lease>,
    changed: Instant,
    /// False until the first response: an unknown lease is not an absent one.
    is_known: bool,
}

impl Seen {
    fn update(&mut self, lease: Option<Lease>, now: Instant) {
        let version =
            |lease: &Option<Lease>| lease.as_ref().map(|lease| lease.metadata.resource_version.clone());
        if !self.is_known || version(&self.lease) != version(&lease) {
            self.changed = now;
        }
        self.lease = lease;
        self.is_known = true;
    }
}

/// One candidate for the lease of one operator.
pub struct Election {
    api: Api<Lease>,
    name: String,
    me: String,
    watched: WatchedNamespaces,
    leads: watch::Sender<bool>,
    readiness: Readiness,
    heart: Heart,
    seen: Seen,
    listed: Option<Lease>,
    renewed: Option<Instant>,
    not_before: Instant,
    last_warning: String,
}

impl Election {
    /// Creates a candidate `me` for the lease `name` in `namespace`, which reports to `leads` whether it is the leader.
    #[must_use]
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        me: &str,
        leads: watch::Sender<bool>,
        health: &Health,
    ) -> Self {
        let now = Instant::now();
        let check = format!("lease {name}");
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            me: me.to_owned(),
            watched: WatchedNamespaces::ALL,
            leads,
            readiness: health.readiness(&check),
            heart: health.heart(&check, now),
            seen: Seen { lease: None, changed: now, is_known: false },
            listed: None,
            renewed: None,
            not_before: now,
            last_warning: String::new(),
        }
    }

    /// Returns the same candidate, which records on the lease that it watches these namespaces.
    #[must_use]
    pub fn watching(self, watched: WatchedNamespaces) -> Self {
        Self { watched, ..self }
    }

    /// Takes part until `end`, then releases the lease. The caller must have stopped acting before.
    pub async fn run(mut self, end: CancellationToken) {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut changes = watcher(self.api.clone(), config).default_backoff().boxed();
        loop {
            let wake = self.advance().await.min(Instant::now() + RENEW_EVERY);
            self.heart.beat(Instant::now());
            tokio::select! {
                () = end.cancelled() => break,
                () = sleep_until(wake) => {}
                () = self.follow(&mut changes) => {}
            }
        }
        self.release().await;
        self.heart.finish();
    }

    /// Acquires or renews the lease if necessary and returns when to check again.
    async fn advance(&mut self) -> Instant {
        let now = Instant::now();
        if let Some(renewed) = self.renewed
            && now >= renewed + STOP_AFTER
        {
            self.step_down("the lease was not renewed in time");
        }

        if !self.seen.is_known {
            return now + RENEW_EVERY;
        }
        match (decide(self.seen.lease.as_ref(), &self.me, self.seen.changed, now), self.renewed) {
            (Decision::Wait { until }, renewed) => {
                if renewed.is_some() {
                    self.step_down("another replica holds the lease");
                }
                let other = self.seen.lease.as_ref().and_then(holder).unwrap_or_default();
                self.readiness.pass(format!("standby, the leader is {other}"));
                until
            }
            (Decision::Renew, Some(renewed)) if now < (renewed + RENEW_EVERY).max(self.not_before) => {
                (renewed + RENEW_EVERY).max(self.not_before).min(renewed + STOP_AFTER)
            }
            _ if now < self.not_before => self.not_before,
            _ => {
                self.write(now).await;
                Instant::now()
            }
        }
    }

    /// Returns how long to wait for a response: never longer than this replica may consider itself the leader.
    fn response_limit(&self, now: Instant) -> Duration {
        let leads_for = self.renewed.map(|renewed| (renewed + STOP_AFTER).saturating_duration_since(now));
        leads_for.map_or(RESPONSE_LIMIT, |left| left.min(RESPONSE_LIMIT))
    }

    /// Writes the lease with this replica as holder.
    async fn write(&mut self, started: Instant) {
        let limit = self.response_limit(started);
        let mut lease = held(self.seen.lease.as_ref(), &self.name, &self.me, Timestamp::now());
        record_namespaces(&mut lease, &self.watched);
        let parameters = PostParams::default();
        let response = if self.seen.lease.is_some() {
            timeout(limit, self.api.replace(&self.name, &parameters, &lease)).await
        } else {
            timeout(limit, self.api.create(&parameters, &lease)).await
        };

        let result = match response {
            Ok(response) => response.context(WriteLeaseSnafu { name: &self.name }),
            Err(_) => AwaitResponseSnafu { name: &self.name, limit }.fail(),
        };

        match result {
            Ok(lease) => {
                self.seen.update(Some(lease), Instant::now());
                self.renewed = Some(started);
                self.readiness.pass("leader");
                self.last_warning.clear();
                if !self.leads.send_replace(true) {
                    tracing::info!(lease = self.name, "started leading");
                }
            }
            Err(error) => {
                self.not_before = Instant::now() + RETRY_AFTER;
                let why = error.to_string();
                self.readiness.fail(&why);
                if matches!(&error, LeaseError::WriteLease { source, .. } if is_conflict(source)) {
                    // Another replica wrote first, or the watch lags behind: read the lease.
                    if let Ok(Ok(lease)) =
                        timeout(self.response_limit(Instant::now()), self.api.get_opt(&self.name)).await
                    {
                        self.seen.update(lease, Instant::now());
                    }
                } else if self.last_warning != why {
                    // Retried every second, but logged once.
                    tracing::warn!(lease = self.name, "{why}");
                    self.last_warning = why;
                }
            }
        }
    }

    /// Waits for the next change of the lease and records it.
    async fn follow(&mut self, changes: &mut BoxStream<'static, watcher::Result<watcher::Event<Lease>>>) {
        let Some(event) = changes.next().await else { return std::future::pending().await };
        let now = Instant::now();
        match event {
            Ok(watcher::Event::Init) => self.listed = None,
            Ok(watcher::Event::InitApply(lease)) => self.listed = Some(lease),
            Ok(watcher::Event::InitDone) => {
                let lease = self.listed.take();
                self.update_if_newer(lease, now);
            }
            Ok(watcher::Event::Apply(lease)) => self.update_if_newer(Some(lease), now),
            Ok(watcher::Event::Delete(_)) => self.update_if_newer(None, now),
            Err(error) => {
                let why = format!("failed to watch lease {:?}: {}", self.name, explain_watch(&error));
                tracing::warn!(lease = self.name, "{why}");
                self.readiness.fail(why);
            }
        }
    }

    /// Records the lease from the watch, unless it is older than the last write of this replica.
    fn update_if_newer(&mut self, lease: Option<Lease>, now: Instant) {
        if self.renewed.is_some() && lease.as_ref().and_then(holder) == Some(self.me.as_str()) {
            return;
        }
        if self.renewed.is_some() && is_older(lease.as_ref(), self.seen.lease.as_ref()) {
            return;
        }
        self.seen.update(lease, now);
    }

    fn step_down(&mut self, why: &str) {
        self.renewed = None;
        self.leads.send_replace(false);
        tracing::warn!(lease = self.name, "stopped leading: {why}");
        self.readiness.fail(format!("stopped leading: {why}"));
    }

    async fn release(&mut self) {
        if self.renewed.take().is_none() {
            return;
        }
        self.leads.send_replace(false);
        let Some(lease) = &self.seen.lease else { return };
        let lease = released(lease, Timestamp::now());
        match timeout(RESPONSE_LIMIT, self.api.replace(&self.name, &PostParams::default(), &lease)).await {
            Ok(Ok(_)) => tracing::info!(lease = self.name, "released the lease"),
            Ok(Err(error)) => {
                tracing::warn!(lease = self.name, "failed to release the lease: {}", explain(&error));
            }
            Err(_) => tracing::warn!(lease = self.name, "failed to release the lease: no response"),
        }
    }
}

/// Returns whether the server wrote `lease` before `known`. Kubernetes guarantees that the resource versions of one
/// resource compare as numbers; a version that is not a number is never older.
fn is_older(lease: Option<&Lease>, known: Option<&Lease>) -> bool {
    let version = |lease: Option<&Lease>| lease?.metadata.resource_version.as_ref()?.parse::<u64>().ok();
    matches!((version(lease), version(known)), (Some(lease), Some(known)) if lease < known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, transitions: i32) -> Lease {
        let mut lease = held(None, "operator", holder, Timestamp::UNIX_EPOCH);
        lease.metadata.resource_version = Some("7".into());
        lease.spec.as_mut().unwrap().lease_transitions = Some(transitions);
        lease
    }

    fn spec(lease: &Lease) -> &LeaseSpec {
        lease.spec.as_ref().unwrap()
    }

    #[test]
    fn a_missing_lease_is_created() {
        let now = Instant::now();
        assert_eq!(decide(None, "me", now, now), Decision::Create);
        let created = held(None, "operator", "me", Timestamp::UNIX_EPOCH);
        assert_eq!(spec(&created).lease_transitions, Some(0));
        assert_eq!(created.metadata.resource_version, None);
    }

    #[test]
    fn a_released_lease_is_acquired_at_once() {
        let now = Instant::now();
        let free = released(&lease("other", 3), Timestamp::UNIX_EPOCH);
        assert_eq!(decide(Some(&free), "me", now, now), Decision::Acquire);
        let taken = held(Some(&free), "operator", "me", Timestamp::UNIX_EPOCH);
        assert_eq!(spec(&taken).lease_transitions, Some(4));
        assert_eq!(taken.metadata.resource_version.as_deref(), Some("7"), "a concurrent write conflicts");
    }

    #[test]
    fn a_holder_that_does_not_renew_is_replaced_after_its_own_duration_on_our_clock() {
        let changed = Instant::now();
        let mut other = lease("other", 0);
        let until = changed + LEASE_DURATION;
        assert_eq!(decide(Some(&other), "me", changed, changed), Decision::Wait { until });
        assert_eq!(decide(Some(&other), "me", changed, until), Decision::Acquire);
        other.spec.as_mut().unwrap().lease_duration_seconds = Some(60);
        assert_eq!(
            decide(Some(&other), "me", changed, until),
            Decision::Wait { until: changed + Duration::from_mins(1) }
        );
    }

    #[test]
    fn our_own_lease_is_renewed_without_a_transition() {
        let now = Instant::now();
        let ours = lease("me", 3);
        assert_eq!(decide(Some(&ours), "me", now, now), Decision::Renew);
        let later = Timestamp::from_second(5).unwrap();
        let renewed = held(Some(&ours), "operator", "me", later);
        assert_eq!(spec(&renewed).lease_transitions, Some(3));
        assert_eq!(spec(&renewed).acquire_time, Some(MicroTime(Timestamp::UNIX_EPOCH)));
        assert_eq!(spec(&renewed).renew_time, Some(MicroTime(later)));
    }

    #[test]
    fn the_lease_shows_which_namespaces_its_holder_watches() {
        let mut ours = lease("me", 0);
        record_namespaces(&mut ours, &"b,a".parse().unwrap());
        let annotations = ours.metadata.annotations.clone().unwrap();
        assert_eq!(annotations.get(labels::WATCHED_NAMESPACES).map(String::as_str), Some("a,b"));
        record_namespaces(&mut ours, &WatchedNamespaces::ALL);
        assert_eq!(ours.metadata.annotations, None);
    }

    #[test]
    fn the_holder_stops_before_another_replica_may_start() {
        assert!(STOP_AFTER < LEASE_DURATION);
        assert!(RENEW_EVERY + RETRY_AFTER < STOP_AFTER);
        assert_eq!(LEASE_DURATION.as_secs(), u64::try_from(LEASE_SECONDS).unwrap());
    }

    #[test]
    fn the_same_version_does_not_extend_a_lease() {
        let start = Instant::now();
        let mut seen = Seen { lease: None, changed: start, is_known: false };
        let later = start + Duration::from_secs(9);
        seen.update(Some(lease("other", 0)), start);
        seen.update(Some(lease("other", 0)), later);
        assert_eq!(seen.changed, start);
        let mut renewed = lease("other", 0);
        renewed.metadata.resource_version = Some("8".into());
        seen.update(Some(renewed), later);
        assert_eq!(seen.changed, later);
    }

    #[test]
    fn an_event_from_before_our_own_write_is_older() {
        let mut newer = lease("me", 1);
        newer.metadata.resource_version = Some("10".into());
        assert!(is_older(Some(&lease("other", 0)), Some(&newer)));
        assert!(!is_older(Some(&newer), Some(&lease("other", 0))));
        assert!(!is_older(None, Some(&newer)));
    }
}
