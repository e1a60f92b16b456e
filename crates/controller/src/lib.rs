//! The operators: what reads the kinds, asks `plan` and calls the backends. Wiring only; decisions are in `plan`.

pub mod backends;
mod caches;
pub mod datacenter;
mod index;
mod inverted;
pub mod machine;
pub mod machine_provider;
pub mod operators;
mod pace;
mod permissions;
mod place;
mod secrets;

pub use caches::{Caches, Clock, Needs};
pub use index::Index;
pub use secrets::{ReadSecretError, Secrets};
