//! The compiled form of a schema: a tree of plain nodes that every walk of this crate shares.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    Cause,
    cel::Rule,
    format::{self, Format},
    native::ALWAYS_PRESENT,
    pattern::Pattern,
    value::{normalize_numbers, quote},
};

/// The maximum depth of a schema, which bounds every recursion over it.
pub(crate) const MAX_DEPTH: usize = 64;

/// The `type` keyword.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Type {
    /// No `type`: int-or-string, or a subtree without a schema.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Type {
    fn parse(name: &str) -> Option<Type> {
        Some(match name {
            "" => Type::Any,
            "object" => Type::Object,
            "array" => Type::Array,
            "string" => Type::String,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            _ => return None,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Type::Any => "",
            Type::Object => "object",
            Type::Array => "array",
            Type::String => "string",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Boolean => "boolean",
        }
    }
}

/// The fields that an object may have besides its declared ones.
#[derive(Debug, Default)]
pub(crate) enum Additional {
    /// The keyword is absent: no other fields, and undeclared ones are pruned.
    #[default]
    Unset,
    /// `false`: an undeclared field is an error.
    Forbidden,
    /// `true`.
    Anything,
    /// A map with values of one schema.
    Schema(Box<Node>),
}

/// `x-kubernetes-list-type`; a list without one is atomic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    /// One value, replaced as a whole.
    #[default]
    Atomic,
    /// Scalars, each at most once.
    Set,
    /// Objects identified by these keys.
    Map(Vec<String>),
}

/// How a strategic merge patch treats a list or an object.
#[derive(Debug, Default)]
pub(crate) struct PatchStrategy {
    /// Whether a list is merged rather than replaced.
    pub(crate) merge: bool,
    /// The field that identifies items; `None` for a list of scalars.
    pub(crate) merge_key: Option<String>,
}

/// One schema node.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one keyword of the document or a summary of the subtree"
)]
pub(crate) struct Node {
    pub(crate) kind: Type,
    pub(crate) int_or_string: bool,
    pub(crate) nullable: bool,
    pub(crate) preserve_unknown: bool,
    /// Whether this is an embedded resource, with its own `apiVersion`, `kind` and `metadata`.
    pub(crate) embedded: bool,
    pub(crate) properties: BTreeMap<String, Node>,
    pub(crate) additional: Additional,
    pub(crate) items: Option<Box<Node>>,
    pub(crate) default: Option<Value>,
    pub(crate) list: ListType,
    pub(crate) atomic_map: bool,
    /// Whether a built-in object exists even when it is empty.
    pub(crate) always_present: bool,
    pub(crate) patch: PatchStrategy,
    /// Absent for most nodes, which keeps them small.
    pub(crate) checks: Option<Box<Checks>>,
    pub(crate) rules: Vec<Rule>,
    /// Whether this node or one below it has a rule.
    pub(crate) has_rules: bool,
    /// Whether a list below this node has a list type that must be checked.
    pub(crate) has_list_types: bool,
    /// Whether this node or one below it is an embedded resource.
    pub(crate) has_embedded: bool,
}

/// The value checks of a node.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) format: Option<Format>,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) min_length: Option<i64>,
    pub(crate) max_length: Option<i64>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) min_items: Option<i64>,
    pub(crate) max_items: Option<i64>,
    pub(crate) unique_items: bool,
    pub(crate) min_properties: Option<i64>,
    pub(crate) max_properties: Option<i64>,
    pub(crate) required: Vec<String>,
    pub(crate) enumeration: Vec<Value>,
    pub(crate) all_of: Vec<Node>,
    pub(crate) any_of: Vec<Node>,
    pub(crate) one_of: Vec<Node>,
    pub(crate) not: Option<Box<Node>>,
}

impl Node {
    /// Returns the schema of a field, from `properties` or `additionalProperties`.
    pub(crate) fn child(&self, name: &str) -> Option<&Node> {
        self.properties.get(name).or(match &self.additional {
            Additional::Schema(node) => Some(node),
            _ => None,
        })
    }

    /// Returns the names of the types, joined as in messages.
    pub(crate) fn type_names(&self) -> &'static str {
        if self.int_or_string { "integer,string" } else { self.kind.name() }
    }

    pub(crate) fn has_type(&self) -> bool {
        self.int_or_string || self.kind != Type::Any
    }

    pub(crate) fn accepts(&self, kind: Type) -> bool {
        if self.int_or_string { matches!(kind, Type::Integer | Type::String) } else { self.kind == kind }
    }
}

/// Converts a schema document to nodes and collects the errors.
pub(crate) struct Reader {
    pub(crate) causes: Vec<Cause>,
    /// Built-in kinds have no `nullable` and omit `properties` for free-form objects.
    pub(crate) native: bool,
}

