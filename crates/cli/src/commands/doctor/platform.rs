//! Checks what machines on this cluster require: storage, and what their backends require.

use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Api, ResourceExt, api::ListParams};
use vitistack_machine::{Requirement, backend_types};

use super::{Finding, unknown};
use crate::cluster::{Cluster, RequestError};

/// The annotation of the default StorageClass.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// Checks storage and add-ons.
pub async fn check(cluster: &Cluster) -> Result<Vec<Finding>, RequestError> {
    let classes: Api<StorageClass> = Api::all(cluster.client.clone());
    let storage = match classes.list(&ListParams::default()).await {
        Ok(classes) => judge_storage(&classes.items),
        Err(error) => unknown("storage", cluster.failure("list storageclasses", error))?,
    };

    let groups = cluster.client.list_api_groups().await;
    let groups = groups.map_err(|error| cluster.failure("list API groups", error))?;
    let served: Vec<String> = groups
        .groups
        .into_iter()
        .flat_map(|group| group.versions.into_iter().map(|version| version.group_version))
        .collect();
    let requirements = backend_types().into_iter().flat_map(|backend| backend.requirements());
    let addons = requirements.map(|requirement| judge_addon(requirement, &served));
    Ok([storage].into_iter().chain(addons).collect())
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
            "no StorageClass found; machines on this cluster require disks",
            "install a storage driver",
        ),
        (_, 0) => Finding::warning(
            "storage",
            format!("no default among {all}"),
            format!("annotate one with {DEFAULT_CLASS}: \"true\""),
        ),
        (_, 1) => Finding::ok(
            "storage",
            format!("{all}; default: {}", names(&mut classes.iter().filter(is_default))),
        ),
        _ => {
            let several = names(&mut classes.iter().filter(is_default));
            let fix = format!("remove the annotation {DEFAULT_CLASS} from all but one");
            Finding::warning("storage", format!("several defaults: {several}"), fix)
        }
    }
}

fn judge_addon(requirement: Requirement, served: &[String]) -> Finding {
    let Requirement { name, api_version, needed_for } = requirement;
    if served.iter().any(|served| served == api_version) {
        return Finding::ok(name, format!("{api_version} is served"));
    }
    let group = api_version.split('/').next().unwrap_or_default();
    let other = served.iter().find(|served| served.split('/').next() == Some(group));
    match other {
        Some(other) => Finding::warning(
            name,
            format!("{other} is served instead of {api_version}"),
            format!("upgrade {name}"),
        ),
        None => Finding::warning(
            name,
            format!("not installed; required for {needed_for}"),
            format!("install {name}"),
        ),
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
    fn storage_and_addons_are_reported_with_the_fix() {
        let (fast, slow) = (class("fast", true), class("slow", false));
        let served = ["kubevirt.io/v1".to_owned(), "cdi.kubevirt.io/v1alpha1".to_owned()];
        let addons = backend_types()
            .into_iter()
            .flat_map(|backend| backend.requirements())
            .map(|each| judge_addon(each, &served));
        let storage = [
            judge_storage(&[]),
            judge_storage(std::slice::from_ref(&slow)),
            judge_storage(&[fast.clone(), slow]),
            judge_storage(&[fast, class("other", true)]),
        ];
        let line = |finding: Finding| {
            let fix = finding.fix.unwrap_or_default();
            format!("{} {}: {} -> {fix}", finding.check, finding.result.as_str(), finding.message)
        };
        let lines: Vec<String> = storage.into_iter().chain(addons).map(line).collect();
        insta::assert_snapshot!(lines.join("\n"));
    }
}
