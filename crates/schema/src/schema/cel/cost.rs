//! What a rule costs, as upper bounds computed from the sizes of the values that it reads.
//!
//! The CEL library has no hook for the steps of an evaluation. A rule is therefore bounded twice:
//!
//! - when a CRD is created, by an estimate from the bounds in its schema, as kube-apiserver does;
//! - when a rule is evaluated, by a budget for the whole object. Lowering adds a variable to the condition of
//!   every loop, and its lookup ([`Meter`]) deducts the cost of one step: what the step can cost at most with
//!   the values at hand. A loop ends when the budget is used up. What is outside of loops is deducted before
//!   the evaluation, and a rule that could create a very large value is not evaluated at all.
//!
//! The unit is about one node of a value, or ten bytes of a string.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kube_cel::cel::{
    IdedExpr, Value as CelValue,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators},
    context::VariableResolver,
};
use serde_json::Value;

use super::{
    convert::escape,
    estimate,
    functions::{self, Known, MAX_RANGE},
    kind::Kind,
};
use crate::schema::Node;

/// The cost that the rules of one object may have together, as in kube-apiserver.
pub(crate) const BUDGET: u64 = 10_000_000;

/// The cost that rules may have on a thread that must not be blocked.
pub(crate) const QUICK_BUDGET: u64 = 100_000;

/// The maximum size of a value that a rule creates.
const MAX_CREATED: u64 = 2_000_000;

/// The prefix of the variables in the conditions of loops; no rule can contain it.
pub(super) const STEP: &str = "step ";

/// The number of bytes of a string that cost as much as a node.
const BYTES_PER_UNIT: u64 = 10;

/// Upper bounds of the size of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// The number of items of a list or a map.
    pub(super) items: u64,
    /// The size of the largest item.
    pub(super) item: u64,
    /// The size of the whole value.
    pub(super) size: u64,
}

impl Extent {
    pub(super) const SCALAR: Extent = Extent { items: 0, item: 1, size: 1 };

    /// A value of which only the size is known: it may be one list, or contain one.
    pub(super) const fn up_to(size: u64) -> Extent {
        Extent { items: size, item: size, size }
    }

    /// A string of some length.
    pub(super) const fn text(bytes: u64) -> Extent {
        Extent::up_to(1 + bytes / BYTES_PER_UNIT)
    }

    /// A list or a map.
    pub(super) fn list(items: u64, item: u64, size: u64) -> Extent {
        Extent { items, item, size: size.min(items.saturating_mul(item).saturating_add(1)) }
    }

    /// Measures a value.
    pub(super) fn of(value: &Value) -> Extent {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => Extent::SCALAR,
            Value::String(text) => Extent::text(text.len() as u64),
            Value::Array(items) => Extent::sum(items.len(), items.iter().map(|item| Extent::of(item).size)),
            Value::Object(fields) => Extent::sum(
                fields.len(),
                fields.iter().map(|(name, field)| {
                    Extent::text(name.len() as u64).size.saturating_add(Extent::of(field).size)
                }),
            ),
        }
    }

    fn sum(items: usize, sizes: impl Iterator<Item = u64>) -> Extent {
        let (mut item, mut size) = (0, 1_u64);
        for next in sizes {
            item = next.max(item);
            size = size.saturating_add(next);
        }
        Extent { items: items as u64, item, size }
    }

    /// The larger bounds of two values.
    fn or(self, other: Extent) -> Extent {
        Extent {
            items: self.items.max(other.items),
            item: self.item.max(other.item),
            size: self.size.max(other.size),
        }
    }

    /// Both values one after the other.
    fn and(self, other: Extent) -> Extent {
        Extent {
            items: self.items.saturating_add(other.items),
            item: self.item.max(other.item),
            size: self.size.saturating_add(other.size),
        }
    }
}

/// The size of a variable, and its schema if the size was taken from it.
pub(super) type Variable<'a> = (Extent, Option<&'a Node>);

