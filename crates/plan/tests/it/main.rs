//! Decisions as stories: many rounds, readable.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod datacenter;
mod explain;
mod machine;
mod preview;
mod provider;
