//! The OpenAPI keywords, checked in the order and with the messages of kube-apiserver.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{
    Additional, Cause, CauseReason, Node, Type,
    node::Checks,
    number,
    path::{NIL, Path},
    ratchet::Correlated,
    value::{Numeric, marshal, print, quote},
};

/// The errors found so far. An error with the same text is listed once.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    errors: Vec<(String, Cause)>,
    /// The texts of the errors, once there are many.
    known: HashSet<String>,
}

/// The number of errors from which their texts are hashed.
const MANY: usize = 32;

impl Outcome {
    fn push(&mut self, text: String, cause: Cause) {
        if self.errors.len() == MANY {
            self.known = self.errors.iter().map(|(text, _)| text.clone()).collect();
        }
        let is_known = match self.errors.len() {
            0..MANY => self.errors.iter().any(|(known, _)| *known == text),
            _ => !self.known.insert(text.clone()),
        };
        if !is_known {
            self.errors.push((text, cause));
        }
    }

    fn merge(&mut self, other: Outcome) {
        for (text, cause) in other.errors {
            self.push(text, cause);
        }
    }

    /// Adds the error of one value.
    pub(crate) fn invalid(&mut self, path: &Path<'_>, printed: &str, text: String) {
        let cause = Cause::invalid_text(path.schema_field(), printed, &text);
        self.push(text, cause);
    }

    /// Adds an error that kube-apiserver reports without a field.
    pub(crate) fn composite(&mut self, text: String) {
        let cause = Cause::invalid_text(NIL.to_owned(), "\"\"", &text);
        self.push(text, cause);
    }

    fn wrong_type(&mut self, path: &Path<'_>, expected: &str, found: &str) {
        let text = format!("{} in body must be of type {expected}: {}", path.in_body(), quote(found));
        let cause = Cause {
            field: path.schema_field(),
            reason: CauseReason::FieldValueTypeInvalid,
            message: format!("Invalid value: {}: {text}", quote(found)),
        };
        self.push(text, cause);
    }

    fn too_many(&mut self, path: &Path<'_>, actual: i64, limit: i64, what: &str) {
        let items = if limit == 1 { "item" } else { "items" };
        let cause = Cause {
            field: path.schema_field(),
            reason: CauseReason::FieldValueTooMany,
            message: format!("Too many: {actual}: must have at most {limit} {items}"),
        };
        self.push(format!("{} in body should have at most {limit} {what}", path.in_body()), cause);
    }
}

/// Validates a value and tolerates errors in unchanged values.
pub(crate) fn run(node: &Node, value: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut out = Outcome::default();
    visit(node, value, &Path::Root, None, &mut out);
    if let (false, Some(old)) = (out.errors.is_empty(), old) {
        // Errors are rare, so the old object is compared only now.
        out = Outcome::default();
        visit(node, value, &Path::Root, Some(Correlated { node, new: value, old }), &mut out);
    }
    out.errors.into_iter().map(|(_, cause)| cause).collect()
}

/// Checks a value with its own schema and drops the errors if it did not change; returns how many checks
/// passed.
fn visit(
    node: &Node,
    value: &Value,
    path: &Path<'_>,
    correlated: Option<Correlated<'_>>,
    out: &mut Outcome,
) -> usize {
    let before = out.errors.len();
    let matched = check(node, value, path, correlated, out);
    if out.errors.len() > before && correlated.is_some_and(Correlated::unchanged) {
        out.errors.truncate(before);
    }
    matched
}

