//! What should happen about one provider.

mod circuit;
mod health;
mod identity;
mod price;
mod status;

pub use circuit::Circuit;
pub use health::{Checks, Health, Probed};
pub use identity::identity;
pub use price::price_of;
pub use status::{Snapshot, credentials, status};
