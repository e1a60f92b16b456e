//! A world outlives its process, wherever the process ends.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use vitistack_machine::{
    Backend as _, ErrorKind, Update,
    simulated::{FileStore, MemoryStore, Settings, StoreError, Stored, WorldStore},
};

use crate::{
    fixture::{Process, latency, order},
    story::tell,
};

async fn nothing(_: &mut Process, _: usize) {}

fn faulty(seed: u64) -> Settings {
    Settings { seed, failed_tasks_percent: 30, lost_replies_percent: 30, reuse_ids: true, ..latency(3) }
}

#[tokio::test]
async fn the_same_seed_tells_the_same_story_and_another_seed_another() {
    let mut told = Vec::new();
    for seed in [7, 7, 8] {
        let mut process = Process::start(faulty(seed)).await;
        let calls = tell(&mut process, nothing).await;
        assert!(calls.iter().any(|(_, answer)| answer.is_err()), "no reply was lost");
        told.push((calls, process.snapshot()));
    }
    assert_eq!(told[0], told[1]);
    assert_ne!(told[0], told[2]);
}

#[tokio::test]
async fn a_restart_after_any_call_changes_nothing() {
    for settings in [latency(3), faulty(7)] {
        let mut calm = Process::start(settings.clone()).await;
        let calls = tell(&mut calm, nothing).await;
        assert!(calls.len() > 12, "the story is too short to show anything");
        for after in 1..=calls.len() {
            let mut process = Process::start(settings.clone()).await;
            let told = tell(&mut process, async |process: &mut Process, number| {
                if number == after {
                    process.restart().await;
                }
            })
            .await;
            assert_eq!(told, calls, "after a restart behind call {after}");
            assert_eq!(process.snapshot(), calm.snapshot(), "after a restart behind call {after}");
        }
    }
}

/// Fails one write, before or after it was carried out.
struct BreakingStore {
    inner: MemoryStore,
    writes: AtomicUsize,
    breaks_at: usize,
    is_written: bool,
}

impl BreakingStore {
    fn has_broken(&self) -> bool {
        self.writes.load(Ordering::SeqCst) >= self.breaks_at
    }

    fn breaks(&self) -> bool {
        self.writes.fetch_add(1, Ordering::SeqCst) + 1 == self.breaks_at
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
impl WorldStore for BreakingStore {
    async fn load(&self) -> Result<Stored, StoreError> {
        self.inner.load().await
    }

    async fn append(&self, expected: u64, record: Vec<u8>) -> Result<u64, StoreError> {
        let breaks = self.breaks();
        if breaks && !self.is_written {
            return Err(Self::failure());
        }
        let version = self.inner.append(expected, record).await?;
        if breaks { Err(Self::failure()) } else { Ok(version) }
    }

    async fn replace(&self, expected: u64, record: Vec<u8>) -> Result<u64, StoreError> {
        self.inner.replace(expected, record).await
    }

    async fn delete_all(&self) -> Result<(), StoreError> {
        self.inner.delete_all().await
    }
}

#[tokio::test]
async fn a_crash_at_any_write_before_or_after_it_ends_in_the_same_world() {
    let mut calm = Process::start(latency(3)).await;
    let calls = tell(&mut calm, nothing).await;
    let writes = calls.iter().filter(|(words, _)| words != "wait").count();
    for is_written in [false, true] {
        // With the crash, or without it: a process that goes on after a failed write must not lose anything either.
        for is_crash in [false, true] {
            for breaks_at in 1..=writes {
                let store = Arc::new(BreakingStore {
                    inner: MemoryStore::default(),
                    writes: AtomicUsize::new(0),
                    breaks_at,
                    is_written,
                });
                let kept = Arc::clone(&store) as Arc<dyn WorldStore>;
                let mut process = Process::start_on(latency(3), kept).await;
                let mut is_restarted = !is_crash;
                let told = tell(&mut process, async |process: &mut Process, _| {
                    if store.has_broken() && !is_restarted {
                        process.restart().await;
                        is_restarted = true;
                    }
                })
                .await;
                let errors = told.iter().filter(|(_, answer)| answer.is_err()).count();
                assert!((1..=3).contains(&errors), "{errors} calls failed for one failed write");
                assert_eq!(ends(&process), ends(&calm), "write {breaks_at}, {is_written}, {is_crash}");
            }
        }
    }
}

/// What is left at the end, without times: a crash costs some.
fn ends(process: &Process) -> Vec<(Option<String>, String, String)> {
    process.backend.inspect(|world| {
        let volumes = world.volumes();
        volumes
            .map(|volume| (volume.tag.clone(), volume.name.clone(), volume.shape.size.to_string()))
            .collect()
    })
}

#[tokio::test]
async fn a_world_in_a_file_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("world");
    let mut told = Vec::new();
    {
        let store = Arc::new(FileStore::open(&path).unwrap());
        let mut process = Process::start_on(latency(3), store).await;
        process.backend.create(&order("one")).await.unwrap();
        process.settle();
        told.push(process.snapshot());
        process.restart().await;
        told.push(process.snapshot());
    }
    let store = Arc::new(FileStore::open(&path).unwrap());
    let process = Process::start_on(latency(3), store).await;
    process.settle();
    told.push(process.snapshot());
    assert_eq!((&told[0], &told[0]), (&told[1], &told[2]));
}

#[tokio::test]
async fn of_two_processes_with_one_world_the_late_one_is_told_and_takes_it_up_again() {
    let store: Arc<dyn WorldStore> = Arc::new(MemoryStore::default());
    the_late_one_is_told([Arc::clone(&store), store]).await;
}

/// Two processes, each with its own way to the same world.
pub async fn the_late_one_is_told([first, second]: [Arc<dyn WorldStore>; 2]) {
    let early = Process::start_on(Settings::default(), first).await;
    let late = Process::start_on(Settings::default(), second).await;
    early.backend.create(&order("one")).await.unwrap();
    let error = late.backend.create(&order("two")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable);
    let (one, two) = (order("one"), order("two"));
    assert!(late.backend.observe(&one.target, None).await.unwrap().machine.is_some());
    assert!(late.backend.observe(&two.target, None).await.unwrap().machine.is_none());
    late.backend.create(&two).await.unwrap();
    // Now the other one is late, and its stop must not bring back the world without the second machine.
    assert!(early.backend.update(&one, &Update::Stop).await.is_err());
    assert!(early.backend.observe(&two.target, None).await.unwrap().machine.is_some());
    early.backend.update(&one, &Update::Stop).await.unwrap();
}
