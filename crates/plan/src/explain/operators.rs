//! Whether somebody acts at all.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use vitistack_types::{labels, v1alpha1::ProviderType};

use super::{Cause, Link, Standing, World};

/// The reason where no operator acts; it stands in no condition, because nobody is there to write one.
pub const OPERATOR_ABSENT: &str = "OperatorAbsent";

/// The name of an operator's lease.
fn lease_name(operator: &str) -> String {
    format!("{operator}-operator")
}

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
    let wanted = lease_name(operator);
    let is_its = |lease: &&Lease| lease.metadata.name.as_deref() == Some(wanted.as_str());
    let Some(lease) = leases.iter().find(is_its) else { return Acting::No(None) };
    let spec = lease.spec.clone().unwrap_or_default();
    let renewed = spec.renew_time.map(|time| time.0);
    let lasts = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or_default().into());
    let is_fresh =
        renewed.is_some_and(|renewed| world.now.duration_since(renewed) < RENEWED_WITHIN.max(lasts));
    match spec.holder_identity.filter(|holder| !holder.is_empty()) {
        Some(holder) if is_fresh => Acting::Yes(holder),
        _ => Acting::No(renewed),
    }
}

/// The operator as a part of the chain, and as the cause if it does not act.
///
/// One that runs without leader election has no lease. So a lease that was never there counts as absence only for an
/// object that nobody has looked at either.
pub fn look(operator: &str, is_looked_at: bool, world: &World) -> (Link, Option<Cause>) {
    let object = format!("operator {operator}");
    let (lease, place) = (lease_name(operator), labels::SYSTEM_NAMESPACE);
    let fine = |standing, says: String| (Link { object: object.clone(), standing, says }, None);
    let since = match acting(operator, world) {
        Acting::Yes(holder) => return fine(Standing::Well, format!("acts: its lease is held by {holder}")),
        Acting::Unknown => return fine(Standing::Unknown, "its lease could not be read".to_owned()),
        Acting::No(None) if is_looked_at => {
            let says = format!(
                "there is no lease {lease:?} in namespace {place}: it runs without leader election, or not at all"
            );
            return fine(Standing::Unknown, says);
        }
        Acting::No(since) => since,
    };
    let message = if since.is_some() {
        format!("its lease {lease:?} in namespace {place} is no longer renewed: nobody acts")
    } else {
        format!("there is no lease {lease:?} in namespace {place}, and nobody has looked at it: nobody acts")
    };
    let cause = Cause {
        object: object.clone(),
        reason: OPERATOR_ABSENT.to_owned(),
        message: message.clone(),
        since,
        waits_for: None,
        to_do: Some(format!("run `vitistack run {operator}`, or look at its log if it runs")),
    };
    (Link { object, standing: Standing::Blocking, says: message }, Some(cause))
}
