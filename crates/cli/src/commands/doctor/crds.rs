//! Checks that the CRDs exist, are served and are those of this version.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    runtime::{conditions::is_crd_established, wait::Condition as _},
};
use vitistack_types::definitions;

use super::{Finding, unknown};
use crate::cluster::{Cluster, RequestError};

const APPLY: &str = "\"vitistack crds | kubectl apply --server-side -f -\"";

/// Checks each CRD.
pub async fn check(cluster: &Cluster) -> Result<Vec<Finding>, RequestError> {
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let mut findings = Vec::new();
    for wanted in definitions() {
        let name = wanted.name_any();
        let check = format!("CRD {name}");
        match api.get_opt(&name).await {
            Ok(found) => findings.push(judge(&check, &wanted, found.as_ref())),
            Err(error) => findings.push(unknown(&check, cluster.failure("read CRDs", error))?),
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
        return Finding::failed(check, "not found", format!("run {APPLY}"));
    };

    if found.metadata.deletion_timestamp.is_some() {
        return Finding::failed(check, "is being deleted", format!("after the deletion, run {APPLY}"));
    }
    if !is_crd_established().matches_object(Some(found)) {
        let fix = format!("see \"kubectl describe crd {}\"", wanted.name_any());
        return Finding::failed(check, "exists but is not served", fix);
    }
    if found.spec.scope != wanted.spec.scope || found.spec.versions != wanted.spec.versions {
        let fix = format!("use the binary of that version, or run {APPLY}");
        return Finding::warning(check, "is of another version", fix);
    }
    Finding::ok(check, "up to date")
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
    fn a_crd_is_missing_not_served_of_another_version_or_up_to_date() {
        let wanted = definitions().remove(0);
        let mut other = served(wanted.clone());
        let schema = other.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
        schema.description = Some("of an older version".to_owned());
        for (found, outcome) in [
            (None, Outcome::Failed),
            (Some(wanted.clone()), Outcome::Failed),
            (Some(other), Outcome::Warning),
            (Some(served(wanted.clone())), Outcome::Ok),
        ] {
            let finding = judge("CRD", &wanted, found.as_ref());
            assert_eq!(finding.result, outcome, "{finding:?}");
        }
    }
}
