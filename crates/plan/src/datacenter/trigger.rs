//! Which change of a Machine matters to which placement.

use vitistack_types::{ObjectName, v1alpha1::Machine};

use crate::machine::{datacenter_of, is_held_by_others, placement};

/// A change of a Machine, as a watch reports it.
#[derive(Clone, Copy, Debug)]
pub struct MachineChange<'a> {
    /// The Machine after the change, or as last seen if it is gone.
    pub machine: &'a Machine,
    /// The Machine before the change; none if it is new or gone.
    pub before: Option<&'a Machine>,
    /// Whether the Machine is gone.
    pub is_gone: bool,
    /// Whether only the status, or metadata that no decision reads, changed.
    pub is_status_only: bool,
}

impl MachineChange<'_> {
    /// The Datacenter that has to consider the change.
    #[must_use]
    pub fn concerned_datacenter(&self) -> Option<ObjectName> {
        datacenter_of(self.machine).filter(|_| self.is_relevant())
    }

    /// The provider that may have capacity since the change, which Machines of any Datacenter may be waiting for: a Machine
    /// on it was deleted, released, returned to its Datacenter or made smaller.
    #[must_use]
    pub fn freed_provider(&self) -> Option<ObjectName> {
        let before = if self.is_gone { Some(self.machine) } else { self.before };
        let before = before.filter(|_| self.is_relevant())?;
        let is_freed = self.is_gone
            || self.was_cleaned_up()
            || before.metadata.uid != self.machine.metadata.uid
            || placement(before) != placement(self.machine)
            || before.metadata.generation != self.machine.metadata.generation;
        placement(before).filter(|_| is_freed)?.provider().cloned()
    }

    /// Whether the change can matter to a placement: a change of the status or of a foreign finalizer cannot.
    fn is_relevant(&self) -> bool {
        !self.is_status_only || self.was_cleaned_up()
    }

    /// Whether our finalizer was removed with this change.
    fn was_cleaned_up(&self) -> bool {
        is_held_by_others(self.machine) && self.before.is_some_and(|before| !is_held_by_others(before))
    }
}

#[cfg(test)]
mod tests {
    use vitistack_types::{ObjectReference, labels};

    use super::*;

    fn on_rack_one() -> Machine {
        let west = ObjectReference { name: "west".to_owned(), namespace: None };
        let mut machine =
            Machine::builder().template("small").datacenter_ref(west).build("web", "default").unwrap();
        machine.metadata.uid = Some("1".to_owned());
        machine.metadata.generation = Some(1);
        let placement = (labels::PLACEMENT.to_owned(), "default/rack-one".to_owned());
        machine.metadata.annotations = Some([placement].into());
        machine
    }

    fn name(name: &str) -> ObjectName {
        ObjectName::new("default", name)
    }

    #[test]
    fn a_status_concerns_no_placement() {
        let machine = on_rack_one();
        let change =
            MachineChange { machine: &machine, before: Some(&machine), is_gone: false, is_status_only: true };
        assert_eq!((change.concerned_datacenter(), change.freed_provider()), (None, None));
    }

    #[test]
    fn a_changed_or_deleted_machine_may_free_its_provider() {
        let before = on_rack_one();
        let mut changed = before.clone();
        changed.metadata.generation = Some(2);
        let change =
            MachineChange { machine: &changed, before: Some(&before), is_gone: false, is_status_only: false };
        assert_eq!(
            (change.concerned_datacenter(), change.freed_provider()),
            (Some(name("west")), Some(name("rack-one")))
        );

        let gone = MachineChange { machine: &before, before: None, is_gone: true, is_status_only: false };
        assert_eq!(gone.freed_provider(), Some(name("rack-one")));

        let new = MachineChange { machine: &before, before: None, is_gone: false, is_status_only: false };
        assert_eq!((new.concerned_datacenter(), new.freed_provider()), (Some(name("west")), None));
    }

    #[test]
    fn a_machine_that_returns_to_its_datacenter_frees_its_provider() {
        let before = on_rack_one();
        let mut returned = before.clone();
        returned.metadata.annotations = None;
        let change = MachineChange {
            machine: &returned,
            before: Some(&before),
            is_gone: false,
            is_status_only: false,
        };
        assert_eq!(change.freed_provider(), Some(name("rack-one")));
    }
}
