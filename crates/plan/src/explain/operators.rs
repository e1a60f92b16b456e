//! Whether somebody acts at all.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use vitistack_types::{labels, v1alpha1::ProviderType};

use super::{Cause, Link, World};

/// The reason where no operator acts; it stands in no condition, because nobody is there to write one.
pub const OPERATOR_ABSENT: &str = "OperatorAbsent";

/// The operator that places Machines.
pub const DATACENTER: &str = "datacenter";

/// The operator that looks after providers.
pub const MACHINE_PROVIDER: &str = "machine-provider";

/// A holder renews every few seconds. Clocks may differ, so only a lease that is much older counts as abandoned.
const RENEWED_WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// Whether an operator acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acting {
    /// Its lease is renewed by this holder.
    Yes(String),
    /// Its lease is not there, or was last renewed then.
    No(Option<Timestamp>),
    /// Leases could not be read.
    Unknown,
}

/// The operator of a type of provider.
pub fn of_type(kind: ProviderType) -> &'static str {
    match kind {
        ProviderType::Kubevirt => "kubevirt",
        ProviderType::Simulated => "simulated",
    }
}

/// Whether the operator acts.
pub fn acting(operator: &str, world: &World) -> Acting {
    let Some(leases) = &world.leases else { return Acting::Unknown };
    let is_its = |lease: &&Lease| lease.metadata.name.as_deref() == Some(operator);
    let Some(lease) = leases.iter().find(is_its) else { return Acting::No(None) };
    let spec = lease.spec.clone().unwrap_or_default();
    let renewed = spec.renew_time.map(|time| time.0);
    let is_fresh = renewed.is_some_and(|renewed| world.now.duration_since(renewed) < RENEWED_WITHIN);
    match spec.holder_identity.filter(|holder| !holder.is_empty()) {
        Some(holder) if is_fresh => Acting::Yes(holder),
        _ => Acting::No(renewed),
    }
}

/// The operator as a part of the chain, and as the cause if it does not act.
pub fn look(operator: &str, world: &World) -> (Link, Option<Cause>) {
    let object = format!("operator {operator}");
    let place = labels::SYSTEM_NAMESPACE;
    match acting(operator, world) {
        Acting::Yes(holder) => {
            (Link { object, is_well: true, says: format!("acts: its lease is held by {holder}") }, None)
        }
        Acting::Unknown => {
            (Link { object, is_well: true, says: "not known: its lease could not be read".to_owned() }, None)
        }
        Acting::No(since) => {
            let message = if since.is_some() {
                format!("its lease {operator:?} in namespace {place} is no longer renewed: nobody acts")
            } else {
                format!("there is no lease {operator:?} in namespace {place}: nobody acts")
            };
            let cause = Cause {
                object: object.clone(),
                reason: OPERATOR_ABSENT.to_owned(),
                message: message.clone(),
                since,
                waits_for: None,
                to_do: Some(format!(
                    "run `vitistack run {operator}`; if it runs without leader election, look at its log"
                )),
            };
            (Link { object, is_well: false, says: message }, Some(cause))
        }
    }
}