/// Checks a value with a schema that may be a branch of `anyOf` and the like.
///
/// The number of passed checks decides which branch's errors are reported, as in kube-apiserver.
fn check(
    node: &Node,
    value: &Value,
    path: &Path<'_>,
    correlated: Option<Correlated<'_>>,
    out: &mut Outcome,
) -> usize {
    let checks = node.checks.as_deref();
    let mut matched = 0;
    if value.is_null() {
        if node.has_type() && !node.nullable {
            out.wrong_type(path, node.type_names(), "null");
        } else {
            matched += 1;
        }
        check_enum(checks, value, path, out);
        return matched;
    }

    if node.has_type() || checks.is_some_and(|checks| checks.format.is_some()) {
        matched += 1 + usize::from(check_type(node, checks, value, path, out));
    }
    matched += 2;
    if let Some(checks) = checks {
        matched += check_branches(checks, value, path, correlated, out);
    }

    match value {
        Value::String(text) => {
            matched += 1;
            if let Some(checks) = checks {
                check_text(checks, text, path, out);
                matched += usize::from(check_format(checks, text, path, out));
            }
        }
        Value::Number(value) => {
            number::check(node, checks, Numeric::of(value), path, out);
            matched += 2;
        }
        Value::Array(items) => matched += 2 + check_items(node, checks, items, path, correlated, out),
        _ => {}
    }

    check_enum(checks, value, path, out);
    matched += 1;
    if let Value::Object(fields) = value {
        matched += 1 + check_fields(node, checks, fields, path, correlated, out);
    }
    matched + 1
}

fn check_type(
    node: &Node,
    checks: Option<&Checks>,
    value: &Value,
    path: &Path<'_>,
    out: &mut Outcome,
) -> bool {
    let (kind, number_format) = match value {
        Value::Null | Value::Object(_) => (Type::Object, ""),
        Value::Bool(_) => (Type::Boolean, ""),
        Value::String(_) => (Type::String, ""),
        Value::Array(_) => (Type::Array, ""),
        Value::Number(number) => match Numeric::of(number) {
            Numeric::Integer(_) => (Type::Integer, "int64"),
            Numeric::Float(float) if is_exact(float) && node.accepts(Type::Integer) => {
                (Type::Integer, "float64")
            }
            Numeric::Float(_) => (Type::Number, "float64"),
        },
    };

    let fits = node.accepts(kind) || (kind == Type::Integer && node.accepts(Type::Number));
    let format = checks.and_then(|checks| checks.format.as_ref());
    let numeric_schema = node.accepts(Type::Integer) || node.accepts(Type::Number);
    if let Some(format) = format {
        if matches!(kind, Type::String | Type::Array) {
            // A string with a format is left to the format, and a list is accepted, as in kube-apiserver.
            if !numeric_schema {
                return true;
            }
        } else if !fits && !node.int_or_string && number_format != format.name {
            out.wrong_type(path, &format.name, number_format);
            return false;
        }
    }

    if !fits {
        out.wrong_type(path, node.type_names(), kind.name());
    }
    fits
}

/// Whether a float is an integer that JSON can represent exactly.
fn is_exact(float: f64) -> bool {
    float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_991.0
}

fn check_branches(
    checks: &Checks,
    value: &Value,
    path: &Path<'_>,
    correlated: Option<Correlated<'_>>,
    out: &mut Outcome,
) -> usize {
    let mut matched = 0;
    let run = |branch: &Node| {
        let mut outcome = Outcome::default();
        let count = check(branch, value, path, correlated, &mut outcome);
        (outcome, count)
    };

    if !checks.any_of.is_empty() {
        matched += check_any_of(&checks.any_of, path, run, out);
    }
    if !checks.one_of.is_empty() {
        matched += check_one_of(&checks.one_of, path, run, out);
    }

    if !checks.all_of.is_empty() {
        let mut valid = 0;
        for branch in &checks.all_of {
            let (outcome, count) = run(branch);
            valid += usize::from(outcome.errors.is_empty());
            matched += count;
            out.merge(outcome);
        }
        if valid != checks.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            out.composite(format!("{} must validate all the schemas (allOf){none}", quote(&path.in_body())));
        }
    }

    if let Some(branch) = &checks.not
        && run(branch).0.errors.is_empty()
    {
        out.composite(format!("{} must not validate the schema (not)", quote(&path.in_body())));
    }
    matched
}

