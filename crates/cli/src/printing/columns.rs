//! The columns of a list, as the printer columns of the CRD define them.

use std::borrow::Cow;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use vitistack_apiserver::printing;

use super::Table;
use crate::cluster::{kinds::KnownKind, listing::Wanted};

/// The text of a cell without a value.
const EMPTY: &str = "-";

/// The columns of one kind.
#[derive(Clone, Debug)]
pub struct Columns {
    /// Whether names are printed as KIND/NAME.
    pub has_kind: bool,
    /// Whether the last column has the labels.
    pub has_labels: bool,
    kind: String,
    has_namespace: bool,
    printed: Vec<Column>,
}

#[derive(Clone, Debug)]
struct Column {
    name: String,
    path: String,
    is_date: bool,
}

impl Columns {
    /// Returns the columns of a kind; `wide` includes those of lower priority.
    pub fn of(kind: &KnownKind, wide: bool, all_namespaces: bool) -> Self {
        let printed = kind
            .columns
            .iter()
            .filter(|column| wide || column.priority.unwrap_or_default() == 0)
            .map(|column| Column {
                name: column.name.clone(),
                path: column.json_path.clone(),
                is_date: column.type_ == "date",
            })
            .collect();
        Self {
            has_kind: false,
            has_labels: false,
            kind: kind.resource.kind.to_lowercase(),
            has_namespace: all_namespaces && kind.is_namespaced,
            printed,
        }
    }

    /// Returns an empty table with these columns.
    pub fn table(&self) -> Table {
        let namespace = self.has_namespace.then_some("Namespace");
        Table::new(
            namespace
                .into_iter()
                .chain(["Name"])
                .chain(self.printed.iter().map(|column| column.name.as_str()))
                .chain(self.has_labels.then_some("Labels")),
        )
    }

    /// Returns the fields that the columns display.
    pub fn wanted(&self) -> Wanted {
        let paths = self.printed.iter().map(|column| column.path.as_str());
        let labels = self.has_labels.then_some(".metadata.labels");
        Wanted::paths([".metadata.name", ".metadata.namespace"].into_iter().chain(paths).chain(labels))
    }

    /// Adds an object to the table.
    pub fn row(&self, object: &Value, now: Timestamp, table: &mut Table) {
        let metadata = |name: &str| {
            object.get("metadata").and_then(|metadata| metadata.get(name)?.as_str()).unwrap_or(EMPTY)
        };
        if self.has_namespace {
            table.cell(metadata("namespace"));
        }
        if self.has_kind {
            table.cell(&format!("{}/{}", self.kind, metadata("name")));
        } else {
            table.cell(metadata("name"));
        }
        for column in &self.printed {
            table.cell(&cell(column, object, now));
        }
        if self.has_labels {
            table.cell(&labels(object));
        }
    }
}

/// Returns the labels of an object, sorted, as kubectl prints them.
fn labels(object: &Value) -> String {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let mut labels: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
        .collect();
    labels.sort();
    if labels.is_empty() { "<none>".to_owned() } else { labels.join(",") }
}

fn cell<'a>(column: &Column, object: &'a Value, now: Timestamp) -> Cow<'a, str> {
    let found = printing::find(object, &column.path);
    match found.as_slice() {
        [] | [Value::Null] => EMPTY.into(),
        [Value::String(time)] if column.is_date => printing::age_of(time, now).into(),
        [Value::String(text)] => text.into(),
        [other] => other.to_string().into(),
        several => {
            let texts: Vec<Cow<'_, str>> = several
                .iter()
                .map(|value| value.as_str().map_or_else(|| value.to_string().into(), Cow::from))
                .collect();
            texts.join(",").into()
        }
    }
}
