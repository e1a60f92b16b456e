//! The simulated backend: a provider that runs inside the process, for trying VitiStack out and for tests.
//!
//! Its behavior follows from its settings, its seed, the calls and their times, so that every run is repeatable.
//! [`world::World`] makes all decisions and is pure; this module locks it, saves it and notifies subscribers.

mod backend_type;
mod clock;
pub mod faults;
mod journal;
mod observe;
mod open;
mod plan;
mod settings;
mod store;
pub mod world;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt as _};
use jiff::Timestamp;
use vitistack_plan::machine::{Capabilities, Identity, Observed, Problem};

pub use backend_type::SimulatedType;
pub use clock::{Clock, ManualClock, SystemClock};
pub use journal::OpenWorldError;
pub use open::{SimulatedOpener, Stores, world_of};
pub(crate) use plan::capabilities;
pub use settings::{Capacity, Settings};
pub use store::{KubernetesStore, MemoryStore, StoreError, Stored, Traffic, WorldStore, world_name};

use crate::{Backend, BackendError, ErrorKind, Order, Part, Progress, Target, Update};
use journal::Journaled;
use world::{Request, SIMULATED_PROVIDER_ERROR, World};

/// A backend for one simulated world. Clones share the world.
#[derive(Clone)]
pub struct Simulated {
    world: Arc<Journaled>,
}

impl fmt::Debug for Simulated {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Simulated").finish_non_exhaustive()
    }
}

impl Simulated {
    /// Opens the world in the store, or creates one if the store is empty.
    pub async fn open(
        settings: Settings,
        clock: Arc<dyn Clock>,
        store: Arc<dyn WorldStore>,
    ) -> Result<Self, OpenWorldError> {
        Ok(Self { world: Arc::new(Journaled::open(settings, clock, store).await?) })
    }

    /// Changes the settings, for example after the MachineProvider was edited. Existing machines are not affected.
    pub fn configure(&self, settings: Settings) {
        self.world.access(|world| world.configure(settings));
    }

    /// Reads from the world as it is now.
    pub fn inspect<R>(&self, read: impl FnOnce(&World) -> R) -> R {
        self.world.access(|world| read(world))
    }

    /// Changes the world directly, bypassing the provider's API, for tests and demos. The change is saved on return.
    pub async fn intervene<R>(
        &self,
        work: impl FnOnce(&mut World, Timestamp) -> R + Send,
    ) -> Result<R, BackendError> {
        self.world.commit(work).await
    }

    /// Streams the identities whose machine or volumes change from now on.
    #[must_use]
    pub fn changes(&self) -> BoxStream<'static, Identity> {
        let state = (Arc::clone(&self.world), self.world.subscribe());
        stream::unfold(state, |(world, subscriber)| async move {
            let identity = world.next_change(&subscriber).await;
            Some((identity, (world, subscriber)))
        })
        .boxed()
    }
}

#[async_trait]
impl Backend for Simulated {
    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    async fn observe(&self, target: &Target, order: Option<&Order>) -> Result<Observed, BackendError> {
        let definition = order.map(plan::definition);
        self.world
            .commit(|world, _| {
                world.check_reachable()?;
                let mut observed = observe::observe(world, target, definition.as_ref());
                let refused =
                    order.map(|order| plan::forbidden(order, &world.settings().limits, &observed.disks));
                observed.problems.extend(refused.into_iter().flatten());
                Ok(observed)
            })
            .await?
    }

    async fn create(&self, order: &Order) -> Result<Progress, BackendError> {
        let request = Request::Create(plan::definition(order));
        self.world
            .commit(|world, now| {
                world.check_reachable()?;
                refuse_elsewhere(world, &order.target)?;
                refuse_forbidden(world, order)?;
                world.request(now, &request)
            })
            .await?
    }

    async fn update(&self, order: &Order, update: &Update) -> Result<Progress, BackendError> {
        self.world
            .commit(|world, now| {
                world.check_reachable()?;
                refuse_elsewhere(world, &order.target)?;

                let id = world.machine_of(order.target.identity.as_str()).map(|machine| machine.id);
                let Some(id) = id else {
                    let message = format!(
                        "no machine with identity {} exists at the provider: create it first",
                        order.target.identity
                    );
                    return Err(BackendError::new(ErrorKind::Failed, SIMULATED_PROVIDER_ERROR, message));
                };
                if *update == Update::Specification {
                    refuse_forbidden(world, order)?;
                }
                world.request(now, &plan::update(id, order, update))
            })
            .await?
    }

    async fn delete(&self, target: &Target, part: &Part) -> Result<Progress, BackendError> {
        self.world
            .commit(|world, now| {
                world.check_reachable()?;
                if observe::elsewhere(world, target).is_some() {
                    // Nothing with this identity belongs to the target.
                    return Ok(Progress::Done);
                }

                let id = world.machine_of(target.identity.as_str()).map(|machine| machine.id);
                match plan::delete(id, target, part) {
                    Some(request) => world.request(now, &request),
                    None => Ok(Progress::Done),
                }
            })
            .await?
    }
}

/// Refuses to act on what was created for a Machine in another namespace.
fn refuse_elsewhere(world: &World, target: &Target) -> Result<(), BackendError> {
    match observe::elsewhere(world, target) {
        None => Ok(()),
        Some(elsewhere) => {
            let refusal = elsewhere.refusal(&target.identity, &target.namespace);
            Err(BackendError::refused(refusal))
        }
    }
}

/// Refuses what the provider does not let Machines use. A disk that exists is not filled again.
fn refuse_forbidden(world: &World, order: &Order) -> Result<(), BackendError> {
    let disks = observe::observe(world, &order.target, None).disks;
    match plan::forbidden(order, &world.settings().limits, &disks).first().map(Problem::refusal) {
        None => Ok(()),
        Some(refusal) => Err(BackendError::refused(refusal.clone())),
    }
}
