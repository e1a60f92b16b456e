//! Sets of paths: the fields that a manager owns.
//!
//! A set is a tree with sorted entries. An entry may be owned itself, have owned entries below it, or both.

use std::cmp::Ordering;

use serde_json::Value;

use crate::schema::{marshal, quote};

/// One element of a path.
#[derive(Clone, Debug)]
pub(crate) enum Element {
    /// A field of an object or a key of a map.
    Field(String),
    /// An item of a list map, by its sorted keys.
    Key(Vec<(String, Value)>),
    /// An item of a set, by its value.
    Value(Value),
    /// An item of a list, by its index.
    Index(i64),
}

impl Element {
    fn rank(&self) -> u8 {
        match self {
            Element::Field(_) => 0,
            Element::Key(_) => 1,
            Element::Value(_) => 2,
            Element::Index(_) => 3,
        }
    }

    /// Returns the element as messages show it.
    pub(crate) fn print(&self, out: &mut String) {
        match self {
            Element::Field(name) => {
                out.push('.');
                out.push_str(name);
            }
            Element::Key(keys) => {
                let parts: Vec<String> =
                    keys.iter().map(|(name, value)| format!("{name}={}", print_scalar(value))).collect();
                out.push('[');
                out.push_str(&parts.join(","));
                out.push(']');
            }
            Element::Value(value) => {
                out.push_str("[=");
                out.push_str(&print_scalar(value));
                out.push(']');
            }
            Element::Index(index) => {
                out.push('[');
                out.push_str(&index.to_string());
                out.push(']');
            }
        }
    }
}

fn print_scalar(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        other => marshal(other),
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Element) -> Ordering {
        match (self, other) {
            (Element::Field(left), Element::Field(right)) => left.cmp(right),
            (Element::Key(left), Element::Key(right)) => {
                for (left, right) in left.iter().zip(right) {
                    let order = left.0.cmp(&right.0).then_with(|| compare(&left.1, &right.1));
                    if order != Ordering::Equal {
                        return order;
                    }
                }
                left.len().cmp(&right.len())
            }
            (Element::Value(left), Element::Value(right)) => compare(left, right),
            (Element::Index(left), Element::Index(right)) => left.cmp(right),
            (left, right) => left.rank().cmp(&right.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Element) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Element) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Element {}

/// The order of values: numbers, strings, booleans, lists, objects, null.
pub(crate) fn compare(left: &Value, right: &Value) -> Ordering {
    fn rank(value: &Value) -> u8 {
        match value {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        }
    }
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => left.cmp(&right),
            _ => left.as_f64().unwrap_or(f64::NAN).total_cmp(&right.as_f64().unwrap_or(f64::NAN)),
        },
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (left, right) => rank(left).cmp(&rank(right)).then_with(|| marshal(left).cmp(&marshal(right))),
    }
}

/// One entry of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) element: Element,
    pub(crate) member: bool,
    pub(crate) children: Set,
}

/// The number of entries from which sets are merged rather than changed in place.
const MANY: usize = 64;

/// A set of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) entries: Vec<Entry>,
}

impl Set {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn find(&self, element: &Element) -> Result<usize, usize> {
        self.entries.binary_search_by(|entry| entry.element.cmp(element))
    }

    pub(crate) fn get(&self, element: &Element) -> Option<&Entry> {
        self.find(element).ok().and_then(|index| self.entries.get(index))
    }

    /// Adds an element and the paths below it. Elements mostly arrive in order, so the end is tried first.
    pub(crate) fn put(&mut self, element: Element, member: bool, children: Set) {
        if !member && children.is_empty() {
            return;
        }
        let position = match self.entries.last() {
            Some(last) if last.element >= element => self.find(&element),
            _ => Err(self.entries.len()),
        };

        match position {
            Err(index) => self.entries.insert(index, Entry { element, member, children }),
            Ok(index) => {
                if let Some(entry) = self.entries.get_mut(index) {
                    entry.member |= member;
                    entry.children.absorb(children);
                }
            }
        }
    }

