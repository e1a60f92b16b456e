//! The kinds of `vitistack.io/v1alpha1` as Rust types, with the names, labels, annotations, conditions and reasons that
//! users and controllers share.
//!
//! No client and no IO: the crate stands on `kube-core` alone. A field is here only if some code honours it.

mod check;
pub mod conditions;
pub mod labels;
mod reference;
mod samples;
mod schema;
pub mod v1alpha1;
mod values;

pub use check::{DecodeError, InvalidObject, Problem, check, decode};
pub use reference::{ObjectReference, SecretKeyReference};
pub use samples::{Sample, samples};
pub use schema::definitions;
pub use values::{Amount, Duration, InvalidValue, MacAddress, Quantity, Size, Version};

/// The API group of every kind.
pub const GROUP: &str = "vitistack.io";

/// The category that lists every kind: `kubectl get vitistack -A`.
pub const CATEGORY: &str = "vitistack";
