//! The operators on the embedded API.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod away;
mod datacenter;
mod faults;
mod kubevirt_reader;
mod machine;
mod machine_provider;
mod placing;
mod stage;
