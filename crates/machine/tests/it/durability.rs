//! A world outlives its process, wherever the process crashes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use vitistack_machine::{
    Backend as _, ErrorKind, Update,
    simulated::{MemoryStore, Settings, StoreError, Stored, WorldStore},
};

use crate::{
    fixture::{Process, latency, order},
    story::play,
};

async fn no_interruption(_: &mut Process, _: usize) {}

fn faulty(seed: u64) -> Settings {
    Settings { seed, failed_tasks_percent: 30, lost_replies_percent: 30, reuse_ids: true, ..latency(3) }
}

#[tokio::test]
async fn a_story_depends_only_on_the_seed() {
    let mut stories = Vec::new();
    for seed in [7, 7, 8] {
        let mut process = Process::start(faulty(seed)).await;
        let calls = play(&mut process, no_interruption).await;
        assert!(calls.iter().any(|(_, answer)| answer.is_err()), "no reply was lost");
        stories.push((calls, process.snapshot()));
    }
    assert_eq!(stories[0], stories[1]);
    assert_ne!(stories[0], stories[2]);
}

#[tokio::test]
async fn a_restart_after_any_call_changes_nothing() {
    for settings in [latency(3), faulty(7)] {
        let mut calm = Process::start(settings.clone()).await;
        let calls = play(&mut calm, no_interruption).await;
        assert!(calls.len() > 12, "the story is too short to prove anything");
        for after in 1..=calls.len() {
            let mut process = Process::start(settings.clone()).await;
            let result = play(&mut process, async |process: &mut Process, number| {
                if number == after {
                    process.restart().await;
                }
            })
            .await;
            assert_eq!(result, calls, "restart after call {after}");
            assert_eq!(process.snapshot(), calm.snapshot(), "restart after call {after}");
        }
    }
}

/// A store that fails one write, before or after it was carried out.
struct FailingStore {
    inner: MemoryStore,
    writes: AtomicUsize,
    fails_at: usize,
    is_written: bool,
}

impl FailingStore {
    fn has_failed(&self) -> bool {
        self.writes.load(Ordering::SeqCst) >= self.fails_at
    }

    fn fails(&self) -> bool {
        self.writes.fetch_add(1, Ordering::SeqCst) + 1 == self.fails_at
    }

    fn failure() -> StoreError {
        StoreError::ReachStore {
            action: "write",
            path: "nowhere".to_owned(),
            source: std::io::ErrorKind::ConnectionReset.into(),
        }
    }
}

#[async_trait]
impl WorldStore for FailingStore {
    async fn load(&self) -> Result<Stored, StoreError> {
        self.inner.load().await
    }

    async fn append(&self, expected: u64, record: Vec<u8>) -> Result<u64, StoreError> {
        let fails = self.fails();
        if fails && !self.is_written {
            return Err(Self::failure());
        }
        let version = self.inner.append(expected, record).await?;
        if fails { Err(Self::failure()) } else { Ok(version) }
    }

    async fn replace(&self, expected: u64, record: Vec<u8>) -> Result<u64, StoreError> {
        self.inner.replace(expected, record).await
    }

    async fn delete_all(&self) -> Result<(), StoreError> {
        self.inner.delete_all().await
    }
}

#[tokio::test]
async fn a_crash_before_or_after_any_write_leads_to_the_same_world() {
    let mut calm = Process::start(latency(3)).await;
    let calls = play(&mut calm, no_interruption).await;
    let writes = calls.iter().filter(|(call, _)| call != "wait").count();
    for is_written in [false, true] {
        // A process that continues after a failed write must not lose anything either.
        for is_crash in [false, true] {
            for fails_at in 1..=writes {
                let store = Arc::new(FailingStore {
                    inner: MemoryStore::default(),
                    writes: AtomicUsize::new(0),
                    fails_at,
                    is_written,
                });
                let shared = Arc::clone(&store) as Arc<dyn WorldStore>;
                let mut process = Process::start_on(latency(3), shared).await;
                let mut is_restarted = !is_crash;
                let result = play(&mut process, async |process: &mut Process, _| {
                    if store.has_failed() && !is_restarted {
                        process.restart().await;
                        is_restarted = true;
                    }
                })
                .await;
                let errors = result.iter().filter(|(_, answer)| answer.is_err()).count();
                assert!((1..=3).contains(&errors), "{errors} calls failed for one failed write");
                assert_eq!(
                    remaining(&process),
                    remaining(&calm),
                    "write {fails_at}, {is_written}, {is_crash}"
                );
            }
        }
    }
}

/// Returns what remains at the end, without times, which a crash changes.
fn remaining(process: &Process) -> Vec<(Option<String>, String, String)> {
    process.backend.inspect(|world| {
        let volumes = world.volumes();
        volumes
            .map(|volume| (volume.tag.clone(), volume.name.clone(), volume.shape.size.to_string()))
            .collect()
    })
}

#[tokio::test]
async fn an_outdated_process_gets_an_error_and_reloads_the_world() {
    let store: Arc<dyn WorldStore> = Arc::new(MemoryStore::default());
    reloads_when_outdated([Arc::clone(&store), store]).await;
}

/// Checks that a process notices the writes of another one to the same world.
pub async fn reloads_when_outdated(stores: [Arc<dyn WorldStore>; 2]) {
    let first = Process::start_on(Settings::default(), Arc::clone(&stores[0])).await;
    let second = Process::start_on(Settings::default(), Arc::clone(&stores[1])).await;
    first.backend.create(&order("one")).await.unwrap();
    let error = second.backend.create(&order("two")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable);
    let (one, two) = (order("one"), order("two"));
    assert!(second.backend.observe(&one.target, None).await.unwrap().machine.is_some());
    assert!(second.backend.observe(&two.target, None).await.unwrap().machine.is_none());
    second.backend.create(&two).await.unwrap();
    // Now the first process is outdated, and its stop must not restore the world without the second machine.
    assert!(first.backend.update(&one, &Update::Stop).await.is_err());
    assert!(first.backend.observe(&two.target, None).await.unwrap().machine.is_some());
    first.backend.update(&one, &Update::Stop).await.unwrap();
}
