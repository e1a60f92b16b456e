//! The controllers: they load what a plan needs, apply its steps and report its status. Decisions are in `plan`.

pub mod backends;
mod caches;
mod calls;
pub mod datacenter;
mod error;
mod index;
mod inverted;
pub mod machine;
pub mod machine_provider;
pub mod operators;
mod pace;
mod permissions;
mod report;
mod secrets;

pub use caches::{Caches, Clock, Needs};
pub use calls::Calls;
pub use index::Index;
pub use permissions::permissions;
pub use secrets::Secrets;
