//! Roles: what people may do with our kinds, and what the controller kit and the operators need.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::rbac::v1::{ClusterRole, PolicyRule},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use vitistack_controller::operators::Operator;
use vitistack_runtime::permissions::{PERMISSIONS, Permission};
use vitistack_types::{GROUP, definitions};

/// How the names of the roles begin that the operators' account is given.
pub const OPERATOR_PREFIX: &str = "vitistack-operator-";

/// How the names of those end that it is given in its own namespace only.
pub const OWN_NAMESPACE_SUFFIX: &str = "-own-namespace";

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// Every role.
pub fn roles() -> Vec<ClusterRole> {
    let plurals: Vec<String> =
        definitions().into_iter().map(|definition| definition.spec.names.plural).collect();
    let statuses = plurals.iter().map(|plural| format!("{plural}/status")).collect::<Vec<_>>();
    let namespaced: Vec<String> = definitions()
        .into_iter()
        .filter(|definition| definition.spec.scope == "Namespaced")
        .map(|definition| definition.spec.names.plural)
        .collect();
    let mut roles = vec![
        // Aggregated: whoever may view or edit a namespace may do the same with what we add to it.
        role(
            "vitistack-viewer",
            &["view", "edit", "admin"],
            vec![rule(GROUP, plurals, &READ), rule(GROUP, statuses, &["get"])],
        ),
        role("vitistack-editor", &["edit", "admin"], vec![rule(GROUP, namespaced, &WRITE)]),
        // For whoever scrapes: the metrics server asks the API server whether the path may be read.
        role("vitistack-metrics-reader", &[], vec![metrics()]),
    ];
    roles.extend(operator_roles("kit", PERMISSIONS));
    for operator in Operator::ALL {
        roles.extend(operator_roles(operator.word(), &operator.permissions()));
    }
    roles
}

/// What code says it uses: a role for everywhere, and one for a RoleBinding in the operator's own namespace, because
/// leases elsewhere, for one, are none of its business.
fn operator_roles(word: &str, permissions: &[Permission]) -> Vec<ClusterRole> {
    let rule_of = |permission: &Permission| {
        let resources = permission.resources.iter().map(ToString::to_string).collect();
        rule(permission.group, resources, permission.verbs)
    };
    [(false, ""), (true, OWN_NAMESPACE_SUFFIX)]
        .into_iter()
        .filter_map(|(own_namespace_only, suffix)| {
            let wanted = |permission: &&Permission| permission.own_namespace_only == own_namespace_only;
            let rules: Vec<PolicyRule> = permissions.iter().filter(wanted).map(rule_of).collect();
            (!rules.is_empty()).then(|| role(&format!("{OPERATOR_PREFIX}{word}{suffix}"), &[], rules))
        })
        .collect()
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
