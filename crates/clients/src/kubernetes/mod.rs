//! What every controller does with a Kubernetes API: cache objects, apply children, delete stale ones, write status, and
//! connect to a tenant's cluster with a kubeconfig that was checked first.

mod apply;
pub mod cache;
mod cause;
mod child;
mod contains;
mod kubeconfig;
mod limits;
mod permission;
mod prune;
mod write;

use std::error::Error;

pub use apply::{APPLIED_ANNOTATION, Applied, ApplyError, apply, apply_and_return, fingerprint, is_applied};
pub use cause::Cause;
pub use child::{Child, ChildError, Ownership};
pub use contains::contains;
pub use kubeconfig::{KubeconfigError, Refusal, check, client_from_kubeconfig};
pub use permission::{Permission, PermissionScope};
pub use prune::{DeleteError, delete, delete_and_return, stale};
pub use write::{apply_status, patch_unchanged};

/// Returns in one sentence why a request failed.
///
/// The text of the client repeats the whole response of the server as a Rust structure; users need only the message.
#[must_use]
pub fn explain(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error
        && !status.message.is_empty()
    {
        return status.message.clone();
    }
    let mut sentence = error.to_string();
    let mut source = error.source();
    // The outer errors of a request that was not sent only describe the layers of the client; the innermost has the cause.
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
        Some((text, _)) => text.to_owned(),
        None => sentence,
    }
}

/// Whether the server reported a failed precondition (uid, resourceVersion).
#[must_use]
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}
