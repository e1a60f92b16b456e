//! What should happen about one provider.

mod circuit;

pub use circuit::Circuit;
