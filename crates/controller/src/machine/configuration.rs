//! Tells of MachineClasses and NetworkConfigurations that they can be used. Every operator that makes machines does, with
//! the same words: whichever runs, somebody who waits for one of them to be ready does not wait for ever.

use std::sync::Arc;

use async_trait::async_trait;
use kube::core::object::HasStatus;
use vitistack_clients::kubernetes::apply_status;
use vitistack_plan::configuration::status;
use vitistack_runtime::{Lane, Outcome, ReconcileError, Reconciler, cache::Kind};
use vitistack_types::v1alpha1::ConfigurationStatus;

use crate::Caches;

/// Who writes their status.
const MANAGER: &str = "vitistack-configuration";

/// Tells of the objects of one kind.
pub(super) struct ConfigurationReconciler(pub(super) Caches);

#[async_trait]
impl<K> Reconciler<K> for ConfigurationReconciler
where
    K: Kind<DynamicType = ()> + HasStatus<Status = ConfigurationStatus>,
{
    fn lane(&self, _: &K) -> Lane {
        Lane::Observe
    }

    async fn reconcile(&self, object: Arc<K>) -> Result<Outcome, ReconcileError> {
        let (metadata, before) = (object.meta(), object.status());
        if metadata.deletion_timestamp.is_none() {
            let after = status(metadata, before, self.0.now());
            apply_status(&self.0.client, MANAGER, object.as_ref(), before, &after)
                .await
                .map_err(|error| ReconcileError::from_source("ApplyStatus", error))?;
        }
        Ok(Outcome::Done)
    }
}
