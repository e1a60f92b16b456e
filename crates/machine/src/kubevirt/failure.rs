//! Errors of requests as messages for users, by cause: see [`foreign_text`] for what is shown of an answer.

use kube::{core::Status, error::Error};
use vitistack_clients::kubernetes::{ApplyError, Cause, DeleteError};
use vitistack_plan::refusals;
use vitistack_types::conditions::reason;

use super::{
    foreign_text::{self, validator_line},
    kind::Kind,
};
use crate::{BackendError, ErrorKind};

/// Whether the cluster reported that it does not serve the kind, rather than that the object was not found.
#[must_use]
pub fn is_kind_missing(error: &Error) -> bool {
    match error {
        Error::Api(status) => {
            let about = status.details.as_ref().map(|details| details.name.as_str()).unwrap_or_default();
            status.code == 404 && about.is_empty()
        }
        _ => false,
    }
}

/// Returns the error of a request to `verb` the object `name` of a kind.
#[must_use]
pub fn explain(kind: Kind, verb: &str, name: &str, error: &Error) -> BackendError {
    let what = if name.is_empty() { kind.name().to_owned() } else { format!("{} {name}", kind.name()) };
    foreign_text::log(&what, &vitistack_clients::kubernetes::explain(error));
    match error {
        Error::Api(status) => rejected(kind, verb, name, &what, status),
        Error::Auth(_) => unauthenticated(),
        other => unanswered(verb, &what, Cause::of(other)),
    }
}

/// Returns the error of a request without an answer, or with one that is of no use.
fn unanswered(verb: &str, what: &str, cause: Cause) -> BackendError {
    const CHECK: &str = "check cluster.server in the kubeconfig of the provider";
    let (error_kind, sentence) = match cause {
        Cause::ConnectionRefused => (ErrorKind::Unreachable, format!("refuses the connection: {CHECK}")),
        Cause::UnknownHost => (ErrorKind::Unreachable, format!("has a host name without an address: {CHECK}")),
        Cause::NoRoute => (ErrorKind::Unreachable, format!("cannot be reached from the operator: {CHECK}")),
        Cause::TimedOut => (ErrorKind::Unreachable, "did not answer in time".to_owned()),
        Cause::Tls => (
            ErrorKind::Unreachable,
            "has no TLS certificate that is trusted: check certificate-authority-data in the kubeconfig of the provider".to_owned(),
        ),
        Cause::ConnectionLost => (ErrorKind::Unreachable, "does not answer".to_owned()),
        Cause::TooLarge => (
            ErrorKind::Failed,
            "returns more than is accepted: delete large objects there".to_owned(),
        ),
        Cause::Undecodable => {
            (ErrorKind::Failed, format!("returns an answer that cannot be decoded: {CHECK}"))
        }
    };
    let message = format!("failed to {verb} {what}: the provider's cluster {sentence}");
    BackendError::new(error_kind, reason::KUBEVIRT_API_ERROR, message)
}

fn unauthenticated() -> BackendError {
    BackendError::new(
        ErrorKind::Unauthenticated,
        reason::KUBEVIRT_API_ERROR,
        "the provider's cluster does not accept the credentials: renew the kubeconfig of the provider",
    )
}

/// Returns the error of a request that the cluster rejected.
fn rejected(kind: Kind, verb: &str, name: &str, what: &str, status: &Status) -> BackendError {
    let fail = |kind, message: String| BackendError::new(kind, reason::KUBEVIRT_API_ERROR, message);
    let failed = |kind, sentence: &str| fail(kind, format!("failed to {verb} {what}: {sentence}"));
    let details = status.details.as_ref();
    match status.code {
        401 => unauthenticated(),
        403 if status.message.contains("exceeded quota") => {
            let said = validator_line(kind, verb, status).map(|line| format!("{line}: ")).unwrap_or_default();
            let message = format!(
                "the provider's cluster has no capacity for {what}: {said}raise the quota of the namespace, or request less"
            );
            BackendError::new(ErrorKind::NoCapacity, reason::INSUFFICIENT_RESOURCES, message)
        }
        403 if status.message.contains("User \"") => fail(
            ErrorKind::Refused,
            format!(
                "not permitted to {verb} {what}: grant the verb {} on {} to the operator's account in the provider's cluster",
                permission_verb(verb),
                kind.permission()
            ),
        ),
        404 if details.is_some_and(|details| details.kind == "namespaces") => {
            let namespace = name.split_once('/').map(|(namespace, _)| namespace).unwrap_or_default();
            let sentence =
                format!("namespace {namespace:?} does not exist in the provider's cluster: create it");
            failed(ErrorKind::Refused, &sentence)
        }
        404 => match kind.installed_by() {
            Some(program) if details.is_none_or(|details| details.name.is_empty()) => {
                let sentence = format!("{program} is not installed in the provider's cluster: install it");
                failed(ErrorKind::Refused, &sentence)
            }
            _ => failed(ErrorKind::Failed, "not found"),
        },
        409 => failed(ErrorKind::Failed, "it was changed at the same time"),
        400 | 403 | 405 | 406 | 410 | 413 | 415 | 422 => {
            let who = kind.installed_by().unwrap_or("the provider's cluster").trim_end_matches(',');
            let said = validator_line(kind, verb, status)
                .unwrap_or_else(|| "check the admission policies of the provider's cluster".to_owned());
            fail(ErrorKind::Refused, format!("{who} rejects {what}: {said}"))
        }
        408 | 504 => failed(ErrorKind::Unreachable, "the provider's cluster did not answer in time"),
        429 => failed(ErrorKind::Failed, "the provider's cluster receives too many requests"),
        500 if status.message.contains("failed calling webhook") => {
            let sentence = "an admission webhook of the provider's cluster does not answer: check the pods that serve it";
            failed(ErrorKind::Failed, sentence)
        }
        code => failed(ErrorKind::Failed, &format!("the provider's cluster answers with status {code}")),
    }
}

