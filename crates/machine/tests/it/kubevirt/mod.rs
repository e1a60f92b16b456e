//! The KubeVirt backend: its objects, refusals, observations and requests without a cluster, and in `real` with the real
//! KubeVirt.

pub mod case;
mod fake_cluster;
mod hostile;
mod hostile_text;
mod mapping;
mod plans;
#[cfg(feature = "integration")]
mod real;
mod refusals;
mod requests;
mod states;
