//! Pure decisions: from what was read to what should happen.
//!
//! Nothing here reaches a clock, a file, a socket or the environment; all of it can be printed, compared and repeated.
//! Each kind has one function `plan` that returns a [`Plan`].

mod command;
mod conditions;
pub mod configuration;
pub mod datacenter;
mod events;
pub mod explain;
pub mod inventory;
pub mod machine;
mod pause;
mod plan;
pub mod preview;
pub mod provider;
mod redacted;
mod reference;
mod refusal;
pub mod refusals;
pub mod waiting;

pub use inventory::Inventory;
pub use pause::is_paused;
pub use plan::Plan;
pub use redacted::Redacted;
pub use reference::{permits, permits_by_annotation};
pub use refusal::Refusal;
