//! A complete operator: a `Widget` describes a number of config maps that contain a text.
//!
//! The integration tests of the runtime run it. It is also the shortest example of how the parts fit together.

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
    Cache, Controller, Event, Lane, OperatorArgs, Outcome, Process, ReconcileError, Reconciler, StartError,
    client_from, events::Events, finalizer, settings, shutdown, telemetry::Telemetry,
};

/// The field manager of the example.
const MANAGER: &str = "widget-operator";

/// An operator that manages widgets.
#[derive(Debug, Parser)]
struct Arguments {
    /// The only namespace to manage.
    #[arg(long, env = "WIDGETS_NAMESPACE")]
    widgets_namespace: Option<String>,

    #[command(flatten)]
    operator: OperatorArgs,
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
        assert!(widget.spec.text != "panic", "requested panic");
        let owner = ownership(&widget);
        let observed = self.observed(&widget)?;
        if widget.metadata.deletion_timestamp.is_some() {
            return self.clean_up(&widget, &observed).await;
        }
        // The status carries the version that it was derived from, so it follows from what the patch returned.
        let widget = match finalizer::first_patch(&widget.metadata, FINALIZER, &BTreeMap::new()) {
            Some(patch) => Arc::new(self.patch(&widget, &patch).await?),
            None => widget,
        };

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
    /// Returns the config maps of the widget, from the cache.
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
            return Ok(Outcome::Wait { waiting_for: "the config maps to be deleted".into(), after });
        }
        if let Some(patch) = finalizer::removal_patch(&widget.metadata, FINALIZER) {
            self.patch(widget, &patch).await?;
        }
        Ok(Outcome::Done)
    }

    async fn block(&self, widget: &Widget, error: &ApplyError) -> Result<Outcome, ReconcileError> {
        let reason = error.to_string();
        let about = kube::Resource::object_ref(widget, &());
        self.events.publish(&about, &Event::warning("Blocked", &reason)).await;
        self.report(widget, Some(&reason)).await?;
        Ok(Outcome::Blocked { reason, fix: "the operator continues by itself afterwards".into() })
    }

    async fn report(&self, widget: &Widget, blocked: Option<&str>) -> Result<(), ReconcileError> {
        let status = status(widget, blocked, Timestamp::now());
        if widget.status.as_ref() != Some(&status) {
            apply_status(&self.client, MANAGER, widget, &status)
                .await
                .map_err(|error| ReconcileError::from_source("ApplyStatus", error))?;
        }
        Ok(())
    }

    async fn patch(&self, widget: &Widget, patch: &serde_json::Value) -> Result<Widget, ReconcileError> {
        let api: Api<Widget> = Api::namespaced(self.client.clone(), &widget.namespace().unwrap_or_default());
        api.patch(&widget.name_any(), &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map_err(|error| ReconcileError::from_source("PatchWidget", error))
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
    let Arguments { widgets_namespace, operator } =
        settings::parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let telemetry = Telemetry::start(&operator)?;
    let end = shutdown::on_signal()?;
    let code = match run(widgets_namespace.as_deref(), operator, end).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    };
    telemetry.finish().await;
    Ok(code)
}

async fn run(
    namespace: Option<&str>,
    settings: OperatorArgs,
    end: CancellationToken,
) -> Result<(), StartError> {
    let client = client_from(&settings).await?;
    let mut process = Process::new(settings, client.clone());
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
