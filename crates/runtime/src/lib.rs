//! The controller kit: everything that a VitiStack operator needs and that is not about machines or clusters.
//!
//! A controller is a [`Reconciler`] over a [`Cache`]; a [`Process`] runs controllers of one or several operators with
//! their leases, probes, metrics and telemetry. The kit knows none of our kinds.

pub mod args;
mod backoff;
pub mod cache;
pub mod events;
mod feed;
pub mod finalizer;
mod health;
mod lane;
mod lease;
mod log_lines;
mod metrics;
mod metrics_server;
mod operator;
mod outcome;
pub mod permissions;
mod probes;
mod queue;
mod run;
pub mod settings;
pub mod shutdown;
pub mod telemetry;

pub use args::KitArgs;
pub use cache::Cache;
pub use lane::{Lane, Urgency};
pub use metrics_server::MetricsServerError;
pub use operator::{Operator, Process, StartError, client_from, read_kubeconfig};
pub use outcome::{Outcome, ReconcileError};
pub use run::{Controller, Reconciler};
