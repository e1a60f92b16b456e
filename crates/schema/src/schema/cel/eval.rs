//! Evaluates rules against an object.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kube_cel::cel::{
    Context, ExecutionError, Value as CelValue,
    common::{
        types::{CelBool, CelOptional},
        value::Val,
    },
};
use serde_json::Value;

use super::{
    Program, Reason, Rule,
    convert::convert,
    cost::{Bounds, Extent, Meter},
    functions::functions,
    lower::{Reference, Start},
};
use crate::schema::{
    Additional, Cause, CauseReason, Node, Validation,
    path::Path,
    ratchet::{Correlated, OldItems},
    value::{print, quote},
};

/// The maximum length of a message from `messageExpression`.
const MESSAGE_LIMIT: usize = 5 * 1024;

/// Evaluates every rule of a schema, and returns whether the budget sufficed.
pub(crate) fn run(
    root: &Node,
    object: &Value,
    old: Option<&Value>,
    budget: u64,
    validation: &mut Validation,
) -> bool {
    let current = old.map(|old| Correlated { node: root, new: object, old });
    let here =
        Here { node: root, value: object, old, ratchet: Ratchet { current, parent: None }, resource: true };
    let mut run = Run { validation, left: Some(budget) };
    visit(&here, &Path::Root, &mut run);
    run.left.is_some()
}

/// The evaluation of the rules of one object.
struct Run<'a> {
    validation: &'a mut Validation,
    /// What is left of the budget; `None` when it was exceeded and no further rules are evaluated.
    left: Option<u64>,
}

/// What decides whether an unchanged error is ratcheted: the value, or its nearest ancestor with a known old
/// value.
#[derive(Clone, Copy)]
struct Ratchet<'a> {
    current: Option<Correlated<'a>>,
    parent: Option<Correlated<'a>>,
}

impl<'a> Ratchet<'a> {
    fn lets_pass(self) -> bool {
        self.current.or(self.parent).is_some_and(Correlated::unchanged)
    }

    fn key(self, name: &str) -> Ratchet<'a> {
        match self.current {
            None => self,
            // Both objects were converted to the requested version, so a change of these fields cannot be
            // seen.
            Some(_) if self.parent.is_none() && matches!(name, "apiVersion" | "kind") => {
                Ratchet { current: None, parent: None }
            }
            Some(current) => Ratchet { current: current.key(name), parent: Some(current) },
        }
    }

    /// Returns the ratchet of a list item and its old value.
    fn item(self, new: &'a Value, old: Option<&'a Value>) -> Ratchet<'a> {
        let Some(current) = self.current else { return self };
        let node = current.node.items.as_deref();
        let below = node.zip(old).map(|(node, old)| Correlated { node, new, old });
        Ratchet { current: below, parent: Some(current) }
    }
}

/// A value, its schema and its old value.
struct Here<'a> {
    node: &'a Node,
    value: &'a Value,
    old: Option<&'a Value>,
    ratchet: Ratchet<'a>,
    resource: bool,
}

fn visit(here: &Here<'_>, path: &Path<'_>, run: &mut Run<'_>) {
    if here.value.is_null() || !here.node.has_rules || run.left.is_none() {
        return;
    }
    for rule in &here.node.rules {
        check(rule, here, path, run);
    }

    let child = |node, value, old, ratchet| Here { node, value, old, ratchet, resource: false };
    match here.value {
        Value::Object(fields) => {
            let old_field = |name: &str| here.old.and_then(|old| old.get(name));
            if let Additional::Schema(node) = &here.node.additional {
                for (name, value) in
                    fields.iter().filter(|(name, _)| !here.node.properties.contains_key(*name))
                {
                    let below = child(node, value, old_field(name), here.ratchet.key(name));
                    visit(&Here { resource: node.embedded, ..below }, &Path::Key(path, name), run);
                }
            }
            for (name, node) in here.node.properties.iter().filter(|(_, node)| node.has_rules) {
                let Some(value) = fields.get(name) else { continue };
                let below = child(node, value, old_field(name), here.ratchet.key(name));
                visit(&Here { resource: node.embedded, ..below }, &Path::Field(path, name), run);
            }
        }
        Value::Array(items) => {
            let Some(node) = here.node.items.as_deref().filter(|node| node.has_rules) else { return };
            let old_items = here.old.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let old_items = OldItems::of(here.node, old_items);
            for (index, value) in items.iter().enumerate() {
                let old = old_items.as_ref().and_then(|items| items.find(value, index));
                let below = child(node, value, old, here.ratchet.item(value, old));
                visit(&Here { resource: node.embedded, ..below }, &Path::Index(path, index), run);
            }
        }
        _ => {}
    }
}

