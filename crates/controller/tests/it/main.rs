//! The operators on the embedded API.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod kubevirt_reader;
mod machine;
mod stage;
