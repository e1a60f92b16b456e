//! The fields that differ between two versions of an object.

use serde_json::Value;
use vitistack_plan::preview::FieldChange;

/// The parts of an object that users write; the server owns the rest.
const USER_FIELDS: [&str; 5] =
    ["metadata.labels", "metadata.annotations", "metadata.finalizers", "metadata.ownerReferences", "spec"];

/// The longest text that is shown: values may be whole scripts.
const LONGEST_TEXT: usize = 60;

/// Returns the fields that differ.
pub fn difference(before: &Value, after: &Value) -> Vec<FieldChange> {
    let mut fields = Vec::new();
    for path in USER_FIELDS {
        let pointer = format!("/{}", path.replace('.', "/"));
        compare(path, before.pointer(&pointer), after.pointer(&pointer), &mut fields);
    }
    fields
}

fn compare(path: &str, before: Option<&Value>, after: Option<&Value>, fields: &mut Vec<FieldChange>) {
    if before == after {
        return;
    }
    let nothing = serde_json::Map::new();
    let members = |value: Option<&'_ Value>| match value {
        None => true,
        Some(value) => value.is_object(),
    };
    if members(before) && members(after) {
        let (before, after) = (before.and_then(Value::as_object), after.and_then(Value::as_object));
        let (before, after) = (before.unwrap_or(&nothing), after.unwrap_or(&nothing));
        let added = after.keys().filter(|name| !before.contains_key(*name));
        for name in before.keys().chain(added) {
            compare(&format!("{path}.{name}"), before.get(name), after.get(name), fields);
        }
        return;
    }
    if let (Some(Value::Array(before)), Some(Value::Array(after))) = (before, after)
        && before.iter().chain(after).all(|item| name_of(item).is_some())
    {
        let added = after.iter().filter(|new| !before.iter().any(|old| name_of(old) == name_of(new)));
        for item in before.iter().chain(added) {
            let name = name_of(item);
            let find = |items: &'_ [Value]| items.iter().position(|item| name_of(item) == name);
            let old = find(before).and_then(|place| before.get(place));
            let new = find(after).and_then(|place| after.get(place));
            compare(&format!("{path}[{}]", name.unwrap_or_default()), old, new, fields);
        }
        return;
    }
    // First-boot configuration may hold passwords.
    let is_shown = !path.starts_with("spec.cloudInit.");
    let print = |value: Option<&Value>| match value {
        None => "none".to_owned(),
        Some(Value::String(text)) if text.chars().count() <= LONGEST_TEXT && !text.contains('\n') => {
            text.clone()
        }
        Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
        Some(_) => "…".to_owned(),
    };
    let change =
        if is_shown { format!("{} → {}", print(before), print(after)) } else { "changes".to_owned() };
    fields.push(FieldChange { path: path.to_owned(), change });
}

/// The name of a list item.
fn name_of(item: &Value) -> Option<&str> {
    item.get("name")?.as_str()
}
