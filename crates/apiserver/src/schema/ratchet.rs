//! Which old value belongs to a new one.
//!
//! On an update a fault is let pass if the value it was found in is the same as before (KEP-4008). Fields and
//! map keys belong together by name, items of a list only if the list is a map by its keys.

use serde_json::{Map, Value};

use super::{ListType, Node};

/// A new value, the old one that belongs to it and their schema.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Correlated<'a> {
    pub(crate) node: &'a Node,
    pub(crate) new: &'a Value,
    pub(crate) old: &'a Value,
}

impl<'a> Correlated<'a> {
    /// The pair under a field or map key, if both objects have it and its schema is known.
    pub(crate) fn key(self, name: &str) -> Option<Correlated<'a>> {
        let new = self.new.as_object()?.get(name)?;
        let old = self.old.as_object()?.get(name)?;
        Some(Correlated { node: self.node.child(name)?, new, old })
    }

    /// The pair of a list item, if the list is a map.
    pub(crate) fn index(self, index: usize) -> Option<Correlated<'a>> {
        let new = self.new.as_array()?.get(index)?;
        let old = find_item(self.node, self.old.as_array()?, new, index)?;
        Some(Correlated { node: self.node.items.as_deref()?, new, old })
    }

    /// Whether nothing changed. The order of items of a list that is a map does not matter, and a field without
    /// a schema counts as changed.
    pub(crate) fn unchanged(self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => {
                if new.len() != old.len() {
                    return false;
                }
                if !matches!(self.node.list, ListType::Map(_)) {
                    return new == old;
                }
                (0..new.len()).all(|index| self.index(index).is_some_and(Correlated::unchanged))
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len()
                    && new.keys().all(|name| self.key(name).is_some_and(Correlated::unchanged))
            }
            (new, old) => new == old,
        }
    }
}

/// The item of an old list that has the same keys as a new item; none if the list is not a map.
///
/// The search begins where the new item stands: most items keep their place or move by little, so that long lists
/// cost little.
pub(crate) fn find_item<'a>(node: &Node, old: &'a [Value], new: &Value, place: usize) -> Option<&'a Value> {
    let ListType::Map(keys) = &node.list else { return None };
    let new = new.as_object()?;
    let same_keys =
        |candidate: &Map<String, Value>| keys.iter().all(|key| candidate.get(key) == new.get(key));
    let start = place.saturating_sub(1).min(old.len());
    let (before, after) = old.split_at(start);
    after.iter().chain(before).find(|candidate| candidate.as_object().is_some_and(same_keys))
}