/// Returns the verb of the RBAC rule.
fn permission_verb(verb: &str) -> &str {
    match verb {
        "read" => "get, list and watch",
        "apply" | "change" => "patch",
        other => other,
    }
}

/// Returns the error of a failed apply.
#[must_use]
pub fn explain_apply(kind: Kind, name: &str, error: &ApplyError) -> BackendError {
    match error {
        ApplyError::TakeOverObject { .. } => {
            BackendError::refused(refusals::name_taken(&format!("{} {name}", kind.name())))
        }
        ApplyError::ReadObject { source, .. } => explain(kind, "read", name, source),
        ApplyError::ApplyObject { source, .. } => explain(kind, "apply", name, source),
        ApplyError::WriteObject { .. } => BackendError::new(
            ErrorKind::Failed,
            reason::KUBEVIRT_API_ERROR,
            format!("failed to write {} {name} as JSON", kind.name()),
        ),
    }
}

/// Returns the error of a failed deletion.
#[must_use]
pub fn explain_delete(kind: Kind, name: &str, error: &DeleteError) -> BackendError {
    let DeleteError::DeleteObject { source, .. } = error;
    explain(kind, "delete", name, source)
}

#[cfg(test)]
mod tests {
    use std::io;

    use kube::core::response::StatusDetails;

    use super::*;

    fn answer(code: u16, message: &str, details: Option<(&str, &str)>) -> Error {
        Error::Api(Box::new(Status {
            code,
            message: message.to_owned(),
            details: details.map(|(kind, name)| StatusDetails {
                kind: kind.to_owned(),
                name: name.to_owned(),
                group: String::new(),
                uid: String::new(),
                causes: Vec::new(),
                retry_after_seconds: 0,
            }),
            ..Status::default()
        }))
    }

    #[test]
    fn every_error_becomes_a_message_with_the_fix() {
        let vm = Kind::VirtualMachine;
        let messages: Vec<String> = [
            (vm, "read", answer(401, "Unauthorized", None)),
            (vm, "apply", answer(403, "virtualmachines.kubevirt.io is forbidden: User \"x\" cannot patch", None)),
            (Kind::PersistentVolumeClaim, "create", answer(403, "persistentvolumeclaims \"vm-root\" is forbidden: exceeded quota: small, requested: requests.storage=20Gi", None)),
            (Kind::PersistentVolumeClaim, "change", answer(403, "persistentvolumeclaims \"vm-root\" is forbidden: only dynamically provisioned pvc can be resized", None)),
            (vm, "apply", answer(404, "the server could not find the requested resource", None)),
            (Kind::DataVolume, "create", answer(404, "404 page not found\n", None)),
            (vm, "apply", answer(404, "namespaces \"apps\" not found", Some(("namespaces", "apps")))),
            (vm, "delete", answer(404, "virtualmachines.kubevirt.io \"vm\" not found", Some(("virtualmachines", "vm")))),
            (vm, "apply", answer(409, "Operation cannot be fulfilled", None)),
            (vm, "apply", answer(422, "admission webhook \"virtualmachine-validator.kubevirt.io\" denied the request: spec.template.spec.domain.machine.type is not supported: pc\n (allowed values: [q35* pc-q35*])", None)),
            (vm, "apply", answer(429, "too many requests", None)),
            (vm, "apply", answer(500, "failed calling webhook \"virtualmachines-mutator.kubevirt.io\": connection refused", None)),
            (vm, "apply", answer(504, "Timeout: request did not complete", None)),
            (vm, "apply", answer(503, "INTERNAL-PAGE-CANARY password=hunter2", None)),
            (vm, "apply", answer(422, "INTERNAL-PAGE-CANARY password=hunter2", None)),
            (vm, "read", answer(403, "INTERNAL-PAGE-CANARY", None)),
            (vm, "read", Error::Service("INTERNAL-PAGE-CANARY".into())),
            (vm, "read", Error::Service(io::Error::from(io::ErrorKind::ConnectionRefused).into())),
            (vm, "read", Error::Service(io::Error::from(io::ErrorKind::TimedOut).into())),
            (vm, "read", Error::Service(io::Error::from(io::ErrorKind::NetworkUnreachable).into())),
            (vm, "read", Error::Service("dns error".into())),
        ]
        .iter()
        .map(|(kind, verb, error)| {
            let error = explain(*kind, verb, "apps/vm", error);
            format!("{:?} {}: {}", error.kind, error.reason, error.message)
        })
        .collect();
        insta::assert_snapshot!(messages.join("\n"));
    }

    #[test]
    fn a_missing_kind_is_not_a_missing_object() {
        assert!(is_kind_missing(&answer(404, "404 page not found", None)));
        assert!(!is_kind_missing(&answer(404, "\"vm\" not found", Some(("virtualmachines", "vm")))));
        assert!(!is_kind_missing(&answer(403, "forbidden", None)));
    }
}
