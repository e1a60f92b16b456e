//! Limits on the size of expressions, so that no rule can exhaust a stack.
//!
//! The parser is generated code that needs tens of kilobytes of stack per level, so it runs on its own thread
//! with a large stack and receives nothing that could exhaust even that. Its result is evaluated on the stack
//! of the request and must be shallow.

use kube_cel::cel::{
    IdedExpr,
    common::ast::{EntryExpr, Expr},
};

/// The stack size of the thread that compiles rules; memory is used only as far as it is touched.
pub(super) const COMPILER_STACK: usize = 256 << 20;

/// The maximum nesting of brackets.
const MAX_BRACKETS: usize = 64;

/// The maximum number of operators, selections and calls, each of which may nest the ones before it.
const MAX_OPERATORS: usize = 1000;

/// The maximum depth of an expression.
const MAX_DEPTH: usize = 40;

/// Rejects a source text that would nest too deeply.
pub(super) fn check_text(text: &str) -> Result<(), String> {
    let (mut depth, mut deepest, mut operators) = (0_usize, 0, 0);
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(_), '\\') => {
                characters.next();
            }
            (Some(open), _) => {
                if character == open {
                    quote = None;
                }
            }
            (None, '"' | '\'') => quote = Some(character),
            (None, '(' | '[' | '{') => {
                depth += 1;
                deepest = deepest.max(depth);
                operators += 1;
            }
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (None, '.' | '?' | '+' | '-' | '*' | '/' | '%' | '<' | '>' | '=' | '!') => operators += 1,
            (None, _) => {}
        }
    }

    if deepest > MAX_BRACKETS || operators > MAX_OPERATORS {
        return Err(too_deep());
    }
    Ok(())
}

/// Rejects an expression that is too deep to evaluate.
pub(super) fn check_depth(expression: &IdedExpr) -> Result<(), String> {
    if fits(expression, MAX_DEPTH) { Ok(()) } else { Err(too_deep()) }
}

fn too_deep() -> String {
    format!("expression recursion limit exceeded: {MAX_DEPTH}; split the rule into several")
}

fn fits(expression: &IdedExpr, left: usize) -> bool {
    let Some(left) = left.checked_sub(1) else { return false };
    let all = |expressions: &[IdedExpr]| expressions.iter().all(|expression| fits(expression, left));
    match &expression.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => true,
        Expr::Select(select) => fits(&select.operand, left),
        Expr::Call(call) => call.target.as_deref().is_none_or(|target| fits(target, left)) && all(&call.args),
        Expr::List(list) => all(&list.elements),
        Expr::Map(map) => map.entries.iter().all(|entry| match &entry.expr {
            EntryExpr::StructField(field) => fits(&field.value, left),
            EntryExpr::MapEntry(entry) => fits(&entry.key, left) && fits(&entry.value, left),
        }),
        Expr::Struct(structure) => structure.entries.iter().all(|entry| match &entry.expr {
            EntryExpr::StructField(field) => fits(&field.value, left),
            EntryExpr::MapEntry(entry) => fits(&entry.key, left) && fits(&entry.value, left),
        }),
        Expr::Comprehension(inner) => {
            [&inner.iter_range, &inner.accu_init, &inner.loop_cond, &inner.loop_step, &inner.result]
                .into_iter()
                .all(|expression| fits(expression, left))
        }
    }
}
