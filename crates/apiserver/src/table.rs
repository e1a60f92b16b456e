//! Tables: what kubectl prints for a list.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::cells;

/// A column of a built-in kind.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The header.
    pub name: &'static str,
    /// The type of its cells.
    pub kind: &'static str,
    /// The format of its cells.
    pub format: &'static str,
    /// The description.
    pub description: &'static str,
    /// 0 for always shown, more for `-o wide`.
    pub priority: i64,
}

/// A column of a custom resource.
#[derive(Clone, Debug)]
pub struct PathColumn {
    /// The header.
    pub name: String,
    /// The type of its cells.
    pub kind: String,
    /// The format of its cells.
    pub format: String,
    /// The description.
    pub description: String,
    /// 0 for always shown, more for `-o wide`.
    pub priority: i64,
    /// The JSON path of the value.
    pub path: String,
}

/// The columns of a resource.
#[derive(Clone, Debug)]
pub enum Columns {
    /// The columns of a built-in kind, and the function that fills a row.
    BuiltIn(&'static [Column], fn(&Value, Timestamp) -> Vec<Value>),
    /// The columns of a CRD.
    Paths(Vec<PathColumn>),
}

/// The part of each object that a row includes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

impl Columns {
    /// Returns the column definitions.
    #[must_use]
    pub fn column_definitions(&self) -> Vec<Value> {
        let definition = |name: &str, kind: &str, format: &str, description: &str, priority: i64| json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority});
        match self {
            Self::BuiltIn(columns, _) => columns
                .iter()
                .map(|column| {
                    definition(column.name, column.kind, column.format, column.description, column.priority)
                })
                .collect(),
            Self::Paths(columns) => {
                let name = definition("Name", "string", "name", cells::NAME_DESCRIPTION, 0);
                let rest = columns.iter().map(|column| {
                    definition(
                        &column.name,
                        &column.kind,
                        &column.format,
                        &column.description,
                        column.priority,
                    )
                });
                std::iter::once(name).chain(rest).collect()
            }
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        match self {
            Self::BuiltIn(_, cells) => cells(object, now),
            Self::Paths(columns) => {
                let rest = columns.iter().map(|column| cell(column, object, now));
                std::iter::once(cells::name(object)).chain(rest).collect()
            }
        }
    }

    /// Returns one row.
    #[must_use]
    pub fn row(&self, object: &Value, include: Include, now: Timestamp) -> Value {
        let carried = match include {
            Include::None => Value::Null,
            Include::Metadata => partial(object),
            Include::Object => object.clone(),
        };
        json!({"cells": self.cells(object, now), "object": carried})
    }

    /// Returns a whole table; `metadata` is that of the list.
    #[must_use]
    pub fn table(&self, rows: &[Value], metadata: &Value) -> Value {
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "columnDefinitions": self.column_definitions(), "rows": rows,
        })
    }
}

/// Returns an object reduced to its metadata.
#[must_use]
pub fn partial(object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

fn cell(column: &PathColumn, object: &Value, now: Timestamp) -> Value {
    let found = find(object, &column.path);
    let Some(first) = found.first() else { return Value::Null };
    match (column.kind.as_str(), first) {
        ("string", _) if found.len() > 1 => {
            found.iter().map(|value| plain(value)).collect::<Vec<_>>().join(",").into()
        }
        ("string", value) => plain(value).into(),
        ("date", Value::String(time)) => age_of(time, now).into(),
        ("integer", Value::Number(number)) => {
            #[expect(clippy::cast_possible_truncation, reason = "a column of integers shows the whole part")]
            let whole = number.as_i64().unwrap_or_else(|| number.as_f64().unwrap_or_default() as i64);
            whole.into()
        }
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => (*first).clone(),
        _ => Value::Null,
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Formats the age of a time, as kubectl does.
#[must_use]
pub fn age_of(time: &str, now: Timestamp) -> String {
    let Ok(then) = time.parse::<Timestamp>() else { return "<unknown>".to_owned() };
    duration(now.as_second() - then.as_second())
}

/// Formats seconds in the two most significant units.
#[must_use]
pub fn duration(seconds: i64) -> String {
    let pair = |first: i64, one: &str, second: i64, two: &str| {
        if second == 0 { format!("{first}{one}") } else { format!("{first}{one}{second}{two}") }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(hours / 24, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{}d", hours / 24),
        63_072_000..252_288_000 => pair(hours / 24 / 365, "y", hours / 24 % 365, "d"),
        _ => format!("{}y", hours / 24 / 365),
    }
}

/// Returns the values at a JSON path: names, `[n]`, `[*]`, `['name']`, and filters `[?(@.a=="b")]`.
#[must_use]
pub fn find<'a>(object: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![object];
    let mut rest = path.trim().trim_start_matches('{').trim_end_matches('}');
    while !rest.is_empty() && !found.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            let Some(end) = closing(inside) else { return Vec::new() };
            let (step, after) = inside.split_at(end);
            found = found.into_iter().flat_map(|value| bracket(value, step)).collect();
            rest = after.get(1..).unwrap_or_default();
        } else {
            rest = rest.strip_prefix('.').unwrap_or(rest);
            let (name, after) = name_at(rest);
            rest = after;
            if name.is_empty() {
                continue;
            }
            found = found.into_iter().flat_map(|value| named(value, &name)).collect();
        }
    }

    found
}

/// Returns the first name of a path; `\.` is a dot inside it.
fn name_at(path: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = path.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '.' | '[' => return (name, path.get(index..).unwrap_or_default()),
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            _ => name.push(character),
        }
    }
    (name, "")
}

fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (index, character) in text.char_indices() {
        match (quote, character) {
            (None, ']') => return Some(index),
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), close) if open == close => quote = None,
            _ => {}
        }
    }
    None
}

fn named<'a>(value: &'a Value, name: &str) -> Vec<&'a Value> {
    match (name, value) {
        ("*", Value::Array(items)) => items.iter().collect(),
        ("*", Value::Object(members)) => members.values().collect(),
        _ => value.get(name).into_iter().collect(),
    }
}

fn bracket<'a>(value: &'a Value, step: &str) -> Vec<&'a Value> {
    let items = || value.as_array().into_iter().flatten();
    if let Some(filter) = step.strip_prefix("?(").and_then(|filter| filter.strip_suffix(')')) {
        return items().filter(|item| holds(item, filter)).collect();
    }

    let quoted = step.strip_prefix(['\'', '"']).and_then(|step| step.strip_suffix(['\'', '"']));
    if let Some(name) = quoted {
        return named(value, name);
    }

    if step == "*" || step == ":" {
        return named(value, "*");
    }
    let Ok(index) = step.parse::<i64>() else { return Vec::new() };
    let length = items().count();
    let index = usize::try_from(index)
        .ok()
        .or_else(|| length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?));

    index.and_then(|index| value.as_array()?.get(index)).into_iter().collect()
}

/// Whether `@.path==value`, or another comparison, holds for an item.
fn holds(item: &Value, filter: &str) -> bool {
    let operators = ["==", "!=", ">=", "<=", ">", "<"];
    let split = operators.iter().find_map(|operator| Some((filter.split_once(operator)?, *operator)));
    let Some(((left, right), operator)) = split else {
        return !find(item, filter.trim().trim_start_matches('@')).is_empty();
    };

    let found = find(item, left.trim().trim_start_matches('@'));
    let Some(value) = found.first() else { return false };
    let right = right.trim();
    let wanted =
        right.strip_prefix(['\'', '"']).and_then(|text| text.strip_suffix(['\'', '"'])).unwrap_or(right);
    let order = match (value.as_f64(), wanted.parse::<f64>()) {
        (Some(value), Ok(wanted)) => value.partial_cmp(&wanted),
        _ => Some(plain(value).as_str().cmp(wanted)),
    };

    match operator {
        "==" => order.is_some_and(std::cmp::Ordering::is_eq),
        "!=" => order.is_some_and(std::cmp::Ordering::is_ne),
        ">=" => order.is_some_and(std::cmp::Ordering::is_ge),
        "<=" => order.is_some_and(std::cmp::Ordering::is_le),
        ">" => order.is_some_and(std::cmp::Ordering::is_gt),
        _ => order.is_some_and(std::cmp::Ordering::is_lt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_find_values() {
        let object = json!({
            "spec": {"a": "x", "list": [{"n": "one", "v": 1}, {"n": "two", "v": 2}], "dotted.name": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });

        let rows = [
            (".spec.a", json!(["x"])),
            ("spec.a", json!(["x"])),
            (".spec.list[0].n", json!(["one"])),
            (".spec.list[-1].n", json!(["two"])),
            (".spec.list[*].v", json!([1, 2])),
            (".spec.list[?(@.v>1)].n", json!(["two"])),
            (".spec['dotted.name']", json!([true])),
            (".spec.dotted\\.name", json!([true])),
            (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
            (".spec.none.x", json!([])),
            (".spec.list[", json!([])),
            (".spec.list[9]", json!([])),
            (".spec.list[-9]", json!([])),
        ];

        for (path, expected) in rows {
            assert_eq!(json!(find(&object, path)), expected, "{path}");
        }
    }

    #[test]
    fn durations_are_printed_as_by_kubectl() {
        let rows = [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (601, "10m"),
            (10_860, "3h1m"),
            (30_000, "8h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
            (70_000_000, "2y80d"),
        ];
        for (seconds, expected) in rows {
            assert_eq!(duration(seconds), expected);
        }
    }
}
