//! The simulated backend: a hypervisor that exists only in the process, for trying things out and for tests.
//!
//! All it does follows from its settings, its seed, the calls and the times at which they come, so that a run can be
//! repeated exactly. [`world::World`] decides everything, purely; what is here only locks, saves and wakes.

mod apply;
mod clock;
pub mod faults;
mod observe;
mod plan;
mod settings;
mod store;
pub mod world;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt as _};
use jiff::Timestamp;
use vitistack_plan::machine::{Capabilities, Identity, Observed};

pub use apply::OpenWorldError;
pub use clock::{Clock, ManualClock, SystemClock};
pub(crate) use plan::capabilities;
pub use settings::{Room, Settings};
pub use store::{
    FileStore, KubernetesStore, MemoryStore, StoreError, Stored, Traffic, WorldStore, world_name,
};

use crate::{Backend, BackendError, Changes, ErrorKind, Order, Part, Progress, Target, Update};
use apply::Kept;
use world::{Request, SIMULATED_PROVIDER_ERROR, World};

/// A backend with a world of its own. A clone is the same backend.
#[derive(Clone)]
pub struct Simulated {
    kept: Arc<Kept>,
}

impl fmt::Debug for Simulated {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Simulated").finish_non_exhaustive()
    }
}

impl Simulated {
    /// The backend of the world that the store keeps; of a new one if it keeps none.
    pub async fn open(
        settings: Settings,
        clock: Arc<dyn Clock>,
        store: Arc<dyn WorldStore>,
    ) -> Result<Self, OpenWorldError> {
        Ok(Self { kept: Arc::new(Kept::open(settings, clock, store).await?) })
    }

    /// Gives the world other settings, as when its MachineProvider was edited; what is there stays.
    pub fn configure(&self, settings: Settings) {
        self.kept.look(|world| world.configure(settings));
    }

    /// Reads something from the world as it is now.
    pub fn inspect<R>(&self, read: impl FnOnce(&World) -> R) -> R {
        self.kept.look(|world| read(world))
    }

    /// Does something to the world that no provider's API could, as tests and demonstrations need it; saved when it returns.
    pub async fn intervene<R>(
        &self,
        work: impl FnOnce(&mut World, Timestamp) -> R + Send,
    ) -> Result<R, BackendError> {
        self.kept.with(work).await
    }
}

#[async_trait]
impl Backend for Simulated {
    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    async fn observe(&self, target: &Target, order: Option<&Order>) -> Result<Observed, BackendError> {
        let definition = order.map(plan::definition);
        self.kept
            .with(|world, _| {
                world.reach()?;
                Ok(observe::observe(world, target, definition.as_ref()))
            })
            .await?
    }

    async fn create(&self, order: &Order) -> Result<Progress, BackendError> {
        let request = Request::Create(plan::definition(order));
        self.kept
            .with(|world, now| {
                world.reach()?;
                refuse_elsewhere(world, &order.target)?;
                world.request(now, &request)
            })
            .await?
    }

    async fn update(&self, order: &Order, update: &Update) -> Result<Progress, BackendError> {
        self.kept
            .with(|world, now| {
                world.reach()?;
                refuse_elsewhere(world, &order.target)?;
                let id = world.machine_of(order.target.identity.as_str()).map(|machine| machine.id);
                let Some(id) = id else {
                    let message =
                        format!("there is no machine for {}: create it first", order.target.identity);
                    return Err(BackendError::new(ErrorKind::Failed, SIMULATED_PROVIDER_ERROR, message));
                };
                world.request(now, &plan::update(id, order, update))
            })
            .await?
    }

    async fn delete(&self, target: &Target, part: &Part) -> Result<Progress, BackendError> {
        self.kept
            .with(|world, now| {
                world.reach()?;
                if observe::elsewhere(world, target).is_some() {
                    // Nothing of it is the target's.
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

/// Refuses to act on what was made for a Machine of another namespace.
fn refuse_elsewhere(world: &World, target: &Target) -> Result<(), BackendError> {
    match observe::elsewhere(world, target) {
        None => Ok(()),
        Some(elsewhere) => {
            let refusal = elsewhere.refusal(&target.identity, &target.namespace);
            Err(BackendError::new(ErrorKind::Refused, refusal.reason, refusal.message))
        }
    }
}

impl Changes for Simulated {
    fn changes(&self) -> BoxStream<'static, Identity> {
        let state = (Arc::clone(&self.kept), self.kept.listen());
        stream::unfold(state, |(kept, listener)| async move {
            let identity = kept.next_change(&listener).await;
            Some((identity, (kept, listener)))
        })
        .boxed()
    }
}