fn check_any_of(
    branches: &[Node],
    path: &Path<'_>,
    run: impl Fn(&Node) -> (Outcome, usize),
    out: &mut Outcome,
) -> usize {
    let mut best: Option<(Outcome, usize)> = None;
    for branch in branches {
        let (outcome, count) = run(branch);
        if outcome.errors.is_empty() {
            return count;
        }
        if best.as_ref().is_none_or(|(_, most)| count > *most) {
            best = Some((outcome, count));
        }
    }

    out.composite(format!("{} must validate at least one schema (anyOf)", quote(&path.in_body())));
    best.map_or(0, |(outcome, count)| {
        out.merge(outcome);
        count
    })
}

fn check_one_of(
    branches: &[Node],
    path: &Path<'_>,
    run: impl Fn(&Node) -> (Outcome, usize),
    out: &mut Outcome,
) -> usize {
    let mut best: Option<(Outcome, usize)> = None;
    let mut valid = Vec::new();
    for branch in branches {
        let (outcome, count) = run(branch);
        if outcome.errors.is_empty() {
            valid.push(count);
            best = None;
        } else if valid.is_empty() && best.as_ref().is_none_or(|(_, most)| count > *most) {
            best = Some((outcome, count));
        }
    }

    if let [count] = valid.as_slice() {
        return *count;
    }
    let found = match valid.len() {
        0 => "Found none valid".to_owned(),
        count => format!("Found {count} valid alternatives"),
    };

    out.composite(format!(
        "{} must validate one and only one schema (oneOf). {found}",
        quote(&path.in_body())
    ));

    best.map_or(0, |(outcome, count)| {
        out.merge(outcome);
        count
    })
}

/// Checks length and pattern; only the first error is reported.
fn check_text(checks: &Checks, text: &str, path: &Path<'_>, out: &mut Outcome) {
    let length = || i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    if let Some(limit) = checks.max_length
        && length() > limit
    {
        let bytes = if limit == 1 { "byte" } else { "bytes" };
        let cause = Cause {
            field: path.schema_field(),
            reason: CauseReason::FieldValueTooLong,
            message: format!("Too long: may not be more than {limit} {bytes}"),
        };
        out.push(format!("{} in body should be at most {limit} chars long", path.in_body()), cause);
    } else if let Some(limit) = checks.min_length
        && length() < limit
    {
        out.invalid(
            path,
            &quote(text),
            format!("{} in body should be at least {limit} chars long", path.in_body()),
        );
    } else if let Some(pattern) = &checks.pattern
        && !pattern.matches(text)
    {
        out.invalid(
            path,
            &quote(text),
            format!("{} in body should match '{}'", path.in_body(), pattern.source),
        );
    }
}

fn check_format(checks: &Checks, text: &str, path: &Path<'_>, out: &mut Outcome) -> bool {
    let Some(format) = checks.format.as_ref().filter(|format| format.check.is_text()) else { return false };
    if !format.check.accepts(text) {
        out.wrong_type(path, &format.name, text);
    }
    true
}

fn check_items(
    node: &Node,
    checks: Option<&Checks>,
    items: &[Value],
    path: &Path<'_>,
    correlated: Option<Correlated<'_>>,
    out: &mut Outcome,
) -> usize {
    let mut matched = 0;
    if let Some(child) = node.items.as_deref() {
        let pairs = correlated.and_then(Correlated::items);
        for (index, item) in items.iter().enumerate() {
            let below = pairs.as_ref().and_then(|pairs| pairs.get(index));
            matched += visit(child, item, &Path::Index(path, index), below, out);
        }
    }

    let Some(checks) = checks else { return matched };
    let size = i64::try_from(items.len()).unwrap_or(i64::MAX);
    if let Some(limit) = checks.min_items.filter(|limit| size < *limit) {
        out.invalid(
            path,
            &size.to_string(),
            format!("{} in body should have at least {limit} items", path.in_body()),
        );
    }

    if let Some(limit) = checks.max_items.filter(|limit| size > *limit) {
        out.too_many(path, size, limit, "items");
    }
    if checks.unique_items && has_duplicate(items) {
        out.invalid(path, "\"\"", format!("{} in body shouldn't contain duplicates", path.in_body()));
    }
    matched
}

