//! The kinds of work of a controller.

/// A kind of work. Each has a slot of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// The object is not ready yet.
    Create,
    /// The object is being deleted.
    Delete,
    /// The object is ready and only observed.
    Observe,
}

impl Lane {
    /// All lanes, in the order in which they take turns.
    pub const ALL: [Self; 3] = [Self::Create, Self::Delete, Self::Observe];

    /// The name of the lane as a metric label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Observe => "observe",
        }
    }
}
