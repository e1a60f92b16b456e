//! Whether the cluster keeps tenants from writing what operators say.

use kube::{
    Api, ResourceExt,
    api::ListParams,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};

use super::{Finding, unknown};
use crate::{
    cluster::{Cluster, RequestError},
    policies::MACHINE_ANNOTATIONS,
};

const CHECK: &str = "policy of annotations";
const FIX: &str = "`vitistack rbac | kubectl apply --server-side -f -`";

/// Looks for the policy and for what puts it into effect. The embedded API has no policies, and one user.
pub async fn look(cluster: &Cluster, is_embedded: bool) -> Result<Vec<Finding>, RequestError> {
    if is_embedded {
        return Ok(Vec::new());
    }
    let mut missing = Vec::new();
    for kind in ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] {
        let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let api: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &ApiResource::from_gvk(&kind));
        let found = match api.list_metadata(&ListParams::default()).await {
            Ok(found) => found,
            Err(error) => match cluster.failure("list admission policies", error) {
                RequestError::Serve { .. } => {
                    let message = "the server has no admission policies, so that whoever may write a Machine may say where it is";
                    return Ok(vec![Finding::warning(CHECK, message, "upgrade the cluster to 1.30")]);
                }
                failure => return Ok(vec![unknown(CHECK, failure)?]),
            },
        };
        if !found.iter().any(|object| object.name_any() == MACHINE_ANNOTATIONS) {
            missing.push(format!("{} {MACHINE_ANNOTATIONS}", kind.kind));
        }
    }
    Ok(vec![if missing.is_empty() {
        Finding::ok(CHECK, "only operators say where machines are")
    } else {
        let message = format!(
            "{} is not there, so that whoever may write a Machine may say where it is",
            missing.join(" and ")
        );
        Finding::warning(CHECK, message, FIX)
    }])
}
