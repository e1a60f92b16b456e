//! What machines on this cluster need of it: storage, KubeVirt and what goes with it.

use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Api, ResourceExt, api::ListParams};
use vitistack_machine::kubevirt::Kind;

use super::{Finding, unknown};
use crate::cluster::{Cluster, RequestError};

/// Marks the class of claims that name none.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// What may be installed, the kind that shows it, and what is not possible without.
const ADDITIONS: [(&str, Kind, &str); 3] = [
    ("KubeVirt", Kind::VirtualMachine, "machines on this cluster itself"),
    ("CDI", Kind::DataVolume, "disks with a source"),
    ("Multus", Kind::NetworkAttachmentDefinition, "machines with networks"),
];

/// Looks at all of it.
pub async fn look(cluster: &Cluster) -> Result<Vec<Finding>, RequestError> {
    let classes: Api<StorageClass> = Api::all(cluster.client.clone());
    let storage = match classes.list(&ListParams::default()).await {
        Ok(classes) => judge_storage(&classes.items),
        Err(error) => unknown("storage", cluster.failure("list storageclasses", error))?,
    };
    let groups = cluster.client.list_api_groups().await;
    let groups = groups.map_err(|error| cluster.failure("ask what is served", error))?;
    let served: Vec<String> = groups
        .groups
        .into_iter()
        .flat_map(|group| group.versions.into_iter().map(|version| version.group_version))
        .collect();
    let addition = |(name, kind, what): (&str, Kind, &str)| {
        judge_addition(name, &kind.resource().api_version, what, &served)
    };
    Ok([storage].into_iter().chain(ADDITIONS.map(addition)).collect())
}

fn judge_storage(classes: &[StorageClass]) -> Finding {
    let is_default =
        |class: &&StorageClass| class.annotations().get(DEFAULT_CLASS).is_some_and(|value| value == "true");
    let names = |classes: &mut dyn Iterator<Item = &StorageClass>| {
        classes.map(ResourceExt::name_any).collect::<Vec<_>>().join(", ")
    };
    let all = names(&mut classes.iter());
    let defaults = classes.iter().filter(is_default).count();
    match (classes.len(), defaults) {
        (0, _) => Finding::warning(
            "storage",
            "there is no StorageClass, and machines on this cluster need disks",
            "install a storage driver",
        ),
        (_, 0) => Finding::warning(
            "storage",
            format!("none of {all} is the default"),
            format!("annotate one with {DEFAULT_CLASS}: \"true\""),
        ),
        (_, 1) => Finding::ok(
            "storage",
            format!("{all}; {} is the default", names(&mut classes.iter().filter(is_default))),
        ),
        _ => {
            let several = names(&mut classes.iter().filter(is_default));
            let fix = format!("leave the annotation {DEFAULT_CLASS} on one of them");
            Finding::warning("storage", format!("{several} are all the default"), fix)
        }
    }
}

fn judge_addition(name: &str, api_version: &str, what: &str, served: &[String]) -> Finding {
    if served.iter().any(|served| served == api_version) {
        return Finding::ok(name, format!("{api_version} is served"));
    }
    let group = api_version.split('/').next().unwrap_or_default();
    let other = served.iter().find(|served| served.split('/').next() == Some(group));
    match other {
        Some(other) => Finding::warning(
            name,
            format!("{other} is served and not {api_version}"),
            format!("upgrade {name}"),
        ),
        None => {
            Finding::warning(name, format!("not installed, and {what} need it"), format!("install {name}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, is_default: bool) -> StorageClass {
        let mut class = StorageClass::default();
        class.metadata.name = Some(name.to_owned());
        class.annotations_mut().insert(DEFAULT_CLASS.to_owned(), is_default.to_string());
        class
    }

    #[test]
    fn storage_and_additions_are_told_with_the_fix() {
        let (fast, slow) = (class("fast", true), class("slow", false));
        let served = ["kubevirt.io/v1".to_owned(), "cdi.kubevirt.io/v1alpha1".to_owned()];
        let additions = ADDITIONS
            .map(|(name, kind, what)| judge_addition(name, &kind.resource().api_version, what, &served));
        let told = [
            judge_storage(&[]),
            judge_storage(std::slice::from_ref(&slow)),
            judge_storage(&[fast.clone(), slow]),
            judge_storage(&[fast, class("other", true)]),
        ];
        let line = |finding: Finding| {
            let fix = finding.fix.unwrap_or_default();
            format!("{} {}: {} -> {fix}", finding.check, finding.result.word(), finding.message)
        };
        let lines: Vec<String> = told.into_iter().chain(additions).map(line).collect();
        insta::assert_snapshot!(lines.join("\n"));
    }
}
