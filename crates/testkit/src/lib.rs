//! Real servers and fuzzing for tests. Used as a dev-dependency only.

mod audit;
pub mod fuzz;
mod guarded;
mod kube;
mod kubevirt;
mod ports;
mod tools;

pub use audit::AuditedRequest;
pub use guarded::{Guarded, GuardedError};
pub use kube::{KubeServer, KubeServerError, Options, User};
pub use kubevirt::{Companion, KubeVirt, KubeVirtError};
pub use ports::free_port;
pub use tools::{Tools, ToolsError};