    /// Adds every path of another set.
    pub(crate) fn absorb(&mut self, other: Set) {
        if self.is_empty() {
            *self = other;
            return;
        }
        if other.entries.len() > MANY {
            *self = self.union(&other);
            return;
        }
        for Entry { element, member, children } in other.entries {
            self.put(element, member, children);
        }
    }

    /// Removes every path of another set and returns whether there was any. Owning a path does not imply
    /// owning the paths below it.
    pub(crate) fn subtract(&mut self, other: &Set) -> bool {
        let mut changed = false;
        if self.is_empty() || other.is_empty() {
            return changed;
        }
        self.entries.retain_mut(|entry| {
            let Some(doomed) = other.get(&entry.element) else { return true };
            changed |= entry.member && doomed.member;
            entry.member &= !doomed.member;
            changed |= entry.children.subtract(&doomed.children);
            entry.member || !entry.children.is_empty()
        });
        changed
    }

    /// Whether every path of this set is in the other.
    pub(crate) fn is_within(&self, other: &Set) -> bool {
        self.entries.iter().all(|entry| {
            other.get(&entry.element).is_some_and(|found| {
                (found.member || !entry.member) && entry.children.is_within(&found.children)
            })
        })
    }

    pub(crate) fn union(&self, other: &Set) -> Set {
        let mut entries = Vec::with_capacity(self.entries.len().max(other.entries.len()));
        for pair in pairs(self, other) {
            entries.push(match pair {
                (Some(left), Some(right)) => Entry {
                    element: left.element.clone(),
                    member: left.member || right.member,
                    children: left.children.union(&right.children),
                },
                (Some(only), None) | (None, Some(only)) => only.clone(),
                (None, None) => continue,
            });
        }
        Set { entries }
    }

    pub(crate) fn intersection(&self, other: &Set) -> Set {
        let mut out = Set::default();
        for pair in pairs(self, other) {
            if let (Some(left), Some(right)) = pair {
                let children = left.children.intersection(&right.children);
                out.push(left, left.member && right.member, children);
            }
        }
        out
    }

    /// Returns the paths of this set that are not in the other; owning a path does not imply owning the paths
    /// below it.
    pub(crate) fn difference(&self, other: &Set) -> Set {
        let mut out = Set::default();
        for pair in pairs(self, other) {
            match pair {
                (Some(left), Some(right)) => {
                    let children = left.children.difference(&right.children);
                    out.push(left, left.member && !right.member, children);
                }
                (Some(left), None) => out.entries.push(left.clone()),
                _ => {}
            }
        }
        out
    }

    fn push(&mut self, like: &Entry, member: bool, children: Set) {
        if member || !children.is_empty() {
            self.entries.push(Entry { element: like.element.clone(), member, children });
        }
    }

    /// Returns every owned path as messages show it, each level before the levels below it.
    pub(crate) fn print(&self) -> Vec<String> {
        fn walk(set: &Set, prefix: &str, out: &mut Vec<String>) {
            for entry in set.entries.iter().filter(|entry| entry.member) {
                let mut text = prefix.to_owned();
                entry.element.print(&mut text);
                out.push(text);
            }
            for entry in set.entries.iter().filter(|entry| !entry.children.is_empty()) {
                let mut text = prefix.to_owned();
                entry.element.print(&mut text);
                walk(&entry.children, &text, out);
            }
        }

        let mut out = Vec::new();
        walk(self, "", &mut out);
        out
    }
}

/// Iterates over the entries of two sets side by side, in order.
fn pairs<'a>(left: &'a Set, right: &'a Set) -> impl Iterator<Item = (Option<&'a Entry>, Option<&'a Entry>)> {
    let mut left = left.entries.iter().peekable();
    let mut right = right.entries.iter().peekable();
    std::iter::from_fn(move || {
        let order = match (left.peek(), right.peek()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(left), Some(right)) => left.element.cmp(&right.element),
        };
        Some(match order {
            Ordering::Less => (left.next(), None),
            Ordering::Greater => (None, right.next()),
            Ordering::Equal => (left.next(), right.next()),
        })
    })
}
