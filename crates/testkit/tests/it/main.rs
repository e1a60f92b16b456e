//! The servers of the test kit, as other crates use them.

#[cfg(feature = "integration")]
#[expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test helpers fail by panicking"
)]
mod kubevirt;
