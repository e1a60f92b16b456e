//! `x-kubernetes-validations`: rules in the Common Expression Language.
//!
//! kube-cel provides the language and the functions of Kubernetes. Its own schema walker supports neither the
//! items of list maps nor ratcheting, and converts whole objects, so rules are checked and rewritten here
//! when a CRD is created ([`lower`]) and evaluated by our own walker ([`eval`]).
//!
//! Not supported, each rejected with a clear message when the CRD is created:
//! - macros with two variables (`all(i, v, …)`, `transformList`, `transformMap`), `sortBy`, `optMap`,
//!   `optFlatMap`, `bool()`, `dyn()` and the `regex` library;
//! - construction of messages (`Type{field: value}`);
//! - expressions nested deeper than 40 levels (`limits`).
//!
//! The cost of rules is limited ([`cost`]): by a coarse estimate when the CRD is created, and by a budget for all
//! rules of an object when they are evaluated. `lists.range` returns at most 100,000 items.
//!
//! Silent differences:
//! - the units of cost are not those of kube-apiserver, and rules near its limits may be accepted here;
//! - equality of lists of type set or map depends on the order, and `+` on them does not merge;
//! - types are checked for fields, operators and results, not for the arguments of functions.

mod convert;
mod cost;
mod estimate;
mod eval;
mod functions;
#[cfg(test)]
mod hostile;
mod kind;
mod limits;
mod lower;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

use kube_cel::cel::{IdedExpr, parser::Parser};
use serde_json::{Map, Value, json};

use self::{
    cost::{Bounds, Extent},
    estimate::Costs,
    functions::functions,
    kind::Kind,
    lower::{Lowering, Mistake, Reference},
};
use super::{Additional, Cause, ListType, Node, marshal};

pub(crate) use cost::{BUDGET, QUICK_BUDGET};
pub(crate) use eval::run;

/// The maximum length of a name.
const MAX_NAME: u64 = 253;

/// One compiled rule.
#[derive(Debug)]
pub(crate) struct Rule {
    program: Program,
    /// The rule as written, trimmed.
    text: String,
    /// The message as written, trimmed; empty if there is none.
    message: String,
    message_program: Option<Program>,
    reason: Reason,
    /// The field that a failure is reported for, relative to the field of the rule; empty for that field
    /// itself.
    field: String,
    optional_old: bool,
    uses_old: bool,
}

/// A lowered expression and the variables that it reads.
#[derive(Debug)]
struct Program {
    expression: IdedExpr,
    references: Vec<Reference>,
    /// The number of nodes, if the cost can be bounded by it.
    simple: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Invalid,
    Forbidden,
    Required,
    Duplicate,
}

const REASONS: [(&str, Reason); 4] = [
    ("FieldValueDuplicate", Reason::Duplicate),
    ("FieldValueForbidden", Reason::Forbidden),
    ("FieldValueInvalid", Reason::Invalid),
    ("FieldValueRequired", Reason::Required),
];

/// Compiles the rules of a document into its nodes.
pub(crate) fn attach(document: &Value, root: &mut Node, path: &str, causes: &mut Vec<Cause>) {
    if !has_rules(document) {
        return;
    }
    let found = thread::scope(|scope| {
        let compile = || {
            let mut found = Vec::new();
            let costs = Costs::default();
            let above = Above { uncorrelated: None, count: 1, costs: &costs };
            attach_below(document, root, path, &above, true, &mut found);
            found.extend(costs.exceeded(path));
            found
        };
        let compiler = thread::Builder::new().stack_size(limits::COMPILER_STACK).spawn_scoped(scope, compile);
        compiler.ok().and_then(|compiler| compiler.join().ok())
    });

    match found {
        Some(found) => causes.extend(found),
        None => causes.push(Cause::forbidden(path, "the rules cannot be compiled for lack of memory")),
    }
}

/// Whether a document contains any rule; most schemas have none and need no compiler.
fn has_rules(document: &Value) -> bool {
    match document {
        Value::Object(fields) => {
            fields.contains_key("x-kubernetes-validations") || fields.values().any(has_rules)
        }
        Value::Array(items) => items.iter().any(has_rules),
        _ => false,
    }
}

