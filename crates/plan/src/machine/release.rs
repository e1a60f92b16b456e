//! Whether a Machine may be released: its object is deleted and its backing machine stays.

use vitistack_types::v1alpha1::Machine;

use super::{has_finalizer, has_own_identity};

/// Why a Machine cannot be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReleasable {
    /// It is being deleted, and its backing machine with it.
    Deleting,
    /// It carries an identity that it did not adopt: the backing machine is not its own.
    NotAdopted,
    /// No backing machine was created for it.
    NothingCreated,
}

/// Checks whether a Machine can be released. `was_started` says that a release of its identity was recorded, and may have
/// been interrupted.
pub fn release(machine: &Machine, was_started: bool) -> Result<(), NotReleasable> {
    if !has_own_identity(machine) {
        return Err(NotReleasable::NotAdopted);
    }
    if machine.metadata.deletion_timestamp.is_some() {
        return Err(NotReleasable::Deleting);
    }
    if !has_finalizer(machine) && !was_started {
        return Err(NotReleasable::NothingCreated);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

    use vitistack_types::labels;

    use super::*;

    fn created(identity: &str) -> Machine {
        let mut machine = Machine::builder().template("small").build("web", "shop").unwrap();
        machine.metadata.uid = Some("own".to_owned());
        machine.metadata.annotations = Some([(labels::IDENTITY.to_owned(), identity.to_owned())].into());
        machine.metadata.finalizers = Some(vec![labels::MACHINE_CLEANUP.to_owned()]);
        machine
    }

    #[test]
    fn a_machine_that_was_created_can_be_released() {
        assert_eq!(release(&created("own"), false), Ok(()));
    }

    #[test]
    fn an_interrupted_release_can_be_finished() {
        let mut machine = created("own");
        machine.metadata.finalizers = None;
        assert_eq!(release(&machine, false), Err(NotReleasable::NothingCreated));
        assert_eq!(release(&machine, true), Ok(()));
    }

    #[test]
    fn a_machine_that_is_not_its_own_or_is_being_deleted_cannot_be_released() {
        assert_eq!(release(&created("other"), true), Err(NotReleasable::NotAdopted));
        let mut deleting = created("own");
        deleting.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert_eq!(release(&deleting, true), Err(NotReleasable::Deleting));
    }
}
