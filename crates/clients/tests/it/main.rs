//! Clients as their callers use them.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot continue has failed")]

mod fuzz;
mod hostile;
