//! The operators: what reads the kinds, asks `plan` and calls the backends. Wiring only; decisions are in `plan`.

pub mod backends;
mod index;
mod secrets;

pub use index::Index;
pub use secrets::{ReadSecretError, Secrets};
