//! Admission policies, for rules that roles cannot express.
//!
//! A user who may write a Machine may write its annotations, but some of them are reserved for operators: the placement
//! and the identity of the backing machine. A tenant who could write them would bypass quotas. So would one who removes the
//! finalizer: the backing machine would run on, and count nowhere.

use serde_json::{Value, json};
use vitistack_types::{
    GROUP,
    labels::{MACHINE_CLEANUP, OPERATOR_ANNOTATIONS},
};

use super::roles::{PLATFORM_EDITOR, RELEASE_SUBRESOURCE, RELEASE_VERB};

/// The name of the policy and of its binding.
pub const MACHINE_ANNOTATIONS: &str = "vitistack-machine-annotations";

const API_VERSION: &str = "admissionregistration.k8s.io/v1";

/// Returns every policy, each followed by its binding.
pub fn policies() -> Vec<Value> {
    vec![machine_annotations(), binding(MACHINE_ANNOTATIONS)]
}

/// Allows changes of operator annotations and the removal of the finalizer only to users who may write the status of
/// Machines, as operators may. Users who may release Machines may remove the finalizer, too.
fn machine_annotations() -> Value {
    let subresource = |name: &str| {
        format!(
            "authorizer.group('{GROUP}').resource('machines').subresource('{name}').namespace(request.namespace)"
        )
    };
    let (status, release) = (subresource("status"), subresource(RELEASE_SUBRESOURCE));
    let validation = |annotation: &&str| {
        json!({
            "expression": format!(
                "variables.before[?'{annotation}'] == variables.after[?'{annotation}'] || variables.isOperator"
            ),
            "message": format!(
                "metadata.annotations[{annotation}] is reserved for operators: leave it unchanged, or use an account that may update machines/status, for example to restore an export"
            ),
            "reason": "Forbidden",
        })
    };
    let finalizer = json!({
        "expression": format!(
            "!variables.finalizersBefore.exists(name, name == '{MACHINE_CLEANUP}') || variables.finalizersAfter.exists(name, name == '{MACHINE_CLEANUP}') || variables.isOperator || variables.mayRelease"
        ),
        "message": format!(
            "metadata.finalizers: {MACHINE_CLEANUP} is removed by operators when the backing machine is gone: delete the Machine and wait, or use an account that may update machines/{RELEASE_SUBRESOURCE}, which the ClusterRole {PLATFORM_EDITOR} allows"
        ),
        "reason": "Forbidden",
    });
    let validations: Vec<Value> = OPERATOR_ANNOTATIONS.iter().map(validation).chain([finalizer]).collect();
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
            // Variables are evaluated lazily: permissions are checked only if an annotation or the finalizer differs.
            "variables": [
                variable("before", "oldObject == null ? {} : oldObject.metadata.?annotations.orValue({})".to_owned()),
                variable(
                    "finalizersBefore",
                    "oldObject == null ? [] : oldObject.metadata.?finalizers.orValue([])".to_owned(),
                ),
                variable("finalizersAfter", "object.metadata.?finalizers.orValue([])".to_owned()),
                variable("after", "object.metadata.?annotations.orValue({})".to_owned()),
                variable(
                    "isOperator",
                    format!("{status}.check('update').allowed() || {status}.check('patch').allowed()"),
                ),
                variable(
                    "mayRelease",
                    format!("{release}.name(request.name).check('{RELEASE_VERB}').allowed()"),
                ),
            ],
            "validations": validations,
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
