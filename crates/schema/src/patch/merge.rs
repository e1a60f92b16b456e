//! JSON merge patches (RFC 7386).

use serde_json::Value;

use super::{DECODING, GO_OBJECT, PatchError, check_depth, parse, wrong_type};

/// Merges a patch into a document: objects field by field, `null` removes, everything else replaces.
pub fn merge(document: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let patch = parse(patch, DECODING)?;
    match &patch {
        Value::Object(_) => {}
        Value::Null => return Err(PatchError::DecodePatch { message: "Invalid JSON Patch".to_owned() }),
        other => return Err(wrong_type(other, DECODING, GO_OBJECT)),
    }
    let mut merged = document.clone();
    json_patch::merge(&mut merged, &patch);
    check_depth(merged)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_merge_patch_adds_replaces_and_removes() {
        let cases = [
            (json!({"a": 1}), json!({"b": 2}), json!({"a": 1, "b": 2})),
            (json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": null}}), json!({"a": {"c": 2}})),
            (json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
            (json!({"a": "x"}), json!({"a": {"b": 1, "c": null}}), json!({"a": {"b": 1}})),
            (json!({"a": 1}), json!({"x": null}), json!({"a": 1})),
        ];
        for (document, patch, expected) in cases {
            assert_eq!(merge(&document, patch.to_string().as_bytes()).unwrap(), expected);
        }
    }

    #[test]
    fn a_patch_that_is_not_an_object_is_rejected_as_by_kube_apiserver() {
        let cases = [
            (
                "[1]",
                "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
            (
                "3",
                "error decoding patch: json: cannot unmarshal number into Go value of type map[string]interface {}",
            ),
            ("{", "error decoding patch: unexpected end of JSON input"),
            ("null", "Invalid JSON Patch"),
            ("{\"a\":1}x", "error decoding patch: invalid character 'x' after top-level value"),
        ];
        for (patch, message) in cases {
            let error = merge(&json!({}), patch.as_bytes()).unwrap_err();
            assert_eq!((error.status_code(), error.to_string().as_str()), (400, message));
        }
    }
}
