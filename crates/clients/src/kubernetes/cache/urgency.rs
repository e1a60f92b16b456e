//! Why an object is reconciled.

/// Why an object is in the queue of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Urgency {
    /// Its periodic reconcile is due.
    Resync,
    /// Something changed.
    Event,
    /// A user changed the desired state: it is reconciled now, even during a backoff.
    Change,
}
