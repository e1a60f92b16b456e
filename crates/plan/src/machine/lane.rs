//! How urgent a Machine is.

use vitistack_types::{conditions, v1alpha1::Machine};

/// Whether the operators reported, for the spec as it is now, that the backing machine exists. A settled Machine is only
/// observed; any other one is being created or changed.
#[must_use]
pub fn is_settled(machine: &Machine) -> bool {
    machine.status.as_ref().is_some_and(|status| {
        status.observed_generation == machine.metadata.generation
            && conditions::is_true(&status.conditions, conditions::VIRTUAL_MACHINE_READY)
    })
}
