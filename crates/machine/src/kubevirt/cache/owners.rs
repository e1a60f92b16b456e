//! Which objects of a kind belong to which machine.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use vitistack_plan::machine::Identity;
use vitistack_types::ObjectName;

/// An index of objects by the identity of their machine. Every name and identity is stored once, because there are
/// several for each machine.
#[derive(Debug, Default)]
pub struct Owners {
    objects: BTreeSet<(Arc<str>, Arc<ObjectName>)>,
    identities: HashMap<Arc<ObjectName>, Arc<str>>,
}

impl Owners {
    /// Returns the names of the objects of a machine, in order.
    #[must_use]
    pub fn objects(&self, identity: &Identity) -> Vec<ObjectName> {
        let identity = identity.as_str();
        let first = (Arc::from(identity), Arc::default());
        let objects = self.objects.range(first..).take_while(|(found, _)| **found == *identity);
        objects.map(|(_, name)| ObjectName::clone(name)).collect()
    }

    /// Returns the identity of an object's machine.
    #[must_use]
    pub fn owner(&self, name: &ObjectName) -> Option<Identity> {
        self.identities.get(name).map(|identity| Identity::new(identity.as_ref()))
    }

    /// Sets the identity of an object's machine, and returns the previous one.
    pub fn set(&mut self, name: &ObjectName, identity: Option<&Identity>) -> Option<Identity> {
        let before = self.owner(name);
        if before.as_ref() == identity {
            return before;
        }

        let known = self.identities.remove_entry(name);
        let name = known.as_ref().map_or_else(|| Arc::new(name.clone()), |(name, _)| Arc::clone(name));
        if let Some((name, identity)) = known {
            self.objects.remove(&(identity, name));
        }
        if let Some(identity) = identity {
            let identity = self.shared(identity);
            self.objects.insert((Arc::clone(&identity), Arc::clone(&name)));
            self.identities.insert(name, identity);
        }
        before
    }

    /// Returns the stored copy of an identity, or a new one.
    fn shared(&self, identity: &Identity) -> Arc<str> {
        let identity: Arc<str> = identity.as_str().into();
        let first = (Arc::clone(&identity), Arc::default());
        let known = self.objects.range(first..).next().map(|(known, _)| known);
        known.filter(|known| **known == identity).map_or(identity, Arc::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> ObjectName {
        ObjectName::new("apps", name)
    }

    fn found(owners: &Owners, identity: &str) -> Vec<String> {
        owners.objects(&Identity::new(identity)).into_iter().map(|found| found.name).collect()
    }

    #[test]
    fn an_object_is_found_by_its_current_owner_only() {
        let mut owners = Owners::default();
        let (one, two) = (Identity::new("one"), Identity::new("two"));
        owners.set(&name("b"), Some(&one));
        owners.set(&name("a"), Some(&one));
        assert_eq!(found(&owners, "one"), ["a", "b"], "in order");
        assert_eq!(found(&owners, "on"), [""; 0], "whole identities only");
        assert_eq!(owners.set(&name("b"), Some(&two)), Some(one));
        assert_eq!((found(&owners, "one"), found(&owners, "two")), (vec!["a".into()], vec!["b".into()]));
        assert_eq!(owners.owner(&name("b")), Some(two));
        owners.set(&name("a"), None);
        owners.set(&name("b"), None);
        assert!(owners.objects.is_empty() && owners.identities.is_empty());
    }

    #[test]
    fn the_identity_of_several_objects_is_stored_once() {
        let mut owners = Owners::default();
        for object in ["a", "b", "c"] {
            owners.set(&name(object), Some(&Identity::new("one")));
        }
        let identities: Vec<&Arc<str>> = owners.objects.iter().map(|(identity, _)| identity).collect();
        assert!(identities.iter().all(|identity| Arc::ptr_eq(identity, identities[0])));
    }
}
