//! Checks that the operators have the permissions of their roles.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::{
    apps::v1::Deployment,
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    rbac::v1::PolicyRule,
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use vitistack_runtime::permissions::PermissionScope;
use vitistack_types::{OperatorName, WatchedNamespaces, labels::SYSTEM_NAMESPACE};

use super::{Finding, unknown};
use crate::{
    cluster::{Cluster, RequestError},
    commands::run,
    manifests::{
        deployment,
        roles::{self, OperatorRole},
    },
};

/// The number of concurrent access reviews.
const CONCURRENCY: usize = 8;

/// Whose permissions are checked: those of the service accounts of the operators if they are deployed, else those of the
/// user.
enum Subject {
    ServiceAccount(String),
    User,
}

impl Subject {
    fn name(&self) -> String {
        match self {
            Self::ServiceAccount(name) => format!("service account {SYSTEM_NAMESPACE}/{name}"),
            Self::User => "the user of the kubeconfig".to_owned(),
        }
    }

    fn fix(&self) -> &'static str {
        match self {
            Self::ServiceAccount(_) => "apply \"vitistack rbac\" and \"vitistack manager\" again",
            Self::User => {
                "bind the roles of \"vitistack rbac\" to it, or run the operators with \"vitistack manager\""
            }
        }
    }
}

/// Operators that run with the permissions of one subject.
struct Unit {
    subject: Subject,
    operators: Vec<OperatorName>,
    namespaces: WatchedNamespaces,
}

/// Checks every permission of the roles of every operator that is deployed.
pub async fn check(cluster: &Cluster) -> Result<Vec<Finding>, RequestError> {
    let mut findings = Vec::new();
    for unit in units(cluster).await? {
        for role in roles::operator_roles() {
            if role.operator.is_some_and(|operator| !unit.operators.contains(&operator)) {
                continue;
            }
            let name = role.role.name_any();
            let name = name.strip_prefix(roles::OPERATOR_PREFIX).unwrap_or(&name);
            let check = format!("permissions: {name}");
            let permissions = permissions(&role, &unit.namespaces);
            findings.push(match missing(cluster, &unit.subject, &permissions).await {
                Ok(missing) => judge(&check, &unit.subject, permissions.len(), &missing),
                Err(failure) => unknown(&check, failure)?,
            });
        }
    }
    Ok(findings)
}

/// Returns the Deployments of operators, or all operators with the permissions of the user.
async fn units(cluster: &Cluster) -> Result<Vec<Unit>, RequestError> {
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), SYSTEM_NAMESPACE);
    let found = match deployments.list(&ListParams::default().labels(deployment::SELECTOR)).await {
        Ok(found) => found.items,
        // Every user may review its own access.
        Err(kube::Error::Api(_)) => Vec::new(),
        Err(error) => return Err(cluster.failure("read the Deployments of the operators", error)),
    };
    let units: Vec<Unit> = found.iter().filter_map(deployed).collect();
    if !units.is_empty() {
        return Ok(units);
    }
    let operators = OperatorName::all().collect();
    Ok(vec![Unit { subject: Subject::User, operators, namespaces: WatchedNamespaces::ALL }])
}

/// Returns what a Deployment runs, by its arguments.
fn deployed(deployment: &Deployment) -> Option<Unit> {
    let pod = deployment.spec.template.spec.as_ref()?;
    let arguments = pod.containers.first()?.args.as_ref()?;
    let is_run = |operator: &OperatorName| {
        arguments.iter().any(|argument| argument == operator.as_str() || argument == run::ALL)
    };
    let namespaces =
        arguments.iter().find_map(|argument| argument.strip_prefix("--namespaces=")?.parse().ok());
    Some(Unit {
        subject: Subject::ServiceAccount(pod.service_account_name.clone()?),
        operators: OperatorName::all().filter(is_run).collect(),
        namespaces: namespaces.unwrap_or_default(),
    })
}

