//! Writing: the status of a provider.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use tokio::time::Instant;
use vitistack_clients::kubernetes::apply_status;
use vitistack_runtime::{ReconcileError, events::Severity};
use vitistack_types::{
    conditions,
    v1alpha1::{MachineProvider, MachineProviderStatus},
};

use super::ProviderReconciler;

/// Who writes the status of MachineProviders.
const MANAGER: &str = "vitistack-machine-provider";

impl ProviderReconciler {
    /// Writes the status, if it changed, and tells when the provider became ready or ceased to be. Says how long new
    /// totals have to wait.
    pub(super) async fn report(
        &self,
        provider: &MachineProvider,
        after: &MachineProviderStatus,
    ) -> Result<Option<Duration>, ReconcileError> {
        let before = provider.status.as_ref();
        if before == Some(after) {
            return Ok(None);
        }
        let without_totals =
            |status: &MachineProviderStatus| MachineProviderStatus { used: None, ..status.clone() };
        let is_totals = before.is_some_and(|before| without_totals(before) == without_totals(after));
        if let Some(held) = self.pace.hold(provider, is_totals, Instant::now()) {
            return Ok(Some(held));
        }
        apply_status(&self.caches.client, MANAGER, provider, before, after)
            .await
            .map_err(|error| ReconcileError::from_source("ApplyStatus", error))?;
        self.pace.wrote(provider, Instant::now());
        let was = before.and_then(|before| ready(before)).map(|ready| ready.status.as_str());
        if let Some(now) = ready(after).filter(|now| was != Some(&now.status)) {
            let severity = if now.status == "True" { Severity::Normal } else { Severity::Warning };
            self.events.publish(severity, &provider.object_ref(&()), &now.reason, &now.message).await;
        }
        Ok(None)
    }
}

fn ready(status: &MachineProviderStatus) -> Option<&Condition> {
    status.conditions.iter().find(|condition| condition.type_ == conditions::READY)
}
