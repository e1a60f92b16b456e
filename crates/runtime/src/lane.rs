//! Kinds and urgencies of work.

/// Kind of work; each has a slot of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// The object does not have its real thing yet.
    Create,
    /// The object is on its way out.
    Delete,
    /// The object is settled and only looked at.
    Observe,
}

impl Lane {
    /// All lanes, in the order in which they take turns.
    pub const ALL: [Self; 3] = [Self::Create, Self::Delete, Self::Observe];

    /// The lane's name as a metric label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Observe => "observe",
        }
    }
}

/// Why a key is in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Urgency {
    /// It was its turn to be looked at again.
    Resync,
    /// Something changed.
    Event,
    /// A user changed what is desired: runs now, even inside a backoff.
    Change,
}
