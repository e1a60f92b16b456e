//! Roles for users, and the permissions of the runtime and the operators.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::rbac::v1::{ClusterRole, PolicyRule},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use vitistack_controller::permissions;
use vitistack_runtime::permissions::{PERMISSIONS, Permission, PermissionScope};
use vitistack_types::{GROUP, OperatorName, definitions};

/// The prefix of roles for the service account of the operators.
pub const OPERATOR_PREFIX: &str = "vitistack-operator-";

/// The suffix of roles that a service account gets only in its own namespace.
const OWN_NAMESPACE_SUFFIX: &str = "-own-namespace";

/// The suffix of roles that a service account gets in the whole cluster, whatever namespaces it works in.
const CLUSTER_SUFFIX: &str = "-cluster";

/// The role of tenants, which is aggregated to `edit` and `admin`.
pub const EDITOR: &str = "vitistack-editor";

/// The role of those who run the platform. It is not aggregated: what its kinds name, the operators use with their own
/// permissions.
pub const PLATFORM_EDITOR: &str = "vitistack-platform-editor";

/// The subresource of Machines that stands for releasing one. It is not served: it is a name for a permission.
pub const RELEASE_SUBRESOURCE: &str = "release";

/// The verb on that subresource.
pub const RELEASE_VERB: &str = "update";

/// The kinds that tenants write.
const TENANT_KINDS: [&str; 1] = ["machines"];

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// A role of an operator.
pub struct OperatorRole {
    /// The operator; none if every operator has the role.
    pub operator: Option<OperatorName>,
    /// Where it is granted.
    pub scope: PermissionScope,
    /// The role.
    pub role: ClusterRole,
}

/// Returns every role.
pub fn roles() -> Vec<ClusterRole> {
    let plurals: Vec<String> =
        definitions().into_iter().map(|definition| definition.spec.names.plural).collect();
    let statuses = plurals.iter().map(|plural| format!("{plural}/status")).collect::<Vec<_>>();
    let tenant_kinds = TENANT_KINDS.map(str::to_owned).to_vec();
    // A released machine runs on without a Machine, so tenants do not release theirs.
    let release = rule(GROUP, vec![format!("machines/{RELEASE_SUBRESOURCE}")], &[RELEASE_VERB]);

    let mut roles = vec![
        // Aggregated to the default roles: users who may view or edit a namespace may do so with our kinds, but edit only
        // those of tenants.
        role(
            "vitistack-viewer",
            &["view", "edit", "admin"],
            vec![rule(GROUP, plurals, &READ), rule(GROUP, statuses, &["get"])],
        ),
        role(EDITOR, &["edit", "admin"], vec![rule(GROUP, tenant_kinds, &WRITE)]),
        role(PLATFORM_EDITOR, &[], vec![rule(GROUP, platform_kinds(), &WRITE), release]),
        // For scrapers: the metrics endpoint checks with the API server that the client may read the path.
        role("vitistack-metrics-reader", &[], vec![metrics()]),
    ];

    roles.extend(operator_roles().into_iter().map(|operator_role| operator_role.role));
    roles
}

/// Returns the roles of all operators.
pub fn operator_roles() -> Vec<OperatorRole> {
    let of_all = roles_for(None, PERMISSIONS);
    let of_each = OperatorName::all().flat_map(|operator| roles_for(Some(operator), &permissions(operator)));
    of_all.into_iter().chain(of_each).collect()
}

/// Returns the kinds that only those who run the platform write.
pub fn platform_kinds() -> Vec<String> {
    let plurals = definitions().into_iter().map(|definition| definition.spec.names.plural);
    plurals.filter(|plural| !TENANT_KINDS.contains(&plural.as_str())).collect()
}

/// Returns the roles for the permissions that the code declares, one for each scope: an operator must not write leases
/// outside its own namespace, and one that works in some namespaces gets the others only there.
fn roles_for(operator: Option<OperatorName>, permissions: &[Permission]) -> Vec<OperatorRole> {
    let name = operator.map_or("common", OperatorName::as_str);
    let rule_of = |permission: &Permission| {
        let resources = permission.resources.iter().map(ToString::to_string).collect();
        rule(permission.group, resources, permission.verbs)
    };
    let scopes = [
        (PermissionScope::Namespaces, ""),
        (PermissionScope::Cluster, CLUSTER_SUFFIX),
        (PermissionScope::OwnNamespace, OWN_NAMESPACE_SUFFIX),
    ];
    let roles = scopes.into_iter().filter_map(|(scope, suffix)| {
        let wanted = permissions.iter().filter(|permission| permission.scope == scope);
        let rules: Vec<PolicyRule> = wanted.map(rule_of).collect();
        let role = role(&format!("{OPERATOR_PREFIX}{name}{suffix}"), &[], rules);
        role.rules.as_ref().is_some_and(|rules| !rules.is_empty()).then_some(OperatorRole {
            operator,
            scope,
            role,
        })
    });
    roles.collect()
}

fn metrics() -> PolicyRule {
    PolicyRule {
        non_resource_urls: Some(vec!["/metrics".to_owned()]),
        verbs: vec!["get".to_owned()],
        ..PolicyRule::default()
    }
}

fn rule(group: &str, resources: Vec<String>, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    }
}

fn role(name: &str, aggregated_to: &[&str], rules: Vec<PolicyRule>) -> ClusterRole {
    let labels: BTreeMap<String, String> = aggregated_to
        .iter()
        .map(|role| (format!("rbac.authorization.k8s.io/aggregate-to-{role}"), "true".to_owned()))
        .collect();
    ClusterRole {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: (!labels.is_empty()).then_some(labels),
            ..ObjectMeta::default()
        },
        rules: Some(rules),
        ..ClusterRole::default()
    }
}
