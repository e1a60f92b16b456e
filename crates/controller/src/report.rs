//! Writes the status of an object and publishes its events, for every kind.

use kube::{Client, Resource};
use serde::Serialize;
use snafu::ResultExt;
use vitistack_clients::kubernetes::apply_status;
use vitistack_runtime::{Cache, cache::Kind, events::Events};
use vitistack_types::{Event, ObjectName};

use crate::error::{ApplyStatusSnafu, Error};

/// Where the reports on one kind go.
pub(crate) struct Reporter<'a, K: Kind> {
    pub(crate) client: &'a Client,
    /// The field manager of the status.
    pub(crate) manager: &'static str,
    /// The cache that returns what was written.
    pub(crate) cache: &'a Cache<K>,
    pub(crate) events: &'a Events,
}

impl<K: Kind + Resource<DynamicType = ()>> Reporter<'_, K> {
    /// Writes a status and publishes its events. Returns whether it was written; otherwise the object changed or is gone.
    pub(crate) async fn report<S: Serialize>(
        &self,
        object: &K,
        status: &S,
        events: &[Event],
    ) -> Result<bool, Error> {
        let written = apply_status(self.client, self.manager, object, status)
            .await
            .with_context(|_| ApplyStatusSnafu { kind: K::kind(&()), name: ObjectName::of(object) })?;

        let Some(written) = written else { return Ok(false) };
        self.cache.wrote(written);
        for event in events {
            self.events.publish(&object.object_ref(&()), event).await;
        }
        Ok(true)
    }
}
