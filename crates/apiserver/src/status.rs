//! The errors of the API: the `Status` object, with one constructor for every standard reason.

use std::collections::HashSet;

use http::StatusCode;
use serde_json::{Map, Value, json};
use vitistack_schema::{
    Cause, CauseReason,
    managed_fields::{Conflict, conflict_message},
};

/// A failed request, as the client sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The HTTP status.
    pub code: StatusCode,
    /// The machine-readable reason; empty where Kubernetes has none.
    pub reason: &'static str,
    /// The message for people.
    pub message: String,
    /// The `details` of the Status.
    pub details: Option<Value>,
    /// The token with which an expired list can be continued.
    pub continuation: Option<String>,
    /// The texts of `Warning` headers.
    pub warnings: Box<[String]>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// A group and a resource or kind, as in messages: `widgets.example.com`, `namespaces`.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The group, empty for the core group.
    pub group: &'a str,
    /// The plural, or the kind where Kubernetes uses the kind.
    pub name: &'a str,
}

impl std::fmt::Display for Subject<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)?;
        if !self.group.is_empty() {
            write!(formatter, ".{}", self.group)?;
        }
        Ok(())
    }
}

impl Subject<'_> {
    fn details(&self, name: &str) -> Map<String, Value> {
        let members = [("name", name), ("group", self.group), ("kind", self.name)];
        let present = members.into_iter().filter(|(_, value)| !value.is_empty());
        present.map(|(key, value)| (key.to_owned(), Value::from(value))).collect()
    }
}

