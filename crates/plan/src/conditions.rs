//! The conditions of one object, of which a controller owns some.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use vitistack_types::conditions::{self, Statement};

use crate::Refusal;

/// The condition types that the operators own on a Machine.
pub const OF_MACHINES: &[&str] = &[
    conditions::READY,
    conditions::VIRTUAL_MACHINE_READY,
    conditions::STORAGE_READY,
    conditions::NETWORK_READY,
    conditions::UP_TO_DATE,
    conditions::PAUSED,
];

/// The condition types that the operators own on a MachineProvider.
pub const OF_PROVIDERS: &[&str] =
    &[conditions::READY, conditions::REACHABLE, conditions::CREDENTIALS_VALID, conditions::PAUSED];

/// The condition types that the operators own on a Datacenter.
pub const OF_DATACENTERS: &[&str] =
    &[conditions::READY, conditions::FIELDS_HONOURED, conditions::WITHIN_QUOTAS, conditions::PAUSED];

/// The condition types that the operators own on a MachineClass and a NetworkConfiguration.
pub const OF_CONFIGURATIONS: &[&str] = &[conditions::READY];

/// What a condition is to state: status, reason and message.
pub(crate) type Assertion = (Option<bool>, &'static str, String);

/// An assertion that something holds, or does not.
pub(crate) fn assertion(is_true: bool, reason: &'static str, message: impl Into<String>) -> Assertion {
    (Some(is_true), reason, message.into())
}

/// An assertion that something does not hold, for the reason of a refusal.
pub(crate) fn refused(refusal: &Refusal) -> Assertion {
    assertion(false, refusal.reason, refusal.message.clone())
}

/// The conditions that a controller owns: those of others are left to them.
pub(crate) struct Owned {
    conditions: Vec<Condition>,
    generation: Option<i64>,
    now: Timestamp,
}

impl Owned {
    /// Starts from the conditions that an object has, as of `generation`.
    pub(crate) fn new(
        existing: &[Condition],
        types: &[&str],
        generation: Option<i64>,
        now: Timestamp,
    ) -> Self {
        Self { conditions: owned(existing, types), generation, now }
    }

    /// Sets a condition.
    pub(crate) fn set(&mut self, type_: &str, (status, reason, message): Assertion) {
        let statement = Statement { type_, status, reason, message: &message };
        conditions::set(&mut self.conditions, &statement, self.generation, self.now);
    }

    /// Sets a condition that exists only while there is something to report.
    pub(crate) fn set_or_remove(&mut self, type_: &str, assertion: Option<Assertion>) {
        match assertion {
            Some(assertion) => self.set(type_, assertion),
            None => self.retain(|each| each != type_),
        }
    }

    /// Removes the conditions whose type is not kept.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.conditions.retain(|condition| is_kept(&condition.type_));
    }

    /// The conditions.
    pub(crate) fn into_vec(self) -> Vec<Condition> {
        self.conditions
    }
}

/// The conditions of these types.
pub(crate) fn owned(existing: &[Condition], types: &[&str]) -> Vec<Condition> {
    existing.iter().filter(|condition| types.contains(&condition.type_.as_str())).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_of_others_are_left_to_them() {
        let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let mut existing = Vec::new();
        for type_ in ["Ready", "example.com/BackedUp"] {
            let statement = Statement { type_, status: Some(true), reason: "Because", message: "so" };
            conditions::set(&mut existing, &statement, Some(1), now);
        }

        let mut owned = Owned::new(&existing, OF_CONFIGURATIONS, Some(2), now);
        owned.set(conditions::READY, assertion(false, "NotYet", "Waiting"));
        let types: Vec<String> = owned.into_vec().into_iter().map(|condition| condition.type_).collect();
        assert_eq!(types, ["Ready"]);
    }
}
