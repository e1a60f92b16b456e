//! What is told of an object that says how something shall be and is nothing by itself: a MachineClass, a
//! NetworkConfiguration. Its definition refuses what is wrong with it, so one that is there can be used.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use vitistack_types::{
    conditions::{self, Statement, reason},
    v1alpha1::{ConfigurationStatus, Phase},
};

/// The status of such an object.
#[must_use]
pub fn status(
    metadata: &ObjectMeta,
    before: Option<&ConfigurationStatus>,
    now: Timestamp,
) -> ConfigurationStatus {
    let mut conditions = before.map(|before| before.conditions.clone()).unwrap_or_default();
    let statement = Statement {
        type_: conditions::READY,
        status: Some(true),
        reason: reason::AS_SPECIFIED,
        message: "Machines can use it",
    };
    conditions::set(&mut conditions, &statement, metadata.generation, now);
    ConfigurationStatus { phase: Some(Phase::Ready), observed_generation: metadata.generation, conditions }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_as_of_each_generation_and_told_once() {
        let (then, now) = ("2030-01-01T00:00:00Z".parse().unwrap(), "2030-01-02T00:00:00Z".parse().unwrap());
        let first = ObjectMeta { generation: Some(1), ..ObjectMeta::default() };
        let told = status(&first, None, then);
        assert!(conditions::is_true(&told.conditions, conditions::READY));
        assert_eq!(status(&first, Some(&told), now), told, "nothing to write");
        let second = ObjectMeta { generation: Some(2), ..ObjectMeta::default() };
        let again = status(&second, Some(&told), now);
        assert_eq!(again.observed_generation, Some(2));
        assert_eq!(again.conditions[0].observed_generation, Some(2));
        assert_eq!(again.conditions[0].last_transition_time, told.conditions[0].last_transition_time);
    }
}
