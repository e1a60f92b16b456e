//! Server-side apply of a configuration.

use serde_json::{Map, Value};

use super::{
    Conflict, Write,
    compare::{Comparison, compare},
    entries,
    managers::{Managers, Operation, Owned},
    merge::{drop_emptied, merge, remove},
    path_set::Set,
    paths::{paths, with_named_fields},
    remove_entries, remove_unowned, set_entries,
    update::record,
};
use crate::schema::Schema;

/// The manager of the fields that an object had before it was first applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The manager of `kubectl apply --server-side`, which takes over from client-side apply without conflicts.
const KUBECTL: &str = "kubectl";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Merges a configuration into the live object.
///
/// Fields that the manager applied before and does not apply now are removed, unless another manager owns
/// them. A field that another manager owns and the configuration changes is a conflict, unless the apply is
/// forced. An apply that changes no value keeps the time of the entry, so that a repeated apply returns the
/// identical object.
pub fn apply(
    live: Option<&Value>,
    applied: &Value,
    write: &Write<'_>,
    force: bool,
    schema: &Schema,
) -> Result<Value, Vec<Conflict>> {
    let nothing = Value::Object(Map::new());
    let live = live.unwrap_or(&nothing);
    let mut managers = Managers::decode(entries(live), write.api_version, schema).unwrap_or_default();
    if managers.is_empty() {
        let before = Write { manager: BEFORE_FIRST_APPLY, ..*write };
        record(None, live, &before, &mut managers, schema);
    }

    let mut attempt = run(live, applied, write, force, &managers, schema);
    if let (Err(conflicts), true) = (&attempt, write.manager == KUBECTL) {
        let allowed = last_applied(live, write, schema).map(|set| set.print()).unwrap_or_default();
        let left: Vec<Conflict> =
            conflicts.iter().filter(|conflict| !allowed.contains(&conflict.field)).cloned().collect();
        attempt =
            if left.is_empty() { run(live, applied, write, true, &managers, schema) } else { Err(left) };
    }

    let (mut object, managers) = attempt?;
    if write.manager == KUBECTL {
        renew_last_applied(&mut object, applied);
    }

    set_entries(&mut object, &managers);
    Ok(object)
}

fn run(
    live: &Value,
    applied: &Value,
    write: &Write<'_>,
    force: bool,
    managers: &Managers,
    schema: &Schema,
) -> Result<(Value, Managers), Vec<Conflict>> {
    let identity = write.identity(Operation::Apply);
    let mut managers = managers.clone();
    let last = managers.get(&identity).cloned();
    let mut mine = paths(applied, schema);
    managers.insert(Owned {
        identity: identity.clone(),
        api_version: write.api_version.to_owned(),
        time: last.as_ref().and_then(|last| last.time.clone()),
        set: mine.clone(),
        encoded: None,
    });

    let merged = merge(live, applied, schema);
    // Fields that are applied again are added back anyway, so a repeated apply has nothing to remove.
    let mut object = match last.as_ref().filter(|last| !last.set.is_within(&mine)) {
        Some(last) => prune(&merged, &managers, &last.set, schema),
        None => merged.clone(),
    };

    let comparison = compare(live, &object, schema);
    let Comparison { removed, modified, added } = comparison;
    let mut changed = modified;
    changed.absorb(added);
    if !force {
        let conflicts = conflicts(&managers, &changed, |owned| owned.identity != identity);
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
    }

    managers.take(&changed, |owned| owned.identity != identity);
    managers.take(&removed, |owned| owned.identity != identity);
    remove_unowned(&mut mine);
    if mine.is_empty() {
        managers.remove(&identity);
    } else {
        let unchanged = *live == object;
        let time = match (unchanged, last) {
            (true, last) => last.and_then(|last| last.time),
            (false, _) => Some(write.time.to_owned()),
        };
        let api_version = write.api_version.to_owned();
        managers.insert(Owned { identity, api_version, time, set: mine, encoded: None });
    }

    drop_emptied(&mut object, &merged);
    remove_entries(&mut object);
    Ok((object, managers))
}

fn conflicts(managers: &Managers, changed: &Set, with: impl Fn(&Owned) -> bool) -> Vec<Conflict> {
    let mut out = Vec::new();
    for owned in managers.iter().filter(|owned| with(owned)) {
        let manager = owned.identity.print();
        for field in owned.set.intersection(changed).print() {
            out.push(Conflict { manager: manager.clone(), field });
        }
    }
    out
}

/// Removes what the manager owned last time, and adds back what others own or what it never owned.
fn prune(merged: &Value, managers: &Managers, last: &Set, schema: &Schema) -> Value {
    let last = with_named_fields(last, schema);
    let mut pruned = remove(merged, &last, schema);
    let all = with_named_fields(&paths(merged, schema), schema);
    let mut owned = Set::default();
    for manager in managers.iter() {
        owned.absorb(manager.set.clone());
    }
    let left = with_named_fields(&paths(&pruned, schema), schema);
    let retained = left.union(&with_named_fields(&owned, schema));
    pruned = remove(merged, &all.difference(&retained), schema);
    let left = with_named_fields(&paths(&pruned, schema), schema);
    remove(merged, &all.difference(&left).intersection(&last), schema)
}

/// Returns the fields that client-side apply set and no manager has changed since.
fn last_applied(live: &Value, write: &Write<'_>, schema: &Schema) -> Option<Set> {
    let text = live.pointer("/metadata/annotations")?.get(LAST_APPLIED)?.as_str()?;
    let applied: Value = serde_json::from_str(text).ok()?;
    if applied.get("apiVersion").and_then(Value::as_str) != Some(write.api_version) {
        return None;
    }
    let comparison = compare(&applied, live, schema);
    let set = paths(&applied, schema);
    Some(set.difference(&comparison.modified).difference(&comparison.added).difference(&comparison.removed))
}

/// Keeps the annotation of client-side apply up to date, for users who return to it.
fn renew_last_applied(object: &mut Value, applied: &Value) {
    let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    let Some(annotation) = annotations.and_then(|annotations| annotations.get_mut(LAST_APPLIED)) else {
        return;
    };
    if annotation.as_str().is_none_or(str::is_empty) {
        return;
    }
    let mut applied = applied.clone();
    if let Some(annotations) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    *annotation = Value::String(format!("{applied}\n"));
}

/// Returns the message of a conflict response, worded as kube-apiserver does.
#[must_use]
pub fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", only.manager, only.field);
    }
    let mut lines = Vec::new();
    let mut manager = "";
    for conflict in conflicts {
        if conflict.manager != manager {
            manager = &conflict.manager;
            lines.push(format!("conflicts with {manager}:"));
        }
        lines.push(format!("- {}", conflict.field));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}
