//! The objects of a machine, without a cluster.

use std::sync::Arc;

use kube::{Resource, api::ObjectMeta, core::DynamicObject};
use serde_json::Value;
use vitistack_plan::{
    Refusal,
    machine::{Desired, Problem},
};
use vitistack_types::{
    conditions::reason,
    v1alpha1::{Machine, MachineProvider},
};

use super::{Found, Kind, OwnerKind, Settings, plan};
use crate::{Limits, Order, Rendered};

/// Returns the objects that a machine consists of, in a cluster that has everything that the machine refers to.
pub(super) fn render(provider: Option<&MachineProvider>, order: &Order) -> Result<Rendered, Refusal> {
    let planned = plan(&settings(provider), order, &complete_cluster(&order.desired));

    // Whether these exist in the target cluster is not known here.
    let is_unknown =
        |reason: &str| [reason::STORAGE_CLASS_NOT_FOUND, reason::SOURCE_NOT_FOUND].contains(&reason);
    let problem = planned.problems.iter().map(Problem::refusal).find(|refusal| !is_unknown(refusal.reason));
    if let Some(refusal) = problem {
        return Err(refusal.clone());
    }

    let hidden = planned.secret.iter().map(|secret| {
        let keys: Vec<&str> = secret.data.keys().copied().collect();
        format!("Secret {} with {}", secret.name, keys.join(" and "))
    });
    let volumes = planned.volumes.iter().map(|volume| &volume.child);
    let shown = planned.attachments.iter().chain(volumes).chain([&planned.virtual_machine]);
    Ok(Rendered { hidden: hidden.collect(), objects: shown.map(|child| child.object.clone()).collect() })
}

/// The settings of a provider; without one, those of the operator's own cluster.
fn settings(provider: Option<&MachineProvider>) -> Settings {
    let spec = provider.map(|provider| &provider.spec);
    let is_remote = spec.is_some_and(|spec| spec.credentials.is_some());
    let owner = OwnerKind { api_version: Machine::api_version(&()).into(), kind: Machine::kind(&()).into() };
    Settings {
        namespace: spec.and_then(|spec| spec.kubevirt.as_ref()?.namespace.clone()),
        owner: (!is_remote).then_some(owner),
        zones: spec.map(|spec| spec.zones.clone()).unwrap_or_default(),
        limits: spec.map(Limits::from).unwrap_or_default(),
    }
}

/// A cluster that has everything that a machine refers to.
fn complete_cluster(desired: &Desired) -> Found {
    let class = |name: &String| {
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        let object = Kind::StorageClass.child(ObjectMeta::default(), Value::Null).object;
        Arc::new(DynamicObject { metadata, ..object })
    };
    let classes = desired.disks.iter().filter_map(|disk| disk.storage_class.as_ref());
    Found {
        has_kubevirt: true,
        has_cdi: true,
        has_multus: true,
        storage_classes: classes.filter(|name| *name != "default").map(class).collect(),
        ..Found::default()
    }
}
