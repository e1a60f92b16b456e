//! The difference between two values.

use serde_json::{Map, Value};

use super::{
    path_set::{Element, Set},
    paths::{Items, MAX_DEPTH, is_empty},
    types::{Ref, Shape},
};
use crate::schema::Schema;

/// The difference between two values. No path is in more than one of the sets.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) removed: Set,
    pub(crate) modified: Set,
    pub(crate) added: Set,
}

/// Compares two objects.
pub(crate) fn compare(before: &Value, after: &Value, schema: &Schema) -> Comparison {
    let mut out = Comparison::default();
    difference(Some(before), Some(after), Ref::root(schema), schema, 0, &mut out);
    out
}

/// The change of a value itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Nothing,
    Removed,
    Modified,
    Added,
}

fn leaf_mark(before: Option<&Value>, after: Option<&Value>) -> Mark {
    match (before, after) {
        (None, None) => Mark::Nothing,
        (None, Some(_)) => Mark::Added,
        (Some(_), None) => Mark::Removed,
        (Some(before), Some(after)) if before == after => Mark::Nothing,
        (Some(_), Some(_)) => Mark::Modified,
    }
}

/// Compares values of one type; adds the paths below to `out` and returns the change of the value itself.
fn difference(
    before: Option<&Value>,
    after: Option<&Value>,
    kind: Ref<'_>,
    schema: &Schema,
    depth: usize,
    out: &mut Comparison,
) -> Mark {
    if depth > MAX_DEPTH {
        return leaf_mark(before, after);
    }
    if kind.is_always_present() {
        below(before, after, kind, Shape::Object, schema, depth, out);
        return Mark::Nothing;
    }

    let shape_of = |value: Option<&Value>| value.map(|value| kind.shape(value));
    let mut leaf = false;
    let shape = match (shape_of(before), shape_of(after)) {
        (Some(left), Some(right)) if left != right => {
            // The type of the value changed: it is modified as a whole and gains or loses everything below
            // it.
            leaf = true;
            let (inner_before, inner_after) =
                if right == Shape::Leaf { (before, None) } else { (None, after) };
            let shape = if right == Shape::Leaf { left } else { right };
            below(inner_before, inner_after, kind, shape, schema, depth, out);
            Shape::Leaf
        }
        (_, Some(shape)) | (Some(shape), None) => shape,
        (None, None) => return Mark::Nothing,
    };

    if leaf || shape == Shape::Leaf || (is_empty(before) && is_empty(after)) {
        return leaf_mark(before, after);
    }
    below(before, after, kind, shape, schema, depth, out);
    match (before, after) {
        (None, _) => Mark::Added,
        (_, None) => Mark::Removed,
        _ => Mark::Nothing,
    }
}

fn below(
    before: Option<&Value>,
    after: Option<&Value>,
    kind: Ref<'_>,
    shape: Shape<'_>,
    schema: &Schema,
    depth: usize,
    out: &mut Comparison,
) {
    if shape == Shape::Object {
        let empty = Map::new();
        let left = before.and_then(Value::as_object).unwrap_or(&empty);
        let right = after.and_then(Value::as_object).unwrap_or(&empty);
        for (name, field) in left {
            let child = kind.field(name, schema).0;
            step(|| Element::Field(name.clone()), (Some(field), right.get(name)), child, schema, depth, out);
        }
        for (name, field) in right.iter().filter(|(name, _)| !left.contains_key(*name)) {
            let child = kind.field(name, schema).0;
            step(|| Element::Field(name.clone()), (None, Some(field)), child, schema, depth, out);
        }
        return;
    }

    let (left, right) = (Items::of(before, kind, shape), Items::of(after, kind, shape));
    let nothing = Set::default;
    for (element, group) in &left.groups {
        let named = || element.clone();
        // Duplicate items have no identity and count as one value.
        match (group.as_slice(), right.get(element)) {
            ([only], []) => step(named, (Some(only), None), kind.item(), schema, depth, out),
            ([only], [other]) => step(named, (Some(only), Some(other)), kind.item(), schema, depth, out),
            ([only], _) => {
                step(named, (Some(only), None), kind.item(), schema, depth, out);
                out.added.put(named(), true, nothing());
            }
            (_, []) => out.removed.put(named(), true, nothing()),
            (_, [other]) => {
                step(named, (None, Some(other)), kind.item(), schema, depth, out);
                out.removed.put(named(), true, nothing());
            }
            (several, others) => {
                if several != others {
                    out.modified.put(named(), true, nothing());
                }
            }
        }
    }

    for (element, group) in right.groups.iter().filter(|(element, _)| !left.has(element)) {
        match group.as_slice() {
            [only] => step(|| element.clone(), (None, Some(only)), kind.item(), schema, depth, out),
            _ => out.added.put(element.clone(), true, nothing()),
        }
    }
}

/// Compares one field or item and adds the result under its element.
fn step(
    element: impl Fn() -> Element,
    (before, after): (Option<&Value>, Option<&Value>),
    kind: Ref<'_>,
    schema: &Schema,
    depth: usize,
    out: &mut Comparison,
) {
    if before.is_some() && before == after {
        return;
    }
    let mut inner = Comparison::default();
    let mark = difference(before, after, kind, schema, depth + 1, &mut inner);

    for (mine, theirs, kind) in [
        (&mut out.removed, inner.removed, Mark::Removed),
        (&mut out.modified, inner.modified, Mark::Modified),
        (&mut out.added, inner.added, Mark::Added),
    ] {
        if mark == kind || !theirs.is_empty() {
            mine.put(element(), mark == kind, theirs);
        }
    }
}
