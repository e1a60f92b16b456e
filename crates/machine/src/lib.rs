//! Machine backends, one folder each, behind one trait that they all pass one conformance suite for.

mod backend;
pub mod conformance;
pub mod kubevirt;
pub mod simulated;

pub use backend::{Backend, BackendError, Changes, ErrorKind, Order, Progress, Target};
use vitistack_plan::machine::Capabilities;
pub use vitistack_plan::machine::{Part, Update};
use vitistack_types::v1alpha1::ProviderType;

/// What the backend of a type of provider can do, without opening one.
#[must_use]
pub fn capabilities(kind: ProviderType) -> Capabilities {
    match kind {
        ProviderType::Kubevirt => kubevirt::capabilities(),
        ProviderType::Simulated => simulated::capabilities(),
    }
}
