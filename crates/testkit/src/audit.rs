//! The requests that a server received, from its audit log.

use serde_json::Value;

/// One request, as recorded in the audit log when it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditedRequest {
    /// The user.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` …
    pub verb: String,
    /// Plural resource, with the subresource after a slash; the path of requests that are not for a resource.
    pub resource: String,
    /// Namespace; may be empty.
    pub namespace: String,
    /// Name; may be empty.
    pub name: String,
    /// Status code of the response.
    pub code: u64,
}

impl AuditedRequest {
    /// Whether the request is a write.
    #[must_use]
    pub fn is_write(&self) -> bool {
        ["create", "update", "patch", "delete", "deletecollection"].contains(&self.verb.as_str())
    }

    /// Parses one line of an audit log; returns `None` for an incomplete line.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let event: Value = serde_json::from_str(line).ok()?;
        let text =
            |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (resource, subresource) = (text("/objectRef/resource"), text("/objectRef/subresource"));
        Some(Self {
            user: text("/user/username"),
            verb: text("/verb"),
            resource: match (resource.as_str(), subresource.as_str()) {
                ("", _) => text("/requestURI"),
                (_, "") => resource,
                _ => format!("{resource}/{subresource}"),
            },
            namespace: text("/objectRef/namespace"),
            name: text("/objectRef/name"),
            code: event.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_is_parsed_as_a_request() {
        let line = r#"{"kind":"Event","stage":"ResponseComplete","requestURI":"/apis/a/v1/x","verb":"patch",
            "user":{"username":"operator"},"responseStatus":{"code":200},
            "objectRef":{"resource":"widgets","subresource":"status","namespace":"one","name":"a"}}"#;
        let request = AuditedRequest::parse(line).unwrap();
        assert_eq!((request.user.as_str(), request.resource.as_str()), ("operator", "widgets/status"));
        assert!(request.is_write());
        assert_eq!(AuditedRequest::parse("{\"verb\":"), None);
    }
}
