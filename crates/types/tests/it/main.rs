//! The kinds as users see them: samples, builders and validation errors.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod builders;
mod samples;
#[cfg(feature = "integration")]
mod server;
