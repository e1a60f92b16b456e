//! The view of server-side apply on a schema: which values are atomic, which are merged, and by which keys.

use serde_json::Value;

use super::path_set::Element;
use crate::schema::{Additional, ListType, Node, Schema, Type};

/// The type of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ref<'a> {
    /// Described by a schema. `preserve` is set below a node that preserves unknown fields, `resource` for an
    /// embedded resource.
    Node { node: &'a Node, preserve: bool, resource: bool },
    /// Without a schema: objects are merged, lists are atomic.
    Deduced,
    /// Inside a list without a schema: everything is atomic.
    Untyped,
}

/// How a value is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape<'a> {
    /// One atomic value.
    Leaf,
    /// Separate fields or keys.
    Object,
    /// A list of scalars, each identified by its value.
    Set,
    /// A list of objects, each identified by these keys.
    Map(&'a [String]),
}

impl<'a> Ref<'a> {
    pub(crate) fn root(schema: &'a Schema) -> Ref<'a> {
        Ref::Node { node: &schema.root, preserve: schema.root.preserve_unknown, resource: true }
    }

    /// Returns how a value of this type is handled; a value of the wrong type is a leaf, which validation
    /// rejects.
    pub(crate) fn shape(self, value: &Value) -> Shape<'a> {
        let node = match self {
            Ref::Untyped => return Shape::Leaf,
            Ref::Deduced => {
                return if matches!(value, Value::Object(_) | Value::Null) {
                    Shape::Object
                } else {
                    Shape::Leaf
                };
            }
            Ref::Node { node, .. } => node,
        };
        match (node.kind, value) {
            (Type::Object | Type::Any, Value::Object(_) | Value::Null) if !node.atomic_map => Shape::Object,
            (Type::Array, Value::Array(_) | Value::Null) | (Type::Any, Value::Array(_)) => match &node.list {
                ListType::Atomic => Shape::Leaf,
                ListType::Set => Shape::Set,
                ListType::Map(keys) => Shape::Map(keys),
            },
            _ => Shape::Leaf,
        }
    }

    /// Returns the type of a field and whether the schema declares it.
    pub(crate) fn field(self, name: &str, schema: &'a Schema) -> (Ref<'a>, bool) {
        let Ref::Node { node, preserve, resource } = self else {
            return (if matches!(self, Ref::Deduced) { Ref::Deduced } else { Ref::Untyped }, false);
        };
        let of = |node: &'a Node| Ref::Node {
            node,
            preserve: preserve || node.preserve_unknown,
            resource: node.embedded,
        };

        match name {
            "metadata" if resource => {
                return (Ref::Node { node: schema.metadata, preserve: false, resource: false }, true);
            }
            "apiVersion" | "kind" if resource => {
                return (Ref::Node { node: &schema.text, preserve: false, resource: false }, true);
            }
            _ => {}
        }

        if let Some(child) = node.properties.get(name) {
            return (of(child), true);
        }
        match &node.additional {
            Additional::Schema(child) => (of(child), false),
            _ => (Ref::Deduced, false),
        }
    }

    /// Returns the type of the value at a path element and whether the schema declares it.
    pub(crate) fn below(self, element: &Element, schema: &'a Schema) -> (Ref<'a>, bool) {
        match element {
            Element::Field(name) => self.field(name, schema),
            Element::Key(_) => (self.item(), false),
            Element::Value(_) | Element::Index(_) => (Ref::Untyped, false),
        }
    }

    /// Whether the schema declares an object or a list of this type as atomic. Values without a schema are
    /// never asked about, as in kube-apiserver.
    pub(crate) fn is_one_value(self) -> bool {
        let Ref::Node { node, .. } = self else { return false };
        let is_free = node.preserve_unknown && node.properties.is_empty();
        (node.atomic_map && !is_free) || (node.kind == Type::Array && node.list == ListType::Atomic)
    }

    /// Whether an object of this type may have a field.
    pub(crate) fn declares(self, name: &str) -> bool {
        let Ref::Node { node, preserve, resource } = self else { return true };
        if resource && matches!(name, "metadata" | "apiVersion" | "kind") {
            return true;
        }
        node.properties.contains_key(name)
            || match &node.additional {
                Additional::Schema(_) | Additional::Anything => true,
                Additional::Forbidden => false,
                Additional::Unset => preserve || node.preserve_unknown || node.properties.is_empty(),
            }
    }

    /// Whether the presence of the value has no owner.
    pub(crate) fn is_always_present(self) -> bool {
        matches!(self, Ref::Node { node, .. } if node.always_present)
    }

    /// Returns the type of the items of a list.
    pub(crate) fn item(self) -> Ref<'a> {
        match self {
            Ref::Node { node, preserve, .. } => match node.items.as_deref() {
                Some(child) => Ref::Node {
                    node: child,
                    preserve: preserve || child.preserve_unknown,
                    resource: child.embedded,
                },
                None => Ref::Untyped,
            },
            _ => Ref::Untyped,
        }
    }

    /// Returns the identity of a list item; a missing key counts as its default. `None` for an item without
    /// identity.
    pub(crate) fn element(self, shape: Shape<'_>, item: &Value) -> Option<Element> {
        match shape {
            Shape::Set => (!item.is_object() && !item.is_array() && !item.is_null())
                .then(|| Element::Value(item.clone())),
            Shape::Map(keys) => {
                let fields = item.as_object()?;
                let default = |key: &str| match self.item() {
                    Ref::Node { node, .. } => {
                        node.properties.get(key).and_then(|child| child.default.as_ref())
                    }
                    _ => None,
                };
                let mut found: Vec<(String, Value)> = keys
                    .iter()
                    .filter_map(|key| Some((key.clone(), fields.get(key).or_else(|| default(key))?.clone())))
                    .collect();
                found.sort_by(|left, right| left.0.cmp(&right.0));
                (!found.is_empty()).then_some(Element::Key(found))
            }
            Shape::Leaf | Shape::Object => None,
        }
    }
}
