//! Admission policies: what a role cannot say.
//!
//! Whoever may write a Machine may write its annotations, and some of them are the operators' word: where a machine is,
//! and which real machine it has. A tenant that could write them would pass by quotas.

use serde_json::{Value, json};
use vitistack_types::{GROUP, labels::OPERATOR_ANNOTATIONS};

/// Name of the policy and of its binding.
pub const MACHINE_ANNOTATIONS: &str = "vitistack-machine-annotations";

const API_VERSION: &str = "admissionregistration.k8s.io/v1";

/// Every policy, each followed by its binding.
pub fn policies() -> Vec<Value> {
    vec![machine_annotations(), binding(MACHINE_ANNOTATIONS)]
}

/// Only who may write the status of Machines, which is what operators may, writes what operators say.
fn machine_annotations() -> Value {
    let status = format!(
        "authorizer.group('{GROUP}').resource('machines').subresource('status').namespace(request.namespace)"
    );
    let validation = |annotation: &&str| {
        json!({
            "expression": format!(
                "variables.before[?'{annotation}'] == variables.after[?'{annotation}'] || variables.isOperator"
            ),
            "message": format!(
                "metadata.annotations[{annotation}] is written by operators only: leave it as it is, or have it done by somebody who may update machines/status, as when an export is restored"
            ),
            "reason": "Forbidden",
        })
    };
    let variable = |name: &str, expression: String| json!({ "name": name, "expression": expression });
    json!({
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": MACHINE_ANNOTATIONS },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [GROUP],
                "apiVersions": ["*"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["machines"],
            }] },
            // Evaluated only where an annotation differs: what changes nothing costs no question about rights.
            "variables": [
                variable("before", "oldObject == null ? {} : oldObject.metadata.?annotations.orValue({})".to_owned()),
                variable("after", "object.metadata.?annotations.orValue({})".to_owned()),
                variable(
                    "isOperator",
                    format!("{status}.check('update').allowed() || {status}.check('patch').allowed()"),
                ),
            ],
            "validations": OPERATOR_ANNOTATIONS.iter().map(validation).collect::<Vec<_>>(),
        },
    })
}

fn binding(name: &str) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": name },
        "spec": { "policyName": name, "validationActions": ["Deny"] },
    })
}
