//! Tests of the server from its clients' point of view, in the process.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]

mod client;
mod conformance;
mod crds;
mod crud;
mod disk_plans;
mod faults;
mod garbage;
mod harness;
mod hostile;
mod hostile_disk;
mod panics;
mod socket;
mod stores;
#[cfg(feature = "integration")]
mod third_party;
mod watch;
