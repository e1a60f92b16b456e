//! The operator runtime: everything that a VitiStack operator needs and that is not about machines or clusters.
//!
//! A controller is a [`Reconciler`] over a [`Cache`]; a [`Process`] runs the controllers of one or more operators with
//! their leases, probes, metrics and telemetry. The runtime knows none of the VitiStack kinds.

pub mod args;
pub mod cache;
mod error;
pub mod events;
pub mod finalizer;
mod health;
mod lane;
mod lease;
mod lock;
mod log_lines;
mod metrics;
mod metrics_server;
mod operator;
pub mod permissions;
mod probes;
mod queue;
mod reload;
mod run;
pub mod settings;
pub mod shutdown;
pub mod telemetry;

pub use args::{LogLevel, OperatorArgs};
pub use cache::{Cache, Urgency};
pub use error::ReconcileError;
pub use lane::Lane;
pub use lock::lock;
pub use metrics_server::MetricsServerError;
pub use operator::{Operator, Process, StartError, client_from, read_kubeconfig};
pub use queue::Share;
pub use run::{Controller, Reconciler};
pub use vitistack_types::{Event, Outcome};
