//! RBAC objects: stored and served, never enforced.

use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde_json::{Value, json};
use vitistack_schema::{Cause, CauseReason};

use super::{
    BuiltIn,
    cells::{self, AGE, CREATED_AT, NAME, column, wide},
    default_member, schema_of,
};
use crate::{
    names::{self, NameStyle},
    table::Column,
};

/// The group of all RBAC kinds.
const GROUP: &str = "rbac.authorization.k8s.io";

/// The built-in kinds.
pub const KINDS: &[BuiltIn] = &[
    BuiltIn {
        plural: "roles",
        kind: "Role",
        stored_in: "rbac.authorization.k8s.io/roles",
        schema: schema_of::<Role>,
        ..ROLE
    },
    BuiltIn {
        plural: "clusterroles",
        kind: "ClusterRole",
        namespaced: false,
        stored_in: "rbac.authorization.k8s.io/clusterroles",
        schema: schema_of::<ClusterRole>,
        ..ROLE
    },
    BuiltIn {
        plural: "rolebindings",
        kind: "RoleBinding",
        stored_in: "rbac.authorization.k8s.io/rolebindings",
        schema: schema_of::<RoleBinding>,
        ..BINDING
    },
    BuiltIn {
        plural: "clusterrolebindings",
        kind: "ClusterRoleBinding",
        namespaced: false,
        stored_in: "rbac.authorization.k8s.io/clusterrolebindings",
        schema: schema_of::<ClusterRoleBinding>,
        columns: CLUSTER_COLUMNS,
        ..BINDING
    },
];

const ROLE: BuiltIn = BuiltIn {
    group: "rbac.authorization.k8s.io",
    stored_as: "rbac.authorization.k8s.io/v1",
    name_style: NameStyle::Segment,
    create_on_update: true,
    columns: &[NAME, CREATED_AT],
    cells: cells::name_and_creation,
    // Printed as null if there are none.
    prepare: |object, _| {
        if let Some(members) = object.as_object_mut() {
            members.entry("rules").or_insert(Value::Null);
        }
    },
    validate: validate_role,
    ..BuiltIn::PLAIN
};

const BINDING: BuiltIn = BuiltIn {
    group: "rbac.authorization.k8s.io",
    stored_as: "rbac.authorization.k8s.io/v1",
    name_style: NameStyle::Segment,
    create_on_update: true,
    default: default_binding,
    validate: validate_binding,
    columns: COLUMNS,
    cells: binding_cells,
    ..BuiltIn::PLAIN
};

const COLUMNS: &[Column] = &[
    NAME,
    column(
        "Role",
        "RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
    ),
    AGE,
    wide("Users", "Users in the roleBinding"),
    wide("Groups", "Groups in the roleBinding"),
    wide("ServiceAccounts", "ServiceAccounts in the roleBinding"),
];

const CLUSTER_COLUMNS: &[Column] = &[
    NAME,
    column(
        "Role",
        "RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
    ),
    AGE,
    wide("Users", "Users in the clusterRoleBinding"),
    wide("Groups", "Groups in the clusterRoleBinding"),
    wide("ServiceAccounts", "ServiceAccounts in the clusterRoleBinding"),
];

fn default_binding(object: &mut Value) {
    if let Some(role) = object.get_mut("roleRef") {
        default_member(role, "apiGroup", "rbac.authorization.k8s.io");
    }
    for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        if matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
            default_member(subject, "apiGroup", "rbac.authorization.k8s.io");
        }
    }
}

/// Validates the rules of a role: each requires verbs, and resources with their groups or, for a ClusterRole,
/// paths.
fn validate_role(object: &Value, _: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let namespaced = object.get("kind") == Some(&json!("Role"));
    let rules = object.get("rules").and_then(Value::as_array).into_iter().flatten();
    for (index, rule) in rules.enumerate() {
        let empty = |name: &str| rule.get(name).and_then(Value::as_array).is_none_or(Vec::is_empty);
        let field = |name: &str| format!("rules[{index}].{name}");
        if empty("verbs") {
            causes.push(Cause::required(field("verbs"), "verbs must contain at least one value"));
        }
        if !empty("nonResourceURLs") {
            let urls = rule.get("nonResourceURLs").unwrap_or(&Value::Null);
            if namespaced {
                let why = "namespaced rules cannot apply to non-resource URLs";
                causes.push(Cause::invalid(field("nonResourceURLs"), urls, why));
            }
            if !(empty("apiGroups") && empty("resources") && empty("resourceNames")) {
                let why = "rules cannot apply to both regular resources and non-resource URLs";
                causes.push(Cause::invalid(field("nonResourceURLs"), urls, why));
            }
            continue;
        }
        if empty("apiGroups") {
            let why = "resource rules must supply at least one api group";
            causes.push(Cause::required(field("apiGroups"), why));
        }
        if empty("resources") {
            let why = "resource rules must supply at least one resource";
            causes.push(Cause::required(field("resources"), why));
        }
    }

    causes
}

