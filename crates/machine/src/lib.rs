//! Machine backends, one folder each, behind one trait that they all pass one conformance suite for.

mod backend;
pub mod conformance;
pub mod kubevirt;
pub mod simulated;

pub use backend::{Backend, BackendError, Changes, ErrorKind, Order, Progress, Target};
pub use vitistack_plan::machine::{Part, Update};
