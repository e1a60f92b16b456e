//! Simulated providers as one life of an operator sees them.

use std::sync::Arc;

use async_trait::async_trait;
use vitistack_controller::backends::{Opened, Opener, SimulatedOpener, Source};
use vitistack_machine::{
    Backend, BackendError, ErrorKind, Order, Part, Progress, Target, Update,
    simulated::{MemoryStore, StoreError, Stored, WorldStore},
};
use vitistack_plan::{
    Refusal,
    machine::{Capabilities, Observed},
};
use vitistack_types::{conditions::reason, v1alpha1::ProviderType};

use super::{
    life::{Life, Point},
    witness::Call,
};

/// Opens simulated providers for one life.
pub struct LifeOpener {
    pub life: Arc<Life>,
    pub inner: SimulatedOpener,
}

#[async_trait]
impl Opener for LifeOpener {
    fn provider_type(&self) -> ProviderType {
        self.inner.provider_type()
    }

    fn fingerprint(&self, source: &Source) -> String {
        self.inner.fingerprint(source)
    }

    async fn open(&self, source: &Source) -> Result<Opened, Refusal> {
        let Opened { backend, changes } = self.inner.open(source).await?;
        let metadata = source.provider.as_ref().map(|provider| provider.metadata.clone()).unwrap_or_default();
        let provider =
            format!("{}/{}", metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default());
        let backend = Arc::new(LifeBackend { life: Arc::clone(&self.life), provider, inner: backend });
        Ok(Opened { backend, changes })
    }

    fn close(&self) {
        self.inner.close();
    }
}

/// A provider as one life sees it.
struct LifeBackend {
    life: Arc<Life>,
    provider: String,
    inner: Arc<dyn Backend>,
}

impl LifeBackend {
    async fn step<R>(
        &self,
        what: String,
        call: Call<'_>,
        target: &Target,
        work: impl Future<Output = Result<R, BackendError>> + Send,
    ) -> Result<R, BackendError>
    where
        R: std::fmt::Debug + Send,
    {
        let script = &self.life.script;
        let number = (!self.life.is_over()).then(|| script.count_step());
        self.life.pass(number.map(Point::BeforeStep)).await;
        script.witness.asked(self.life.number, &self.provider, call, target);
        let answer = work.await;
        let how = match &answer {
            Ok(progress) => format!("{progress:?}"),
            Err(error) => error.to_string(),
        };
        script.tell(&format!("step {}: {what} on {}: {how}", number.unwrap_or_default(), self.provider));
        self.life.pass(number.map(Point::AfterStep)).await;
        answer
    }

    /// Makes the machine; or says that there is no room, be it only for an answer.
    async fn make(&self, order: &Order) -> Result<Progress, BackendError> {
        let message = "there is no room (planned fault)";
        let full = || BackendError::new(ErrorKind::NoCapacity, reason::INSUFFICIENT_RESOURCES, message);
        match self.life.script.no_room() {
            None => self.inner.create(order).await,
            Some(false) => Err(full()),
            // As after an answer that was lost: what was asked the second time found the place taken by the first.
            Some(true) => {
                self.inner.create(order).await?;
                Err(full())
            }
        }
    }
}

#[async_trait]
impl Backend for LifeBackend {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn observe(&self, target: &Target, order: Option<&Order>) -> Result<Observed, BackendError> {
        self.life.pass(None).await;
        self.inner.observe(target, order).await
    }

    async fn create(&self, order: &Order) -> Result<Progress, BackendError> {
        let what = format!("create {}", order.target.name);
        self.step(what, Call::Make, &order.target, self.make(order)).await
    }

    async fn update(&self, order: &Order, update: &Update) -> Result<Progress, BackendError> {
        let what = format!("{update:?} {}", order.target.name);
        self.step(what, Call::Make, &order.target, self.inner.update(order, update)).await
    }

    async fn delete(&self, target: &Target, part: &Part) -> Result<Progress, BackendError> {
        let what = format!("delete {part:?} {}", target.name);
        self.step(what, Call::Delete(part), target, self.inner.delete(target, part)).await
    }
}

/// The store of a world as one life sees it.
pub struct LifeStore {
    pub life: Arc<Life>,
    pub provider: String,
    pub inner: MemoryStore,
}

impl LifeStore {
    async fn write(&self, expected: u64, record: Vec<u8>, is_all: bool) -> Result<u64, StoreError> {
        self.life.pass(None).await;
        let script = &self.life.script;
        let fault = script.store_fault();
        if fault == Some(false) {
            script.tell("the store of the world fails before it wrote");
            return Err(broken(&self.provider));
        }
        let written = if is_all {
            self.inner.replace(expected, record.clone()).await
        } else {
            self.inner.append(expected, record.clone()).await
        };
        if written.is_ok() {
            script.stir();
            script.witness.saved(&self.provider, &record, is_all);
        }
        if fault == Some(true) {
            script.tell("the store of the world fails after it wrote");
            return Err(broken(&self.provider));
        }
        written
    }
}

fn broken(provider: &str) -> StoreError {
    let source = std::io::Error::other("planned fault");
    StoreError::ReachStore { action: "write", path: provider.to_owned(), source }
}

#[async_trait]
impl WorldStore for LifeStore {
    async fn load(&self) -> Result<Stored, StoreError> {
        self.life.pass(None).await;
        self.inner.load().await
    }

    async fn append(&self, expected: u64, record: Vec<u8>) -> Result<u64, StoreError> {
        self.write(expected, record, false).await
    }

    async fn replace(&self, expected: u64, record: Vec<u8>) -> Result<u64, StoreError> {
        self.write(expected, record, true).await
    }

    async fn delete_all(&self) -> Result<(), StoreError> {
        self.inner.delete_all().await
    }
}