impl Failure {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            continuation: None,
            warnings: Box::default(),
        }
    }

    /// Adds warnings that were recorded before the failure.
    #[must_use]
    pub fn after(mut self, warnings: &[String]) -> Self {
        self.warnings = warnings.iter().chain(&self.warnings).cloned().collect();
        self
    }

    fn about(mut self, subject: Subject<'_>, name: &str) -> Self {
        self.details = Some(Value::Object(subject.details(name)));
        self
    }

    /// 404: the object does not exist.
    #[must_use]
    pub fn not_found(subject: Subject<'_>, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", format!("{subject} \"{name}\" not found"))
            .about(subject, name)
    }

    /// 404: the resource does not exist.
    #[must_use]
    pub fn no_resource() -> Self {
        let mut failure =
            Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource");
        failure.details = Some(json!({}));
        failure
    }

    /// 409: the object already exists.
    #[must_use]
    pub fn already_exists(subject: Subject<'_>, name: &str) -> Self {
        Self::new(StatusCode::CONFLICT, "AlreadyExists", format!("{subject} \"{name}\" already exists"))
            .about(subject, name)
    }

    /// 409: the object already exists and is being deleted.
    #[must_use]
    pub fn being_deleted(subject: Subject<'_>, name: &str) -> Self {
        let mut failure = Self::already_exists(subject, name);
        failure.message = format!("object is being deleted: {}", failure.message);
        failure
    }

    /// 409: a precondition of the change no longer holds.
    #[must_use]
    pub fn conflict(subject: Subject<'_>, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {subject} \"{name}\": {why}");
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(subject, name)
    }

    /// 409: the object has been modified.
    #[must_use]
    pub fn modified(subject: Subject<'_>, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(subject, name, why)
    }

    /// 409: other managers own the fields.
    #[must_use]
    pub fn field_conflicts(conflicts: &[Conflict]) -> Self {
        let causes: Vec<Value> = conflicts
            .iter()
            .map(|conflict| {
                let message = format!("conflict with {}", conflict.manager);
                json!({"reason": "FieldManagerConflict", "message": message, "field": conflict.field})
            })
            .collect();
        let mut failure = Self::new(StatusCode::CONFLICT, "Conflict", conflict_message(conflicts));
        failure.details = Some(json!({"causes": causes}));
        failure
    }

    /// 422: the object, identified by its kind, is not valid.
    #[must_use]
    pub fn invalid(kind: Subject<'_>, name: &str, causes: &[Cause]) -> Self {
        let lines: Vec<String> =
            causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let mut known = HashSet::with_capacity(lines.len());
        let unique: Vec<&str> = lines.iter().map(String::as_str).filter(|line| known.insert(*line)).collect();

        let joined = match unique.as_slice() {
            [one] => (*one).to_owned(),
            many => format!("[{}]", many.join(", ")),
        };

        let mut details = kind.details(name);
        let causes: Vec<Value> = causes
            .iter()
            .map(|cause| {
                json!({"reason": cause.reason.as_str(), "message": cause.message, "field": cause.field})
            })
            .collect();

        details.insert("causes".to_owned(), Value::Array(causes));
        let mut failure = Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            format!("{kind} \"{name}\" is invalid: {joined}"),
        );

        failure.details = Some(Value::Object(details));
        failure
    }

    /// 422: a parameter of the request is not valid.
    #[must_use]
    pub fn invalid_options(options: &str, causes: &[Cause]) -> Self {
        Self::invalid(Subject { group: "meta.k8s.io", name: options }, "", causes)
    }

    /// 422 without a reason in the message, as Kubernetes responds to a JSON patch that does not apply.
    #[must_use]
    pub fn rejected() -> Self {
        let mut failure = Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            "the server rejected our request due to an error in our request",
        );
        failure.details = Some(json!({}));
        failure
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 401.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 403.
    #[must_use]
    pub fn forbidden(subject: Subject<'_>, name: &str, why: &str) -> Self {
        let message = format!("{subject} \"{name}\" is forbidden: {why}");
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(subject, name)
    }

    /// 403: the request impersonates a user, which this server does not support.
    #[must_use]
    pub fn impersonation(user: &str) -> Self {
        let why = "this server does not support impersonation, because every client is the administrator: remove the Impersonate-* headers (--as, --as-group)";
        Self::forbidden(Subject { group: "", name: "users" }, user, why)
    }

    /// 408: the client did not send the body in time.
    #[must_use]
    pub fn slow_body(seconds: u64) -> Self {
        let message = format!("the body of the request was not received within {seconds} seconds");
        Self::new(StatusCode::REQUEST_TIMEOUT, "Timeout", message)
    }

    /// 422: the object is nested too deeply to be stored.
    #[must_use]
    pub fn too_deep(kind: Subject<'_>, name: &str, limit: usize) -> Self {
        let cause = Cause {
            field: "<nil>".to_owned(),
            reason: CauseReason::FieldValueInvalid,
            message: format!(
                "Invalid value: the object or its managedFields are nested deeper than {limit} levels"
            ),
        };
        Self::invalid(kind, name, &[cause])
    }

    /// 403: the namespace is being deleted.
    #[must_use]
    pub fn terminating(subject: Subject<'_>, name: &str, namespace: &str) -> Self {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut failure = Self::forbidden(subject, name, &why);
        let message = format!("namespace {namespace} is being terminated");
        let cause =
            json!({"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"});
        if let Some(Value::Object(details)) = &mut failure.details {
            details.insert("causes".to_owned(), json!([cause]));
        }
        failure
    }

    /// 405 for a subresource that does not support the verb.
    #[must_use]
    pub fn not_supported(subject: Subject<'_>, verb: &str) -> Self {
        let mut failure = Self::method_not_allowed();
        failure.message = format!("{verb} is not supported on resources of kind \"{subject}\"");
        failure.details = Some(Value::Object(subject.details("")));
        failure
    }

    /// 405.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        let mut failure = Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        failure.details = Some(json!({}));
        failure
    }

    /// 406.
    #[must_use]
    pub fn not_acceptable() -> Self {
        Self::new(
            StatusCode::NOT_ACCEPTABLE,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )
    }

    /// 406 of the router in front of the built-in kinds.
    #[must_use]
    pub fn no_representation(listing: bool) -> Self {
        let streams = ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
        let mut failure = Self::not_acceptable();
        failure.message = format!(
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf{}",
            if listing { streams } else { "" }
        );
        failure.details = Some(json!({}));
        failure
    }

    /// 415 of the router in front of the built-in kinds.
    #[must_use]
    pub fn unroutable_media_type() -> Self {
        let mut failure = Self::unsupported_media_type("");
        "415: Unsupported Media Type".clone_into(&mut failure.message);
        failure.details = Some(json!({}));
        failure
    }

    /// 410: the version is too old.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// 413.
    #[must_use]
    pub fn too_large(limit: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit}"),
        )
    }

    /// 413 with a specific message.
    #[must_use]
    pub fn too_large_because(why: String) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", why)
    }

    /// 415, with the supported types.
    #[must_use]
    pub fn unsupported_media_type(accepted: &str) -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {accepted}"
            ),
        )
    }

    /// 429, with the seconds to wait.
    #[must_use]
    pub fn too_many_requests(seconds: u32) -> Self {
        let mut failure = Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        );
        failure.details = Some(json!({"retryAfterSeconds": seconds}));
        failure
    }

    /// 500 with the standard message.
    #[must_use]
    pub fn internal(message: &str) -> Self {
        let mut failure = Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            format!("Internal error occurred: {message}"),
        );
        failure.details = Some(json!({"causes": [{"message": message}]}));
        failure
    }

    /// 500 without a reason, as Kubernetes responds where it passes on an internal error.
    pub fn plain(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// 504: the requested version has not been reached yet.
    #[must_use]
    pub fn version_too_large(asked: u64, current: u64) -> Self {
        let mut failure = Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            format!("Timeout: Too large resource version: {asked}, current: {current}"),
        );
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        failure.details = Some(json!({"causes": [cause], "retryAfterSeconds": 1}));
        failure
    }

    /// 504: the request timed out.
    #[must_use]
    pub fn timeout() -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            "Timeout: request did not complete within the allotted timeout",
        )
    }

    /// Returns the `Status` object.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code.as_u16(),
        });

        if let Value::Object(members) = &mut status {
            if !self.reason.is_empty() {
                members.insert("reason".to_owned(), self.reason.into());
            }
            if let Some(details) = &self.details {
                members.insert("details".to_owned(), details.clone());
            }
            if let Some(token) = &self.continuation {
                members.insert("metadata".to_owned(), json!({"continue": token}));
            }
        }

        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vitistack_schema::CauseReason;

    #[test]
    fn messages_omit_an_empty_group() {
        let core = Subject { group: "", name: "namespaces" };
        assert_eq!(Failure::not_found(core, "x").message, "namespaces \"x\" not found");
        let custom = Subject { group: "example.com", name: "widgets" };
        assert_eq!(Failure::already_exists(custom, "x").message, "widgets.example.com \"x\" already exists");
    }

    #[test]
    fn the_message_omits_duplicate_causes() {
        let cause = || Cause {
            field: "metadata.uid".to_owned(),
            reason: CauseReason::FieldValueInvalid,
            message: "Invalid value: \"1\": field is immutable".to_owned(),
        };
        let failure = Failure::invalid(Subject { group: "", name: "Secret" }, "a", &[cause(), cause()]);
        assert_eq!(
            failure.message,
            "Secret \"a\" is invalid: metadata.uid: Invalid value: \"1\": field is immutable"
        );
        assert_eq!(
            failure.to_value().pointer("/details/causes").and_then(Value::as_array).map(Vec::len),
            Some(2)
        );
    }
}
