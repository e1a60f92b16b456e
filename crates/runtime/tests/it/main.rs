//! Tests of the runtime in use: the example operator as a process, on a real kube-apiserver where necessary.

#![expect(clippy::unwrap_used, reason = "test helpers fail by panicking")]

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
mod reload;
#[cfg(feature = "integration")]
mod scrape;
mod settings;
#[cfg(feature = "integration")]
mod steady;
