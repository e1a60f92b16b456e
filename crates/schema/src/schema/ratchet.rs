//! Ratcheting: matches new values with old ones.
//!
//! On an update an error is tolerated if its value is the same as before (KEP-4008). Fields and map keys are
//! matched by name, items of a list only if the list is a map, by its keys.

use std::{cell::OnceCell, collections::HashMap};

use serde_json::Value;

use super::{ListType, Node};

/// A new value, its old value and their schema.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Correlated<'a> {
    pub(crate) node: &'a Node,
    pub(crate) new: &'a Value,
    pub(crate) old: &'a Value,
}

impl<'a> Correlated<'a> {
    /// Returns the pair at a field or map key, if both objects have it and its schema is known.
    pub(crate) fn key(self, name: &str) -> Option<Correlated<'a>> {
        let new = self.new.as_object()?.get(name)?;
        let old = self.old.as_object()?.get(name)?;
        Some(Correlated { node: self.node.child(name)?, new, old })
    }

    /// Returns the pairs of the items, if the list is a map.
    pub(crate) fn items(self) -> Option<Items<'a>> {
        let old = OldItems::of(self.node, self.old.as_array()?)?;
        Some(Items { node: self.node.items.as_deref()?, new: self.new.as_array()?, old })
    }

    /// Whether nothing changed. The order of items of a list map does not matter, and a field without a
    /// schema counts as changed.
    pub(crate) fn unchanged(self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => {
                if new.len() != old.len() {
                    return false;
                }
                if !matches!(self.node.list, ListType::Map(_)) {
                    return new == old;
                }
                let Some(items) = self.items() else { return false };
                (0..new.len()).all(|index| items.get(index).is_some_and(Correlated::unchanged))
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len()
                    && new.keys().all(|name| self.key(name).is_some_and(Correlated::unchanged))
            }
            (new, old) => new == old,
        }
    }
}

/// The pairs of the items of a list map.
pub(crate) struct Items<'a> {
    node: &'a Node,
    new: &'a [Value],
    old: OldItems<'a>,
}

impl<'a> Items<'a> {
    /// Returns the pair of an item.
    pub(crate) fn get(&self, index: usize) -> Option<Correlated<'a>> {
        let new = self.new.get(index)?;
        Some(Correlated { node: self.node, new, old: self.old.find(new, index)? })
    }
}

/// The old items of a list map, found by their keys.
pub(crate) struct OldItems<'a> {
    keys: &'a [String],
    items: &'a [Value],
    /// Built for the first item that is not at its old position.
    index: OnceCell<HashMap<Vec<Option<&'a Value>>, &'a Value>>,
}

impl<'a> OldItems<'a> {
    /// Returns the old items of a list; `None` if it is not a map.
    pub(crate) fn of(node: &'a Node, items: &'a [Value]) -> Option<OldItems<'a>> {
        let ListType::Map(keys) = &node.list else { return None };
        Some(OldItems { keys, items, index: OnceCell::new() })
    }

    /// Returns the old item with the same keys as a new one. Most items are where they were.
    pub(crate) fn find(&self, new: &Value, index: usize) -> Option<&'a Value> {
        let new = new.as_object()?;
        let same = |old: &&Value| {
            old.as_object().is_some_and(|old| self.keys.iter().all(|key| old.get(key) == new.get(key)))
        };
        if let Some(old) = self.items.get(index).filter(same) {
            return Some(old);
        }

        let known = self.index.get_or_init(|| {
            let mut known = HashMap::with_capacity(self.items.len());
            for old in self.items {
                if let Some(fields) = old.as_object() {
                    let keys: Vec<Option<&Value>> = self.keys.iter().map(|key| fields.get(key)).collect();
                    known.entry(keys).or_insert(old);
                }
            }
            known
        });
        let keys: Vec<Option<&Value>> = self.keys.iter().map(|key| new.get(key)).collect();
        known.get(&keys).copied()
    }
}
