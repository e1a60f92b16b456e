//! Tests of the operators on the embedded API.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod datacenter;
mod faults;
mod hostile;
mod kubevirt_cluster;
mod kubevirt_reader;
mod machine;
mod machine_provider;
mod placement_cluster;
mod test_cluster;
mod unreachable;
