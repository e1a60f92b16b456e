//! Merging one value into another, and removing paths from a value.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{
    path_set::{Element, Set},
    paths::{Items, MAX_DEPTH, is_empty},
    types::{Ref, Shape},
};
use crate::schema::Schema;

/// Merges the applied value into the live value.
pub(crate) fn merge(live: &Value, applied: &Value, schema: &Schema) -> Value {
    merge_value(Some(live), Some(applied), Ref::root(schema), schema, 0).unwrap_or(Value::Null)
}

fn merge_value(
    live: Option<&Value>,
    applied: Option<&Value>,
    kind: Ref<'_>,
    schema: &Schema,
    depth: usize,
) -> Option<Value> {
    let (Some(left), Some(right)) = (live, applied) else { return applied.or(live).cloned() };
    let shape = if depth > MAX_DEPTH { Shape::Leaf } else { kind.shape(right) };
    if shape == Shape::Leaf || (is_empty(live) && is_empty(applied)) {
        return Some(right.clone());
    }

    match (shape, left, right) {
        (Shape::Object, Value::Object(left), Value::Object(right)) => {
            let mut merged = Map::new();
            for (name, field) in left {
                let child = kind.field(name, schema).0;
                if let Some(value) = merge_value(Some(field), right.get(name), child, schema, depth + 1) {
                    merged.insert(name.clone(), value);
                }
            }
            for (name, field) in right.iter().filter(|(name, _)| !left.contains_key(*name)) {
                merged.insert(name.clone(), field.clone());
            }
            Some(Value::Object(merged))
        }
        (Shape::Set | Shape::Map(_), Value::Array(left), Value::Array(right)) => {
            Some(Value::Array(merge_list(left, right, kind, shape, schema, depth)))
        }
        // An explicit null leaves existing fields and items unchanged.
        (_, left, Value::Null) if kind.shape(left) == shape => Some(left.clone()),
        (_, _, right) => Some(right.clone()),
    }
}

/// Merges list items: the order is that of the applied list; items of other managers keep their position
/// among them.
fn merge_list(
    left: &[Value],
    right: &[Value],
    kind: Ref<'_>,
    shape: Shape<'_>,
    schema: &Schema,
    depth: usize,
) -> Vec<Value> {
    let (known_left, known_right) = (Items::new(left, kind, shape), Items::new(right, kind, shape));
    let identified = |items| {
        let with_element = |item| Some((kind.element(shape, item)?, item));
        <[Value]>::iter(items).filter_map(with_element).collect::<Vec<(Element, &Value)>>()
    };

    let (left, right) = (identified(left), identified(right));
    let mut shared =
        right.iter().map(|(element, _)| element).filter(|element| known_left.has(element)).peekable();
    let mut done: BTreeSet<&Element> = BTreeSet::new();
    let mut out = Vec::with_capacity(left.len().max(right.len()));
    let (mut from_left, mut from_right) = (left.iter().peekable(), right.iter().peekable());
    let take = |element: &Element, item: &Value| {
        // Duplicate items are replaced as a whole.
        let before = match known_left.get(element) {
            [only] => Some(*only),
            _ => None,
        };
        merge_value(before, Some(item), kind.item(), schema, depth + 1).unwrap_or(Value::Null)
    };

    loop {
        let (next_left, next_right) = (from_left.peek().copied(), from_right.peek().copied());
        if let Some((element, item)) = next_left {
            if !known_right.has(element) {
                out.push((*item).clone());
                from_left.next();
                continue;
            }
            // It is already merged, or comes later, at its position in the applied list.
            let later = next_right.is_some() && shared.peek().is_some_and(|next| *next != element);
            if done.contains(element) || later {
                from_left.next();
                continue;
            }
        }
        let Some((element, item)) = next_right else {
            if from_left.next().is_none() {
                return out;
            }
            continue;
        };
        out.push(take(element, item));
        done.insert(element);
        from_right.next();
        shared.next_if(|next| *next == element);
    }
}

/// Removes paths from a value. A value that becomes empty is set to null, so that it still counts as present
/// while ownership is computed; [`drop_emptied`] removes it afterwards.
pub(crate) fn remove(value: &Value, removed: &Set, schema: &Schema) -> Value {
    match remove_value(value, removed, Ref::root(schema), schema) {
        Value::Null => Value::Object(Map::new()),
        left => left,
    }
}

fn remove_value(value: &Value, removed: &Set, kind: Ref<'_>, schema: &Schema) -> Value {
    let shape = kind.shape(value);
    match (shape, value) {
        (Shape::Object, Value::Object(fields)) => {
            let mut left = Map::new();
            for (name, field) in fields {
                let remaining = match removed.get(&Element::Field(name.clone())) {
                    None => field.clone(),
                    Some(entry) if entry.member => continue,
                    Some(entry) => remove_value(field, &entry.children, kind.field(name, schema).0, schema),
                };
                left.insert(name.clone(), remaining);
            }
            if left.is_empty() { Value::Null } else { Value::Object(left) }
        }
        (Shape::Set | Shape::Map(_), Value::Array(items)) => {
            let mut left = Vec::new();
            for item in items {
                let entry = kind.element(shape, item).and_then(|element| removed.get(&element));
                left.push(match entry {
                    None => item.clone(),
                    Some(entry) if entry.member => continue,
                    Some(entry) => remove_value(item, &entry.children, kind.item(), schema),
                });
            }
            if left.is_empty() { Value::Null } else { Value::Array(left) }
        }
        (Shape::Leaf, Value::Object(_) | Value::Array(_)) => Value::Null,
        _ => value.clone(),
    }
}

/// Drops the fields that [`remove`] emptied; a null that existed before stays.
pub(crate) fn drop_emptied(pruned: &mut Value, merged: &Value) {
    if let (Value::Object(fields), Value::Object(before)) = (pruned, merged) {
        fields.retain(|name, field| !field.is_null() || before.get(name).is_none_or(Value::is_null));
        for (name, field) in fields.iter_mut() {
            if let Some(before) = before.get(name) {
                drop_emptied(field, before);
            }
        }
    }
}
