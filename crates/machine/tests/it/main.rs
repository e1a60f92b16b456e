//! Backends as their callers meet them.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

mod bench;
mod conformance;
mod durability;
mod fixture;
mod kept_in_a_cluster;
mod kubevirt;
mod saboteur;
mod scale;
mod story;
mod world;
