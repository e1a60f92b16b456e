//! Reports that MachineClasses and NetworkConfigurations can be used. Every machine operator does, with the same result, so
//! that a user who waits for one to be ready does not depend on which of them runs.

use std::sync::Arc;

use async_trait::async_trait;
use kube::core::object::HasStatus;
use snafu::ResultExt;
use vitistack_clients::kubernetes::apply_status;
use vitistack_plan::configuration::plan;
use vitistack_plan::waiting;
use vitistack_runtime::{Lane, Outcome, ReconcileError, Reconciler, cache::Kind};
use vitistack_types::{ObjectName, v1alpha1::ConfigurationStatus};

use super::STALE_CHECK;
use crate::{Caches, error::ApplyStatusSnafu};

/// The field manager of their status.
const FIELD_MANAGER: &str = "vitistack-configuration";

/// Reconciles the objects of one kind.
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
        let object = object.as_ref();
        let plan = plan(object.meta(), object.status(), self.0.now());
        if let Some(status) = &plan.status {
            let written = apply_status(&self.0.client, FIELD_MANAGER, object, status)
                .await
                .with_context(|_| ApplyStatusSnafu { kind: K::kind(&()), name: ObjectName::of(object) })?;
            if written.is_none() {
                return Ok(Outcome::wait(waiting::CURRENT_OBJECT, STALE_CHECK));
            }
        }
        Ok(plan.requeue)
    }
}
