//! Simulated providers: each has a world of its own, kept where the operator is told to.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use futures::StreamExt;
use vitistack_machine::{
    Changes,
    simulated::{
        Clock, Settings, Simulated, SystemClock, WorldStore, world::SIMULATED_PROVIDER_ERROR, world_name,
    },
};
use vitistack_plan::{Refusal, provider::identity};
use vitistack_types::v1alpha1::{MachineProvider, ProviderType};

use super::{Changed, Opened, Opener, Source};

/// The name of the world of a provider. One that was restored finds the world it had, because both came along; one that
/// was deleted and made anew has another UID and a new world.
#[must_use]
pub fn world_of(provider: &MachineProvider) -> String {
    let metadata = &provider.metadata;
    world_name(
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
        identity(provider),
    )
}

/// Where the world of a provider is kept.
pub type Stores = Arc<dyn Fn(&MachineProvider) -> Arc<dyn WorldStore> + Send + Sync>;

/// Opens simulated providers.
pub struct SimulatedOpener {
    stores: Stores,
    clock: Arc<dyn Clock>,
    /// Open worlds by their names: other settings are given to the world that is there.
    worlds: Mutex<HashMap<String, Simulated>>,
}

impl SimulatedOpener {
    /// Opens worlds from these stores.
    #[must_use]
    pub fn new(stores: Stores) -> Self {
        Self::with_clock(stores, Arc::new(SystemClock))
    }

    /// Opens worlds from these stores, in which it is always the time of `clock`.
    #[must_use]
    pub fn with_clock(stores: Stores, clock: Arc<dyn Clock>) -> Self {
        Self { stores, clock, worlds: Mutex::default() }
    }

    fn opened(world: &Simulated) -> Opened {
        Opened { backend: Arc::new(world.clone()), changes: world.changes().map(Changed::One).boxed() }
    }
}

#[async_trait]
impl Opener for SimulatedOpener {
    fn provider_type(&self) -> ProviderType {
        ProviderType::Simulated
    }

    fn fingerprint(&self, source: &Source) -> String {
        let provider = source.provider.as_ref();
        provider
            .map(|provider| format!("{} {:?}", world_of(provider), Settings::from(&provider.spec)))
            .unwrap_or_default()
    }

    async fn open(&self, source: &Source) -> Result<Opened, Refusal> {
        let Some(provider) = &source.provider else {
            return Err(Refusal::new(SIMULATED_PROVIDER_ERROR, "a simulated world needs a MachineProvider"));
        };
        let name = world_of(provider);
        let settings = Settings::from(&provider.spec).in_world(&name);
        let world = self.worlds.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
        if let Some(world) = world {
            world.configure(settings);
            return Ok(Self::opened(&world));
        }
        let world = Simulated::open(settings, Arc::clone(&self.clock), (self.stores)(provider)).await;
        // The causes may name paths and servers, which are no business of a tenant; they are logged.
        let world = world.map_err(|error| {
            tracing::warn!("failed to open a simulated world: {}", report(&error));
            Refusal::new(SIMULATED_PROVIDER_ERROR, format!("{error}: it is tried again"))
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
