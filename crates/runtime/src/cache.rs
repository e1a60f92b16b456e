//! Caches, see [`vitistack_clients::kubernetes::cache`], and how this process reports on those of its own cluster.

use tokio::time::Instant;
pub use vitistack_clients::kubernetes::cache::*;

use crate::{
    health::{Health, Heart, Readiness},
    metrics::Undecodable,
};

/// Reports on a feed in the probes and the metrics of the process.
pub(crate) struct ProcessReporter {
    kind: String,
    undecodable: Undecodable,
    readiness: Readiness,
    heart: Option<Heart>,
}

impl ProcessReporter {
    /// Returns the reporter of the feed of a kind, which fails the readiness of the process until the first list.
    pub(crate) fn new<K: Kind>(cache: &Cache<K>, health: &Health, undecodable: Undecodable) -> Self {
        let name = format!("cache {}", K::plural(cache.resource()));
        let readiness = health.readiness(&name);
        readiness.fail("waiting for the first list");
        let heart = Some(health.heart(&name, Instant::now()));
        Self { kind: cache.kind(), undecodable, readiness, heart }
    }
}

impl FeedReporter for ProcessReporter {
    fn alive(&mut self) {
        if let Some(heart) = &self.heart {
            heart.beat(Instant::now());
        }
    }

    fn watching(&mut self) {
        self.readiness.pass("watching");
    }

    fn failing(&mut self, error: &str) {
        self.readiness.fail(format!("retrying: {error}"));
    }

    fn decode_failures(&mut self, count: usize) {
        self.undecodable.set(&self.kind, count);
    }

    fn finished(&mut self) {
        if let Some(heart) = self.heart.take() {
            heart.finish();
        }
    }
}
