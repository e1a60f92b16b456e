//! What should happen about one provider.

mod circuit;
mod health;
mod price;
mod status;

pub use circuit::Circuit;
pub use health::{Checks, Health, Probed};
pub use price::price_of;
pub use status::{Snapshot, credentials, status};
