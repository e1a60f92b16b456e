//! Checks that an admission policy reserves operator annotations.

use kube::{
    Api, ResourceExt,
    api::ListParams,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};

use super::{Finding, unknown};
use crate::{
    cluster::{Cluster, RequestError},
    manifests::policies::MACHINE_ANNOTATIONS,
};

const CHECK: &str = "annotation policy";
const FIX: &str = "run \"vitistack rbac | kubectl apply --server-side -f -\"";
/// What is possible without the policy.
const RISK: &str = "users who can edit a Machine can change its placement";

/// Checks the policy and its binding. The embedded API has no policies, and only one user.
pub async fn check(cluster: &Cluster, is_embedded: bool) -> Result<Vec<Finding>, RequestError> {
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
                    let message = format!("the server does not support admission policies: {RISK}");
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
        Finding::ok(CHECK, "installed")
    } else {
        Finding::warning(CHECK, format!("{} not found: {RISK}", missing.join(" and ")), FIX)
    }])
}
