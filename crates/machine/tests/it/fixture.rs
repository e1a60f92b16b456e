//! Orders and backends for tests.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use vitistack_machine::{
    Order, Target,
    simulated::{Clock as _, ManualClock, MemoryStore, Settings, Simulated, WorldStore, world::World},
};
use vitistack_plan::machine::{Identity, References, resolve};
use vitistack_types::v1alpha1::Machine;

/// Returns the time at which tests start.
pub fn start_time() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// Returns an order for a machine with the template `small`.
pub fn order(name: &str) -> Order {
    let machine = Machine::builder().template("small").build(name, "default").unwrap();
    Order {
        target: Target {
            identity: Identity::new(format!("identity-{name}")),
            uid: format!("identity-{name}"),
            name: name.to_owned(),
            namespace: "default".to_owned(),
        },
        desired: resolve(&machine, &References::default()).unwrap(),
    }
}

/// Returns default settings with this latency in seconds.
pub fn latency(seconds: u64) -> Settings {
    Settings { latency: Duration::from_secs(seconds), ..Settings::default() }
}

/// A backend with its clock and its store, which outlive a restart.
pub struct Process {
    pub clock: ManualClock,
    pub store: Arc<dyn WorldStore>,
    pub settings: Settings,
    pub backend: Simulated,
}

impl Process {
    pub async fn start(settings: Settings) -> Self {
        Self::start_on(settings, Arc::new(MemoryStore::default())).await
    }

    pub async fn start_on(settings: Settings, store: Arc<dyn WorldStore>) -> Self {
        let clock = ManualClock::new(start_time());
        let backend = open(&settings, &clock, &store).await;
        Self { clock, store, settings, backend }
    }

    /// Kills the process and starts it again.
    pub async fn restart(&mut self) {
        self.backend = open(&self.settings, &self.clock, &self.store).await;
    }

    /// Advances the clock until no task is running.
    pub fn settle(&self) {
        while let Some(due) = self.backend.inspect(World::next_due) {
            let wait = Duration::try_from(self.clock.now().duration_until(due)).unwrap();
            self.clock.advance(wait);
        }
    }

    /// Returns the whole world as JSON.
    pub fn snapshot(&self) -> String {
        String::from_utf8(self.backend.inspect(World::snapshot).unwrap()).unwrap()
    }
}

async fn open(settings: &Settings, clock: &ManualClock, store: &Arc<dyn WorldStore>) -> Simulated {
    Simulated::open(settings.clone(), Arc::new(clock.clone()), Arc::clone(store)).await.unwrap()
}