fn check(rule: &Rule, here: &Here<'_>, path: &Path<'_>, run: &mut Run<'_>) {
    if run.left.is_none() || rule.uses_old && here.old.is_none() && !rule.optional_old {
        return;
    }
    let kind = quote(here.node.kind.name());
    let reject = |detail: &str| Cause::invalid_text(path.field(), &kind, detail);
    let mut causes = Vec::new();
    match execute(&rule.program, rule, here, &mut run.left) {
        Ok(CelValue::Bool(true)) | Err(Failure::Exceeded) => {}
        Ok(CelValue::Bool(false)) => {
            let cause = failure(rule, here, path, &mut run.left);
            let passes = !rule.uses_old && here.ratchet.lets_pass();
            (if passes { &mut run.validation.ratcheted } else { &mut causes }).push(cause);
        }
        Ok(_) | Err(Failure::NoSuchOverload) => causes.push(reject(&format!(
            "'no such overload': call arguments did not match a supported operator, function or macro signature for rule: {}",
            rule.shown()
        ))),
        Err(Failure::Other(error)) => {
            causes.push(reject(&format!("{error} evaluating rule: {}", rule.shown())));
        }
    }

    if run.left.is_none() {
        causes.push(reject(
            "validation failed due to running out of cost budget, no further validation rules will be run",
        ));
    }
    run.validation.causes.append(&mut causes);
}

impl Rule {
    /// Returns the rule as messages show it.
    fn shown(&self) -> &str {
        if self.message.is_empty() { &self.text } else { &self.message }
    }
}

fn failure(rule: &Rule, here: &Here<'_>, path: &Path<'_>, left: &mut Option<u64>) -> Cause {
    let mut field = String::new();
    path.write_field(&mut field);
    if !rule.field.is_empty() {
        if !field.is_empty() {
            field.push('.');
        }
        field.push_str(&rule.field);
    }

    if field.is_empty() {
        field.push_str(crate::schema::path::NIL);
    }
    let detail = rule
        .message_program
        .as_ref()
        .and_then(|program| message(program, rule, here, left))
        .unwrap_or_else(|| {
            if rule.message.is_empty() { format!("failed rule: {}", rule.text) } else { rule.message.clone() }
        });

    // Objects and lists are not repeated in the message.
    let value = match here.node.kind.name() {
        "object" | "array" => String::new(),
        _ => format!(": {}", print(here.value)),
    };

    let (reason, message) = match rule.reason {
        Reason::Invalid => (CauseReason::FieldValueInvalid, format!("Invalid value{value}: {detail}")),
        Reason::Forbidden => (CauseReason::FieldValueForbidden, format!("Forbidden: {detail}")),
        Reason::Required => (CauseReason::FieldValueRequired, format!("Required value: {detail}")),
        Reason::Duplicate => (CauseReason::FieldValueDuplicate, format!("Duplicate value{value}")),
    };
    Cause { field, reason, message }
}

/// Evaluates `messageExpression`; returns `None` if its result cannot be shown.
fn message(program: &Program, rule: &Rule, here: &Here<'_>, left: &mut Option<u64>) -> Option<String> {
    let Ok(CelValue::String(text)) = execute(program, rule, here, left) else { return None };
    let text = text.trim();
    (!text.is_empty() && text.len() <= MESSAGE_LIMIT && !text.contains('\n')).then(|| text.to_owned())
}

/// Why a rule has no result.
enum Failure {
    NoSuchOverload,
    /// The budget of the object was exceeded.
    Exceeded,
    Other(String),
}

