//! Deletion of children that are no longer desired.

use kube::{
    Client, ResourceExt,
    api::{DeleteParams, Preconditions},
    core::DynamicObject,
};
use snafu::{ResultExt, Snafu};

use super::{Applied, Child, Ownership, explain, is_conflict};

/// Why a child was not deleted.
#[derive(Debug, Snafu)]
pub enum DeleteError {
    /// The server refused, or could not be reached.
    #[snafu(display("failed to delete {child}: {}", explain(source)))]
    DeleteObject {
        /// Kind and name of the object.
        child: String,
        /// The error of the client.
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
}

/// Returns the observed objects of `owner` that are not desired.
#[must_use]
pub fn stale<'a>(observed: &'a [Child], desired: &[Child], owner: &Ownership) -> Vec<&'a Child> {
    observed
        .iter()
        .filter(|child| owner.holds(&child.object))
        .filter(|child| !desired.iter().any(|wanted| wanted.is_same_object(child)))
        .collect()
}

/// Deletes exactly this object.
///
/// The precondition on the UID protects a successor of the same name. No request is sent for an object that is already
/// being deleted.
pub async fn delete(client: &Client, child: &Child) -> Result<Applied, DeleteError> {
    delete_and_return(client, child).await.map(|(applied, _)| applied)
}

/// Does the same as [`delete`], and also returns the object from the response while finalizers block its deletion; none if
/// this object no longer exists.
pub async fn delete_and_return(
    client: &Client,
    child: &Child,
) -> Result<(Applied, Option<DynamicObject>), DeleteError> {
    if child.object.metadata.deletion_timestamp.is_some() {
        return Ok((Applied::Unchanged, Some(child.object.clone())));
    }
    let parameters = DeleteParams::background()
        .preconditions(Preconditions { uid: child.object.metadata.uid.clone(), resource_version: None });
    match child.api(client).delete(&child.object.name_any(), &parameters).await {
        Ok(answer) => Ok((Applied::Written, answer.left().filter(is_terminating))),
        // Deleted already, or replaced by a successor.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok((Applied::Unchanged, None)),
        Err(error) if is_conflict(&error) => Ok((Applied::Unchanged, None)),
        Err(error) => Err(error).context(DeleteObjectSnafu { child: child.to_string() }),
    }
}

/// Whether the object still exists. For some kinds a server also returns the last state of a deleted object.
fn is_terminating(object: &DynamicObject) -> bool {
    object.metadata.deletion_timestamp.is_some() && !object.finalizers().is_empty()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use kube::core::ObjectMeta;

    use super::*;

    fn metadata(namespace: &str, name: &str, owner: &str) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.into()),
            namespace: Some(namespace.into()),
            labels: Some([("owner".to_owned(), owner.to_owned())].into()),
            ..ObjectMeta::default()
        }
    }

    fn map(namespace: &str, name: &str, owner: &str) -> Child {
        Child::from_typed(&ConfigMap { metadata: metadata(namespace, name, owner), ..ConfigMap::default() })
            .unwrap()
    }

    fn names(children: &[&Child]) -> Vec<String> {
        children.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_our_undesired_objects_are_stale() {
        let secret =
            Child::from_typed(&Secret { metadata: metadata("a", "current", "us"), ..Secret::default() })
                .unwrap();
        let observed = [
            map("a", "current", "us"),
            map("a", "old", "us"),
            map("a", "foreign", "them"),
            map("b", "current", "us"),
            secret,
        ];
        let desired = [map("a", "current", "us")];
        let stale = stale(&observed, &desired, &Ownership::new("owner", "us"));
        assert_eq!(names(&stale), ["ConfigMap a/old", "ConfigMap b/current", "Secret a/current"]);
    }
}
