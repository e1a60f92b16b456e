//! Simulated providers as one incarnation of an operator process reaches them, with their faults.

use std::sync::Arc;

use async_trait::async_trait;
use vitistack_machine::{
    Backend, BackendError, BackendOpener, ErrorKind, OpenBackend, Order, Part, Progress, ProviderConfig,
    Target, Update,
    simulated::{MemoryStore, SimulatedOpener, StoreError, Stored, WorldStore},
};
use vitistack_plan::{
    Refusal,
    machine::{Capabilities, Observed},
};
use vitistack_types::{conditions::reason, v1alpha1::ProviderType};

use super::{
    incarnation::Incarnation,
    invariants::ProviderCall,
    plan::{CrashPoint, FaultTiming},
};

/// Opens simulated providers for one incarnation.
pub struct FaultyOpener {
    pub incarnation: Arc<Incarnation>,
    pub inner: SimulatedOpener,
}

#[async_trait]
impl BackendOpener for FaultyOpener {
    fn provider_type(&self) -> ProviderType {
        self.inner.provider_type()
    }

    fn fingerprint(&self, source: &ProviderConfig) -> String {
        self.inner.fingerprint(source)
    }

    async fn open(&self, source: &ProviderConfig) -> Result<OpenBackend, Refusal> {
        let OpenBackend { backend, changes } = self.inner.open(source).await?;
        let metadata = source.provider.as_ref().map(|provider| provider.metadata.clone()).unwrap_or_default();
        let provider =
            format!("{}/{}", metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default());
        let backend =
            Arc::new(FaultyBackend { incarnation: Arc::clone(&self.incarnation), provider, inner: backend });
        Ok(OpenBackend { backend, changes })
    }

    fn close(&self) {
        self.inner.close();
    }
}

/// A provider as one incarnation reaches it.
struct FaultyBackend {
    incarnation: Arc<Incarnation>,
    provider: String,
    inner: Arc<dyn Backend>,
}

impl FaultyBackend {
    /// Makes one counted call: a crash point before and after it, the invariants checked, the outcome logged.
    async fn call<R>(
        &self,
        what: String,
        call: ProviderCall<'_>,
        target: &Target,
        work: impl Future<Output = Result<R, BackendError>> + Send,
    ) -> Result<R, BackendError>
    where
        R: std::fmt::Debug + Send,
    {
        let context = &self.incarnation.context;
        let number = (!self.incarnation.has_ended()).then(|| context.count_provider_call());
        self.incarnation.checkpoint(number.map(CrashPoint::BeforeProviderCall)).await;
        context.checker.record_provider_call(self.incarnation.number, &self.provider, call, target);

        let result = work.await;
        let outcome = match &result {
            Ok(progress) => format!("{progress:?}"),
            Err(error) => error.to_string(),
        };
        let number_or_zero = number.unwrap_or_default();
        context.log(&format!("provider call {number_or_zero}: {what} on {}: {outcome}", self.provider));

        self.incarnation.checkpoint(number.map(CrashPoint::AfterProviderCall)).await;
        result
    }

    /// Creates the machine, or fails for lack of capacity, before or after it is created.
    async fn create_or_fail(&self, order: &Order) -> Result<Progress, BackendError> {
        match self.incarnation.context.draw_capacity_error() {
            None => self.inner.create(order).await,
            Some(FaultTiming::Before) => Err(no_capacity()),
            // As after a lost response: the retry finds the capacity used by the first create.
            Some(FaultTiming::After) => {
                self.inner.create(order).await?;
                Err(no_capacity())
            }
        }
    }
}

fn no_capacity() -> BackendError {
    let message = "the provider has no capacity left (planned fault)";
    BackendError::new(ErrorKind::NoCapacity, reason::INSUFFICIENT_RESOURCES, message)
}

#[async_trait]
impl Backend for FaultyBackend {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn observe(&self, target: &Target, order: Option<&Order>) -> Result<Observed, BackendError> {
        self.incarnation.checkpoint(None).await;
        self.inner.observe(target, order).await
    }

    async fn create(&self, order: &Order) -> Result<Progress, BackendError> {
        let what = format!("create {}", order.target.name);
        self.call(what, ProviderCall::CreateOrUpdate, &order.target, self.create_or_fail(order)).await
    }

    async fn update(&self, order: &Order, update: &Update) -> Result<Progress, BackendError> {
        let what = format!("{update:?} {}", order.target.name);
        self.call(what, ProviderCall::CreateOrUpdate, &order.target, self.inner.update(order, update)).await
    }

    async fn delete(&self, target: &Target, part: &Part) -> Result<Progress, BackendError> {
        let what = format!("delete {part:?} {}", target.name);
        self.call(what, ProviderCall::Delete(part), target, self.inner.delete(target, part)).await
    }
}

/// The store of a simulated provider as one incarnation reaches it.
pub struct FaultyStore {
    pub incarnation: Arc<Incarnation>,
    pub provider: String,
    pub inner: MemoryStore,
}

impl FaultyStore {
    /// Appends a record, or replaces all records with it. A planned fault fails before or after that.
    async fn write(&self, expected: u64, record: Vec<u8>, replaces: bool) -> Result<u64, StoreError> {
        self.incarnation.checkpoint(None).await;
        let context = &self.incarnation.context;
        let fault = context.draw_store_fault();
        if fault == Some(FaultTiming::Before) {
            context.log("the provider store fails before it writes");
            return Err(store_error(&self.provider));
        }

        let written = if replaces {
            self.inner.replace(expected, record.clone()).await
        } else {
            self.inner.append(expected, record.clone()).await
        };
        if written.is_ok() {
            context.record_activity();
            context.checker.record_provider_state(&self.provider, &record, replaces);
        }

        if fault == Some(FaultTiming::After) {
            context.log("the provider store fails after it wrote");
            return Err(store_error(&self.provider));
        }
        written
    }
}

fn store_error(provider: &str) -> StoreError {
    let source = std::io::Error::other("planned fault");
    StoreError::ReachStore { action: "write", path: provider.to_owned(), source }
}

#[async_trait]
impl WorldStore for FaultyStore {
    async fn load(&self) -> Result<Stored, StoreError> {
        self.incarnation.checkpoint(None).await;
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
