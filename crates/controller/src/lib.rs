//! The operators: what reads the kinds, asks `plan` and calls the backends. Wiring only; decisions are in `plan`.

pub mod backends;
mod caches;
mod index;
pub mod machine;
pub mod operators;
mod permissions;
mod secrets;

pub use caches::{Caches, Clock};
pub use index::Index;
pub use secrets::{ReadSecretError, Secrets};
