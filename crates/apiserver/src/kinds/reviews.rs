//! Reviews of authentication and authorization. There is one administrator, who has all permissions.

use k8s_openapi::api::{
    authentication::v1::{SelfSubjectReview, TokenReview},
    authorization::v1::{
        LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
    },
};
use serde_json::{Value, json};
use vitistack_schema::Cause;

use super::{BuiltIn, schema_of};
use crate::status::{Failure, Subject};

/// The only user.
pub const USER: &str = "admin";
/// The group of administrators.
pub const GROUP: &str = "system:masters";

/// The built-in kinds.
pub const KINDS: &[BuiltIn] = &[
    BuiltIn {
        plural: "tokenreviews",
        kind: "TokenReview",
        schema: schema_of::<TokenReview>,
        ..AUTHENTICATION
    },
    BuiltIn {
        plural: "selfsubjectreviews",
        kind: "SelfSubjectReview",
        schema: schema_of::<SelfSubjectReview>,
        ..AUTHENTICATION
    },
    BuiltIn {
        plural: "subjectaccessreviews",
        kind: "SubjectAccessReview",
        schema: schema_of::<SubjectAccessReview>,
        ..AUTHORIZATION
    },
    BuiltIn {
        plural: "localsubjectaccessreviews",
        kind: "LocalSubjectAccessReview",
        namespaced: true,
        schema: schema_of::<LocalSubjectAccessReview>,
        ..AUTHORIZATION
    },
    BuiltIn {
        plural: "selfsubjectaccessreviews",
        kind: "SelfSubjectAccessReview",
        schema: schema_of::<SelfSubjectAccessReview>,
        ..AUTHORIZATION
    },
    BuiltIn {
        plural: "selfsubjectrulesreviews",
        kind: "SelfSubjectRulesReview",
        schema: schema_of::<SelfSubjectRulesReview>,
        ..AUTHORIZATION
    },
];

const AUTHENTICATION: BuiltIn = BuiltIn {
    group: "authentication.k8s.io",
    namespaced: false,
    review: true,
    stored_as: "authentication.k8s.io/v1",
    ..BuiltIn::PLAIN
};

const AUTHORIZATION: BuiltIn = BuiltIn {
    group: "authorization.k8s.io",
    namespaced: false,
    review: true,
    stored_as: "authorization.k8s.io/v1",
    ..BuiltIn::PLAIN
};

fn user() -> Value {
    json!({"username": USER, "uid": USER, "groups": [GROUP, "system:authenticated"]})
}

/// Computes the status of a review. `known` reports whether a token is the administrator's.
#[must_use]
pub fn answer(kind: &str, review: &Value, known: impl Fn(&str) -> bool) -> Value {
    let spec = |name: &str| review.get("spec").and_then(|spec| spec.get(name));
    match kind {
        "TokenReview" if known(spec("token").and_then(Value::as_str).unwrap_or_default()) => {
            json!({"authenticated": true, "user": user(), "audiences": ["https://kubernetes.default.svc"]})
        }
        "TokenReview" => json!({"user": {}, "error": "invalid bearer token"}),
        "SelfSubjectReview" => json!({"userInfo": user()}),
        "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            let groups = spec("groups").and_then(Value::as_array);
            let allowed = groups.is_some_and(|groups| groups.contains(&json!(GROUP)));
            json!({"allowed": allowed})
        }
        "SelfSubjectAccessReview" => json!({"allowed": true}),
        _ => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }),
    }
}

/// Validates a review.
pub fn check(kind: &str, review: &Value) -> Result<(), Failure> {
    let spec =
        |name: &str| review.get("spec").and_then(|spec| spec.get(name)).filter(|value| !value.is_null());
    let empty = |name: &str| spec(name).is_none_or(|value| value == "" || *value == json!([]));
    let mut causes = Vec::new();
    if kind == "TokenReview" && empty("token") {
        return Err(Failure::bad_request("token is required for TokenReview in authentication"));
    }

    if kind.ends_with("SubjectAccessReview") {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        match (spec("resourceAttributes"), spec("nonResourceAttributes")) {
            (None, None) => causes.push(Cause::invalid("spec.resourceAttributes", &Value::Null, why)),
            (Some(_), Some(value)) => {
                let why = "cannot be specified in combination with resourceAttributes";
                causes.push(Cause::invalid("spec.nonResourceAttributes", value, why));
            }
            _ => {}
        }
        if !kind.starts_with("Self") && empty("user") && empty("groups") {
            let why = "at least one of user or group must be specified";
            causes.push(Cause::invalid("spec.user", &json!(""), why));
        }
    }

    if causes.is_empty() {
        return Ok(());
    }
    // Kubernetes omits the kind here.
    Err(Failure::invalid(Subject { group: "authorization.k8s.io", name: "" }, "", &causes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_administrators_are_allowed() {
        let ask = |spec: Value| answer("SubjectAccessReview", &json!({"spec": spec}), |_| false);
        assert_eq!(ask(json!({"user": "bob"})), json!({"allowed": false}));
        assert_eq!(ask(json!({"user": "x", "groups": ["system:masters"]})), json!({"allowed": true}));
        let token = answer("TokenReview", &json!({"spec": {"token": "t"}}), |token| token == "t");
        assert_eq!(token["authenticated"], true);
    }
}
