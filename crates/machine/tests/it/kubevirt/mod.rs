//! The KubeVirt backend: what it makes, what it refuses, what it understands, what it sends, without a cluster; and what
//! KubeVirt itself makes of that, in `real`.

mod mapping;
mod plans;
#[cfg(feature = "integration")]
mod real;
mod refusals;
mod requests;
mod stage;
mod standin;
mod states;