/// Validates the subjects of a binding: service accounts with a namespace, users and groups of this API.
fn subject_problems(object: &Value, causes: &mut Vec<Cause>) {
    let namespaced = object.get("kind") == Some(&json!("RoleBinding"));
    let subjects = object.get("subjects").and_then(Value::as_array).into_iter().flatten();
    for (index, subject) in subjects.enumerate() {
        let text = |name: &str| subject.get(name).and_then(Value::as_str).unwrap_or_default();
        let field = |name: &str| format!("subjects[{index}].{name}");
        if text("name").is_empty() {
            causes.push(Cause::required(field("name"), ""));
        }
        match text("kind") {
            "ServiceAccount" => {
                let problems = names::subdomain(text("name"));
                if !text("name").is_empty() && !problems.is_empty() {
                    causes.push(Cause::invalid(field("name"), &json!(text("name")), &problems.join(", ")));
                }
                if !text("apiGroup").is_empty() {
                    causes.push(Cause::not_supported(&field("apiGroup"), &json!(text("apiGroup")), &[""]));
                }
                if !namespaced && text("namespace").is_empty() {
                    causes.push(Cause::required(field("namespace"), ""));
                }
            }
            "User" | "Group" => {
                if text("apiGroup") != GROUP {
                    causes.push(Cause::not_supported(&field("apiGroup"), &json!(text("apiGroup")), &[GROUP]));
                }
            }
            other => {
                let supported = ["ServiceAccount", "User", "Group"];
                causes.push(Cause::not_supported(&field("kind"), &json!(other), &supported));
            }
        }
    }
}

fn validate_binding(object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let role =
        |name: &str| object.pointer(&format!("/roleRef/{name}")).and_then(Value::as_str).unwrap_or_default();
    if !matches!(role("kind"), "Role" | "ClusterRole") {
        causes.push(Cause {
            field: "roleRef.kind".to_owned(),
            reason: CauseReason::FieldValueNotSupported,
            message: format!(
                "Unsupported value: \"{}\": supported values: \"Role\", \"ClusterRole\"",
                role("kind")
            ),
        });
    }

    if role("name").is_empty() {
        causes.push(Cause {
            field: "roleRef.name".to_owned(),
            reason: CauseReason::FieldValueRequired,
            message: "Required value".to_owned(),
        });
    }

    subject_problems(object, &mut causes);
    if let Some(old) = old
        && old.get("roleRef") != object.get("roleRef")
    {
        let shown = json!({"APIGroup": role("apiGroup"), "Kind": role("kind"), "Name": role("name")});
        causes.push(Cause {
            field: "roleRef".to_owned(),
            reason: CauseReason::FieldValueInvalid,
            message: format!("Invalid value: {shown}: cannot change roleRef"),
        });
    }

    causes
}

fn binding_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let of_kind = |kind: &str| {
        let subjects = object.get("subjects").and_then(Value::as_array).into_iter().flatten();
        let named = subjects.filter(|subject| subject.get("kind") == Some(&json!(kind)));
        let text = |subject: &Value, name: &str| {
            subject.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let shown = named.map(|subject| match text(subject, "namespace") {
            namespace if namespace.is_empty() => text(subject, "name"),
            namespace => format!("{namespace}/{}", text(subject, "name")),
        });
        Value::from(shown.collect::<Vec<_>>().join(", "))
    };

    let role =
        |name: &str| object.pointer(&format!("/roleRef/{name}")).and_then(Value::as_str).unwrap_or_default();
    vec![
        cells::name(object),
        format!("{}/{}", role("kind"), role("name")).into(),
        cells::age(object, now),
        of_kind("User"),
        of_kind("Group"),
        of_kind("ServiceAccount"),
    ]
}
