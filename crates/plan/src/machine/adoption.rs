//! Whether a Machine may take over the real machine whose identity it carries.

use vitistack_types::{labels, v1alpha1::Machine};

use super::identity;

/// What is to be said to somebody who wants a Machine to have the identity that it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// It may be given it.
    Possible {
        /// Its own UID, which confirms it.
        uid: String,
    },
    /// It has it, or will get its own.
    NotNeeded {
        /// Why.
        why: &'static str,
    },
    /// Another Machine claims the same real machine.
    HeldBy {
        /// That Machine, as `namespace/name`.
        twin: String,
    },
}

/// Judges one Machine among all others of the cluster, or among those of its identity.
#[must_use]
pub fn adoption(machine: &Machine, others: &[&Machine]) -> Adoption {
    let annotation = |name: &str| machine.metadata.annotations.as_ref()?.get(name);
    let uid = machine.metadata.uid.clone().unwrap_or_default();
    match annotation(labels::IDENTITY) {
        None => return Adoption::NotNeeded { why: "it carries no identity and will get one of its own" },
        Some(carried) if *carried == uid => {
            return Adoption::NotNeeded { why: "the identity that it carries is its own" };
        }
        Some(_) => {}
    }
    let is_twin = |other: &&&Machine| {
        other.metadata.uid != machine.metadata.uid && identity(other) == identity(machine)
    };
    if let Some(twin) = others.iter().find(is_twin) {
        let place = |part: &Option<String>| part.clone().unwrap_or_default();
        let (namespace, name) = (place(&twin.metadata.namespace), place(&twin.metadata.name));
        return Adoption::HeldBy { twin: format!("{namespace}/{name}") };
    }
    if annotation(labels::ADOPTED) == Some(&uid) {
        return Adoption::NotNeeded { why: "it was adopted before" };
    }
    Adoption::Possible { uid }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, uid: &str, annotations: &[(&str, &str)]) -> Machine {
        let mut machine = Machine::builder().template("small").build(name, "shop").unwrap();
        machine.metadata.uid = Some(uid.to_owned());
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        machine.metadata.annotations = Some(annotations.collect());
        machine
    }

    #[test]
    fn a_restored_machine_may_have_the_identity_that_it_carries() {
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
            let judged = adoption(&machine, &[&machine]);
            assert!(matches!(judged, Adoption::NotNeeded { .. }), "{judged:?}");
        }
    }

    #[test]
    fn a_twin_is_named_even_if_it_never_carried_its_identity_as_an_annotation() {
        let restored = machine("web", "new", &[(labels::IDENTITY, "old"), (labels::ADOPTED, "new")]);
        let original = machine("web-original", "old", &[]);
        let judged = adoption(&restored, &[&restored, &original]);
        assert_eq!(judged, Adoption::HeldBy { twin: "shop/web-original".to_owned() });
    }
}