/// Evaluates a program and deducts its cost from the budget.
fn execute(
    program: &Program,
    rule: &Rule,
    here: &Here<'_>,
    left: &mut Option<u64>,
) -> Result<CelValue, Failure> {
    let mut bound = Vec::with_capacity(program.references.len());
    let mut extents = Vec::with_capacity(program.references.len());
    for reference in &program.references {
        if let Some((value, extent)) = resolve(reference, rule, here) {
            extents.push((reference.variable.as_str(), extent));
            bound.push((reference.variable.clone(), value));
        }
    }

    let extent =
        |name: &str| extents.iter().find(|(known, _)| *known == name).map(|(_, extent)| (*extent, None));
    let size = extents.iter().fold(0_u64, |sum, (_, extent)| sum.saturating_add(extent.size));
    let mut bounds =
        Bounds::of_simple(program.simple, size).unwrap_or_else(|| Bounds::of(&program.expression, &extent));
    bounds.once = bounds.once.saturating_add(size);
    let meter = left.take().and_then(|left| Meter::start(bounds, left)).ok_or(Failure::Exceeded)?;

    let mut context = functions().new_inner_scope();
    for (name, value) in bound {
        bind(&mut context, name, value);
    }
    context.set_variable_resolver(&meter);
    // A panic inside the library must not take the server down.
    let run = || CelValue::resolve(&program.expression, &context);
    let result = catch_unwind(AssertUnwindSafe(run));

    *left = meter.finish();
    if left.is_none() {
        return Err(Failure::Exceeded);
    }
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(translate(&error, &program.references, here)),
        Err(_) => Err(Failure::Other("internal error".to_owned())),
    }
}

fn bind(context: &mut Context<'_>, name: String, value: Box<dyn Val>) {
    match context {
        Context::Root { variables, .. } | Context::Child { variables, .. } => {
            variables.insert(name, value);
        }
    }
}

/// Returns the value at the end of a chain; `None` if a field is missing, which is an error only if it is
/// read.
fn resolve(reference: &Reference, rule: &Rule, here: &Here<'_>) -> Option<(Box<dyn Val>, Extent)> {
    let start = match reference.start {
        Start::New => here.value,
        Start::Old if rule.optional_old => {
            let value = here.old.map(|old| convert(old, Some(here.node), here.resource, 0));
            let extent = here.old.map_or(Extent::SCALAR, Extent::of);
            return Some((Box::new(value.map_or_else(CelOptional::none, CelOptional::of)), extent));
        }
        Start::Old => here.old?,
    };

    let mut end = End { value: start, node: Some(here.node), resource: here.resource };
    let (last, way) = match reference.fields.split_last() {
        Some((last, way)) => (Some(last), way),
        None => (None, [].as_slice()),
    };

    for name in way {
        end = end.step(name)?;
    }
    match (last, reference.presence) {
        (Some(last), true) => {
            let present = end.value.as_object()?.contains_key(last);
            Some((Box::new(CelBool::from(present)), Extent::SCALAR))
        }
        (Some(last), false) => end.step(last).map(End::convert),
        (None, _) => Some(end.convert()),
    }
}

struct End<'a> {
    value: &'a Value,
    node: Option<&'a Node>,
    resource: bool,
}

impl<'a> End<'a> {
    fn step(self, name: &str) -> Option<End<'a>> {
        let value = self.value.as_object()?.get(name)?;
        let hidden = self.resource && matches!(name, "apiVersion" | "kind" | "metadata");
        let node = if hidden { None } else { self.node.and_then(|node| node.child(name)) };
        Some(End { value, node, resource: node.is_some_and(|node| node.embedded) })
    }

    fn convert(self) -> (Box<dyn Val>, Extent) {
        (convert(self.value, self.node, self.resource, 0), Extent::of(self.value))
    }
}

/// Formats an error as kube-apiserver does.
fn translate(error: &ExecutionError, references: &[Reference], here: &Here<'_>) -> Failure {
    Failure::Other(match error {
        ExecutionError::UndeclaredReference(name) => {
            match references.iter().find(|reference| reference.variable == **name) {
                Some(reference) => format!("no such key: {}", missing_key(reference, here)),
                None => format!("undeclared reference to '{name}'"),
            }
        }
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::IndexOutOfBounds(index) => match index {
            CelValue::Int(index) => format!("index out of bounds: {index}"),
            _ => "index out of bounds".to_owned(),
        },
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::FunctionError { message, .. } if message.starts_with("no numeric value in") => {
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                .to_owned()
        }
        ExecutionError::FunctionError { message, .. } => message.clone(),
        _ => return Failure::NoSuchOverload,
    })
}

fn missing_key<'a>(reference: &'a Reference, here: &Here<'_>) -> &'a str {
    let mut value = match reference.start {
        Start::New => Some(here.value),
        Start::Old => here.old,
    };
    for field in &reference.fields {
        match value.and_then(|value| value.get(field)) {
            Some(next) => value = Some(next),
            None => return field,
        }
    }
    reference.fields.last().map(String::as_str).unwrap_or_default()
}
