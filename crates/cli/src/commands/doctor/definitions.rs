//! The definitions of the kinds: there, served, and those of this version.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, ResourceExt};
use vitistack_types::definitions;

use super::{Finding, unknown};
use crate::cluster::{Cluster, RequestError};

const FIX: &str = "`vitistack crds | kubectl apply --server-side -f -`";

/// Looks at each.
pub async fn look(cluster: &Cluster) -> Result<Vec<Finding>, RequestError> {
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let mut findings = Vec::new();
    for wanted in definitions() {
        let check = format!("definition of {}", wanted.spec.names.kind);
        match api.get_opt(&wanted.name_any()).await {
            Ok(found) => findings.push(judge(&check, &wanted, found.as_ref())),
            Err(error) => findings.push(unknown(&check, cluster.failure("read definitions", error))?),
        }
    }
    Ok(findings)
}

fn judge(
    check: &str,
    wanted: &CustomResourceDefinition,
    found: Option<&CustomResourceDefinition>,
) -> Finding {
    let Some(found) = found else {
        return Finding::failed(check, "is not there", FIX);
    };
    if found.metadata.deletion_timestamp.is_some() {
        return Finding::failed(check, "is being deleted", format!("once it is gone, {FIX}"));
    }
    let conditions = found.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_served = conditions
        .into_iter()
        .any(|condition| condition.type_ == "Established" && condition.status == "True");
    if !is_served {
        let fix = format!("see `kubectl describe crd {}`", wanted.name_any());
        return Finding::failed(check, "is there and not served", fix);
    }
    if found.spec.scope != wanted.spec.scope || found.spec.versions != wanted.spec.versions {
        return Finding::warning(check, "is that of another version", format!("use its binary, or {FIX}"));
    }
    Finding::ok(check, "is that of this version")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceDefinitionCondition, CustomResourceDefinitionStatus,
    };

    use super::{super::Outcome, *};

    fn served(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
        let condition = CustomResourceDefinitionCondition {
            type_: "Established".to_owned(),
            status: "True".to_owned(),
            ..CustomResourceDefinitionCondition::default()
        };
        definition.status = Some(CustomResourceDefinitionStatus {
            conditions: Some(vec![condition]),
            ..CustomResourceDefinitionStatus::default()
        });
        definition
    }

    #[test]
    fn a_definition_is_missing_or_not_served_or_of_another_version_or_right() {
        let wanted = definitions().remove(0);
        let mut other = served(wanted.clone());
        let schema = other.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
        schema.description = Some("as it was before".to_owned());
        for (found, outcome) in [
            (None, Outcome::Failed),
            (Some(wanted.clone()), Outcome::Failed),
            (Some(other), Outcome::Warning),
            (Some(served(wanted.clone())), Outcome::Ok),
        ] {
            let finding = judge("definition", &wanted, found.as_ref());
            assert_eq!(finding.result, outcome, "{finding:?}");
        }
    }
}
