//! Whether an operator runs.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use vitistack_types::{OperatorName, labels};

use super::{Cause, Link, LinkState, LinkTarget};
use crate::Inventory;

/// The reason where no operator runs. No condition has it, because no operator is there to report it.
pub const OPERATOR_ABSENT: &str = "OperatorAbsent";

/// A holder renews its lease every few seconds. Clocks may differ, so only a lease that is much older counts as abandoned.
const RENEWED_WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// What the lease of an operator shows.
enum LeaseState {
    /// It is renewed by this holder.
    Held(String),
    /// It does not exist, or was last renewed then.
    Abandoned(Option<Timestamp>),
    /// It could not be read.
    Unknown,
}

fn lease_state(operator: OperatorName, inventory: &Inventory) -> LeaseState {
    let Some(leases) = &inventory.leases else { return LeaseState::Unknown };
    let name = operator.lease();
    let is_its_own = |lease: &&Lease| lease.metadata.name.as_deref() == Some(name.as_str());
    let Some(lease) = leases.iter().find(is_its_own) else { return LeaseState::Abandoned(None) };

    let spec = lease.spec.clone().unwrap_or_default();
    let renewed = spec.renew_time.map(|time| time.0);
    let duration = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or_default().into());
    let is_fresh =
        renewed.is_some_and(|renewed| inventory.now.duration_since(renewed) < RENEWED_WITHIN.max(duration));
    match spec.holder_identity.filter(|holder| !holder.is_empty()) {
        Some(holder) if is_fresh => LeaseState::Held(holder),
        _ => LeaseState::Abandoned(renewed),
    }
}

/// Returns the operator as a link of the chain, and as the cause if it does not run.
///
/// An operator without leader election has no lease. A lease that does not exist counts as absence only for an object
/// that was not reconciled either.
pub(super) fn check(
    operator: OperatorName,
    is_reconciled: bool,
    inventory: &Inventory,
) -> (Link, Option<Cause>) {
    let target = LinkTarget::Operator(operator);
    let lease = format!("lease {:?} in namespace {}", operator.lease(), labels::SYSTEM_NAMESPACE);

    let (since, message) = match lease_state(operator, inventory) {
        LeaseState::Held(holder) => {
            return (Link::healthy(target, format!("running: its lease is held by {holder}")), None);
        }
        LeaseState::Unknown => {
            return (Link::new(target, LinkState::Unknown, "its lease could not be read"), None);
        }
        LeaseState::Abandoned(None) if is_reconciled => {
            let message = format!("{lease} not found: it runs without leader election, or not at all");
            return (Link::new(target, LinkState::Unknown, message), None);
        }
        LeaseState::Abandoned(None) => {
            (None, format!("not running: {lease} not found, and the object was never reconciled"))
        }
        LeaseState::Abandoned(since) => (since, format!("not running: {lease} is no longer renewed")),
    };

    let fix = Some(format!("run `vitistack run {operator}`, or check its log if it runs"));
    let cause = Cause { fix, ..Cause::new(target.clone(), OPERATOR_ABSENT, message.clone(), since) };
    (Link::blocking(target, message), Some(cause))
}
