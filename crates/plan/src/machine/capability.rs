//! What a backend can do. Decisions depend on this, never on the name of a backend.

use serde::Serialize;
use serde_json::Value;

use super::Snapshot;

/// How a backend carries out a change on a machine that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Support {
    /// At once, while the machine runs.
    InPlace,
    /// It is stored at once and takes effect with the next restart.
    AtRestart,
    /// Never; the machine has to be recreated.
    Never,
}

/// What a backend can do. The conformance suite tries every line of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// More or fewer processors, more or less memory.
    pub resize: Support,
    /// A larger disk.
    pub grow_disk: Support,
    /// One disk more, or one less.
    pub change_disks: Support,
    /// One interface more or less, or another network or model.
    pub change_interfaces: Support,
    /// Boot order, firmware, features, board.
    pub change_hardware: Support,
    /// Whether a machine can be stopped and kept.
    pub power: bool,
    /// Whether a new machine honors a zone.
    pub zones: bool,
    /// Fields of the spec that it cannot honor at all, as paths such as `domain.features.hyperv` or `disks.accessMode`;
    /// a path goes through lists. A Machine that sets one reports it in a condition.
    pub refused_fields: Vec<&'static str>,
}

/// The fields that the Machine sets and the backend cannot honor.
pub(super) fn refused_fields(snapshot: &Snapshot<'_>) -> Vec<String> {
    let (Some(capabilities), Ok(desired)) = (snapshot.capabilities, snapshot.desired) else {
        return Vec::new();
    };

    let mut refused = Vec::new();
    if !capabilities.refused_fields.is_empty() {
        let spec = serde_json::to_value(&snapshot.machine.spec).unwrap_or_default();
        for path in &capabilities.refused_fields {
            let path: Vec<&str> = path.split('.').collect();
            find_set_fields(&spec, &path, "spec".to_owned(), &mut refused);
        }
    }
    if desired.zone.is_some() && !capabilities.zones {
        refused.push("spec.zone".to_owned());
    }
    refused
}

/// Adds every field below `value` that `path` leads to. Items of a list are named by their `name`, otherwise by their
/// position.
fn find_set_fields(value: &Value, path: &[&str], at: String, found: &mut Vec<String>) {
    match (value, path) {
        (Value::Null, _) => {}
        (_, []) => found.push(at),
        (Value::Array(items), path) => {
            for (position, item) in items.iter().enumerate() {
                let name = item.get("name").and_then(Value::as_str);
                let name = name.map_or_else(|| position.to_string(), ToOwned::to_owned);
                find_set_fields(item, path, format!("{at}[{name}]"), found);
            }
        }
        (Value::Object(fields), [first, rest @ ..]) => {
            if let Some(field) = fields.get(*first) {
                find_set_fields(field, rest, format!("{at}.{first}"), found);
            }
        }
        (_, _) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(spec: &Value, path: &str) -> Vec<String> {
        let mut found = Vec::new();
        find_set_fields(spec, &path.split('.').collect::<Vec<_>>(), "spec".to_owned(), &mut found);
        found
    }

    #[test]
    fn a_refused_field_is_found_below_lists_too() {
        let spec = json!({
            "zone": "a",
            "domain": { "features": { "hyperv": true } },
            "disks": [{ "name": "root" }, { "name": "data", "accessMode": "ReadWriteMany" }],
            "bootOrder": ["cdrom"],
        });
        assert_eq!(found(&spec, "domain.features.hyperv"), ["spec.domain.features.hyperv"]);
        assert_eq!(found(&spec, "disks.accessMode"), ["spec.disks[data].accessMode"]);
        assert_eq!(found(&spec, "bootOrder"), ["spec.bootOrder"]);
        assert_eq!(found(&spec, "networks.model"), [""; 0]);
    }
}
