//! Ten thousand machines: the cost of a change must not grow with the world.

use std::{future::Future as _, pin::pin, sync::Arc};

use async_trait::async_trait;
use futures::{
    StreamExt as _,
    future::{join, join_all},
    stream,
    task::noop_waker_ref,
};
use tokio::sync::Semaphore;
use vitistack_machine::{
    Backend as _, Order, Progress, Target,
    simulated::{MemoryStore, Settings, StoreError, Stored, WorldStore},
};
use vitistack_plan::machine::Identity;

use crate::fixture::{Process, latency, order};

/// Returns a copy of an order with another name, because validating ten thousand Machines would dominate the test.
pub fn copy(pattern: &Order, number: usize) -> Order {
    let (name, identity) = (format!("vm-{number}"), format!("identity-{number}"));
    let mut order = pattern.clone();
    order.desired.name.clone_from(&name);
    order.target = Target {
        identity: Identity::new(identity.clone()),
        uid: identity,
        name,
        namespace: order.target.namespace,
    };
    order
}

#[tokio::test]
async fn ten_thousand_creates_write_in_proportion_to_their_changes() {
    const COUNT: usize = 10_000;
    let store = MemoryStore::default();
    let mut process = Process::start_on(latency(1), Arc::new(store.clone())).await;
    let pattern = order("vm");
    let orders: Vec<_> = (0..COUNT).map(|number| copy(&pattern, number)).collect();
    let backend = &process.backend;
    stream::iter(&orders)
        .for_each_concurrent(16, |order| async move {
            assert!(matches!(backend.create(order).await.unwrap(), Progress::Working(_)));
        })
        .await;
    let size = u64::try_from(process.snapshot().len()).unwrap();
    let traffic = store.traffic();
    // The whole journal once, and the snapshots that replace it: each at most half of what was written since the last one.
    assert!(traffic.bytes < 4 * size, "{} bytes for a world of {size}", traffic.bytes);

    process.settle();
    for order in orders.iter().step_by(997) {
        let machine = process.backend.observe(&order.target, Some(order)).await.unwrap().machine.unwrap();
        assert!(machine.is_current);
    }
    assert_eq!(store.traffic(), traffic, "neither time nor observations cause writes");
    let before = process.snapshot();
    process.restart().await;
    assert_eq!(process.snapshot().len(), before.len());
    assert!(process.snapshot() == before, "a world of {COUNT} machines differs after a restart");
}

/// A store whose writes wait for a permit, as with a slow server.
struct SlowStore {
    inner: MemoryStore,
    gate: Semaphore,
}

#[async_trait]
impl WorldStore for SlowStore {
    async fn load(&self) -> Result<Stored, StoreError> {
        self.inner.load().await
    }

    async fn append(&self, expected: u64, record: Vec<u8>) -> Result<u64, StoreError> {
        self.gate.acquire().await.unwrap().forget();
        self.inner.append(expected, record).await
    }

    async fn replace(&self, expected: u64, record: Vec<u8>) -> Result<u64, StoreError> {
        self.inner.replace(expected, record).await
    }

    async fn delete_all(&self) -> Result<(), StoreError> {
        self.inner.delete_all().await
    }
}

#[tokio::test]
async fn calls_during_a_save_share_the_next_write() {
    let inner = MemoryStore::default();
    let store = Arc::new(SlowStore { inner: inner.clone(), gate: Semaphore::new(0) });
    let process = Process::start_on(Settings::default(), Arc::clone(&store) as Arc<dyn WorldStore>).await;
    let orders: Vec<_> = (0..100).map(|number| order(&format!("vm-{number}"))).collect();
    let creates = join_all(orders.iter().map(|order| process.backend.create(order)));
    let release = async {
        // By now every create is waiting: none returned before it was saved.
        assert_eq!(inner.traffic().writes, 0);
        store.gate.add_permits(100);
    };
    let (answers, ()) = join(creates, release).await;
    assert!(answers.iter().all(|answer| *answer == Ok(Progress::Done)));
    assert_eq!(inner.traffic().writes, 2, "one for the first call, one for all others");
}

#[tokio::test]
async fn a_caller_that_is_canceled_during_a_save_loses_nothing() {
    let inner = MemoryStore::default();
    let store = Arc::new(SlowStore { inner: inner.clone(), gate: Semaphore::new(0) });
    let mut process = Process::start_on(Settings::default(), Arc::clone(&store) as Arc<dyn WorldStore>).await;
    let (one, two) = (order("one"), order("two"));
    {
        let mut create = pin!(process.backend.create(&one));
        let mut context = std::task::Context::from_waker(noop_waker_ref());
        assert!(create.as_mut().poll(&mut context).is_pending());
    }
    store.gate.add_permits(100);
    process.backend.create(&two).await.unwrap();
    process.restart().await;
    for order in [one, two] {
        let observed = process.backend.observe(&order.target, None).await.unwrap();
        assert!(observed.machine.is_some(), "{} was lost", order.target.name);
    }
}