/// The cost of an expression and the size of its result.
#[derive(Clone, Copy, Debug)]
struct Cost<'a> {
    extent: Extent,
    node: Option<&'a Node>,
    /// The work of the library outside of loops.
    once: u64,
    /// The cost by the rules of kube-apiserver, with every loop run to its end.
    estimate: u64,
}

impl<'a> Cost<'a> {
    const fn scalar() -> Cost<'a> {
        Cost { extent: Extent::SCALAR, node: None, once: 1, estimate: 1 }
    }

    /// The size of a part of the value: that of its schema if it is known, else at most that of the largest
    /// item.
    fn part(&self, node: Option<&'a Node>) -> Variable<'a> {
        match node {
            Some(node) => (estimate::extent(node), Some(node)),
            None => (Extent::up_to(self.extent.item.max(1)), None),
        }
    }

    /// Adds the costs of evaluating other expressions.
    fn after(mut self, others: &[Cost<'a>]) -> Cost<'a> {
        for other in others {
            self.once = self.once.saturating_add(other.once);
            self.estimate = self.estimate.saturating_add(other.estimate);
        }
        self
    }
}

/// The bounds of one program for the values that it reads.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    /// The cost outside of loops.
    pub(super) once: u64,
    /// The cost of one step of each loop, by its number.
    steps: Vec<u64>,
    /// The estimate by the rules of kube-apiserver.
    pub(super) estimate: u64,
    /// The size of the largest value that the program creates.
    largest: u64,
}

impl Bounds {
    /// Returns the bounds of a simple expression that reads small values; `None` if they must be computed.
    pub(super) fn of_simple(nodes: Option<u64>, size: u64) -> Option<Bounds> {
        let once = nodes?.saturating_mul(size);
        (size <= SMALL).then(|| Bounds { once, ..Bounds::default() })
    }

    /// Computes the bounds of an expression; `extents` returns the size of a variable.
    pub(super) fn of<'a>(expression: &'a IdedExpr, extents: &dyn Fn(&str) -> Option<Variable<'a>>) -> Bounds {
        let mut walk = Walk { extents, locals: Vec::new(), bounds: Bounds::default() };
        let cost = walk.visit(expression);
        Bounds { once: cost.once, estimate: cost.estimate, ..walk.bounds }
    }
}

/// Functions whose results or work can be much larger than their arguments.
const EXPANDING: &[&str] = &[
    operators::ADD,
    "bytes",
    "decode",
    "distinct",
    "encode",
    "equivalent",
    "escapeKey",
    "findAll",
    "format",
    "indexOf",
    "intersects",
    "join",
    "lastIndexOf",
    "quote",
    "range",
    "replace",
    "sort",
    "split",
    "string",
];

/// Returns the number of nodes of an expression without loops and expanding functions: its cost is at most
/// that number of times the size of what it reads, which needs no walk at each evaluation.
pub(super) fn simple(expression: &IdedExpr) -> Option<u64> {
    let all = |parts: &[IdedExpr]| parts.iter().try_fold(1_u64, |sum, part| Some(sum + simple(part)?));
    match &expression.expr {
        Expr::Literal(_) | Expr::Ident(_) => Some(1),
        Expr::Select(select) => Some(1 + simple(&select.operand)?),
        Expr::List(list) => all(&list.elements),
        Expr::Call(call) if is_expanding(call) => None,
        Expr::Call(call) => {
            let target = call.target.as_deref().map_or(Some(0), simple)?;
            Some(target + all(&call.args)?)
        }
        Expr::Comprehension(_) | Expr::Map(_) | Expr::Struct(_) | Expr::Unspecified => None,
    }
}

fn is_expanding(call: &CallExpr) -> bool {
    let is_literal = |part: Option<&IdedExpr>| matches!(part, Some(IdedExpr { expr: Expr::Literal(_), .. }));
    match call.func_name.as_str() {
        // Both compare everything with everything, unless one side is part of the rule.
        "contains" | "matches" | "find" => !is_literal(call.args.last()),
        name => EXPANDING.contains(&name),
    }
}

/// The size of values up to which a simple expression is not worth measuring.
const SMALL: u64 = 1000;