fn judge(check: &str, subject: &Subject, all: usize, missing: &[String]) -> Finding {
    let granted = all - missing.len();
    if missing.is_empty() {
        return Finding::ok(check, format!("{granted} of {all} granted"));
    }
    let message = format!("{granted} of {all} granted; {} lacks {}", subject.name(), missing.join(", "));
    Finding::failed(check, message, subject.fix())
}

/// Returns the permissions of a role, one per namespace, resource and verb.
fn permissions(role: &OperatorRole, watched: &WatchedNamespaces) -> Vec<ResourceAttributes> {
    let namespaces: Vec<Option<&str>> = match (role.scope, watched.listed()) {
        (PermissionScope::OwnNamespace, _) => vec![Some(SYSTEM_NAMESPACE)],
        (PermissionScope::Namespaces, Some(names)) => names.iter().map(|name| Some(name.as_str())).collect(),
        (PermissionScope::Namespaces, None) | (PermissionScope::Cluster, _) => vec![None],
    };
    let rules = role.role.rules.as_deref().unwrap_or_default();
    let of_namespace = |namespace: Option<&str>| {
        rules.iter().flat_map(|rule| permissions_of(rule, namespace)).collect::<Vec<_>>()
    };
    namespaces.into_iter().flat_map(of_namespace).collect()
}

fn permissions_of(rule: &PolicyRule, namespace: Option<&str>) -> Vec<ResourceAttributes> {
    let mut permissions = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for verb in &rule.verbs {
                let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                permissions.push(ResourceAttributes {
                    group: Some(group.clone()),
                    resource: Some(resource.to_owned()),
                    subresource: (!subresource.is_empty()).then(|| subresource.to_owned()),
                    verb: Some(verb.clone()),
                    namespace: namespace.map(ToOwned::to_owned),
                    ..ResourceAttributes::default()
                });
            }
        }
    }
    permissions
}

/// Returns a permission as text, such as `create leases.coordination.k8s.io in vitistack-system`.
fn describe(permission: &ResourceAttributes) -> String {
    let part = |part: &Option<String>, before: &str| match part.as_deref() {
        Some(part) if !part.is_empty() => format!("{before}{part}"),
        _ => String::new(),
    };
    [
        part(&permission.verb, ""),
        part(&permission.resource, " "),
        part(&permission.group, "."),
        part(&permission.subresource, "/"),
        part(&permission.namespace, " in "),
    ]
    .concat()
}

/// Returns the permissions that the subject lacks.
async fn missing(
    cluster: &Cluster,
    subject: &Subject,
    permissions: &[ResourceAttributes],
) -> Result<Vec<String>, RequestError> {
    let answers: Vec<Option<String>> = stream::iter(permissions)
        .map(|permission| async move {
            let is_granted = is_granted(cluster, subject, permission).await?;
            Ok::<_, RequestError>((!is_granted).then(|| describe(permission)))
        })
        .buffered(CONCURRENCY)
        .try_collect()
        .await?;
    Ok(answers.into_iter().flatten().collect())
}

/// Asks the API server whether the subject has a permission.
async fn is_granted(
    cluster: &Cluster,
    subject: &Subject,
    permission: &ResourceAttributes,
) -> Result<bool, RequestError> {
    match subject {
        Subject::User => cluster.may(permission).await,
        Subject::ServiceAccount(name) => {
            let groups = [
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{SYSTEM_NAMESPACE}"),
                "system:authenticated".to_owned(),
            ];
            let spec = SubjectAccessReviewSpec {
                resource_attributes: Some(permission.clone()),
                user: Some(format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{name}")),
                groups: Some(groups.to_vec()),
                ..SubjectAccessReviewSpec::default()
            };
            let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
            let api: Api<SubjectAccessReview> = Api::all(cluster.client.clone());
            let reviewed = api.create(&PostParams::default(), &review).await;
            let reviewed = reviewed.map_err(|error| cluster.failure("review permissions", error))?;
            Ok(reviewed.status.is_some_and(|status| status.allowed))
        }
    }
}
