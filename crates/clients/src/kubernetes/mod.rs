//! What every controller does to a Kubernetes API: apply children, remove stale ones, report status, and reach a
//! tenant's cluster through a kubeconfig that was checked first.

mod apply;
mod child;
mod contains;
mod kubeconfig;
mod prune;
mod status;

use std::error::Error;

pub use apply::{APPLIED_ANNOTATION, Applied, ApplyError, apply, apply_heard, fingerprint, is_applied};
pub use child::{Child, ChildError, Ownership};
pub use contains::contains;
pub use kubeconfig::{KubeconfigError, Refusal, check, client_from_kubeconfig};
pub use prune::{DeleteError, delete, delete_heard, stale};
pub use status::{StatusError, apply_status};

/// Says what went wrong with a request in one sentence.
///
/// The client's own words repeat the whole answer of the server as a Rust structure; users read only the message.
#[must_use]
pub fn explain(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error
        && !status.message.is_empty()
    {
        return status.message.clone();
    }
    let mut sentence = error.to_string();
    let mut source = error.source();
    // Of a request that did not get through the outer words only name the layers of the client; the innermost say why.
    let is_transport = matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_));
    while let Some(cause) = source {
        let text = cause.to_string();
        if is_transport {
            sentence = text;
        } else if !sentence.contains(&text) {
            sentence = format!("{sentence}: {text}");
        }
        source = cause.source();
    }
    match sentence.split_once(" (os error ") {
        Some((words, _)) => words.to_owned(),
        None => sentence,
    }
}

/// Whether the server answered that a precondition (uid, resourceVersion) does not hold.
#[must_use]
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}