struct Walk<'a, 'e> {
    extents: &'e dyn Fn(&str) -> Option<Variable<'a>>,
    locals: Vec<(&'a str, Variable<'a>)>,
    bounds: Bounds,
}

impl<'a> Walk<'a, '_> {
    fn visit(&mut self, expression: &'a IdedExpr) -> Cost<'a> {
        match &expression.expr {
            Expr::Literal(LiteralValue::String(text)) => {
                Cost { extent: Extent::text(text.inner().len() as u64), ..Cost::scalar() }
            }
            Expr::Literal(LiteralValue::Bytes(bytes)) => {
                Cost { extent: Extent::text(bytes.inner().len() as u64), ..Cost::scalar() }
            }
            Expr::Literal(_) | Expr::Unspecified | Expr::Struct(_) => Cost::scalar(),
            Expr::Ident(name) => {
                let local = self.locals.iter().rev().find(|(local, _)| local == name);
                let known = local.map(|(_, known)| *known).or_else(|| (self.extents)(name));
                let (extent, node) = known.unwrap_or((Extent::SCALAR, None));
                Cost { extent, node, ..Cost::scalar() }
            }
            Expr::Select(select) => {
                let operand = self.visit(&select.operand);
                if select.test {
                    return Cost::scalar().after(&[operand]);
                }
                let field = operand.node.and_then(|node| field(node, &select.field));
                let (extent, node) = operand.part(field);
                Cost { extent, node, once: extent.size, estimate: 1 }.after(&[operand])
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let elements: Vec<Cost<'a>> =
                    list.elements.iter().map(|element| self.visit(element)).collect();
                self.literal(&elements)
            }
            Expr::Map(map) => {
                let mut parts = Vec::new();
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        parts.push(self.visit(&entry.key));
                        parts.push(self.visit(&entry.value));
                    }
                }
                self.literal(&parts)
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    fn literal(&mut self, parts: &[Cost<'a>]) -> Cost<'a> {
        let extent = Extent::sum(parts.len(), parts.iter().map(|part| part.extent.size));
        self.created(Cost { extent, once: extent.size, ..Cost::scalar() }.after(parts))
    }

    /// Records the size of a value that the library allocates.
    fn created(&mut self, cost: Cost<'a>) -> Cost<'a> {
        self.bounds.largest = self.bounds.largest.max(cost.extent.size);
        cost
    }

    fn call(&mut self, call: &'a CallExpr) -> Cost<'a> {
        let namespace = match call.target.as_deref() {
            Some(IdedExpr { expr: Expr::Ident(name), .. }) if functions::is_namespace(name) => Some(name),
            _ => None,
        };
        let mut parts = Vec::with_capacity(call.args.len() + 1);
        if let (None, Some(target)) = (namespace, call.target.as_deref()) {
            parts.push(self.visit(target));
        }
        parts.extend(call.args.iter().map(|argument| self.visit(argument)));

        let sizes = |index: usize| parts.get(index).map_or(Extent::SCALAR, |part: &Cost<'a>| part.extent);
        let (first, second) = (sizes(0), sizes(1));
        let result = match call.func_name.as_str() {
            operators::CONDITIONAL => Cost { extent: second.or(sizes(2)), ..Cost::scalar() },
            operators::EQUALS
            | operators::NOT_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS => {
                let compared = first.size.min(second.size);
                Cost { once: compared, estimate: compared, ..Cost::scalar() }
            }
            operators::IN => Cost { once: second.size, estimate: second.items.max(1), ..Cost::scalar() },
            operators::INDEX | operators::OPT_INDEX => {
                let container = parts.first().copied().unwrap_or(Cost::scalar());
                let (extent, node) = container.part(container.node.and_then(items));
                Cost { extent, node, once: extent.size, estimate: 1 }
            }
            operators::ADD => {
                let extent = first.and(second);
                Cost { extent, node: None, once: extent.size, estimate: extent.size.div_ceil(2) }
            }
            operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::LOGICAL_NOT
            | operators::NOT_STRICTLY_FALSE
            | operators::NEGATE
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO => Cost::scalar(),
            name => match namespace {
                Some(space) => function(&format!("{space}.{name}"), &parts, &call.args),
                None => function(name, &parts, &call.args),
            },
        };
        self.created(result.after(&parts))
    }

    fn comprehension(&mut self, comprehension: &'a ComprehensionExpr) -> Cost<'a> {
        let range = self.visit(&comprehension.iter_range);
        let start = self.visit(&comprehension.accu_init);
        let steps = range.extent.items;
        let item = range.part(range.node.and_then(|node| node.items.as_deref()));

        self.locals.push((&comprehension.accu_var, (start.extent, None)));
        self.locals.push((&comprehension.iter_var, item));
        let condition = self.visit(&comprehension.loop_cond);
        let step = self.visit(&comprehension.loop_step);
        self.locals.pop();
        self.locals.pop();

        // Every step may add as much as the first one did.
        let grown = |of: fn(&Extent) -> u64| {
            let growth = of(&step.extent).saturating_sub(of(&start.extent));
            of(&start.extent).saturating_add(steps.saturating_mul(growth))
        };
        let end = Extent {
            items: grown(|extent| extent.items),
            item: start.extent.item.max(step.extent.item),
            size: grown(|extent| extent.size),
        };
        self.bounds.largest = self.bounds.largest.max(end.size);

        // The library copies the item and what was accumulated at every step.
        let copied = item.0.size.saturating_add(end.size.saturating_mul(2));
        let each = condition.once.saturating_add(step.once).saturating_add(copied);
        if let Some(number) = number(&comprehension.loop_cond) {
            if self.bounds.steps.len() <= number {
                self.bounds.steps.resize(number + 1, 0);
            }
            if let Some(slot) = self.bounds.steps.get_mut(number) {
                *slot = each;
            }
        }

        self.locals.push((&comprehension.accu_var, (end, None)));
        let result = self.visit(&comprehension.result);
        self.locals.pop();
        let estimate = condition.estimate.saturating_add(step.estimate).saturating_mul(steps);
        Cost { extent: result.extent, node: None, once: 1, estimate }.after(&[range, start, result])
    }
}

/// Returns the schema of a field by the name that a rule uses.
fn field<'a>(node: &'a Node, written: &str) -> Option<&'a Node> {
    let by_name =
        |(name, child): (&String, &'a Node)| (escape(name).as_deref() == Some(written)).then_some(child);
    node.child(written).or_else(|| node.properties.iter().find_map(by_name))
}

/// Returns the schema of the items of a list, or of the values of a map.
fn items(node: &Node) -> Option<&Node> {
    node.items.as_deref().or_else(|| node.child(""))
}

/// Returns the number of a loop from its condition.
fn number(condition: &IdedExpr) -> Option<usize> {
    let Expr::Call(call) = &condition.expr else { return None };
    match call.args.first().map(|argument| &argument.expr) {
        Some(Expr::Ident(name)) => name.strip_prefix(STEP)?.parse().ok(),
        _ => None,
    }
}

/// Returns the cost of a function without that of its arguments.
fn function<'a>(name: &str, parts: &[Cost<'a>], arguments: &[IdedExpr]) -> Cost<'a> {
    let sizes = |index: usize| parts.get(index).map_or(Extent::SCALAR, |part| part.extent);
    let (first, second) = (sizes(0), sizes(1));
    let all = parts.iter().fold(1_u64, |sum, part| sum.saturating_add(part.extent.size));
    let product = first.size.saturating_mul(second.size);

    // The size of the result, and the cost by the rules of kube-apiserver.
    let (extent, estimate) = match name {
        "lists.range" => {
            let items = match arguments.first().map(|argument| &argument.expr) {
                Some(Expr::Literal(LiteralValue::Int(count))) => u64::try_from(*count.inner()).unwrap_or(0),
                _ => MAX_RANGE,
            };
            (Extent::list(items, 1, u64::MAX), items)
        }
        "sets.contains" | "sets.equivalent" | "sets.intersects" => {
            (Extent::SCALAR, first.items.saturating_mul(second.items))
        }
        "distinct" => (first, first.items.saturating_mul(first.items)),
        "sort" => (first, first.items.saturating_mul(8)),
        "contains" | "matches" | "find" | "findAll" => {
            let extent = match name {
                "findAll" => Extent::up_to(all.saturating_mul(2 * BYTES_PER_UNIT)),
                "find" => first,
                _ => Extent::SCALAR,
            };
            (extent, product / 4)
        }
        "indexOf" | "lastIndexOf" => (Extent::SCALAR, product / 4),
        "split" => (Extent::up_to(all.saturating_mul(2 * BYTES_PER_UNIT)), first.size),
        "replace" => {
            let inserted = second.size.saturating_add(sizes(2).size).saturating_mul(BYTES_PER_UNIT);
            (Extent::up_to(first.size.saturating_mul(inserted)), first.size)
        }
        "join" => (Extent::up_to(all.saturating_add(first.items.saturating_mul(second.size))), all),
        "format" => (Extent::up_to(all.saturating_mul(2 * BYTES_PER_UNIT)), all),
        "strings.quote" | "base64.encode" | "base64.decode" | "jsonpatch.escapeKey" | "string" | "bytes" => {
            (Extent::up_to(all.saturating_mul(6)), first.size)
        }
        _ => match functions::find(name) {
            Known::Returns(Kind::Bool | Kind::Int | Kind::Double | Kind::Uint) => (Extent::SCALAR, 1),
            _ => (Extent::up_to(all), 1),
        },
    };

    // The library converts all arguments, and some functions compare every item with every other.
    let work = match name {
        "sets.contains" | "sets.equivalent" | "sets.intersects" | "distinct" => {
            first.size.saturating_mul(first.items.max(second.items))
        }
        "contains" | "find" | "findAll" | "indexOf" | "lastIndexOf" | "split" => product,
        "matches" => match arguments.last().map(|argument| &argument.expr) {
            Some(Expr::Literal(_)) => product,
            // The pattern is compiled first.
            _ => product.saturating_add(second.size.saturating_mul(1000)),
        },
        "sort" => first.size.saturating_mul(20),
        _ => 0,
    };
    let once = all.saturating_mul(2).saturating_add(extent.size).saturating_add(work);
    Cost { extent, node: None, once, estimate: estimate.max(1) }
}

/// What is left of the budget of an object, and what the steps of the current program cost.
#[derive(Debug)]
pub(super) struct Meter {
    left: AtomicU64,
    is_exceeded: AtomicBool,
    bounds: Bounds,
}

impl Meter {
    /// Returns the meter of a program, or `None` if it must not be evaluated.
    pub(super) fn start(bounds: Bounds, left: u64) -> Option<Meter> {
        let left = left.checked_sub(bounds.once)?;
        let is_small = bounds.largest <= MAX_CREATED;
        is_small.then(|| Meter { left: AtomicU64::new(left), is_exceeded: AtomicBool::new(false), bounds })
    }

    /// Returns what is left of the budget, or `None` if a loop was ended for lack of it.
    pub(super) fn finish(&self) -> Option<u64> {
        (!self.is_exceeded.load(Ordering::Relaxed)).then(|| self.left.load(Ordering::Relaxed))
    }
}

impl VariableResolver for Meter {
    /// Deducts one step of a loop, and ends the loop if the budget does not suffice.
    fn resolve(&self, variable: &str) -> Option<CelValue> {
        let number: usize = variable.strip_prefix(STEP)?.parse().ok()?;
        let cost = self.bounds.steps.get(number).copied().unwrap_or(u64::MAX);
        // One evaluation runs on one thread: nothing changes the value in between.
        let left = self.left.load(Ordering::Relaxed).checked_sub(cost);
        self.left.store(left.unwrap_or(0), Ordering::Relaxed);
        if left.is_none() {
            self.is_exceeded.store(true, Ordering::Relaxed);
        }
        Some(CelValue::Bool(left.is_some()))
    }
}
