//! Why a reconcile failed.

use snafu::Snafu;
use vitistack_clients::kubernetes::explain;
use vitistack_runtime::ReconcileError;
use vitistack_types::ObjectName;

/// Why a reconcile failed.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
pub(crate) enum Error {
    /// Machines cannot be listed.
    #[snafu(display("failed to list Machines: {}", explain(source)))]
    ListMachines {
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    /// A Machine cannot be read from the API server.
    #[snafu(display("failed to read Machine {name}: {}", explain(source)))]
    ReadMachine {
        name: ObjectName,
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    /// A MachineProvider cannot be read from the API server.
    #[snafu(display("failed to read MachineProvider {name}: {}", explain(source)))]
    ReadProvider {
        name: ObjectName,
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    /// A Machine cannot be patched.
    #[snafu(display("failed to patch Machine {name}: {}", explain(source)))]
    PatchMachine {
        name: ObjectName,
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    /// A MachineProvider cannot be patched.
    #[snafu(display("failed to patch MachineProvider {name}: {}", explain(source)))]
    PatchProvider {
        name: ObjectName,
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    /// A status cannot be applied.
    #[snafu(display("failed to apply the status of {kind} {name}: {}", explain(source)))]
    ApplyStatus {
        kind: String,
        name: ObjectName,
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    /// A Secret cannot be read from the API server.
    #[snafu(display("failed to read Secret {name}: {}", explain(source)))]
    ReadSecret {
        name: ObjectName,
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    /// What belongs to a MachineProvider cannot be cleaned up.
    #[snafu(display("failed to clean up after MachineProvider {name}: {source}"))]
    CleanUpProvider { name: ObjectName, source: Box<dyn std::error::Error + Send + Sync> },
}

impl Error {
    /// The label for metrics.
    fn category(&self) -> &'static str {
        match self {
            Self::ListMachines { .. } => "ListMachines",
            Self::ReadMachine { .. } => "ReadMachine",
            Self::ReadProvider { .. } => "ReadProvider",
            Self::PatchMachine { .. } => "PatchMachine",
            Self::PatchProvider { .. } => "PatchProvider",
            Self::ApplyStatus { .. } => "ApplyStatus",
            Self::ReadSecret { .. } => "ReadSecret",
            Self::CleanUpProvider { .. } => "CleanUpProvider",
        }
    }
}

impl From<Error> for ReconcileError {
    fn from(error: Error) -> Self {
        Self::from_source(error.category(), error)
    }
}
