//! Pruning: dropping fields that a schema does not declare.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::{Additional, Node, Schema};

/// The fields of a resource that are never pruned.
const RESOURCE_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Prunes a resource and returns the sorted paths of the dropped fields.
pub(crate) fn prune(schema: &Schema, object: &mut Value) -> Vec<String> {
    let mut walk = Walk { schema, path: String::new(), dropped: Vec::new() };
    walk.visit(object, Some(&schema.root), true, false);
    // Metadata of a custom resource is decoded before the rest.
    let later = |path: &String| schema.native || !path.starts_with("metadata.");
    walk.dropped.sort_by(|one, other| (later(one), one).cmp(&(later(other), other)));
    walk.dropped
}

/// Prunes a part of a resource by its own schema.
pub(crate) fn prune_value(schema: &Schema, value: &mut Value, node: &Node) -> Vec<String> {
    let mut walk = Walk { schema, path: String::new(), dropped: Vec::new() };
    walk.visit(value, Some(node), node.embedded, false);
    walk.dropped
}

struct Walk<'a> {
    schema: &'a Schema,
    path: String,
    dropped: Vec<String>,
}

impl Walk<'_> {
    /// Visits a value; without a schema everything inside is dropped.
    ///
    /// `keep` is set inside a node that preserves unknown fields, where undeclared fields stay.
    fn visit(&mut self, value: &mut Value, node: Option<&Node>, resource: bool, keep: bool) {
        let keep = keep || node.is_some_and(|node| node.preserve_unknown);
        match value {
            Value::Object(fields) => self.visit_object(fields, node, resource, keep),
            Value::Array(items) => {
                let item_node = node.and_then(|node| node.items.as_deref());
                if keep && item_node.is_none() {
                    return;
                }
                let length = self.path.len();
                // Only a direct list of lists stays in preserving mode; an item with a schema leaves it.
                for (index, item) in items.iter_mut().enumerate() {
                    let _ = write!(self.path, "[{index}]");
                    self.visit(item, item_node, item_node.is_some_and(|node| node.embedded), keep);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn visit_object(
        &mut self,
        fields: &mut Map<String, Value>,
        node: Option<&Node>,
        resource: bool,
        keep: bool,
    ) {
        let resource = resource || node.is_some_and(|node| node.embedded);
        let at_root = self.path.is_empty();
        let mut unknown = Vec::new();
        for (name, value) in fields.iter_mut() {
            if resource && RESOURCE_FIELDS.contains(&name.as_str()) {
                if name == "metadata" {
                    self.descend(name, value, Some(self.schema.metadata));
                }
                continue;
            }
            if let Some(child) = node.and_then(|node| node.child(name)) {
                self.descend(name, value, Some(child));
            } else if node
                .is_some_and(|node| matches!(node.additional, Additional::Anything | Additional::Forbidden))
            {
                // The values of a map without a schema are emptied, as in kube-apiserver.
                self.descend(name, value, None);
            } else if !keep {
                unknown.push(name.clone());
            }
        }

        for name in unknown {
            fields.remove(&name);
            if at_root && RESOURCE_FIELDS.contains(&name.as_str()) {
                continue;
            }
            let length = self.path.len();
            self.push(&name);
            self.dropped.push(self.path.clone());
            self.path.truncate(length);
        }
    }

    fn descend(&mut self, name: &str, value: &mut Value, node: Option<&Node>) {
        if !matches!(value, Value::Object(_) | Value::Array(_)) {
            return;
        }
        let length = self.path.len();
        self.push(name);
        self.visit(value, node, node.is_some_and(|node| node.embedded), false);
        self.path.truncate(length);
    }

    fn push(&mut self, name: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(name);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pruned(spec_schema: &Value, spec: &Value) -> (Value, Vec<String>) {
        let schema =
            Schema::compile(&json!({"type": "object", "properties": {"spec": spec_schema}})).unwrap();
        let mut object = json!({"apiVersion": "a/v1", "kind": "A", "metadata": {"name": "x", "labels": {"a": "b"}}, "spec": spec});
        let dropped = schema.prune(&mut object);
        assert_eq!(object["metadata"], json!({"name": "x", "labels": {"a": "b"}}));
        (object["spec"].take(), dropped)
    }

    #[test]
    fn undeclared_fields_are_dropped_and_returned() {
        let disks = json!({"type": "array", "items": {"type": "object", "properties": {"size": {"type": "integer"}}}});
        let cases = [
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}}}),
                json!({"a": "1", "b": 2, "c": {"d": 1}}),
                json!({"a": "1"}),
                vec!["spec.b", "spec.c"],
            ),
            (
                json!({"type": "object", "properties": {"disks": disks}}),
                json!({"disks": [{"size": 1, "foo": 1}, {"bar": {}}]}),
                json!({"disks": [{"size": 1}, {}]}),
                vec!["spec.disks[0].foo", "spec.disks[1].bar"],
            ),
            (
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                       "properties": {"known": {"type": "object", "properties": {"x": {"type": "string"}}}}}),
                json!({"any": {"thing": 1}, "known": {"x": "1", "y": 2}}),
                json!({"any": {"thing": 1}, "known": {"x": "1"}}),
                vec!["spec.known.y"],
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "object", "properties": {"x": {"type": "string"}}}}),
                json!({"k": {"x": "1", "y": 2}}),
                json!({"k": {"x": "1"}}),
                vec!["spec.k.y"],
            ),
            (
                json!({"type": "object", "properties": {"template": {"type": "object",
                    "x-kubernetes-embedded-resource": true,
                    "properties": {"data": {"type": "string"}}}}}),
                json!({"template": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "n", "odd": 1}, "data": "d", "more": 1}}),
                json!({"template": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "n"}, "data": "d"}}),
                vec!["spec.template.metadata.odd", "spec.template.more"],
            ),
        ];

        for (schema, spec, expected, dropped) in cases {
            assert_eq!(pruned(&schema, &spec), (expected, dropped.into_iter().map(str::to_owned).collect()));
        }
    }
}
