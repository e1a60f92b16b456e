//! The KubeVirt backend, without a cluster: what it makes, what it refuses, what it understands, what it sends.

mod mapping;
mod plans;
mod refusals;
mod requests;
mod stage;
mod standin;
mod states;
