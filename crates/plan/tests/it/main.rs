//! Golden tests of the decisions: each page shows many reconciles in a readable form.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod datacenter;
mod explain;
mod hostile;
mod machine;
mod namespaces;
mod overview;
mod preview;
mod provider;
mod refusals;
mod story;
