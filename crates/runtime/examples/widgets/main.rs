//! A whole operator on the kit: a `Widget` wants a number of config maps with a text in them.
//!
//! It is what the kit's integration tests run, and the shortest answer to how the parts fit together.

mod desired;
mod widget;

use std::{collections::BTreeMap, error::Error, process::ExitCode, sync::Arc};

use crate::{
    desired::{FINALIZER, desired, ownership, status},
    widget::Widget,
};
use async_trait::async_trait;
use clap::Parser;
use k8s_openapi::{api::core::v1::ConfigMap, jiff::Timestamp};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{reflector::ObjectRef, watcher},
};
use tokio_util::sync::CancellationToken;
use vitistack_clients::kubernetes::{ApplyError, Child, apply, apply_status, delete, stale};
use vitistack_runtime::{
    Cache, Controller, KitArgs, Lane, Outcome, Process, ReconcileError, Reconciler, StartError, client_from,
    events::{Events, Severity},
    finalizer, settings, shutdown,
    telemetry::Telemetry,
};

/// Field manager of the example.
const MANAGER: &str = "widget-operator";

/// An operator that keeps widgets.
#[derive(Debug, Parser)]
struct Arguments {
    /// The only namespace that is looked at.
    #[arg(long, env = "WIDGETS_NAMESPACE")]
    widgets_namespace: Option<String>,

    #[command(flatten)]
    kit: KitArgs,
}

struct WidgetReconciler {
    client: Client,
    maps: Cache<ConfigMap>,
    events: Events,
}

#[async_trait]
impl Reconciler<Widget> for WidgetReconciler {
    fn lane(&self, widget: &Widget) -> Lane {
        match widget {
            widget if widget.metadata.deletion_timestamp.is_some() => Lane::Delete,
            widget if widget.status.is_none() => Lane::Create,
            _ => Lane::Observe,
        }
    }

    async fn reconcile(&self, widget: Arc<Widget>) -> Result<Outcome, ReconcileError> {
        assert!(widget.spec.text != "panic", "asked to panic");
        let owner = ownership(&widget);
        let observed = self.observed(&widget)?;
        if widget.metadata.deletion_timestamp.is_some() {
            return self.clean_up(&widget, &observed).await;
        }
        if let Some(patch) = finalizer::first_patch(&widget.metadata, FINALIZER, &BTreeMap::new()) {
            self.patch(&widget, &patch).await?;
        }
        let wanted = children(&desired(&widget))?;
        for child in &wanted {
            let found = observed.iter().find(|found| found.is_same_object(child));
            let applied = apply(&self.client, MANAGER, &owner, child, found.map(|found| &found.object)).await;
            match applied {
                Err(error @ ApplyError::TakeOverObject { .. }) => return self.block(&widget, &error).await,
                other => other.map_err(|error| ReconcileError::from_source("ApplyConfigMap", error))?,
            };
        }
        for child in stale(&observed, &wanted, &owner) {
            delete(&self.client, child)
                .await
                .map_err(|error| ReconcileError::from_source("DeleteConfigMap", error))?;
        }
        self.report(&widget, None).await?;
        Ok(Outcome::Done)
    }
}

impl WidgetReconciler {
    /// The widget's own config maps, from the cache.
    fn observed(&self, widget: &Widget) -> Result<Vec<Child>, ReconcileError> {
        let owner = ownership(widget);
        let mine: Vec<ConfigMap> = self
            .maps
            .list()
            .iter()
            .filter(|map| map.labels().get(&owner.key) == Some(&owner.value))
            .map(|map| ConfigMap::clone(map))
            .collect();
        children(&mine)
    }

    async fn clean_up(&self, widget: &Widget, observed: &[Child]) -> Result<Outcome, ReconcileError> {
        for child in observed {
            delete(&self.client, child)
                .await
                .map_err(|error| ReconcileError::from_source("DeleteConfigMap", error))?;
        }
        if !observed.is_empty() {
            let after = std::time::Duration::from_secs(5);
            return Ok(Outcome::Wait { waiting_for: "the config maps to be gone".into(), after });
        }
        if let Some(patch) = finalizer::removal_patch(&widget.metadata, FINALIZER) {
            self.patch(widget, &patch).await?;
        }
        Ok(Outcome::Done)
    }

    async fn block(&self, widget: &Widget, error: &ApplyError) -> Result<Outcome, ReconcileError> {
        let reason = error.to_string();
        let about = kube::Resource::object_ref(widget, &());
        self.events.publish(Severity::Warning, &about, "Blocked", &reason).await;
        self.report(widget, Some(&reason)).await?;
        Ok(Outcome::Blocked { reason, fix: "then it goes on by itself".into() })
    }

    async fn report(&self, widget: &Widget, blocked: Option<&str>) -> Result<(), ReconcileError> {
        let status = status(widget, blocked, Timestamp::now());
        apply_status(&self.client, MANAGER, widget, widget.status.as_ref(), &status)
            .await
            .map_err(|error| ReconcileError::from_source("ApplyStatus", error))?;
        Ok(())
    }

    async fn patch(&self, widget: &Widget, patch: &serde_json::Value) -> Result<(), ReconcileError> {
        let api: Api<Widget> = Api::namespaced(self.client.clone(), &widget.namespace().unwrap_or_default());
        api.patch(&widget.name_any(), &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map_err(|error| ReconcileError::from_source("PatchWidget", error))?;
        Ok(())
    }
}

fn children(maps: &[ConfigMap]) -> Result<Vec<Child>, ReconcileError> {
    let children: Result<Vec<_>, _> = maps.iter().map(Child::from_typed).collect();
    children.map_err(|error| ReconcileError::from_source("WriteConfigMap", error))
}

fn owner_of(map: &ConfigMap) -> Vec<ObjectRef<Widget>> {
    let namespace = map.namespace().unwrap_or_default();
    map.owner_references()
        .iter()
        .filter(|owner| owner.kind == "Widget")
        .map(|owner| ObjectRef::new(&owner.name).within(&namespace))
        .collect()
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { widgets_namespace, kit } =
        settings::parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let telemetry = Telemetry::start(&kit)?;
    let end = shutdown::on_signal()?;
    let code = match run(widgets_namespace.as_deref(), kit, end).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    };
    telemetry.finish().await;
    Ok(code)
}

async fn run(namespace: Option<&str>, kit: KitArgs, end: CancellationToken) -> Result<(), StartError> {
    let client = client_from(&kit).await?;
    let mut process = Process::new(kit, client.clone());
    let mut selection = watcher::Config::default();
    if let Some(namespace) = namespace {
        selection = selection.fields(&format!("metadata.namespace={namespace}"));
    }
    let widgets: Cache<Widget> = process.cache_of(client.clone(), (), selection.clone());
    let maps: Cache<ConfigMap> = process.cache_of(client.clone(), (), selection);
    let mut operator = process.operator("widget-operator");
    let reconciler = WidgetReconciler { client, maps: maps.clone(), events: operator.events() };
    operator.control(Controller::new("Widget", &widgets, reconciler).watches(&maps, owner_of));
    process.add(operator);
    process.run(end).await
}
