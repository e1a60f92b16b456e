//! Whether a Machine may adopt the backing machine whose identity it carries.

use vitistack_types::{ObjectName, labels, v1alpha1::Machine};

use super::{
    Identity,
    decide::{is_identity_lost, lost_identity},
    identity,
};

/// The answer to a request to adopt the identity that a Machine carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// It can be adopted.
    Possible {
        /// The Machine's own UID, which confirms the adoption.
        uid: String,
    },
    /// It was adopted and lost the identity, which can be restored.
    Repairable {
        /// The identity.
        identity: Identity,
    },
    /// The identity is its own, or it will get its own.
    NotNeeded {
        /// Why.
        why: &'static str,
    },
    /// Another Machine claims the same backing machine.
    HeldBy {
        /// That Machine.
        twin: ObjectName,
    },
}

/// Checks whether a Machine can adopt its identity, among all Machines of the cluster or those with the same identity.
#[must_use]
pub fn adoption(machine: &Machine, others: &[&Machine]) -> Adoption {
    let annotation = |name: &str| machine.metadata.annotations.as_ref()?.get(name);
    let uid = machine.metadata.uid.clone().unwrap_or_default();
    let is_twin = |other: &&&Machine| {
        other.metadata.uid != machine.metadata.uid && identity(other) == identity(machine)
    };
    let twin = others.iter().find(is_twin).map(|twin| ObjectName::of(*twin));

    match annotation(labels::IDENTITY) {
        None if lost_identity(machine).is_some() => {
            let identity = identity(machine);
            return twin.map_or(Adoption::Repairable { identity }, |twin| Adoption::HeldBy { twin });
        }
        None if is_identity_lost(machine) => {
            return Adoption::NotNeeded {
                why: "it lost its identity and its status does not report it: set the annotation vitistack.io/identity to the identity that the backing machine is labeled with",
            };
        }
        None => return Adoption::NotNeeded { why: "it has no identity yet and will get its own" },
        Some(carried) if *carried == uid => {
            return Adoption::NotNeeded { why: "its identity is its own" };
        }
        Some(_) => {}
    }
    if let Some(twin) = twin {
        return Adoption::HeldBy { twin };
    }
    if annotation(labels::ADOPTED) == Some(&uid) {
        return Adoption::NotNeeded { why: "it was already adopted" };
    }
    Adoption::Possible { uid }
}

#[cfg(test)]
mod tests {
    use vitistack_types::v1alpha1::MachineStatus;

    use super::*;

    fn machine(name: &str, uid: &str, annotations: &[(&str, &str)]) -> Machine {
        let mut machine = Machine::builder().template("small").build(name, "shop").unwrap();
        machine.metadata.uid = Some(uid.to_owned());
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        machine.metadata.annotations = Some(annotations.collect());
        machine
    }

    #[test]
    fn a_restored_machine_can_adopt_its_identity() {
        let restored = machine("web", "new", &[(labels::IDENTITY, "old")]);
        let stranger = machine("db", "other", &[(labels::IDENTITY, "other")]);
        let all = [&restored, &stranger];
        assert_eq!(adoption(&restored, &all), Adoption::Possible { uid: "new".to_owned() });
    }

    #[test]
    fn a_machine_with_its_own_identity_or_none_needs_no_adoption() {
        for machine in [
            machine("web", "own", &[]),
            machine("web", "own", &[(labels::IDENTITY, "own")]),
            machine("web", "new", &[(labels::IDENTITY, "old"), (labels::ADOPTED, "new")]),
        ] {
            let answer = adoption(&machine, &[&machine]);
            assert!(matches!(answer, Adoption::NotNeeded { .. }), "{answer:?}");
        }
    }

    #[test]
    fn a_machine_that_lost_its_identity_gets_it_back() {
        let mut adopted = machine("web", "new", &[(labels::ADOPTED, "new")]);
        let answer = adoption(&adopted, &[&adopted]);
        assert!(matches!(answer, Adoption::NotNeeded { .. }), "nothing reports the identity: {answer:?}");

        let status = MachineStatus { identity: Some("old".to_owned()), ..MachineStatus::default() };
        adopted.status = Some(status);
        assert_eq!(adoption(&adopted, &[&adopted]), Adoption::Repairable { identity: Identity::new("old") });

        let original = machine("web-original", "old", &[]);
        let answer = adoption(&adopted, &[&adopted, &original]);
        assert_eq!(answer, Adoption::HeldBy { twin: ObjectName::new("shop", "web-original") });
    }

    #[test]
    fn a_twin_without_the_annotation_is_found_too() {
        let restored = machine("web", "new", &[(labels::IDENTITY, "old"), (labels::ADOPTED, "new")]);
        let original = machine("web-original", "old", &[]);
        let answer = adoption(&restored, &[&restored, &original]);
        assert_eq!(answer, Adoption::HeldBy { twin: ObjectName::new("shop", "web-original") });
    }
}
