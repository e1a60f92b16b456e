//! References across namespaces.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use vitistack_types::labels;

/// Whether an object may be referred to from a namespace: its own, or one that its annotation lists.
#[must_use]
pub fn permits(target: &ObjectMeta, from: &str) -> bool {
    target.namespace.as_deref() == Some(from) || permits_by_annotation(target, from)
}

/// Whether the annotation of an object lists a namespace. For an object of another cluster nothing else counts: a namespace
/// there that has the same name is not the same namespace.
#[must_use]
pub fn permits_by_annotation(target: &ObjectMeta, from: &str) -> bool {
    let annotations = target.annotations.as_ref();
    let allowed = annotations.and_then(|annotations| annotations.get(labels::ALLOW_REFERENCES_FROM));
    allowed.is_some_and(|allowed| {
        allowed.split(',').map(str::trim).any(|name| name == "*" || !name.is_empty() && name == from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permitted(annotation: Option<&str>, from: &str) -> bool {
        let annotations =
            annotation.map(|value| [(labels::ALLOW_REFERENCES_FROM.to_owned(), value.to_owned())].into());
        permits(
            &ObjectMeta { namespace: Some("infra".to_owned()), annotations, ..ObjectMeta::default() },
            from,
        )
    }

    #[test]
    fn references_are_allowed_from_its_own_namespace_and_those_listed() {
        assert!(permitted(None, "infra"));
        assert!(!permitted(None, "team-a"));
        assert!(permitted(Some("team-b, team-a"), "team-a"));
        assert!(!permitted(Some("team-b,team-ab"), "team-a"));
        assert!(permitted(Some("*"), "team-a"));
        assert!(!permitted(Some(""), ""));
    }
}
