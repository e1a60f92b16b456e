//! The columns of a list: those that the definition of the kind names.

use std::borrow::Cow;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use vitistack_apiserver::printing;

use crate::{kinds::KnownKind, listing::Wanted, output::Table};

/// What stands in a cell without a value.
const NOTHING: &str = "-";

/// The columns of one kind.
#[derive(Clone, Debug)]
pub struct Columns {
    /// Whether names are written as KIND/NAME.
    pub says_kind: bool,
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
    /// The columns of a kind; `wide` shows those of lower priority too.
    pub fn of(kind: &KnownKind, wide: bool, everywhere: bool) -> Self {
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
            says_kind: false,
            kind: kind.resource.kind.to_lowercase(),
            has_namespace: everywhere && kind.is_namespaced,
            printed,
        }
    }

    /// An empty table with these columns.
    pub fn table(&self) -> Table {
        let namespace = self.has_namespace.then_some("Namespace");
        Table::new(
            namespace
                .into_iter()
                .chain(["Name"])
                .chain(self.printed.iter().map(|column| column.name.as_str())),
        )
    }

    /// What of an object the columns look at.
    pub fn wanted(&self) -> Wanted {
        let paths = self.printed.iter().map(|column| column.path.as_str());
        Wanted::paths([".metadata.name", ".metadata.namespace"].into_iter().chain(paths))
    }

    /// Adds an object to the table.
    pub fn row(&self, object: &Value, now: Timestamp, table: &mut Table) {
        let metadata = |name: &str| {
            object.get("metadata").and_then(|metadata| metadata.get(name)?.as_str()).unwrap_or(NOTHING)
        };
        if self.has_namespace {
            table.cell(metadata("namespace"));
        }
        if self.says_kind {
            table.cell(&format!("{}/{}", self.kind, metadata("name")));
        } else {
            table.cell(metadata("name"));
        }
        for column in &self.printed {
            table.cell(&cell(column, object, now));
        }
    }
}

fn cell<'a>(column: &Column, object: &'a Value, now: Timestamp) -> Cow<'a, str> {
    let found = printing::find(object, &column.path);
    match found.as_slice() {
        [] | [Value::Null] => NOTHING.into(),
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
