//! The kinds of `vitistack.io/v1alpha1` as Rust types, with the names, labels, annotations, conditions and
//! reasons that users and controllers share.
//!
//! The crate has no client and no IO. A field exists only if some code honors it.

mod check;
pub mod conditions;
mod event;
pub mod labels;
mod names;
mod namespaces;
mod operator;
mod outcome;
mod reference;
mod samples;
mod schema;
pub mod v1alpha1;
mod values;

pub use check::{DecodeError, InvalidObject, Problem, check, decode};
pub use event::{Event, Severity};
pub use names::{InvalidObjectId, ObjectId, ObjectName, Placement};
pub use namespaces::WatchedNamespaces;
pub use operator::OperatorName;
pub use outcome::Outcome;
pub use reference::{ObjectReference, SecretKeyReference};
pub use samples::{Sample, samples};
pub use schema::definitions;
pub use values::{Amount, Duration, InvalidValue, MacAddress, Quantity, Size, Version};

/// The API group of every kind.
pub const GROUP: &str = "vitistack.io";

/// The category of every kind: `kubectl get vitistack -A` lists all objects.
pub const CATEGORY: &str = "vitistack";
