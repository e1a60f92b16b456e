//! The kinds as their users meet them: samples, builders, refusals.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod builders;
mod samples;
#[cfg(feature = "integration")]
mod server;
