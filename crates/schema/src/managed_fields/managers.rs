//! `metadata.managedFields` as a table of managers.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    encode::{decode, encode},
    path_set::Set,
    paths::raise_parts,
};
use crate::schema::{Schema, marshal, quote};

/// The operation of a manager's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// The identity of an owner: manager, operation, subresource, and for updates the version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) manager: String,
    pub(crate) operation: Operation,
    pub(crate) subresource: String,
    /// Empty for apply, so that a manager may change versions.
    pub(crate) api_version: String,
}

impl Identity {
    /// The form by which kube-apiserver distinguishes and sorts managers.
    fn key(&self) -> String {
        let text = |value: &str| marshal(&Value::String(value.to_owned()));
        let mut key =
            format!(r#"{{"manager":{},"operation":"{}""#, text(&self.manager), self.operation.name());
        if !self.api_version.is_empty() {
            key.push_str(r#","apiVersion":"#);
            key.push_str(&text(&self.api_version));
        }
        if !self.subresource.is_empty() {
            key.push_str(r#","subresource":"#);
            key.push_str(&text(&self.subresource));
        }
        key.push('}');
        key
    }

    /// The form in conflict messages.
    pub(crate) fn print(&self) -> String {
        let mut text = quote(&self.manager);
        if !self.subresource.is_empty() {
            text.push_str(" with subresource ");
            text.push_str(&quote(&self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(" using ");
            text.push_str(&self.api_version);
        }
        text
    }
}

/// The fields that a manager owns.
#[derive(Clone, Debug)]
pub(crate) struct Owned {
    pub(crate) identity: Identity,
    pub(crate) api_version: String,
    pub(crate) time: Option<String>,
    pub(crate) set: Set,
    /// The encoded set as it was read, while it is unchanged.
    pub(crate) encoded: Option<Value>,
}

/// The managers of an object, ordered by their keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Managers {
    entries: BTreeMap<String, Owned>,
}

/// The maximum number of update entries; older ones are merged into one with this name.
const MAX_UPDATE_MANAGERS: usize = 10;
const OLD_UPDATES: &str = "ancient-changes";

impl Managers {
    /// Decodes `managedFields`; entries of the schema's version are matched to that schema. Returns `None` if
    /// an entry is malformed.
    pub(crate) fn decode(entries: &[Value], version: &str, schema: &Schema) -> Option<Managers> {
        let mut managers = Managers::default();
        for entry in entries {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return None,
            };
            let api_version = text("apiVersion").to_owned();
            if api_version.is_empty() || text("fieldsType") != "FieldsV1" {
                return None;
            }
            let fields = entry.get("fieldsV1");
            let mut set = match fields {
                None | Some(Value::Null) => Set::default(),
                Some(fields) => decode(fields)?,
            };
            let is_as_written = api_version != version || !raise_parts(&mut set, schema);
            let identity = Identity {
                manager: text("manager").to_owned(),
                operation,
                subresource: text("subresource").to_owned(),
                api_version: if operation == Operation::Apply { String::new() } else { api_version.clone() },
            };
            let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
            managers.insert(Owned {
                identity,
                api_version,
                time,
                set,
                encoded: fields.filter(|_| is_as_written).cloned(),
            });
        }

        Some(managers)
    }

    /// Encodes `managedFields`, sorted by operation, time, manager, version and subresource.
    pub(crate) fn encode(&self) -> Vec<Value> {
        let mut owned: Vec<&Owned> = self.entries.values().collect();
        owned.sort_by(|left, right| {
            let (one, other) = (&left.identity, &right.identity);
            (one.operation.name().cmp(other.operation.name()))
                .then_with(|| left.time.cmp(&right.time))
                .then_with(|| one.manager.cmp(&other.manager))
                .then_with(|| left.api_version.cmp(&right.api_version))
                .then_with(|| one.subresource.cmp(&other.subresource))
        });
        owned.into_iter().map(Owned::encode).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn get(&self, identity: &Identity) -> Option<&Owned> {
        self.entries.get(&identity.key())
    }

    pub(crate) fn insert(&mut self, owned: Owned) {
        self.entries.insert(owned.identity.key(), owned);
    }

    pub(crate) fn remove(&mut self, identity: &Identity) -> Option<Owned> {
        self.entries.remove(&identity.key())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Owned> {
        self.entries.values()
    }

    /// Removes paths from every manager that passes the filter; managers that own nothing afterwards are
    /// dropped.
    pub(crate) fn take(&mut self, paths: &Set, from: impl Fn(&Owned) -> bool) {
        self.entries.retain(|_, owned| {
            if from(owned) && owned.set.subtract(paths) {
                owned.encoded = None;
            }
            !owned.set.is_empty()
        });
    }

    /// Merges the oldest update entries of each version until the maximum is met.
    pub(crate) fn cap(&mut self) {
        let mut updates: Vec<(String, String)> = self
            .entries
            .iter()
            .filter(|(_, owned)| owned.identity.operation == Operation::Update)
            .map(|(key, owned)| (owned.time.clone().unwrap_or_default(), key.clone()))
            .collect();

        let mut count = updates.len();
        updates.sort();
        let mut first_of_version: BTreeMap<String, String> = BTreeMap::new();
        for (_, key) in updates {
            if count <= MAX_UPDATE_MANAGERS {
                return;
            }
            let Some(version) = self.entries.get(&key).map(|owned| owned.api_version.clone()) else {
                continue;
            };
            let Some(first) = first_of_version.get(&version).cloned() else {
                first_of_version.insert(version, key);
                continue;
            };
            let bucket = Identity {
                manager: OLD_UPDATES.to_owned(),
                operation: Operation::Update,
                subresource: String::new(),
                api_version: version,
            };
            if self.get(&bucket).is_none()
                && let Some(owned) = self.entries.remove(&first)
            {
                self.insert(Owned { identity: bucket.clone(), ..owned });
            }
            let Some(mut merged) = self.entries.remove(&key) else { continue };
            if let Some(before) = self.remove(&bucket) {
                merged.set.absorb(before.set);
            }
            self.insert(Owned { identity: bucket, encoded: None, ..merged });
            count -= 1;
        }
    }
}

impl Owned {
    fn encode(&self) -> Value {
        let mut entry = Map::new();
        let mut put = |name: &str, value: &str| {
            entry.insert(name.to_owned(), Value::String(value.to_owned()));
        };

        put("manager", &self.identity.manager);
        put("operation", self.identity.operation.name());
        put("apiVersion", &self.api_version);
        if let Some(time) = &self.time {
            put("time", time);
        }

        put("fieldsType", "FieldsV1");
        if !self.identity.subresource.is_empty() {
            put("subresource", &self.identity.subresource);
        }

        let fields = self.encoded.clone().unwrap_or_else(|| encode(&self.set));
        entry.insert("fieldsV1".to_owned(), fields);
        Value::Object(entry)
    }
}