impl Reader {
    pub(crate) fn node(&mut self, document: &Value, path: &str, depth: usize) -> Node {
        if depth > MAX_DEPTH {
            self.causes.push(Cause::forbidden(path, "schema nesting must not exceed 64 levels"));
            return Node::default();
        }

        let Some(fields) = document.as_object() else {
            self.causes.push(Cause::type_invalid(path, document, "must be a schema object"));
            return Node::default();
        };

        let mut node = Node {
            kind: self.kind(fields, path),
            int_or_string: self.flag(fields, "x-kubernetes-int-or-string", path),
            nullable: !self.native && self.flag(fields, "nullable", path),
            preserve_unknown: self.flag(fields, "x-kubernetes-preserve-unknown-fields", path),
            embedded: self.flag(fields, "x-kubernetes-embedded-resource", path),
            default: default_of(fields),
            list: self.list_type(fields, path),
            always_present: self.native && self.flag(fields, ALWAYS_PRESENT, path),
            atomic_map: fields.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic"),
            ..Node::default()
        };

        node.patch = patch_strategy(fields, &node.list);
        self.children(&mut node, fields, path, depth);
        node.checks = self.checks(fields, &node, path, depth).map(Box::new);
        if self.native && node.kind == Type::Object && node.properties.is_empty() {
            node.preserve_unknown |= matches!(node.additional, Additional::Unset);
        }
        node
    }

    fn children(&mut self, node: &mut Node, fields: &Map<String, Value>, path: &str, depth: usize) {
        if let Some(properties) = fields.get("properties") {
            match properties.as_object() {
                Some(properties) => {
                    for (name, document) in properties {
                        let child = self.node(document, &format!("{path}.properties[{name}]"), depth + 1);
                        node.properties.insert(name.clone(), child);
                    }
                }
                None => self.causes.push(Cause::type_invalid(
                    &format!("{path}.properties"),
                    properties,
                    "must be an object",
                )),
            }
        }

        node.additional = match fields.get("additionalProperties") {
            None | Some(Value::Null) => Additional::Unset,
            Some(Value::Bool(true)) => Additional::Anything,
            Some(Value::Bool(false)) => Additional::Forbidden,
            Some(document) => Additional::Schema(Box::new(self.node(
                document,
                &format!("{path}.additionalProperties"),
                depth + 1,
            ))),
        };

        if let Some(document) = fields.get("items") {
            if document.is_array() {
                self.causes.push(Cause::forbidden(
                    format!("{path}.items"),
                    "items must be a schema object and not an array",
                ));
            } else {
                node.items = Some(Box::new(self.node(document, &format!("{path}.items"), depth + 1)));
            }
        }

        let has_list_type = node.list != ListType::Atomic;
        let mut below = (false, has_list_type, node.embedded);
        let children = node.properties.values().chain(node.items.as_deref()).chain(match &node.additional {
            Additional::Schema(child) => Some(&**child),
            _ => None,
        });

        for child in children {
            below = (below.0 | child.has_rules, below.1 | child.has_list_types, below.2 | child.has_embedded);
        }
        (node.has_rules, node.has_list_types, node.has_embedded) = below;
    }

    fn checks(
        &mut self,
        fields: &Map<String, Value>,
        node: &Node,
        path: &str,
        depth: usize,
    ) -> Option<Checks> {
        const KEYWORDS: [&str; 19] = [
            "format",
            "minimum",
            "maximum",
            "multipleOf",
            "minLength",
            "maxLength",
            "pattern",
            "minItems",
            "maxItems",
            "uniqueItems",
            "minProperties",
            "maxProperties",
            "required",
            "enum",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
            "exclusiveMinimum",
        ];

        if !KEYWORDS.iter().any(|keyword| fields.contains_key(*keyword)) {
            return None;
        }
        let format = fields
            .get("format")
            .and_then(Value::as_str)
            .and_then(|name| format::find(name, node.kind, node.int_or_string));

        Some(Checks {
            format,
            minimum: self.number(fields, "minimum", path),
            exclusive_minimum: self.flag(fields, "exclusiveMinimum", path),
            maximum: self.number(fields, "maximum", path),
            exclusive_maximum: self.flag(fields, "exclusiveMaximum", path),
            multiple_of: self.number(fields, "multipleOf", path),
            min_length: self.integer(fields, "minLength", path),
            max_length: self.integer(fields, "maxLength", path),
            pattern: self.pattern(fields, path),
            min_items: self.integer(fields, "minItems", path),
            max_items: self.integer(fields, "maxItems", path),
            unique_items: self.flag(fields, "uniqueItems", path),
            min_properties: self.integer(fields, "minProperties", path),
            max_properties: self.integer(fields, "maxProperties", path),
            required: self.names(fields, "required", path),
            enumeration: fields.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            all_of: self.branches(fields, "allOf", path, depth),
            any_of: self.branches(fields, "anyOf", path, depth),
            one_of: self.branches(fields, "oneOf", path, depth),
            not: fields
                .get("not")
                .map(|document| Box::new(self.node(document, &format!("{path}.not"), depth + 1))),
        })
    }

