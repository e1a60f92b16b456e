//! Tests of the crate from its callers' point of view.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that is surprised should stop")]

mod fuzz;
