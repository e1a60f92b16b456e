//! Whether a Machine may be let go without its real machine.

use vitistack_types::{labels, v1alpha1::Machine};

use super::has_finalizer;

/// Why a Machine cannot be let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is being deleted, and its real machine with it.
    Deleting,
    /// It carries an identity that it was not given: the real machine is not its own to let go.
    NotItsOwn,
    /// Nothing real was made for it.
    NothingMade,
}

/// Judges one Machine. `was_begun` says that a release was recorded for its identity, and perhaps cut short.
pub fn release(machine: &Machine, was_begun: bool) -> Result<(), Kept> {
    let annotation = |name: &str| machine.metadata.annotations.as_ref()?.get(name);
    let uid = machine.metadata.uid.as_ref();
    let carried = annotation(labels::IDENTITY);
    if carried.is_some() && carried != uid && annotation(labels::ADOPTED) != uid {
        return Err(Kept::NotItsOwn);
    }
    if machine.metadata.deletion_timestamp.is_some() {
        return Err(Kept::Deleting);
    }
    if !has_finalizer(machine) && !was_begun {
        return Err(Kept::NothingMade);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

    use super::*;

    fn made(identity: &str) -> Machine {
        let mut machine = Machine::builder().template("small").build("web", "shop").unwrap();
        machine.metadata.uid = Some("own".to_owned());
        machine.metadata.annotations = Some([(labels::IDENTITY.to_owned(), identity.to_owned())].into());
        machine.metadata.finalizers = Some(vec![labels::MACHINE_CLEANUP.to_owned()]);
        machine
    }

    #[test]
    fn a_machine_that_was_made_may_be_let_go() {
        assert_eq!(release(&made("own"), false), Ok(()));
    }

    #[test]
    fn a_release_that_was_cut_short_may_be_finished() {
        let mut machine = made("own");
        machine.metadata.finalizers = None;
        assert_eq!(release(&machine, false), Err(Kept::NothingMade));
        assert_eq!(release(&machine, true), Ok(()));
    }

    #[test]
    fn what_is_not_its_own_or_on_its_way_out_is_kept() {
        assert_eq!(release(&made("other"), true), Err(Kept::NotItsOwn));
        let mut deleting = made("own");
        deleting.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert_eq!(release(&deleting, true), Err(Kept::Deleting));
    }
}