    fn branches(
        &mut self,
        fields: &Map<String, Value>,
        keyword: &str,
        path: &str,
        depth: usize,
    ) -> Vec<Node> {
        let documents = fields.get(keyword).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        documents
            .iter()
            .enumerate()
            .map(|(index, document)| self.node(document, &format!("{path}.{keyword}[{index}]"), depth + 1))
            .collect()
    }

    fn kind(&mut self, fields: &Map<String, Value>, path: &str) -> Type {
        let Some(value) = fields.get("type") else { return Type::Any };
        if let Some(kind) = value.as_str().and_then(Type::parse) {
            return kind;
        }

        self.causes.push(Cause::not_supported(
            &format!("{path}.type"),
            value,
            &["array", "boolean", "integer", "number", "object", "string"],
        ));

        if value == "null" {
            self.causes.push(Cause::forbidden(
                format!("{path}.type"),
                "type cannot be set to null, use nullable as an alternative",
            ));
        }
        Type::Any
    }

    fn list_type(&mut self, fields: &Map<String, Value>, path: &str) -> ListType {
        match fields.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map(self.names(fields, "x-kubernetes-list-map-keys", path)),
            _ => ListType::Atomic,
        }
    }

    fn flag(&mut self, fields: &Map<String, Value>, keyword: &str, path: &str) -> bool {
        match fields.get(keyword) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag,
            Some(other) => {
                self.causes.push(Cause::type_invalid(
                    &format!("{path}.{keyword}"),
                    other,
                    "must be true or false",
                ));
                false
            }
        }
    }

    fn number(&mut self, fields: &Map<String, Value>, keyword: &str, path: &str) -> Option<f64> {
        let value = fields.get(keyword).filter(|value| !value.is_null())?;
        let number = value.as_f64();
        if number.is_none() {
            self.causes.push(Cause::type_invalid(&format!("{path}.{keyword}"), value, "must be a number"));
        }
        number
    }

    fn integer(&mut self, fields: &Map<String, Value>, keyword: &str, path: &str) -> Option<i64> {
        let value = fields.get(keyword).filter(|value| !value.is_null())?;
        let number = value.as_i64();
        if number.is_none() {
            self.causes.push(Cause::type_invalid(
                &format!("{path}.{keyword}"),
                value,
                "must be a whole number",
            ));
        }
        number
    }

    fn names(&mut self, fields: &Map<String, Value>, keyword: &str, path: &str) -> Vec<String> {
        let Some(value) = fields.get(keyword) else { return Vec::new() };
        let names: Option<Vec<String>> =
            value.as_array().map(|items| items.iter().filter_map(Value::as_str).map(str::to_owned).collect());
        names.unwrap_or_else(|| {
            self.causes.push(Cause::type_invalid(
                &format!("{path}.{keyword}"),
                value,
                "must be a list of names",
            ));
            Vec::new()
        })
    }

    fn pattern(&mut self, fields: &Map<String, Value>, path: &str) -> Option<Pattern> {
        let source = fields.get("pattern")?.as_str().filter(|source| !source.is_empty())?;
        match Pattern::compile(source) {
            Ok(pattern) => Some(pattern),
            Err(error) => {
                self.causes.push(Cause::invalid_text(
                    format!("{path}.pattern"),
                    &quote(source),
                    &format!("must be a valid regular expression, but isn't: {error}"),
                ));
                None
            }
        }
    }
}

/// Returns the patch strategy of a built-in kind; where its keywords are missing, the list type implies it.
fn patch_strategy(fields: &Map<String, Value>, list: &ListType) -> PatchStrategy {
    let text = |keyword: &str| fields.get(keyword).and_then(Value::as_str);
    if let Some(strategy) = text("x-kubernetes-patch-strategy") {
        let merge = strategy.split(',').any(|part| part == "merge");
        return PatchStrategy { merge, merge_key: text("x-kubernetes-patch-merge-key").map(str::to_owned) };
    }
    match list {
        ListType::Atomic => PatchStrategy::default(),
        ListType::Set => PatchStrategy { merge: true, merge_key: None },
        ListType::Map(keys) => PatchStrategy { merge: true, merge_key: keys.first().cloned() },
    }
}

/// Returns the default of a value, with numbers as they are stored: `1.0` would become `1` at the next write.
fn default_of(fields: &Map<String, Value>) -> Option<Value> {
    let mut default = fields.get("default").filter(|value| !value.is_null())?.clone();
    normalize_numbers(&mut default);
    Some(default)
}
