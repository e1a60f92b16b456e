//! Backends as their callers use them.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot continue has failed")]

mod conformance;
mod defects;
mod durability;
mod fixture;
mod fuzz;
mod kubernetes_store;
mod kubevirt;
mod scale;
mod story;
mod testbed;
mod world;
