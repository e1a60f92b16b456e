//! What went wrong with a request, in a sentence for users, and what kind of failure it was.

use kube::{core::Status, error::Error};
use vitistack_clients::kubernetes::{ApplyError, DeleteError};
use vitistack_types::conditions::reason;

use super::kind::Kind;
use crate::{BackendError, ErrorKind};

/// The longest message of another program that is repeated.
const MESSAGE_LIMIT: usize = 300;

/// Whether the cluster answered that it does not know the kind, rather than that there is no such object.
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

/// A failure to `verb` the object `name` of a kind.
#[must_use]
pub fn explain(kind: Kind, verb: &str, name: &str, error: &Error) -> BackendError {
    let what = if name.is_empty() { kind.name().to_owned() } else { format!("{} {name}", kind.name()) };
    match error {
        Error::Api(status) => answered(kind, verb, &what, status),
        Error::Auth(_) => unauthenticated(),
        Error::SerdeError(_) => BackendError::new(
            ErrorKind::Failed,
            reason::KUBEVIRT_API_ERROR,
            format!("failed to {verb} {what}: the cluster's answer could not be read"),
        ),
        other => BackendError::new(
            ErrorKind::Unreachable,
            reason::KUBEVIRT_API_ERROR,
            format!(
                "failed to {verb} {what}: the provider's cluster does not answer: {}",
                clean(&vitistack_clients::kubernetes::explain(other))
            ),
        ),
    }
}

fn unauthenticated() -> BackendError {
    BackendError::new(
        ErrorKind::Unauthenticated,
        reason::KUBEVIRT_API_ERROR,
        "the provider's cluster does not accept our credentials: renew the kubeconfig of the provider",
    )
}

/// The cluster answered, and said no.
fn answered(kind: Kind, verb: &str, what: &str, status: &Status) -> BackendError {
    let said = clean(&status.message);
    let fail = |kind, message: String| BackendError::new(kind, reason::KUBEVIRT_API_ERROR, message);
    let missing_namespace = status.details.as_ref().filter(|details| details.kind == "namespaces");
    match status.code {
        401 => unauthenticated(),
        403 if status.message.contains("exceeded quota") => BackendError::new(
            ErrorKind::NoCapacity,
            reason::INSUFFICIENT_RESOURCES,
            format!(
                "the provider's cluster has no room for {what}: {said}: raise the quota of the namespace, or ask for less"
            ),
        ),
        403 if status.message.contains("User \"") => fail(
            ErrorKind::Refused,
            format!(
                "not permitted to {verb} {what}: grant the verb {} on {} to the platform's account in the provider's cluster",
                permission_verb(verb),
                kind.permission()
            ),
        ),
        404 if missing_namespace.is_some() => fail(
            ErrorKind::Refused,
            format!(
                "failed to {verb} {what}: namespace {:?} does not exist in the provider's cluster: create it",
                missing_namespace.map(|details| details.name.as_str()).unwrap_or_default()
            ),
        ),
        404 => match kind.installed_by() {
            Some(program) if status.details.as_ref().is_none_or(|details| details.name.is_empty()) => fail(
                ErrorKind::Refused,
                format!(
                    "failed to {verb} {what}: {program} is not installed in the provider's cluster: install it"
                ),
            ),
            _ => fail(ErrorKind::Failed, format!("failed to {verb} {what}: it is gone")),
        },
        409 => fail(ErrorKind::Failed, format!("failed to {verb} {what}: it was changed meanwhile")),
        400 | 403 | 405 | 406 | 410 | 413 | 415 | 422 => {
            let who = kind.installed_by().unwrap_or("the provider's cluster").trim_end_matches(',');
            fail(ErrorKind::Refused, format!("{who} refuses {what}: {said}"))
        }
        408 | 504 => fail(
            ErrorKind::Unreachable,
            format!("failed to {verb} {what}: the provider's cluster did not answer in time"),
        ),
        _ => fail(ErrorKind::Failed, format!("failed to {verb} {what}: {said}")),
    }
}

/// The verb that Kubernetes' permissions know.
fn permission_verb(verb: &str) -> &str {
    match verb {
        "read" => "get, list and watch",
        "apply" | "change" => "patch",
        other => other,
    }
}

/// A failed apply.
#[must_use]
pub fn explain_apply(kind: Kind, name: &str, error: &ApplyError) -> BackendError {
    match error {
        ApplyError::TakeOverObject { .. } => BackendError::new(
            ErrorKind::Refused,
            reason::NAME_TAKEN,
            format!(
                "{} {name} is not ours and is left alone: remove it, or give the Machine another name",
                kind.name()
            ),
        ),
        ApplyError::ReadObject { source, .. } => explain(kind, "read", name, source),
        ApplyError::ApplyObject { source, .. } => explain(kind, "apply", name, source),
        ApplyError::WriteObject { .. } => BackendError::new(
            ErrorKind::Failed,
            reason::KUBEVIRT_API_ERROR,
            format!("failed to write {} {name} as JSON", kind.name()),
        ),
    }
}

/// A failed deletion.
#[must_use]
pub fn explain_delete(kind: Kind, name: &str, error: &DeleteError) -> BackendError {
    let DeleteError::DeleteObject { source, .. } = error;
    explain(kind, "delete", name, source)
}

/// Another program's message, fit to be shown: one line, not too long, without its ceremony and without the credentials
/// that an address may hold.
#[must_use]
pub fn clean(message: &str) -> String {
    let message = message
        .split_once("denied the request: ")
        .filter(|(start, _)| start.starts_with("admission webhook"))
        .map_or(message, |(_, reason)| reason);
    let words: Vec<String> = message.split_whitespace().map(without_credentials).collect();
    let line: String = words.join(" ").chars().filter(|letter| !letter.is_control()).collect();
    let mut cut: String = line.chars().take(MESSAGE_LIMIT).collect();
    if cut.len() < line.len() {
        cut.push('…');
    }
    cut
}

/// A word, without what stands before the host in an address, and without its query.
fn without_credentials(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else {
        return word.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let path = path.split_once(['?', '#']).map_or(path, |(path, _)| path);
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
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
    fn every_answer_becomes_a_kind_of_failure_and_a_sentence_with_the_fix() {
        let vm = Kind::VirtualMachine;
        let told: Vec<String> = [
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
            (vm, "read", Error::Service("connection refused".into())),
        ]
        .iter()
        .map(|(kind, verb, error)| {
            let told = explain(*kind, verb, "apps/vm", error);
            format!("{:?} {}: {}", told.kind, told.reason, told.message)
        })
        .collect();
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn a_message_is_one_short_line_without_credentials() {
        assert_eq!(
            clean(
                "failed to get https://user:hunter2@example.com:8443/x?token=hunter2\n\tafter\u{7} 3 tries"
            ),
            "failed to get https://example.com:8443/x after 3 tries"
        );
        assert_eq!(clean(&"é".repeat(1000)).chars().count(), MESSAGE_LIMIT + 1);
    }

    #[test]
    fn a_missing_kind_is_not_a_missing_object() {
        assert!(is_kind_missing(&answer(404, "404 page not found", None)));
        assert!(!is_kind_missing(&answer(404, "\"vm\" not found", Some(("virtualmachines", "vm")))));
        assert!(!is_kind_missing(&answer(403, "forbidden", None)));
    }
}
