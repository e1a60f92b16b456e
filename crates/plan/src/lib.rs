//! Pure decisions: from what was read to what should happen.
//!
//! Nothing here reaches a clock, a file, a socket or the environment; all of it can be printed, compared and repeated.

pub mod configuration;
pub mod datacenter;
pub mod explain;
pub mod machine;
mod pause;
pub mod preview;
pub mod provider;
mod redacted;
mod reference;
mod refusal;

pub use pause::is_paused;
pub use redacted::Redacted;
pub use reference::permits;
pub use refusal::Refusal;