/// What the rules of a node depend on above it.
#[derive(Clone, Copy)]
struct Above<'a> {
    /// The path of the nearest list above whose old items cannot be matched.
    uncorrelated: Option<&'a str>,
    /// The maximum number of values of the node in an object.
    count: u64,
    /// The estimated costs of all rules.
    costs: &'a Costs,
}

fn attach_below(
    document: &Value,
    node: &mut Node,
    path: &str,
    above: &Above<'_>,
    resource: bool,
    causes: &mut Vec<Cause>,
) {
    let mut has_rules = false;
    let below = Above { count: estimate::multiplied(above.count, node), ..*above };
    for (name, child) in &mut node.properties {
        if let Some(document) = document.get("properties").and_then(|properties| properties.get(name)) {
            let embedded = child.embedded;
            attach_below(document, child, &format!("{path}.properties[{name}]"), above, embedded, causes);
            has_rules |= child.has_rules;
        }
    }

    if let (Additional::Schema(child), Some(document)) =
        (&mut node.additional, document.get("additionalProperties"))
    {
        let embedded = child.embedded;
        attach_below(document, child, &format!("{path}.additionalProperties"), &below, embedded, causes);
        has_rules |= child.has_rules;
    }

    if let (Some(child), Some(document)) = (&mut node.items, document.get("items")) {
        let uncorrelated = match node.list {
            ListType::Map(_) => above.uncorrelated,
            _ => Some(path),
        };
        let embedded = child.embedded;
        let below = Above { uncorrelated, ..below };
        attach_below(document, child, &format!("{path}.items"), &below, embedded, causes);
        has_rules |= child.has_rules;
    }

    let mut rules = Vec::new();
    let documents = document.get("x-kubernetes-validations").and_then(Value::as_array);
    for (index, document) in documents.into_iter().flatten().enumerate() {
        let rule_path = format!("{path}.x-kubernetes-validations[{index}]");
        match document.as_object() {
            Some(fields) => {
                let source = Source { fields, path: &rule_path, node, above: *above, resource };
                rules.extend(source.compile(causes));
            }
            None => causes.push(Cause::type_invalid(&rule_path, document, "must be an object")),
        }
    }

    node.has_rules = has_rules || !rules.is_empty();
    node.rules = rules;
}

/// One rule of a document and its location.
struct Source<'a> {
    fields: &'a Map<String, Value>,
    path: &'a str,
    node: &'a Node,
    above: Above<'a>,
    resource: bool,
}

