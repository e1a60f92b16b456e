//! Running rules over an object.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kube_cel::cel::{
    Context, ExecutionError, Value as CelValue,
    common::{
        types::{CelBool, CelOptional},
        value::Val,
    },
};
use serde_json::Value;

use crate::schema::{
    Additional, Cause, CauseReason, Node, Verdict,
    path::Path,
    ratchet::{Correlated, find_item},
    value::{print, quote},
};

use super::{
    Program, Reason, Rule,
    convert::convert,
    functions::functions,
    lower::{Reference, Start},
};

/// The longest message an expression may make.
const MESSAGE_LIMIT: usize = 5 * 1024;

/// Runs every rule of a schema.
pub(crate) fn run(root: &Node, object: &Value, old: Option<&Value>, verdict: &mut Verdict) {
    let current = old.map(|old| Correlated { node: root, new: object, old });
    let here =
        Here { node: root, value: object, old, ratchet: Ratchet { current, parent: None }, resource: true };
    visit(&here, &Path::Root, verdict);
}

/// What decides whether an unchanged fault passes: the value, or the nearest one above it with a known old value.
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
            // Both objects were converted to the version asked for, so a change of these cannot be seen.
            Some(_) if self.parent.is_none() && matches!(name, "apiVersion" | "kind") => {
                Ratchet { current: None, parent: None }
            }
            Some(current) => Ratchet { current: current.key(name), parent: Some(current) },
        }
    }

    fn index(self, index: usize) -> Ratchet<'a> {
        match self.current {
            None => self,
            Some(current) => Ratchet { current: current.index(index), parent: Some(current) },
        }
    }
}

/// A value, its schema and its past.
struct Here<'a> {
    node: &'a Node,
    value: &'a Value,
    old: Option<&'a Value>,
    ratchet: Ratchet<'a>,
    resource: bool,
}

fn visit(here: &Here<'_>, path: &Path<'_>, verdict: &mut Verdict) {
    if here.value.is_null() || !here.node.has_rules {
        return;
    }
    for rule in &here.node.rules {
        check(rule, here, path, verdict);
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
                    visit(&Here { resource: node.embedded, ..below }, &Path::Key(path, name), verdict);
                }
            }
            for (name, node) in here.node.properties.iter().filter(|(_, node)| node.has_rules) {
                let Some(value) = fields.get(name) else { continue };
                let below = child(node, value, old_field(name), here.ratchet.key(name));
                visit(&Here { resource: node.embedded, ..below }, &Path::Field(path, name), verdict);
            }
        }
        Value::Array(items) => {
            let Some(node) = here.node.items.as_deref().filter(|node| node.has_rules) else { return };
            let old_items = here.old.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            for (index, value) in items.iter().enumerate() {
                let old = find_item(here.node, old_items, value, index);
                let below = child(node, value, old, here.ratchet.index(index));
                visit(&Here { resource: node.embedded, ..below }, &Path::Index(path, index), verdict);
            }
        }
        _ => {}
    }
}

fn check(rule: &Rule, here: &Here<'_>, path: &Path<'_>, verdict: &mut Verdict) {
    if rule.uses_old && here.old.is_none() && !rule.optional_old {
        return;
    }
    let kind = quote(here.node.kind.name());
    match execute(&rule.program, rule, here) {
        Ok(CelValue::Bool(true)) => {}
        Ok(CelValue::Bool(false)) => {
            let fault = failure(rule, here, path);
            let passes = !rule.uses_old && here.ratchet.lets_pass();
            (if passes { &mut verdict.passed } else { &mut verdict.causes }).push(fault);
        }
        Ok(_) | Err(Failure::NoSuchOverload) => verdict.causes.push(Cause::invalid_text(
            path.field(),
            &kind,
            &format!("'no such overload': call arguments did not match a supported operator, function or macro signature for rule: {}", rule.shown()),
        )),
        Err(Failure::Other(error)) => verdict.causes.push(Cause::invalid_text(
            path.field(),
            &kind,
            &format!("{error} evaluating rule: {}", rule.shown()),
        )),
    }
}

impl Rule {
    /// What stands for the rule in messages.
    fn shown(&self) -> &str {
        if self.message.is_empty() { &self.text } else { &self.message }
    }
}

fn failure(rule: &Rule, here: &Here<'_>, path: &Path<'_>) -> Cause {
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
    let detail =
        rule.message_program.as_ref().and_then(|program| message(program, rule, here)).unwrap_or_else(|| {
            if rule.message.is_empty() { format!("failed rule: {}", rule.text) } else { rule.message.clone() }
        });
    // Whole objects and lists are not repeated in the message.
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

/// The message an expression makes; none if it makes none that can be shown.
fn message(program: &Program, rule: &Rule, here: &Here<'_>) -> Option<String> {
    let Ok(CelValue::String(text)) = execute(program, rule, here) else { return None };
    let text = text.trim();
    (!text.is_empty() && text.len() <= MESSAGE_LIMIT && !text.contains('\n')).then(|| text.to_owned())
}

/// Why a rule has no result.
enum Failure {
    NoSuchOverload,
    Other(String),
}

fn execute(program: &Program, rule: &Rule, here: &Here<'_>) -> Result<CelValue, Failure> {
    let mut context = functions().new_inner_scope();
    for reference in &program.references {
        if let Some(value) = resolve(reference, rule, here) {
            bind(&mut context, reference.variable.clone(), value);
        }
    }
    // A fault inside the library must not take the server down.
    let run = || CelValue::resolve(&program.expression, &context);
    match catch_unwind(AssertUnwindSafe(run)) {
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

/// The value a chain leads to; none if a field on the way is missing, which is an error only if it is read.
fn resolve(reference: &Reference, rule: &Rule, here: &Here<'_>) -> Option<Box<dyn Val>> {
    let start = match reference.start {
        Start::New => here.value,
        Start::Old if rule.optional_old => {
            let value = here.old.map(|old| convert(old, Some(here.node), here.resource, 0));
            return Some(Box::new(value.map_or_else(CelOptional::none, CelOptional::of)));
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
            Some(Box::new(CelBool::from(present)))
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

    fn convert(self) -> Box<dyn Val> {
        convert(self.value, self.node, self.resource, 0)
    }
}

/// Words an error as the real server does.
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