fn has_duplicate(items: &[Value]) -> bool {
    let mut known = HashSet::with_capacity(items.len());
    !items.iter().all(|item| known.insert(item))
}

fn check_enum(checks: Option<&Checks>, value: &Value, path: &Path<'_>, out: &mut Outcome) {
    let Some(checks) = checks.filter(|checks| !checks.enumeration.is_empty()) else { return };
    let same = |allowed: &Value| match (allowed, value) {
        (Value::Number(left), Value::Number(right)) => {
            Numeric::of(left).as_float().total_cmp(&Numeric::of(right).as_float()).is_eq()
        }
        (left, right) => !left.is_null() && left == right,
    };

    if checks.enumeration.iter().any(same) {
        return;
    }
    let listed: Vec<String> = checks
        .enumeration
        .iter()
        .map(|allowed| match allowed {
            Value::String(text) => quote(text),
            other => quote(&marshal(other)),
        })
        .collect();

    let cause = Cause {
        field: path.schema_field(),
        reason: CauseReason::FieldValueNotSupported,
        message: format!("Unsupported value: {}: supported values: {}", print(value), listed.join(", ")),
    };
    out.push(format!("{} in body should be one of {}", path.in_body(), listed.join(" ")), cause);
}

fn check_fields(
    node: &Node,
    checks: Option<&Checks>,
    fields: &Map<String, Value>,
    path: &Path<'_>,
    correlated: Option<Correlated<'_>>,
    out: &mut Outcome,
) -> usize {
    let mut matched = 0;
    if let Some(checks) = checks {
        check_property_count(checks, fields, path, out);
    }

    match &node.additional {
        Additional::Forbidden => {
            for name in fields.keys().filter(|name| !node.properties.contains_key(*name)) {
                let text = format!("{}.{name} in body is a forbidden property", path.in_body());
                out.invalid(path, &quote(name), text);
            }
        }
        Additional::Schema(child) => {
            for (name, field) in fields.iter().filter(|(name, _)| !node.properties.contains_key(*name)) {
                let below = correlated.and_then(|correlated| correlated.key(name));
                matched += visit(child, field, &Path::Key(path, name), below, out);
            }
        }
        Additional::Unset | Additional::Anything => {}
    }

    let at_root = matches!(path, Path::Root);
    for (name, child) in &node.properties {
        let Some(field) = fields.get(name) else { continue };
        // Both objects were converted to the requested version, so a change of these fields cannot be seen.
        let unseen = at_root && (name == "apiVersion" || name == "kind");
        let below = correlated.filter(|_| !unseen).and_then(|correlated| correlated.key(name));
        matched += visit(child, field, &Path::Field(path, name), below, out);
    }

    for name in checks.map(|checks| checks.required.as_slice()).unwrap_or_default() {
        if !fields.contains_key(name) {
            let here = Path::Field(path, name);
            let cause = Cause::required(here.schema_field(), "");
            out.push(format!("{} in body is required", here.in_body()), cause);
        }
    }
    matched
}

fn check_property_count(checks: &Checks, fields: &Map<String, Value>, path: &Path<'_>, out: &mut Outcome) {
    let size = i64::try_from(fields.len()).unwrap_or(i64::MAX);
    if let Some(limit) = checks.min_properties.filter(|limit| size < *limit) {
        let text = format!("{} in body should have at least {limit} properties", path.in_body());
        out.invalid(path, &size.to_string(), text);
    }
    if let Some(limit) = checks.max_properties.filter(|limit| size > *limit) {
        out.too_many(path, size, limit, "properties");
    }
}
