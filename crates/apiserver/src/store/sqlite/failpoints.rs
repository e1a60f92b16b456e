//! Where tests make the disk fail. A store in production has no failpoints.

use std::{fmt::Debug, io};

use async_trait::async_trait;

/// The disk of a store, as a test wants it to behave.
#[async_trait]
pub trait Failpoints: Debug + Send + Sync + 'static {
    /// Called before a commit; an error prevents it. `has_reserve` is false once the store has given up the space that it
    /// reserves for deletions.
    async fn before_commit(&self, has_reserve: bool) -> io::Result<()>;

    /// Called after a commit is on disk, and before anything of it is acknowledged. An error hides that it was made.
    async fn after_commit(&self) -> io::Result<()>;

    /// Whether there is space for the reserve.
    fn has_space(&self) -> bool;
}
