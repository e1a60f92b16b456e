//! Machine backends, one folder each. All implement one trait and pass one conformance suite.

mod backend;
mod backend_type;
pub mod conformance;
pub mod kubevirt; // backend: allow, the folder of a backend
mod limits;
mod open;
pub mod simulated; // backend: allow, the folder of a backend

pub use backend::{Backend, BackendError, Order, Progress, Target};
pub use backend_type::{
    BackendContext, BackendType, DependentKind, Rendered, Requirement, backend_type, backend_types,
};
pub use limits::Limits;
pub use open::{BackendOpener, OpenBackend, ProviderChange, ProviderConfig};
pub use vitistack_plan::machine::{ErrorKind, Part, Update};
