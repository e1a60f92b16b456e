//! The operators on the embedded API.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod faults;
mod machine;
mod stage;