impl Source<'_> {
    fn text(&self, keyword: &str) -> &str {
        self.fields.get(keyword).and_then(Value::as_str).unwrap_or_default()
    }

    fn compile(&self, causes: &mut Vec<Cause>) -> Option<Rule> {
        let before = causes.len();
        self.check_texts(causes);
        let reason = self.reason(causes);
        let field = self.field_path(causes);
        if causes.len() > before {
            return None;
        }

        let optional_old = self.fields.get("optionalOldSelf").and_then(Value::as_bool);
        let (program, uses_old) = self.program("rule", "bool", optional_old == Some(true), causes)?;
        let message_program = match self.text("messageExpression").trim() {
            "" => None,
            _ => Some(self.program("messageExpression", "string", optional_old == Some(true), causes)?.0),
        };

        if let (true, Some(within)) = (uses_old, self.above.uncorrelated) {
            causes.push(Cause::invalid(
                format!("{}.rule", self.path),
                &json!(self.text("rule")),
                &format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {within}"
                ),
            ));
        }

        if let (false, Some(optional)) = (uses_old, optional_old) {
            causes.push(Cause::invalid(
                format!("{}.optionalOldSelf", self.path),
                &json!(optional),
                "may not be set if oldSelf is not used in rule",
            ));
        }

        Some(Rule {
            program,
            text: self.text("rule").trim().to_owned(),
            message: self.text("message").trim().to_owned(),
            message_program,
            reason,
            field,
            optional_old: optional_old == Some(true),
            uses_old,
        })
    }

    fn check_texts(&self, causes: &mut Vec<Cause>) {
        let (rule, message) = (self.text("rule"), self.text("message"));
        if rule.trim().is_empty() {
            causes.push(Cause::required(format!("{}.rule", self.path), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            causes.push(Cause::invalid(
                format!("{}.message", self.path),
                &json!(message),
                "must be non-empty if specified",
            ));
        } else if message.trim().contains('\n') {
            causes.push(Cause::invalid(
                format!("{}.message", self.path),
                &json!(message),
                "must not contain line breaks",
            ));
        } else if rule.trim().contains('\n') && message.trim().is_empty() {
            causes.push(Cause::required(
                format!("{}.message", self.path),
                "message must be specified if rule contains line breaks",
            ));
        }

        let expression = self.text("messageExpression");
        if !expression.is_empty() && expression.trim().is_empty() {
            causes.push(Cause::required(
                format!("{}.messageExpression", self.path),
                "messageExpression must be non-empty if specified",
            ));
        }
    }

    fn reason(&self, causes: &mut Vec<Cause>) -> Reason {
        let Some(value) = self.fields.get("reason").filter(|value| !value.is_null()) else {
            return Reason::Invalid;
        };
        if let Some((_, reason)) = REASONS.iter().find(|(name, _)| value == name) {
            return *reason;
        }
        let supported = REASONS.map(|(name, _)| name);
        causes.push(Cause::not_supported(&format!("{}.reason", self.path), value, &supported));
        Reason::Invalid
    }

    fn field_path(&self, causes: &mut Vec<Cause>) -> String {
        let written = self.text("fieldPath");
        if written.is_empty() {
            return String::new();
        }
        normalize(written.trim(), self.node).unwrap_or_else(|| {
            let field = format!("{}.fieldPath", self.path);
            causes.push(Cause::invalid(field, &json!(written), "must be a valid path"));
            String::new()
        })
    }

    /// Compiles one of the two expressions; returns whether it also reads the old value.
    fn program(
        &self,
        keyword: &str,
        wanted: &str,
        optional_old: bool,
        causes: &mut Vec<Cause>,
    ) -> Option<(Program, bool)> {
        let text = self.text(keyword);
        let invalid =
            |detail: &str| Cause::invalid_text(format!("{}.{keyword}", self.path), &self.print(), detail);
        if let Err(message) = limits::check_text(text) {
            causes.push(invalid(&format!("compilation failed: {message}")));
            return None;
        }

        // The parser is generated code; a panic in it counts as an error in the rule.
        let parse = || Parser::new().enable_optional_syntax(true).parse(text);
        let parsed = match catch_unwind(AssertUnwindSafe(parse)) {
            Ok(Ok(expression)) => expression,
            Ok(Err(errors)) => {
                let lines: Vec<String> = errors
                    .errors
                    .iter()
                    .map(|error| {
                        let line = usize::try_from(error.pos.0).unwrap_or(1).max(1);
                        let column = usize::try_from(error.pos.1).unwrap_or(1).max(1);
                        print_position(text, line, column, &error.msg)
                    })
                    .collect();
                causes.push(invalid(&format!("compilation failed: {}", lines.join("\n"))));
                return None;
            }
            Err(_) => {
                causes.push(invalid("compilation failed: the expression cannot be parsed"));
                return None;
            }
        };

        if let Err(message) = limits::check_depth(&parsed) {
            causes.push(invalid(&format!("compilation failed: {message}")));
            return None;
        }

        let root = Kind::of(self.node, self.resource).unwrap_or(Kind::Dynamic);
        let mut lowering = Lowering::new(root, optional_old);
        let (expression, kind) = lowering.run(parsed);
        if !lowering.mistakes.is_empty() {
            causes.push(invalid(&format!("compilation failed: {}", locate(text, &lowering.mistakes))));
            return None;
        }

        if !matches!(kind, Kind::Dynamic) && kind.name() != wanted {
            let what = if keyword == "rule" { "cel expression" } else { "messageExpression" };
            causes.push(invalid(&format!("{what} must evaluate to a {wanted}")));
            return None;
        }
        let simple = cost::simple(&expression);
        let program = Program { expression, references: lowering.references, simple };
        let field = format!("{}.{keyword}", self.path);
        let cost = self.estimate(&program).saturating_mul(self.above.count);
        causes.extend(self.above.costs.add(&field, keyword, cost));
        Some((program, lowering.uses_old))
    }

    /// Estimates the cost of a program from the bounds in the schema.
    fn estimate(&self, program: &Program) -> u64 {
        let extents = |name: &str| {
            let reference = program.references.iter().find(|reference| reference.variable == name)?;
            if reference.presence {
                return Some((Extent::SCALAR, None));
            }
            let mut node = Some(self.node);
            for name in &reference.fields {
                node = node.and_then(|node| node.child(name));
            }
            // What a schema does not describe is part of the metadata.
            Some((node.map_or(Extent::text(MAX_NAME), estimate::extent), node))
        };
        Bounds::of(&program.expression, &extents).estimate
    }

    /// Prints the rule as kube-apiserver does in messages.
    fn print(&self) -> String {
        let text = |keyword: &str| marshal(&json!(self.text(keyword)));
        let value = |keyword: &str| marshal(self.fields.get(keyword).unwrap_or(&Value::Null));
        format!(
            r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}"#,
            text("rule"),
            text("message"),
            text("messageExpression"),
            value("reason"),
            text("fieldPath"),
            value("optionalOldSelf"),
        )
    }
}

