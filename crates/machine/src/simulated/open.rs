//! Opens simulated providers: each has a world of its own, in the store that the operator is configured with.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use futures::StreamExt;
use vitistack_plan::{Refusal, provider::identity};
use vitistack_types::v1alpha1::{MachineProvider, ProviderType};

use super::{
    Clock, Settings, Simulated, SystemClock, WorldStore, world::SIMULATED_PROVIDER_ERROR, world_name,
};
use crate::{BackendOpener, OpenBackend, ProviderChange, ProviderConfig};

/// Returns the name of a provider's world. A restored provider finds its previous world, because its identity is restored
/// with it; a provider that was deleted and recreated has another UID and a new world.
#[must_use]
pub fn world_of(provider: &MachineProvider) -> String {
    let metadata = &provider.metadata;
    world_name(
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
        identity(provider),
    )
}

/// Returns the store of a provider's world.
pub type Stores = Arc<dyn Fn(&MachineProvider) -> Arc<dyn WorldStore> + Send + Sync>;

/// Opens simulated providers.
pub struct SimulatedOpener {
    stores: Stores,
    clock: Arc<dyn Clock>,
    /// The open worlds by name: changed settings are applied to the open world.
    worlds: Mutex<HashMap<String, Simulated>>,
}

impl SimulatedOpener {
    /// Returns an opener of the worlds in these stores.
    #[must_use]
    pub fn new(stores: Stores) -> Self {
        Self::with_clock(stores, Arc::new(SystemClock))
    }

    /// Returns an opener of the worlds in these stores, whose time is that of `clock`.
    #[must_use]
    pub fn with_clock(stores: Stores, clock: Arc<dyn Clock>) -> Self {
        Self { stores, clock, worlds: Mutex::default() }
    }

    fn opened(world: &Simulated) -> OpenBackend {
        OpenBackend {
            backend: Arc::new(world.clone()),
            changes: world.changes().map(ProviderChange::Machine).boxed(),
        }
    }
}

#[async_trait]
impl BackendOpener for SimulatedOpener {
    fn provider_type(&self) -> ProviderType {
        ProviderType::Simulated
    }

    fn fingerprint(&self, config: &ProviderConfig) -> String {
        let provider = config.provider.as_ref();
        provider
            .map(|provider| format!("{} {:?}", world_of(provider), Settings::from(&provider.spec)))
            .unwrap_or_default()
    }

    async fn open(&self, config: &ProviderConfig) -> Result<OpenBackend, Refusal> {
        let Some(provider) = &config.provider else {
            return Err(Refusal::new(
                SIMULATED_PROVIDER_ERROR,
                "a simulated world requires a MachineProvider: create one",
            ));
        };
        let name = world_of(provider);
        let settings = Settings::from(&provider.spec).in_world(&name);
        let world = self.worlds.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
        if let Some(world) = world {
            world.configure(settings);
            return Ok(Self::opened(&world));
        }
        let world = Simulated::open(settings, Arc::clone(&self.clock), (self.stores)(provider)).await;
        // The causes may contain paths and servers, which tenants must not see: they are only logged.
        let world = world.map_err(|error| {
            tracing::warn!("failed to open a simulated world: {}", report(&error));
            Refusal::new(SIMULATED_PROVIDER_ERROR, format!("{error}: opening is retried"))
        })?;
        self.worlds.lock().unwrap_or_else(PoisonError::into_inner).insert(name, world.clone());
        Ok(Self::opened(&world))
    }

    fn close(&self) {
        self.worlds.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn report(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
