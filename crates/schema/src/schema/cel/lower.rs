//! Checks a parsed rule and rewrites it for fast evaluation.
//!
//! The library copies every object that a field is selected from, until its redesign without copies:
//! <https://github.com/cel-rust/cel-rust/issues/76>. A chain of fields that starts at `self` or
//! `oldSelf` is therefore replaced by one variable named after the chain, and only the value at its end is
//! converted and bound. `has()` of such a chain becomes a boolean variable. Optional selection becomes
//! optional indexing, because the library's own form fails where a field is missing. The condition of a loop
//! also reads a variable that counts its steps ([`cost`]).

use kube_cel::cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, SelectExpr, operators},
};

use super::{
    cost,
    functions::{self, Known},
    kind::Kind,
};

/// The variables that a chain can start at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// `self`.
    New,
    /// `oldSelf`.
    Old,
}

/// A chain of fields that a rule reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    /// The name of the variable that replaces it.
    pub(super) variable: String,
    pub(super) start: Start,
    /// The fields, with their real names.
    pub(super) fields: Vec<String>,
    /// Whether the rule only checks its presence.
    pub(super) presence: bool,
}

/// A mistake in a rule: the message, and the source text by which its position is found.
pub(super) struct Mistake {
    pub(super) text: String,
    pub(super) near: String,
}

/// One pass over one expression.
pub(super) struct Lowering<'a> {
    pub(super) root: Kind<'a>,
    /// Whether `oldSelf` may be absent and is wrapped in an optional.
    pub(super) optional_old: bool,
    pub(super) references: Vec<Reference>,
    pub(super) mistakes: Vec<Mistake>,
    pub(super) uses_old: bool,
    locals: Vec<(String, Kind<'a>)>,
    /// The number of loops so far.
    loops: usize,
}

/// A lowered expression, its type and the chain that it represents.
struct Lowered<'a> {
    expression: IdedExpr,
    kind: Kind<'a>,
    chain: Option<(Start, Vec<String>)>,
}

