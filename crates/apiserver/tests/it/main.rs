//! The server as its clients see it, in the process.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]

mod client;
mod collect;
mod conformance;
mod crud;
mod definitions;
mod faults;
#[cfg(feature = "integration")]
mod foreign;
mod panics;
mod socket;
mod stores;
mod watch;
mod world;
