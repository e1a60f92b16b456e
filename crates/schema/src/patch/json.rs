//! JSON patches (RFC 6902), applied by the `json-patch` crate, with the messages of kube-apiserver.

use json_patch::{PatchErrorKind, PatchOperation, jsonptr::Pointer};
use serde_json::{Map, Value};

use super::{DECODING, MAX_OPERATIONS, PatchError, budget::Budget, check_depth, parse, wrong_type};

/// Applies the operations in order; if one fails, the document is not changed.
///
/// As in kube-apiserver, and unlike RFC 6902, `replace` adds a missing field of an object, `copy` copies a
/// missing one as null, a missing `value` is null, and negative indices count from the end of a list.
pub fn json(document: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let operations = match parse(patch, DECODING)? {
        Value::Array(operations) => operations,
        Value::Null => Vec::new(),
        other => return Err(wrong_type(&other, DECODING, "[]handlers.jsonPatchOp")),
    };

    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::CountOperations { count: operations.len() });
    }
    let mut patched = document.clone();
    let mut budget = Budget::default();
    for operation in operations {
        let operation = match operation {
            Value::Object(operation) => read(operation, &patched)?,
            other => return Err(wrong_type(&other, DECODING, "handlers.jsonPatchOp")),
        };
        if let PatchOperation::Test(test) = &operation
            && test.value.is_null()
            && test.path.resolve(&patched).is_err()
        {
            // A missing value counts as null.
            continue;
        }
        budget.check(&operation, &patched)?;
        json_patch::patch(&mut patched, std::slice::from_ref(&operation)).map_err(|error| {
            PatchError::ApplyPatch { message: describe(&operation, &error.kind, &patched) }
        })?;
    }

    check_depth(patched)
}

/// Reads one operation and converts extensions of kube-apiserver to plain RFC 6902.
fn read(mut operation: Map<String, Value>, document: &Value) -> Result<PatchOperation, PatchError> {
    let rejected = |message: String| PatchError::ApplyPatch { message };
    let kind = operation.get("op").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !matches!(kind.as_str(), "add" | "remove" | "replace" | "move" | "copy" | "test") {
        return Err(rejected(format!("Unexpected kind: {kind}")));
    }

    for name in ["path", "from"] {
        if let Some(Value::String(pointer)) = operation.get_mut(name) {
            *pointer = from_start(pointer, document);
        }
    }

    // The object does not have the field.
    let is_missing = |name: &str| {
        let pointer = operation.get(name).and_then(Value::as_str).unwrap_or_default();
        let parent = pointer.rsplit_once('/').and_then(|(parent, _)| document.pointer(parent));
        parent.is_some_and(Value::is_object) && document.pointer(pointer).is_none()
    };

    let adds_instead = (kind == "replace" && is_missing("path")) || (kind == "copy" && is_missing("from"));
    if adds_instead {
        operation.insert("op".to_owned(), Value::String("add".to_owned()));
    }

    if kind != "remove" && kind != "move" {
        operation.entry("value").or_insert(Value::Null);
    }
    serde_json::from_value(Value::Object(operation))
        .map_err(|_| rejected(format!("{kind} operation failed to decode path: missing value")))
}

/// Converts negative list indices to plain ones.
fn from_start(pointer: &str, document: &Value) -> String {
    let mut tokens = pointer.split('/');
    let mut out = tokens.next().unwrap_or_default().to_owned();
    let mut parent = Some(document);
    for token in tokens {
        let list = parent.and_then(Value::as_array);
        let from_end = list.zip(token.strip_prefix('-').and_then(|digits| digits.parse::<usize>().ok()));
        let index = from_end.and_then(|(list, back)| list.len().checked_sub(back));
        let token = index.map_or_else(|| token.to_owned(), |index| index.to_string());
        out.push('/');
        out.push_str(&token);
        parent = parent.and_then(|parent| parent.pointer(&format!("/{token}")));
    }
    out
}