/// Prints mistakes in the order of their positions, which are found by searching for their source text.
fn locate(source: &str, mistakes: &[Mistake]) -> String {
    let mut lines: Vec<(usize, String)> = Vec::new();
    for (index, mistake) in mistakes.iter().enumerate() {
        let earlier = mistakes.iter().take(index).filter(|other| other.near == mistake.near).count();
        let offset = occurrences(source, &mistake.near).nth(earlier).unwrap_or(0);
        let offset = if mistake.near.ends_with('(') { offset + mistake.near.len() - 1 } else { offset };
        let before = source.get(..offset).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        lines.push((offset, print_position(source, line, column, &mistake.text)));
    }
    lines.sort_by_key(|(offset, _)| *offset);
    let lines: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
    lines.join("\n")
}

/// Returns the position of an identifier in a source text.
fn occurrences<'a>(source: &'a str, near: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    source.match_indices(near).map(|(offset, _)| offset).filter(move |offset| {
        let before = source.get(..*offset).and_then(|text| text.chars().next_back());
        let after = source.get(offset + near.len()..).and_then(|text| text.chars().next());
        let begins = !near.starts_with(is_word) || !before.is_some_and(is_word);
        let ends = !near.ends_with(is_word) || !after.is_some_and(is_word);
        begins && ends
    })
}

fn print_position(source: &str, line: usize, column: usize, text: &str) -> String {
    let snippet = source.lines().nth(line - 1).unwrap_or_default();
    let dots = ".".repeat(column - 1);
    format!("ERROR: <input>:{line}:{column}: {text}\n | {snippet}\n | {dots}^")
}

/// Converts `.a.b['c']` to the form that fields have in causes; returns `None` if the schema has no such
/// field.
fn normalize(written: &str, node: &Node) -> Option<String> {
    let mut out = String::new();
    let mut node = node;
    let mut rest = written;
    while !rest.is_empty() {
        let name;
        if let Some(after) = rest.strip_prefix("['") {
            let end = after.find("']")?;
            name = after.get(..end)?;
            rest = after.get(end + 2..)?;
        } else {
            let after = rest.strip_prefix('.')?;
            let end = after.find(['.', '[']).unwrap_or(after.len());
            (name, rest) = after.split_at(end);
        }
        if let Some(child) = node.properties.get(name) {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(name);
            node = child;
        } else if let (true, Additional::Schema(child)) = (node.properties.is_empty(), &node.additional) {
            out.push('[');
            out.push_str(name);
            out.push(']');
            node = child;
        } else {
            return None;
        }
    }

    (!out.is_empty()).then_some(out)
}
