//! The paths of a value.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    path_set::{Element, Set},
    types::{Ref, Shape},
};
use crate::schema::Schema;

/// The maximum depth; deeper values count as one value.
pub(super) const MAX_DEPTH: usize = 200;

/// Returns the paths of an applied value.
pub(crate) fn paths(value: &Value, schema: &Schema) -> Set {
    collect(value, Ref::root(schema), schema, 0).0
}

/// Collects the paths below a value and returns whether it is itself a leaf.
fn collect(value: &Value, kind: Ref<'_>, schema: &Schema, depth: usize) -> (Set, bool) {
    let mut set = Set::default();
    let shape = if depth > MAX_DEPTH { Shape::Leaf } else { kind.shape(value) };
    match (shape, value) {
        (Shape::Leaf, _) => return (set, true),
        (Shape::Object, Value::Object(fields)) => {
            for (name, field) in fields {
                let (child, declared) = kind.field(name, schema);
                let (below, leaf) = collect(field, child, schema, depth + 1);
                let empty = field.is_null() || field.as_object().is_some_and(Map::is_empty);
                set.put(Element::Field(name.clone()), leaf || empty || !declared, below);
            }
        }
        (Shape::Set | Shape::Map(_), Value::Array(items)) => {
            for (element, group) in Items::new(items, kind, shape).groups {
                // Duplicate items have no identity and count as one value.
                let below = match group.as_slice() {
                    [only] => collect(only, kind.item(), schema, depth + 1).0,
                    _ => Set::default(),
                };
                set.put(element, true, below);
            }
        }
        _ => {}
    }

    (set, false)
}

/// Returns the same paths and, for every path below a declared field, the field itself.
pub(crate) fn with_named_fields(set: &Set, schema: &Schema) -> Set {
    named(set, Ref::root(schema), schema)
}

fn named(set: &Set, kind: Ref<'_>, schema: &Schema) -> Set {
    let mut out = Set::default();
    for entry in &set.entries {
        let (child, declared) = kind.below(&entry.element, schema);
        let member = entry.member || (declared && !entry.children.is_empty());
        out.put(entry.element.clone(), member, named(&entry.children, child, schema));
    }
    out
}

/// Extends the ownership of a part of an atomic value to the whole value, as after a change of the schema.
/// Returns whether there was such a part.
pub(super) fn raise_parts(set: &mut Set, schema: &Schema) -> bool {
    raise(set, Ref::root(schema), schema)
}

fn raise(set: &mut Set, kind: Ref<'_>, schema: &Schema) -> bool {
    let mut raised = false;
    for entry in set.entries.iter_mut().filter(|entry| !entry.children.is_empty()) {
        let child = kind.below(&entry.element, schema).0;
        if child.is_one_value() {
            entry.member = true;
            entry.children = Set::default();
            raised = true;
        } else {
            raised |= raise(&mut entry.children, child, schema);
        }
    }
    raised
}

/// Whether a value is empty.
pub(super) fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    }
}

/// The items of a list by their identity, in the order of sets: an element that is added to the end of a set
/// costs nothing.
pub(super) struct Items<'a> {
    pub(super) groups: BTreeMap<Element, Vec<&'a Value>>,
}

impl<'a> Items<'a> {
    pub(super) fn new(items: &'a [Value], kind: Ref<'_>, shape: Shape<'_>) -> Items<'a> {
        let mut groups: BTreeMap<Element, Vec<&'a Value>> = BTreeMap::new();
        for item in items {
            if let Some(element) = kind.element(shape, item) {
                groups.entry(element).or_default().push(item);
            }
        }
        Items { groups }
    }

    pub(super) fn of(value: Option<&'a Value>, kind: Ref<'_>, shape: Shape<'_>) -> Items<'a> {
        let items = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        Items::new(items, kind, shape)
    }

    pub(super) fn get(&self, element: &Element) -> &[&'a Value] {
        self.groups.get(element).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn has(&self, element: &Element) -> bool {
        self.groups.contains_key(element)
    }
}