/// Formats an error as the library of kube-apiserver does.
fn describe(operation: &PatchOperation, kind: &PatchErrorKind, document: &Value) -> String {
    let path = operation.path().as_str();
    let parent_missing = |pointer: &Pointer| match pointer.parent() {
        None => false,
        Some(parent) => !matches!(parent.resolve(document), Ok(Value::Object(_) | Value::Array(_))),
    };

    let last =
        |pointer: &Pointer| pointer.back().map(|token| token.decoded().into_owned()).unwrap_or_default();
    let target = |pointer: &Pointer| match pointer.parent().and_then(|parent| parent.resolve(document).ok()) {
        Some(Value::Array(_)) => {
            format!("Unable to access invalid index: {}: invalid index referenced", last(pointer))
        }
        _ => format!("Unable to remove nonexistent key: {}: missing value", last(pointer)),
    };

    match operation {
        PatchOperation::Test(_) => format!("testing value {path} failed: test failed"),
        PatchOperation::Add(add) if parent_missing(&add.path) => {
            format!("add operation does not apply: doc is missing path: \"{path}\": missing value")
        }
        PatchOperation::Add(add) => format!("error in add for path: '{path}': {}", target(&add.path)),
        PatchOperation::Remove(remove) if parent_missing(&remove.path) => {
            format!("remove operation does not apply: doc is missing path: \"{path}\": missing value")
        }
        PatchOperation::Remove(remove) => {
            format!("error in remove for path: '{path}': {}", target(&remove.path))
        }
        PatchOperation::Replace(replace) if parent_missing(&replace.path) => {
            format!("replace operation does not apply: doc is missing path: {path}: missing value")
        }
        PatchOperation::Replace(_) => {
            format!("replace operation does not apply: doc is missing key: {path}: missing value")
        }
        PatchOperation::Move(_) | PatchOperation::Copy(_) => {
            let (name, from) = match operation {
                PatchOperation::Move(inner) => ("move", &inner.from),
                PatchOperation::Copy(inner) => ("copy", &inner.from),
                _ => return String::new(),
            };
            if matches!(kind, PatchErrorKind::InvalidFromPointer) && parent_missing(from) {
                format!("{name} operation does not apply: doc is missing from path: {from}: missing value")
            } else if matches!(kind, PatchErrorKind::InvalidFromPointer) {
                format!("error in {name} for path: '{}': {}", last(from), target(from))
            } else {
                format!(
                    "{name} operation does not apply: doc is missing destination path: {path}: missing value"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json as value;

    use super::*;

    #[test]
    fn operations_are_applied_in_order() {
        let cases = [
            (value!({"a": 1}), value!([{"op": "add", "path": "/b", "value": 2}]), value!({"a": 1, "b": 2})),
            (
                value!({"l": [1, 2]}),
                value!([{"op": "add", "path": "/l/-", "value": 3}]),
                value!({"l": [1, 2, 3]}),
            ),
            (
                value!({"l": [1, 2]}),
                value!([{"op": "add", "path": "/l/0", "value": 0}]),
                value!({"l": [0, 1, 2]}),
            ),
            (value!({"a": 1}), value!([{"op": "remove", "path": "/a"}]), value!({})),
            (
                value!({"a": 1}),
                value!([{"op": "test", "path": "/a", "value": 1}, {"op": "replace", "path": "/a", "value": 2}]),
                value!({"a": 2}),
            ),
            (
                value!({"a": {"b/c": 1}}),
                value!([{"op": "move", "from": "/a/b~1c", "path": "/d"}]),
                value!({"a": {}, "d": 1}),
            ),
            (
                value!({"a": 1}),
                value!([{"op": "copy", "from": "/a", "path": "/b"}]),
                value!({"a": 1, "b": 1}),
            ),
            (value!({"a": 1}), value!([{"op": "test", "path": "/x", "value": null}]), value!({"a": 1})),
        ];
        for (document, patch, expected) in cases {
            assert_eq!(json(&document, patch.to_string().as_bytes()).unwrap(), expected, "{patch}");
        }
    }

    #[test]
    fn errors_are_worded_as_by_kube_apiserver() {
        let document = value!({"a": 1, "l": [1], "o": {"x": 1}});
        let cases = [
            (value!([{"op": "test", "path": "/a", "value": 2}]), 422, "testing value /a failed: test failed"),
            (
                value!([{"op": "remove", "path": "/b"}]),
                422,
                "error in remove for path: '/b': Unable to remove nonexistent key: b: missing value",
            ),
            (
                value!([{"op": "remove", "path": "/b/c"}]),
                422,
                "remove operation does not apply: doc is missing path: \"/b/c\": missing value",
            ),
            (
                value!([{"op": "add", "path": "/b/c", "value": 1}]),
                422,
                "add operation does not apply: doc is missing path: \"/b/c\": missing value",
            ),
            (
                value!([{"op": "add", "path": "/l/9", "value": 1}]),
                422,
                "error in add for path: '/l/9': Unable to access invalid index: 9: invalid index referenced",
            ),
            (
                value!([{"op": "replace", "path": "/b/c", "value": 1}]),
                422,
                "replace operation does not apply: doc is missing path: /b/c: missing value",
            ),
            (value!([{"op": "what", "path": "/a"}]), 422, "Unexpected kind: what"),
        ];

        for (patch, status, message) in cases {
            let error = json(&document, patch.to_string().as_bytes()).unwrap_err();
            assert_eq!((error.status_code(), error.to_string().as_str()), (status, message), "{patch}");
        }

        let malformed = [
            (
                "{}",
                "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
            ),
            (
                "[1]",
                "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
            ),
            ("{", "error decoding patch: unexpected end of JSON input"),
        ];

        for (patch, message) in malformed {
            let error = json(&document, patch.as_bytes()).unwrap_err();
            assert_eq!((error.status_code(), error.to_string().as_str()), (400, message));
        }
    }

    #[test]
    fn extensions_of_kube_apiserver_are_accepted() {
        let document = value!({"a": 1, "l": [1, 2, 3]});
        let cases = [
            (value!([{"op": "replace", "path": "/b", "value": 1}]), value!({"a": 1, "b": 1, "l": [1, 2, 3]})),
            (value!([{"op": "add", "path": "/b"}]), value!({"a": 1, "b": null, "l": [1, 2, 3]})),
            (
                value!([{"op": "copy", "from": "/q", "path": "/b"}]),
                value!({"a": 1, "b": null, "l": [1, 2, 3]}),
            ),
            (value!([{"op": "remove", "path": "/l/-1"}]), value!({"a": 1, "l": [1, 2]})),
            (value!(null), document.clone()),
        ];
        for (patch, expected) in cases {
            assert_eq!(json(&document, patch.to_string().as_bytes()).unwrap(), expected, "{patch}");
        }
    }

    #[test]
    fn excessive_nesting_is_rejected() {
        let mut document = value!({"a": {}});
        for depth in 0..MAX_OPERATIONS {
            let target = format!("/a{}", "/a".repeat(depth % 100 + 1));
            let patch = value!([{"op": "copy", "from": "/a", "path": target}]);
            match json(&document, patch.to_string().as_bytes()) {
                Ok(next) => document = next,
                Err(error) => return assert_eq!(error.status_code(), 422),
            }
        }
        panic!("the document grew without end");
    }
    /// The JSON patch that copies a field into itself again and again.
    fn doubling(copies: usize) -> Value {
        let mut operations = vec![value!({"op": "add", "path": "/x", "value": {"a": "y".repeat(100)}})];
        for index in 0..copies {
            operations.push(value!({"op": "copy", "from": "/x", "path": format!("/x/n{index}")}));
        }
        Value::Array(operations)
    }

    #[test]
    fn a_patch_that_doubles_the_document_is_rejected_at_the_copy_limit_of_kube_apiserver() {
        let small = json(&value!({}), doubling(10).to_string().as_bytes()).unwrap();
        assert!(small.to_string().len() < 200_000);
        let error = json(&value!({}), doubling(30).to_string().as_bytes()).unwrap_err();
        assert_eq!(error.status_code(), 422);
        assert!(error.to_string().ends_with("exceeding the limit 3145728"), "{error}");
    }

    #[test]
    fn a_patch_that_nests_the_document_into_itself_is_rejected_before_it_is_applied() {
        let mut operations = vec![value!({"op": "add", "path": "/x", "value": {"c": 1}})];
        let mut depth = 1;
        for _ in 0..12 {
            operations
                .push(value!({"op": "copy", "from": "/x", "path": format!("/x{}", "/c".repeat(depth))}));
            depth *= 2;
        }
        let patch = Value::Array(operations).to_string();
        assert!(patch.len() < 10_000, "the patch is small");
        let error = json(&value!({}), patch.as_bytes()).unwrap_err();
        assert_eq!(
            (error.status_code(), error.to_string().contains("nested deeper")),
            (422, true),
            "{error}"
        );

        let deep = "/c".repeat(MAX_OPERATIONS);
        let missing = value!([{"op": "add", "path": deep, "value": 1}]);
        assert_eq!(json(&value!({}), missing.to_string().as_bytes()).unwrap_err().status_code(), 422);
    }

    #[test]
    fn a_patch_that_shifts_a_long_list_again_and_again_is_rejected() {
        let document = value!({"l": vec![0; 100_000]});
        let operations = vec![value!({"op": "add", "path": "/l/0", "value": 0}); 1000];
        let error = json(&document, Value::Array(operations).to_string().as_bytes()).unwrap_err();
        assert_eq!((error.status_code(), error.to_string().contains("list items")), (422, true), "{error}");
    }
}
