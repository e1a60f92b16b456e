//! What controllers wait for besides what a plan says, as noun phrases that complete "waiting for …".

/// The object changed on the server since it was read.
pub const CURRENT_OBJECT: &str = "the current version of the object";

/// The backend of a provider is being opened.
pub const OPEN_BACKEND: &str = "the backend to be opened";

/// More machines are to be placed than one reconcile writes.
pub const NEXT_BATCH: &str = "the next batch of machines";

/// Totals change with every machine and are written every few seconds.
pub const STABLE_TOTALS: &str = "the totals to settle";

/// A Machine was written that the watch does not show yet.
pub const WATCH: &str = "the watch to show every machine";

/// The next health check of a provider.
pub const NEXT_CHECK: &str = "the next health check";
