//! The estimated size of a value, from the bounds in its schema.
//!
//! As in kube-apiserver, a list, map or string without a limit can be as large as a request.

use std::{cell::RefCell, cmp::Reverse};

use super::cost::Extent;
use crate::schema::{Additional, Cause, Node, Type};

/// The maximum size of a request.
const MAX_REQUEST: u64 = 3 * 1024 * 1024;

/// The maximum number of values in a request, each of which has at least one byte and a separator.
const MAX_VALUES: u64 = MAX_REQUEST / 2;

/// The maximum estimated cost of a rule: ten times the limit of kube-apiserver, because the estimates are
/// coarser. What an evaluation may cost is limited as well.
const LIMIT: u64 = 100_000_000;

/// The maximum estimated cost of all rules of a schema.
const TOTAL_LIMIT: u64 = 10 * LIMIT;

/// The number of rules that are named if all are too expensive together.
const MOST_EXPENSIVE: usize = 4;

/// Returns the estimated size of the values of a schema.
pub(super) fn extent(node: &Node) -> Extent {
    let checks = node.checks.as_deref();
    let bound = |limit: Option<i64>| limit.and_then(|limit| u64::try_from(limit).ok());
    match node.kind {
        Type::Integer | Type::Number | Type::Boolean => Extent::SCALAR,
        Type::String => {
            let named = checks.map(|checks| checks.enumeration.as_slice()).unwrap_or_default();
            let longest = named.iter().filter_map(|value| Some(value.as_str()?.len() as u64)).max();
            let limit = longest.or_else(|| bound(checks.and_then(|checks| checks.max_length)));
            Extent::text(limit.unwrap_or(MAX_REQUEST).min(MAX_REQUEST))
        }
        Type::Array => {
            let item = node.items.as_deref();
            let limit = bound(checks.and_then(|checks| checks.max_items));
            list(limit, item.map_or(1, smallest), item.map_or(MAX_VALUES, deep))
        }
        Type::Object => {
            if let Additional::Schema(child) = &node.additional {
                let limit = bound(checks.and_then(|checks| checks.max_properties));
                return list(limit, smallest(child) + 4, deep(child).saturating_add(1));
            }
            let largest = node.properties.values().map(deep).max().unwrap_or(1);
            let count = node.properties.len() as u64;
            Extent { items: count, item: largest, size: 1 + count }
        }
        Type::Any if node.int_or_string => Extent::text(MAX_REQUEST),
        Type::Any => Extent::up_to(MAX_VALUES),
    }
}

fn list(limit: Option<u64>, smallest: u64, item: u64) -> Extent {
    let items = limit.unwrap_or(u64::MAX).min(MAX_REQUEST / (smallest + 1));
    Extent::list(items, item, MAX_VALUES)
}

/// Returns the size of a value with everything inside it.
fn deep(node: &Node) -> u64 {
    let size = match (node.kind, &node.additional) {
        (Type::Object, Additional::Schema(_)) => extent(node).size,
        (Type::Object, _) => {
            node.properties.values().fold(1, |sum: u64, child| sum.saturating_add(deep(child)))
        }
        _ => extent(node).size,
    };
    size.min(MAX_VALUES)
}

/// Returns the length of the shortest JSON text of a value.
fn smallest(node: &Node) -> u64 {
    match node.kind {
        Type::Boolean => 4,
        Type::String | Type::Array => 2,
        Type::Integer | Type::Number | Type::Any => 1,
        Type::Object => {
            let required = node.checks.iter().flat_map(|checks| &checks.required);
            let length =
                |name: &String| name.len() as u64 + 3 + node.properties.get(name).map_or(1, smallest);
            2 + required.map(length).sum::<u64>()
        }
    }
}

/// Returns how many values a list or map can have below `count` values of it.
pub(super) fn multiplied(count: u64, node: &Node) -> u64 {
    count.saturating_mul(extent(node).items.max(1)).min(MAX_VALUES)
}

/// The estimated costs of all expressions of a schema.
#[derive(Debug, Default)]
pub(super) struct Costs {
    /// The field and the cost of each.
    known: RefCell<Vec<(String, u64)>>,
}

impl Costs {
    /// Adds an expression, and rejects it if it is too expensive.
    pub(super) fn add(&self, field: &str, keyword: &str, cost: u64) -> Option<Cause> {
        self.known.borrow_mut().push((field.to_owned(), cost));
        let name = format!("estimated {keyword} cost");
        (cost > LIMIT).then(|| Cause::forbidden(field, &message(&name, cost, LIMIT)))
    }

    /// Rejects a schema whose expressions are too expensive together, and names the most expensive ones.
    pub(super) fn exceeded(&self, root: &str) -> Vec<Cause> {
        let mut known = self.known.borrow().clone();
        let total = known.iter().fold(0_u64, |sum, (_, cost)| sum.saturating_add(*cost));
        if total <= TOTAL_LIMIT {
            return Vec::new();
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let mut causes = vec![Cause::forbidden(root, &message(name, total, TOTAL_LIMIT))];
        known.sort_by_key(|(_, cost)| Reverse(*cost));
        let contributed =
            "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        causes
            .extend(known.iter().take(MOST_EXPENSIVE).map(|(field, _)| Cause::forbidden(field, contributed)));
        causes
    }
}

/// Returns the message about a cost, worded as by kube-apiserver.
fn message(name: &str, cost: u64, limit: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a factor in a message")]
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        factor if factor > 100.0 => "more than 100x".to_owned(),
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}
