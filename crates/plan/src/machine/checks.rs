//! The checks of a Machine before anything is asked of its provider, and their order.

use vitistack_types::v1alpha1::Machine;

use super::{Desired, may_have_backing_machine};
use crate::{Refusal, refusals};

/// What was checked of a Machine on a provider.
#[derive(Clone, Debug)]
pub struct Checks {
    /// Whether the namespace in which the provider creates machines permits it.
    pub permitted: Result<(), Refusal>,
    /// The desired state that the spec and its references describe.
    pub resolved: Result<Desired, Refusal>,
    /// Whether the Datacenter admitted what the Machine uses now.
    pub admitted: Result<(), Refusal>,
}

impl Checks {
    /// The desired state, or the first refusal: a permission first, because what it protects must not show through a later
    /// check; then the spec, because what it needs is not known before it is valid; then the quota.
    pub fn desired(self, machine: &Machine) -> Result<Desired, Refusal> {
        if machine.metadata.deletion_timestamp.is_some() {
            return Err(refusals::deleting());
        }
        self.permitted?;
        let desired = self.resolved?;
        self.admitted?;
        Ok(desired)
    }

    /// Checks that the provider may be asked about the Machine. A namespace that does not permit it is not even read,
    /// unless the backing machine may be there: then it must be found to be deleted or reported.
    pub fn may_ask_provider(&self, machine: &Machine) -> Result<(), Refusal> {
        let may_exist =
            machine.metadata.deletion_timestamp.is_some() || may_have_backing_machine(&machine.metadata);
        if may_exist { Ok(()) } else { self.permitted.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{References, resolve},
        *,
    };

    fn refused(reason: &'static str) -> Refusal {
        Refusal::new(reason, "message")
    }

    #[test]
    fn a_permission_is_reported_before_the_spec_and_the_spec_before_the_quota() {
        let machine = Machine::builder().template("small").build("web", "default").unwrap();
        let mut checks = Checks {
            permitted: Err(refused("ReferenceNotPermitted")),
            resolved: Err(refused("InvalidSpec")),
            admitted: Err(refused("QuotaExceeded")),
        };
        let reason = |checks: &Checks| checks.clone().desired(&machine).unwrap_err().reason;
        assert_eq!(reason(&checks), "ReferenceNotPermitted");
        assert!(checks.may_ask_provider(&machine).is_err(), "a foreign namespace is not read");

        checks.permitted = Ok(());
        assert_eq!(reason(&checks), "InvalidSpec");
        assert!(checks.may_ask_provider(&machine).is_ok());

        checks.resolved = resolve(&machine, &References::default());
        assert_eq!(reason(&checks), "QuotaExceeded");

        checks.admitted = Ok(());
        assert!(checks.desired(&machine).is_ok());
    }
}
