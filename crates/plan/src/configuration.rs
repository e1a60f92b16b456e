//! The plan for an object that only describes something, such as a MachineClass or a NetworkConfiguration. Its CRD rejects
//! invalid objects, so every one that exists can be used.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use vitistack_types::{
    Outcome,
    conditions::{self, reason},
    v1alpha1::{ConfigurationStatus, Phase},
};

use crate::{
    Plan,
    conditions::{OF_CONFIGURATIONS, Owned, assertion, owned},
};

/// The plan for a configuration object, which has no steps.
pub type ConfigurationPlan = Plan<(), ConfigurationStatus>;

/// Plans a configuration object.
#[must_use]
pub fn plan(
    metadata: &ObjectMeta,
    before: Option<&ConfigurationStatus>,
    now: Timestamp,
) -> ConfigurationPlan {
    let status = metadata.deletion_timestamp.is_none().then(|| status(metadata, before, now)).flatten();
    Plan { objects: Vec::new(), steps: Vec::new(), status, events: Vec::new(), requeue: Outcome::Done }
}

fn status(
    metadata: &ObjectMeta,
    before: Option<&ConfigurationStatus>,
    now: Timestamp,
) -> Option<ConfigurationStatus> {
    let existing = before.map(|before| before.conditions.as_slice()).unwrap_or_default();
    let mut conditions = Owned::new(existing, OF_CONFIGURATIONS, metadata.generation, now);
    conditions.set(conditions::READY, assertion(true, reason::AS_SPECIFIED, "Machines can use it"));

    let after = ConfigurationStatus {
        phase: Some(Phase::Ready),
        observed_generation: metadata.generation,
        conditions: conditions.into_vec(),
    };
    let is_unchanged = before.is_some_and(|before| {
        let conditions = owned(&before.conditions, OF_CONFIGURATIONS);
        after == ConfigurationStatus { conditions, ..before.clone() }
    });
    (!is_unchanged).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_as_of_each_generation_and_written_once() {
        let (then, now) = ("2030-01-01T00:00:00Z".parse().unwrap(), "2030-01-02T00:00:00Z".parse().unwrap());
        let first = ObjectMeta { generation: Some(1), ..ObjectMeta::default() };
        let written = plan(&first, None, then).status.unwrap();
        assert!(conditions::is_true(&written.conditions, conditions::READY));
        assert_eq!(plan(&first, Some(&written), now).status, None, "nothing to write");

        let second = ObjectMeta { generation: Some(2), ..ObjectMeta::default() };
        let again = plan(&second, Some(&written), now).status.unwrap();
        assert_eq!(again.observed_generation, Some(2));
        assert_eq!(again.conditions[0].observed_generation, Some(2));
        assert_eq!(again.conditions[0].last_transition_time, written.conditions[0].last_transition_time);
    }
}
