//! Tests of the kit as it is used: the example operator as a process, on a real kube-apiserver where one is needed.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

#[cfg(feature = "integration")]
mod stage;
#[path = "../../examples/widgets/widget.rs"]
#[cfg(feature = "integration")]
mod widget;

#[cfg(feature = "integration")]
mod children;
#[cfg(feature = "integration")]
mod leadership;
#[cfg(feature = "integration")]
mod outage;
#[cfg(feature = "integration")]
mod scrape;
mod settings;
#[cfg(feature = "integration")]
mod steady;
