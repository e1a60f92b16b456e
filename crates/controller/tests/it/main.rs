//! The operators over the embedded API, in one process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod datacenter;
mod machine_provider;
mod stage;
