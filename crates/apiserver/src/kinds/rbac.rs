//! RBAC objects: stored and served, never enforced.

use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde_json::{Value, json};

use super::cells::{self, AGE, CREATED_AT, NAME, column, wide};
use super::{BuiltIn, default_member, schema_of};
use crate::names::NameStyle;
use crate::schema::{Cause, CauseReason};
use crate::table::Column;

/// The rows.
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
    // Printed as null where there are none.
    prepare: |object, _| {
        if let Some(members) = object.as_object_mut() {
            members.entry("rules").or_insert(Value::Null);
        }
    },
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
