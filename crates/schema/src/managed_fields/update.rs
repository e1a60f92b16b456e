//! Ownership after a create, an update or a patch.

use serde_json::{Map, Value};

use super::{
    Write,
    compare::{Comparison, compare},
    entries,
    managers::{Managers, Operation, Owned},
    remove_entries, remove_unowned, set_entries,
};
use crate::schema::Schema;

/// Computes the field ownership of an object that is about to be stored.
///
/// The writer owns every field that it changes, and other managers lose it. A write that changes nothing
/// leaves the entries and their times unchanged. An object without entries, or whose writer emptied the list,
/// gets none.
pub fn update(live: Option<&Value>, new: &mut Value, write: &Write<'_>, schema: &Schema) {
    let mut managers = starting_point(live, new, write, schema);
    remove_entries(new);
    let is_stored = live.is_some_and(|live| {
        live.pointer("/metadata/uid").and_then(Value::as_str).is_some_and(|uid| !uid.is_empty())
    });
    if !(managers.is_empty() && is_stored) {
        record(live, new, write, &mut managers, schema);
    }
    set_entries(new, &managers);
}

/// Returns the initial entries: those that the writer sends, if any, else those of the live object.
fn starting_point(live: Option<&Value>, new: &Value, write: &Write<'_>, schema: &Schema) -> Managers {
    let decode = |entries: &[Value]| Managers::decode(entries, write.api_version, schema);
    let of_live = || live.and_then(|live| decode(entries(live))).unwrap_or_default();
    if !write.subresource.is_empty() {
        return of_live();
    }

    let sent =
        new.get("metadata").and_then(|metadata| metadata.get("managedFields")).and_then(Value::as_array);
    match sent.map(Vec::as_slice) {
        // One empty entry resets the list; so does an empty list, but only for built-in kinds.
        Some([]) if schema.native => Managers::default(),
        Some([Value::Object(only)]) if only.is_empty() => Managers::default(),
        Some(sent) => match decode(sent) {
            Some(managers) if !managers.is_empty() => managers,
            _ => of_live(),
        },
        None => of_live(),
    }
}

/// Transfers the ownership of changed fields to the writer.
pub(super) fn record(
    live: Option<&Value>,
    new: &Value,
    write: &Write<'_>,
    managers: &mut Managers,
    schema: &Schema,
) {
    let nothing = Value::Object(Map::new());
    let Comparison { removed, modified, added } = compare(live.unwrap_or(&nothing), new, schema);
    let mut mine = modified;
    mine.absorb(added);
    managers.take(&mine, |_| true);
    managers.take(&removed, |_| true);
    remove_unowned(&mut mine);

    if !mine.is_empty() {
        let identity = write.identity(Operation::Update);
        if let Some(before) = managers.remove(&identity) {
            mine.absorb(before.set);
        }
        managers.insert(Owned {
            identity,
            api_version: write.api_version.to_owned(),
            time: (!write.time.is_empty()).then(|| write.time.to_owned()),
            set: mine,
            encoded: None,
        });
    }

    managers.cap();
}
