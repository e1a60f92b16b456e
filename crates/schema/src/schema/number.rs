//! The keywords of numbers.

use super::{
    format::Check,
    node::{Checks, Node, Type},
    path::Path,
    validate::Outcome,
    value::{Numeric, print_float},
};

/// Checks the range of the type, `multipleOf`, `minimum` and `maximum`, in the order of kube-apiserver.
pub(crate) fn check(
    node: &Node,
    checks: Option<&Checks>,
    number: Numeric,
    path: &Path<'_>,
    out: &mut Outcome,
) {
    let range = Range::of(node, checks);
    range.check("Checked", number, path, out);
    let Some(checks) = checks else { return };
    if let Some(factor) = checks.multiple_of {
        let fits = range.check("MultipleOf", Numeric::Float(factor), path, out);
        check_multiple(number, factor, fits, path, out);
    }

    if let Some(minimum) = checks.minimum {
        let fits = range.check("Minimum boundary", Numeric::Float(minimum), path, out);
        let bound = Bound { limit: minimum, exclusive: checks.exclusive_minimum, upper: false };
        bound.check(number, fits, path, out);
    }

    if let Some(maximum) = checks.maximum {
        let fits = range.check("Maximum boundary", Numeric::Float(maximum), path, out);
        let bound = Bound { limit: maximum, exclusive: checks.exclusive_maximum, upper: true };
        bound.check(number, fits, path, out);
    }
}

/// The range of numbers that a type and format can represent.
#[derive(Clone, Copy)]
struct Range {
    integer: bool,
    check: Option<Check>,
}

impl Range {
    fn of(node: &Node, checks: Option<&Checks>) -> Range {
        let check = checks.and_then(|checks| checks.format.as_ref()).map(|format| format.check);
        Range { integer: node.kind == Type::Integer && !node.int_or_string, check }
    }

    fn check(self, what: &str, number: Numeric, path: &Path<'_>, out: &mut Outcome) -> bool {
        let fits = match (self.integer, self.check) {
            (true, Some(Check::Int32)) => {
                as_integer(number).is_some_and(|integer| i32::try_from(integer).is_ok())
            }
            (true, _) => as_integer(number).is_some(),
            (false, Some(Check::Float)) => number.as_float().abs() <= f64::from(f32::MAX),
            (false, _) => true,
        };

        if !fits {
            let kind = if self.integer { "integer" } else { "number" };
            let format = match self.check {
                Some(Check::Int32) => "with format int32",
                Some(Check::Int64) => "with format int64",
                Some(Check::Float) => "with format float",
                _ => "(default format)",
            };
            out.composite(format!("{what} value must be of type {kind} {format} in {}", path.in_body()));
        }

        fits
    }
}

/// 2^63, the first float that is too large for an integer.
const I64_LIMIT: f64 = 9_223_372_036_854_775_808.0;

/// Returns the integer that a value represents.
#[expect(clippy::cast_possible_truncation, reason = "the bounds were compared before the cast")]
fn as_integer(number: Numeric) -> Option<i64> {
    match number {
        Numeric::Integer(integer) => Some(integer),
        Numeric::Float(float) if float.fract() == 0.0 && float.abs() < I64_LIMIT => Some(float as i64),
        Numeric::Float(_) => None,
    }
}

/// Truncates a limit to an integer as kube-apiserver does.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a limit beyond the range saturates, which is what is wanted"
)]
fn truncate(limit: f64) -> i64 {
    limit as i64
}

fn check_multiple(number: Numeric, factor: f64, fits: bool, path: &Path<'_>, out: &mut Outcome) {
    let (wrong, printed) = match number {
        Numeric::Integer(integer) if fits => {
            let factor = truncate(factor);
            if factor <= 0 {
                out.invalid(
                    path,
                    &factor.to_string(),
                    format!("factor MultipleOf declared for {} must be positive: {factor}", path.in_body()),
                );
                return;
            }
            (integer % factor != 0, factor.to_string())
        }
        other => {
            if factor <= 0.0 {
                let factor = print_float(factor);
                out.invalid(
                    path,
                    &factor,
                    format!("factor MultipleOf declared for {} must be positive: {factor}", path.in_body()),
                );
                return;
            }
            let quotient =
                if factor < 1.0 { 1.0 / factor * other.as_float() } else { other.as_float() / factor };
            (!is_whole(quotient), print_float(factor))
        }
    };
    if wrong {
        out.invalid(
            path,
            &number.print(),
            format!("{} in body should be a multiple of {printed}", path.in_body()),
        );
    }
}

/// Whether a float is an integer, within the tolerance of kube-apiserver.
fn is_whole(float: f64) -> bool {
    const EPSILON: f64 = 1e-9;
    if !float.is_finite() || float.abs() > 9.007_199_254_740_991e15 {
        return false;
    }
    let difference = (float - float.round()).abs();
    difference == 0.0 || difference / float.abs().max(f64::MIN_POSITIVE) < EPSILON
}

struct Bound {
    limit: f64,
    exclusive: bool,
    upper: bool,
}

impl Bound {
    fn check(&self, number: Numeric, fits: bool, path: &Path<'_>, out: &mut Outcome) {
        let (ordering, printed) = match number {
            Numeric::Integer(integer) if fits => {
                let limit = truncate(self.limit);
                (Some(integer.cmp(&limit)), limit.to_string())
            }
            other => (other.as_float().partial_cmp(&self.limit), print_float(self.limit)),
        };

        let Some(ordering) = ordering else { return };
        let wrong = match (self.upper, self.exclusive) {
            (true, false) => ordering.is_gt(),
            (true, true) => ordering.is_ge(),
            (false, false) => ordering.is_lt(),
            (false, true) => ordering.is_le(),
        };

        if wrong {
            let relation = match (self.upper, self.exclusive) {
                (true, false) => "less than or equal to",
                (true, true) => "less than",
                (false, false) => "greater than or equal to",
                (false, true) => "greater than",
            };
            out.invalid(
                path,
                &number.print(),
                format!("{} in body should be {relation} {printed}", path.in_body()),
            );
        }
    }
}
