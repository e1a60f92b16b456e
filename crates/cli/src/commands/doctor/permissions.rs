//! Whether the operators may do what their roles name.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::{
    authorization::v1::{
        ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
        SubjectAccessReviewSpec, SubjectAccessReviewStatus,
    },
    core::v1::ServiceAccount,
    rbac::v1::{ClusterRole, PolicyRule},
};
use kube::{Api, ResourceExt, api::PostParams};
use vitistack_types::labels::SYSTEM_NAMESPACE;

use super::{Finding, unknown};
use crate::{
    cluster::{Cluster, RequestError},
    deployment, roles,
};

/// Questions that are open at a time.
const AT_ONCE: usize = 8;

/// Who is asked about: the account of the operators where there is one, else whoever asks.
enum Subject {
    Account,
    Self_,
}

impl Subject {
    fn name(&self) -> String {
        match self {
            Self::Account => format!("the account {SYSTEM_NAMESPACE}/{}", deployment::NAME),
            Self::Self_ => "the user of the kubeconfig".to_owned(),
        }
    }

    fn fix(&self) -> &'static str {
        match self {
            Self::Account => "apply `vitistack rbac` and `vitistack manager` again",
            Self::Self_ => {
                "bind it the roles of `vitistack rbac`, or run the operators with `vitistack manager`"
            }
        }
    }
}

/// Asks about every right of every role of the operators.
pub async fn look(cluster: &Cluster) -> Result<Vec<Finding>, RequestError> {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), SYSTEM_NAMESPACE);
    let subject = match accounts.get_opt(deployment::NAME).await {
        Ok(Some(_)) => Subject::Account,
        // Whoever may not look asks about itself: that needs no right.
        Ok(None) | Err(kube::Error::Api(_)) => Subject::Self_,
        Err(error) => return Err(cluster.failure("read the account of the operators", error)),
    };
    let mut findings = Vec::new();
    for role in roles::roles() {
        let name = role.name_any();
        if !name.starts_with(roles::OPERATOR_PREFIX) {
            continue;
        }
        let check = format!("rights of {}", name.trim_start_matches(roles::OPERATOR_PREFIX));
        let rights = rights(&role);
        findings.push(match missing(cluster, &subject, &rights).await {
            Ok(missing) => judge(&check, &subject, rights.len(), &missing),
            Err(failure) => unknown(&check, failure)?,
        });
    }
    Ok(findings)
}

fn judge(check: &str, subject: &Subject, all: usize, missing: &[String]) -> Finding {
    if missing.is_empty() {
        return Finding::ok(check, format!("{} has all {all}", subject.name()));
    }
    Finding::failed(check, format!("{} may not {}", subject.name(), missing.join(", ")), subject.fix())
}

/// Every right that a role names, one by one.
fn rights(role: &ClusterRole) -> Vec<ResourceAttributes> {
    let is_local = role.name_any().ends_with(roles::OWN_NAMESPACE_SUFFIX);
    let of_rule = |rule: &PolicyRule| {
        let mut rights = Vec::new();
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
                    rights.push(ResourceAttributes {
                        group: Some(group.clone()),
                        resource: Some(resource.to_owned()),
                        subresource: (!part.is_empty()).then(|| part.to_owned()),
                        verb: Some(verb.clone()),
                        namespace: is_local.then(|| SYSTEM_NAMESPACE.to_owned()),
                        ..ResourceAttributes::default()
                    });
                }
            }
        }
        rights
    };
    role.rules.iter().flatten().flat_map(of_rule).collect()
}

/// A right in words, such as `create leases.coordination.k8s.io in vitistack-system`.
fn words(right: &ResourceAttributes) -> String {
    let text = |part: &Option<String>, before: &str| match part.as_deref() {
        Some(part) if !part.is_empty() => format!("{before}{part}"),
        _ => String::new(),
    };
    [
        text(&right.verb, ""),
        text(&right.resource, " "),
        text(&right.group, "."),
        text(&right.subresource, "/"),
        text(&right.namespace, " in "),
    ]
    .concat()
}

async fn missing(
    cluster: &Cluster,
    subject: &Subject,
    rights: &[ResourceAttributes],
) -> Result<Vec<String>, RequestError> {
    let answers: Vec<Option<String>> = stream::iter(rights)
        .map(|right| async move {
            let allowed = ask(cluster, subject, right).await?;
            Ok::<_, RequestError>((!allowed).then(|| words(right)))
        })
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    Ok(answers.into_iter().flatten().collect())
}

async fn ask(cluster: &Cluster, subject: &Subject, right: &ResourceAttributes) -> Result<bool, RequestError> {
    let (client, parameters) = (cluster.client.clone(), PostParams::default());
    let status: Result<Option<SubjectAccessReviewStatus>, kube::Error> = match subject {
        Subject::Self_ => {
            let spec = SelfSubjectAccessReviewSpec {
                resource_attributes: Some(right.clone()),
                ..SelfSubjectAccessReviewSpec::default()
            };
            let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
            let api: Api<SelfSubjectAccessReview> = Api::all(client);
            api.create(&parameters, &review).await.map(|review| review.status)
        }
        Subject::Account => {
            let groups = [
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{SYSTEM_NAMESPACE}"),
                "system:authenticated".to_owned(),
            ];
            let spec = SubjectAccessReviewSpec {
                resource_attributes: Some(right.clone()),
                user: Some(format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{}", deployment::NAME)),
                groups: Some(groups.to_vec()),
                ..SubjectAccessReviewSpec::default()
            };
            let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
            let api: Api<SubjectAccessReview> = Api::all(client);
            api.create(&parameters, &review).await.map(|review| review.status)
        }
    };
    let status = status.map_err(|error| cluster.failure("ask for permissions", error))?;
    Ok(status.is_some_and(|status| status.allowed))
}
