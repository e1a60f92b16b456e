//! The desired state of a widget. Pure.

use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};
use kube::{Resource, ResourceExt};
use vitistack_clients::kubernetes::Ownership;
use vitistack_types::conditions;

use crate::widget::{Widget, WidgetStatus};

/// The finalizer of the example.
pub const FINALIZER: &str = "widgets.example.io/cleanup";
/// The label of all objects that belong to a widget; its value is the widget's uid.
const OWNER_LABEL: &str = "widgets.example.io/owner";

/// Returns how the objects of a widget are recognized.
pub fn ownership(widget: &Widget) -> Ownership {
    Ownership::new(OWNER_LABEL, widget.uid().unwrap_or_default())
}

/// Returns the desired config maps of a widget.
pub fn desired(widget: &Widget) -> Vec<ConfigMap> {
    (0..widget.spec.copies)
        .map(|number| ConfigMap {
            metadata: ObjectMeta {
                name: Some(format!("{}-{number}", widget.name_any())),
                namespace: widget.namespace(),
                owner_references: widget.controller_owner_ref(&()).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            data: Some([("text".to_owned(), widget.spec.text.clone())].into()),
            ..ConfigMap::default()
        })
        .collect()
}

/// Returns the status of a widget; `blocked` is why it is not ready.
pub fn status(widget: &Widget, blocked: Option<&str>, now: Timestamp) -> WidgetStatus {
    let mut status = widget.status.clone().unwrap_or_default();
    let ready = conditions::Statement {
        type_: "Ready",
        status: Some(blocked.is_none()),
        reason: if blocked.is_none() { "Complete" } else { "Blocked" },
        message: blocked.unwrap_or("All copies exist"),
    };
    conditions::set(&mut status.conditions, &ready, widget.metadata.generation, now);
    status
}