impl<'a> Lowering<'a> {
    pub(super) fn new(root: Kind<'a>, optional_old: bool) -> Lowering<'a> {
        Lowering {
            root,
            optional_old,
            references: Vec::new(),
            mistakes: Vec::new(),
            uses_old: false,
            locals: Vec::new(),
            loops: 0,
        }
    }

    /// Lowers a whole expression and returns it with its type.
    pub(super) fn run(&mut self, expression: IdedExpr) -> (IdedExpr, Kind<'a>) {
        let lowered = self.value(expression);
        (lowered.0, lowered.1)
    }

    fn mistake(&mut self, text: String, near: impl Into<String>) {
        self.mistakes.push(Mistake { text, near: near.into() });
    }

    /// Lowers an expression whose value is read; if it is a chain, binds it.
    fn value(&mut self, expression: IdedExpr) -> (IdedExpr, Kind<'a>) {
        let lowered = self.lower(expression);
        match lowered.chain {
            None => (lowered.expression, lowered.kind),
            Some((start, fields)) => {
                let variable = self.bind(start, fields, false);
                (IdedExpr { id: lowered.expression.id, expr: Expr::Ident(variable) }, lowered.kind)
            }
        }
    }

    fn bind(&mut self, start: Start, fields: Vec<String>, presence: bool) -> String {
        let mut variable = if presence { "has ".to_owned() } else { String::new() };
        variable.push_str(match start {
            Start::New => "self",
            Start::Old => "oldSelf",
        });
        for field in &fields {
            variable.push('.');
            variable.push_str(field);
        }
        if !self.references.iter().any(|known| known.variable == variable) {
            self.references.push(Reference { variable: variable.clone(), start, fields, presence });
        }
        variable
    }

    fn lower(&mut self, expression: IdedExpr) -> Lowered<'a> {
        let IdedExpr { id, expr } = expression;
        let plain =
            |expr: Expr, kind: Kind<'a>| Lowered { expression: IdedExpr { id, expr }, kind, chain: None };
        match expr {
            Expr::Ident(name) => self.ident(id, name),
            Expr::Select(select) => self.select(id, select),
            Expr::Call(call) => self.call(id, call),
            Expr::Comprehension(comprehension) => self.comprehension(id, *comprehension),
            Expr::Literal(literal) => {
                let kind = match &literal {
                    LiteralValue::Boolean(_) => Kind::Bool,
                    LiteralValue::Bytes(_) => Kind::Bytes,
                    LiteralValue::Double(_) => Kind::Double,
                    LiteralValue::Int(_) => Kind::Int,
                    LiteralValue::Null => Kind::Null,
                    LiteralValue::String(_) => Kind::Text,
                    LiteralValue::UInt(_) => Kind::Uint,
                };
                plain(Expr::Literal(literal), kind)
            }
            Expr::List(mut list) => {
                let mut kinds = Vec::new();
                list.elements = std::mem::take(&mut list.elements)
                    .into_iter()
                    .map(|element| {
                        let (element, kind) = self.value(element);
                        kinds.push(kind);
                        element
                    })
                    .collect();
                let first = kinds.first().cloned().unwrap_or(Kind::Dynamic);
                let same = kinds.iter().all(|kind| kind.comparable(&first) && kind.name() == first.name());
                let item = if same { first } else { Kind::Dynamic };
                plain(Expr::List(list), Kind::List(Box::new(item)))
            }
            Expr::Map(mut map) => {
                for entry in &mut map.entries {
                    if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                        entry.key = self.value(std::mem::take(&mut entry.key)).0;
                        entry.value = self.value(std::mem::take(&mut entry.value)).0;
                    }
                }
                plain(Expr::Map(map), Kind::Map(Box::new(Kind::Dynamic)))
            }
            Expr::Struct(_) => {
                self.mistake("message construction is not supported in rules of this server".to_owned(), "{");
                plain(Expr::Literal(LiteralValue::Null), Kind::Dynamic)
            }
            Expr::Unspecified => {
                self.mistake("the expression is empty".to_owned(), "");
                plain(Expr::Literal(LiteralValue::Null), Kind::Dynamic)
            }
        }
    }

    fn ident(&mut self, id: u64, name: String) -> Lowered<'a> {
        let local = self.locals.iter().rev().find(|(local, _)| *local == name).map(|(_, kind)| kind.clone());
        if let (None, Some(text)) = (&local, functions::named_type(&name)) {
            let expr = Expr::Literal(LiteralValue::String(text.as_str().into()));
            return Lowered { expression: IdedExpr { id, expr }, kind: Kind::Dynamic, chain: None };
        }

        let (kind, chain) = match (local, name.as_str()) {
            (Some(kind), _) => (kind, None),
            (None, "self") => (self.root.clone(), Some((Start::New, Vec::new()))),
            (None, "oldSelf") => {
                self.uses_old = true;
                if self.optional_old {
                    // The optional value is bound as a whole.
                    self.bind(Start::Old, Vec::new(), false);
                    (Kind::Optional(Box::new(self.root.clone())), None)
                } else {
                    (self.root.clone(), Some((Start::Old, Vec::new())))
                }
            }
            (None, _) => {
                self.mistake(format!("undeclared reference to '{name}' (in container '')"), name.clone());
                (Kind::Dynamic, None)
            }
        };

        Lowered { expression: IdedExpr { id, expr: Expr::Ident(name) }, kind, chain }
    }

    fn select(&mut self, id: u64, select: SelectExpr) -> Lowered<'a> {
        let operand = self.lower(*select.operand);
        let unwrapped = match &operand.kind {
            Kind::Optional(inner) => (**inner).clone(),
            other => other.clone(),
        };

        let found = unwrapped.field(&select.field);
        if found.is_none() && unwrapped.has_known_fields() {
            let text = match unwrapped {
                Kind::Object(..) | Kind::Metadata => format!("undefined field '{}'", select.field),
                other => format!("type '{}' does not support field selection", other.name()),
            };
            self.mistake(text, format!(".{}", select.field));
        }

        let (real, kind) = found.unwrap_or((select.field.clone(), Kind::Dynamic));
        if let Some((start, mut fields)) = operand.chain {
            fields.push(real);
            if select.test {
                let variable = self.bind(start, fields, true);
                let expression = IdedExpr { id, expr: Expr::Ident(variable) };
                return Lowered { expression, kind: Kind::Bool, chain: None };
            }
            return Lowered { expression: operand.expression, kind, chain: Some((start, fields)) };
        }

        if let (Kind::Optional(_), false) = (&operand.kind, select.test) {
            return optional_index(id, operand.expression, &select.field, kind);
        }
        let kind = if select.test { Kind::Bool } else { kind };
        let select =
            SelectExpr { operand: Box::new(operand.expression), field: select.field, test: select.test };
        Lowered { expression: IdedExpr { id, expr: Expr::Select(select) }, kind, chain: None }
    }

    fn call(&mut self, id: u64, mut call: CallExpr) -> Lowered<'a> {
        if call.func_name == operators::OPT_SELECT {
            return self.optional_select(id, call);
        }
        let namespace = match call.target.as_deref() {
            Some(IdedExpr { expr: Expr::Ident(name), .. })
                if functions::is_namespace(name) && !self.locals.iter().any(|(local, _)| local == name) =>
            {
                Some(format!("{name}.{}", call.func_name))
            }
            _ => None,
        };

        let full_name = namespace.clone().unwrap_or_else(|| call.func_name.clone());
        if matches!(functions::find(&full_name), Known::Unsupported) {
            // Most of these are macros, whose arguments have no meaning on their own.
            let kind = self.function(&full_name, None);
            return Lowered {
                expression: IdedExpr { id, expr: Expr::Literal(LiteralValue::Null) },
                kind,
                chain: None,
            };
        }

        let mut kinds = Vec::new();
        let mut target_kind = None;
        if namespace.is_none()
            && let Some(target) = call.target.take()
        {
            let (target, kind) = self.value(*target);
            target_kind = Some(kind);
            call.target = Some(Box::new(target));
        }

        call.args = std::mem::take(&mut call.args)
            .into_iter()
            .map(|argument| {
                let (argument, kind) = self.value(argument);
                kinds.push(kind);
                argument
            })
            .collect();

        let kind = match self.operator(&call.func_name, &kinds) {
            Some(kind) => kind,
            None => self.function(&full_name, target_kind.as_ref()),
        };
        Lowered { expression: IdedExpr { id, expr: Expr::Call(call) }, kind, chain: None }
    }

    fn optional_select(&mut self, id: u64, mut call: CallExpr) -> Lowered<'a> {
        let field = match call.args.pop() {
            Some(IdedExpr { expr: Expr::Literal(LiteralValue::String(field)), .. }) => {
                field.inner().to_owned()
            }
            _ => String::new(),
        };

        let (operand, kind) = self.value(call.args.pop().unwrap_or_default());
        let inner = match &kind {
            Kind::Optional(inner) => (**inner).clone(),
            other => other.clone(),
        };

        let found = inner.field(&field);
        if found.is_none() && inner.has_known_fields() {
            self.mistake(format!("undefined field '{field}'"), format!(".?{field}"));
        }

        let kind = found.map_or(Kind::Dynamic, |(_, kind)| kind);
        optional_index(id, operand, &field, kind)
    }

    /// Returns the type of an operator's result; `None` if the name is a function.
    fn operator(&mut self, name: &str, kinds: &[Kind<'a>]) -> Option<Kind<'a>> {
        let no_overload = |lowering: &mut Self| {
            let types: Vec<String> = kinds.iter().map(Kind::name).collect();
            let text = format!("found no matching overload for '{name}' applied to '({})'", types.join(", "));
            lowering.mistake(text, name.trim_matches(['_', '@']));
        };
        Some(match (name, kinds) {
            (operators::EQUALS | operators::NOT_EQUALS, [left, right]) => {
                if !left.comparable(right) {
                    no_overload(self);
                }
                Kind::Bool
            }
            (
                operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS,
                [left, right],
            ) => {
                if !left.orderable(right) {
                    no_overload(self);
                }
                Kind::Bool
            }
            (
                operators::ADD
                | operators::SUBSTRACT
                | operators::MULTIPLY
                | operators::DIVIDE
                | operators::MODULO,
                [left, right],
            ) => left.arithmetic(name, right).unwrap_or_else(|| {
                no_overload(self);
                Kind::Dynamic
            }),
            (operators::LOGICAL_AND | operators::LOGICAL_OR, sides) => {
                if sides.iter().any(|side| !matches!(side, Kind::Bool | Kind::Dynamic)) {
                    no_overload(self);
                }
                Kind::Bool
            }
            (operators::LOGICAL_NOT | operators::NOT_STRICTLY_FALSE, [side]) => {
                if !matches!(side, Kind::Bool | Kind::Dynamic) {
                    no_overload(self);
                }
                Kind::Bool
            }
            (operators::IN, [item, container]) => {
                let fits = match container {
                    Kind::List(element) => item.comparable(element),
                    Kind::Map(_) => matches!(item, Kind::Text | Kind::Dynamic),
                    Kind::Dynamic => true,
                    _ => false,
                };
                if !fits {
                    no_overload(self);
                }
                Kind::Bool
            }
            (operators::INDEX, [container, _]) => match container {
                Kind::List(element) => (**element).clone(),
                Kind::Map(value) => (**value).clone(),
                _ => Kind::Dynamic,
            },
            (operators::OPT_INDEX, [_, _]) => Kind::Optional(Box::new(Kind::Dynamic)),
            (operators::CONDITIONAL, [_, left, right]) => {
                if left.comparable(right) && !matches!(left, Kind::Dynamic) {
                    left.clone()
                } else {
                    Kind::Dynamic
                }
            }
            (operators::NEGATE, [side]) => side.clone(),
            _ => return None,
        })
    }

    fn function(&mut self, name: &str, target: Option<&Kind<'a>>) -> Kind<'a> {
        match functions::find(name) {
            Known::Returns(kind) => match (name, target) {
                ("value" | "orValue", Some(Kind::Optional(inner))) => (**inner).clone(),
                ("contains", Some(Kind::List(_))) => {
                    self.mistake(
                        "found no matching overload for 'contains' applied to a list".to_owned(),
                        "contains",
                    );
                    Kind::Bool
                }
                _ => kind,
            },
            Known::Unsupported => {
                self.mistake(
                    format!("'{name}' is valid in Kubernetes, but this server does not support it; write the rule without it"),
                    name.to_owned(),
                );
                Kind::Dynamic
            }
            Known::Unknown => {
                self.mistake(
                    format!("undeclared reference to '{name}' (in container '')"),
                    format!("{name}("),
                );
                Kind::Dynamic
            }
        }
    }

    fn comprehension(&mut self, id: u64, mut comprehension: ComprehensionExpr) -> Lowered<'a> {
        let (range, range_kind) = self.value(comprehension.iter_range);
        let item = match range_kind {
            Kind::List(item) => *item,
            Kind::Map(_) => Kind::Text,
            Kind::Dynamic => Kind::Dynamic,
            other => {
                let text = format!(
                    "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                    other.name()
                );
                self.mistake(text, comprehension.iter_var.clone());
                Kind::Dynamic
            }
        };

        let (accu_init, mut accu_kind) = self.value(comprehension.accu_init);
        // The item type of a list of results is known only from the step.
        if matches!(accu_kind, Kind::List(_)) {
            accu_kind = Kind::List(Box::new(Kind::Dynamic));
        }

        self.locals.push((comprehension.accu_var.clone(), accu_kind));
        self.locals.push((comprehension.iter_var.clone(), item));
        comprehension.iter_range = range;
        comprehension.accu_init = accu_init;
        let condition = self.value(comprehension.loop_cond).0;
        comprehension.loop_cond = metered(id, self.loops, condition);
        self.loops += 1;
        let (step, step_kind) = self.value(comprehension.loop_step);
        comprehension.loop_step = step;
        self.locals.pop();
        let (result, mut kind) = self.value(comprehension.result);
        comprehension.result = result;
        self.locals.pop();

        if let (Kind::List(_), Kind::List(_)) = (&kind, &step_kind) {
            kind = step_kind;
        }
        Lowered {
            expression: IdedExpr { id, expr: Expr::Comprehension(Box::new(comprehension)) },
            kind,
            chain: None,
        }
    }
}

/// Lets a loop continue only while the variable that counts its steps is true.
fn metered(id: u64, number: usize, condition: IdedExpr) -> IdedExpr {
    let step = IdedExpr { id, expr: Expr::Ident(format!("{}{number}", cost::STEP)) };
    let func_name = operators::LOGICAL_AND.to_owned();
    IdedExpr { id, expr: Expr::Call(CallExpr { func_name, target: None, args: vec![step, condition] }) }
}

fn optional_index<'a>(id: u64, operand: IdedExpr, field: &str, kind: Kind<'a>) -> Lowered<'a> {
    let key = IdedExpr { id, expr: Expr::Literal(LiteralValue::String(field.into())) };
    let call =
        CallExpr { func_name: operators::OPT_INDEX.to_owned(), target: None, args: vec![operand, key] };
    Lowered {
        expression: IdedExpr { id, expr: Expr::Call(call) },
        kind: Kind::Optional(Box::new(kind)),
        chain: None,
    }
}
