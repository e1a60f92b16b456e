//! What should happen to one provider.

mod calls;
mod circuit;
mod credentials;
mod health;
mod identity;
mod plan;
mod price;
mod status;

pub use calls::Calls;
pub use circuit::Circuit;
pub use credentials::credentials;
pub use health::{Checks, Health, Probed};
pub use identity::identity;
pub use plan::{ProviderPlan, Snapshot, Step, only_totals_changed, plan};
pub use price::price_of;
pub(crate) use status::paused;
