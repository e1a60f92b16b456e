//! The real servers of the kit, used as other crates' tests use them.

#[cfg(feature = "integration")]
#[expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking"
)]
mod kubevirt;
