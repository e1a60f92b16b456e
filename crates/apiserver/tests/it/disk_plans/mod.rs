//! Fault plans of the disk: whatever it does, no acknowledged write is lost, no version is used twice, and clients that
//! retry reach the state of the run without faults.
//!
//! `crates/controller/tests/it/faults/README.md` describes all fault plans; these use real time and a real SQLite file,
//! and are one in ten of `VITISTACK_FAULT_PLANS`.

mod disk;

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    fs,
    io::{Write as _, stderr},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use http::StatusCode;
use serde_json::{Value, json};
use sqlx::Connection as _;
use tempfile::TempDir;
use vitistack_apiserver::{
    ApiServer,
    store::sqlite::{OpenError, SqliteStore},
};

use self::disk::{Disk, Fault};
use crate::{
    harness::{MAPS, MERGE, TestServer},
    hostile_disk::connection,
};

/// The default number of fault plans of all kinds.
const PLANS: u64 = 1_000;
/// One plan in this number is a plan of the disk.
const SHARE: u64 = 10;
/// How often a client repeats a request before it gives up.
const ATTEMPTS: usize = 50;

/// Returns the value of a numeric environment variable, if it is set.
fn variable(name: &str) -> Option<u64> {
    env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

/// A sequence of numbers that follows from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What a client wants of one config map: its content, or that it does not exist.
#[derive(Clone, Debug)]
struct Wish {
    name: String,
    content: Option<String>,
}

/// Draws what clients want, several at the same time.
fn scenario(seed: u64) -> Vec<Vec<Wish>> {
    let mut random = Random(seed / 5);
    let steps = 6 + random.below(10);
    let wish = |random: &mut Random, name: u64| {
        let length = [10, 300, 9_000][usize::try_from(random.below(3)).unwrap()];
        let content = random.chance(70).then(|| format!("{:x}", random.below(u64::MAX)).repeat(length / 10));
        Wish { name: format!("map-{name}"), content }
    };
    (0..steps)
        .map(|_| {
            let (first, count) = (random.below(6), 1 + random.below(4));
            (0..count).map(|index| wish(&mut random, (first + index) % 6)).collect()
        })
        .collect()
}

/// What clients know about one config map: one of these contents is stored.
type Known = BTreeMap<String, Vec<Option<String>>>;

/// One run of a plan.
struct Run {
    directory: TempDir,
    disk: Arc<Disk>,
    server: Option<TestServer>,
    path: PathBuf,
    random: Random,
    known: Known,
    /// The newest version that was acknowledged.
    version: u64,
    starts: u64,
    log: String,
}

impl Run {
    async fn start(seed: u64) -> Self {
        // In memory where possible: what a flush to disk takes is not the question.
        let memory = Path::new("/dev/shm");
        let directory =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let path = directory.path().join("store.sqlite");
        let mut run = Self {
            directory,
            disk: Arc::default(),
            server: None,
            path,
            random: Random(seed ^ 0xd15c),
            known: Known::new(),
            version: 0,
            starts: 0,
            log: String::new(),
        };
        run.open().await.unwrap();
        run
    }

    /// Opens the file and starts the server.
    async fn open(&mut self) -> Result<(), OpenError> {
        self.disk.set(Fault::None);
        self.disk.set_path(&self.path);
        let store = loop {
            match SqliteStore::open_with_failpoints(&self.path, Arc::<Disk>::clone(&self.disk)).await {
                // The server before it releases the file in a moment.
                Err(OpenError::LockStore { .. }) => tokio::time::sleep(Duration::from_millis(1)).await,
                opened => break opened?,
            }
        };
        self.server = Some(TestServer { api: ApiServer::builder().store(store).build().await.unwrap() });
        Ok(())
    }

    fn server(&self) -> TestServer {
        self.server.clone().unwrap()
    }

    /// Draws what the next commit meets.
    fn draw_fault(&mut self) -> Fault {
        const FAULTS: [Fault; 6] = [
            Fault::Full,
            Fault::RefusedCommit,
            Fault::HiddenCommit,
            Fault::SlowFlush,
            Fault::CrashBefore,
            Fault::CrashAfter,
        ];
        if self.random.chance(45) {
            FAULTS[usize::try_from(self.random.below(6)).unwrap()]
        } else {
            Fault::None
        }
    }

    /// Fulfills wishes at the same time, each repeated until it is acknowledged, with a fault at the first attempt.
    async fn step(&mut self, wishes: &[Wish]) {
        let fault = self.draw_fault();
        self.disk.set(fault);
        let _ = writeln!(self.log, "{fault:?}: {wishes:?}");
        if fault == Fault::SlowFlush {
            self.check_slow_flush(wishes).await;
        }

        let mut is_full = fault == Fault::Full;
        let mut open: Vec<Wish> = wishes.to_vec();
        for _ in 0..ATTEMPTS {
            open = self.attempt(open).await;
            if open.is_empty() {
                return;
            }
            if std::mem::take(&mut is_full) {
                self.check_full_disk().await;
                self.disk.set(Fault::None);
            }
        }
        panic!("{open:?} are never acknowledged");
    }

    /// Sends one request for each wish, and returns the wishes that were not acknowledged.
    async fn attempt(&mut self, wishes: Vec<Wish>) -> Vec<Wish> {
        let server = self.server();
        let mut open = Vec::new();
        let requests = wishes.iter().map(|wish| send(&server, wish));
        let answered = tokio::select! {
            answers = futures::future::join_all(requests) => Some(answers),
            () = self.disk.crashed() => None,
        };

        let Some(answers) = answered else {
            for wish in &wishes {
                self.known.entry(wish.name.clone()).or_insert_with(|| vec![None]).push(wish.content.clone());
            }
            drop(server);
            self.restart_after_crash().await;
            return wishes;
        };
        for (wish, answer) in wishes.into_iter().zip(answers) {
            let contents = self.known.entry(wish.name.clone()).or_insert_with(|| vec![None]);
            if let Some(version) = answer {
                *contents = vec![wish.content];
                self.version = self.version.max(version);
            } else {
                contents.push(wish.content.clone());
                open.push(wish);
            }
        }
        open
    }

    /// Nothing of a commit is visible before it is flushed.
    async fn check_slow_flush(&mut self, wishes: &[Wish]) {
        let (server, wish) = (self.server(), wishes[0].clone());
        let before = content(&server, &wish.name).await;
        let request = send(&server, &wish);
        tokio::pin!(request);
        loop {
            tokio::select! {
                answer = &mut request => {
                    self.version = self.version.max(answer.unwrap());
                    break;
                }
                () = tokio::time::sleep(Duration::from_micros(300)) => {
                    let now = content(&server, &wish.name).await;
                    assert!(!self.disk.is_committing() || now == before, "{} is visible too early", wish.name);
                }
            }
        }
        self.known.insert(wish.name.clone(), vec![wish.content.clone()]);
    }

    /// On a full disk, writes are refused, deletions are accepted, and the server says why.
    async fn check_full_disk(&mut self) {
        let server = self.server();
        let refused = send(&server, &Wish { name: "map-9".to_owned(), content: Some("x".to_owned()) }).await;
        assert_eq!(refused, None, "a write is accepted on a full disk");
        assert!(server.api.store().problem().is_some_and(|problem| problem.contains("no space is left")));
        let stored = self.known.iter().find(|(_, contents)| matches!(contents.as_slice(), [Some(_)]));
        if let Some(name) = stored.map(|(name, _)| name.clone()) {
            let version = send(&server, &Wish { name: name.clone(), content: None }).await;
            self.version = self
                .version
                .max(version.unwrap_or_else(|| panic!("{name} cannot be deleted on a full disk")));
            // A client creates it again below, if it should exist.
            let before = self.known.insert(name.clone(), vec![None]).unwrap();
            self.disk.set(Fault::None);
            let again = Wish { name, content: before[0].clone() };
            assert!(
                self.attempt(vec![again]).await.is_empty(),
                "writes are refused although there is space again"
            );
        }
    }

    /// Starts the server on what a crash left.
    async fn restart_after_crash(&mut self) {
        let directory = self.next_directory();
        let part = [0, 100, self.random.below(100)][usize::try_from(self.random.below(3)).unwrap()];
        let length = self.random.below(5_000);
        let garbage: Vec<u8> = (0..length).map(|_| u8::try_from(self.random.below(256)).unwrap()).collect();
        let garbage = if self.random.chance(50) { garbage } else { Vec::new() };
        let _ = writeln!(self.log, "crash: {part} % of the last commit, {} bytes of garbage", garbage.len());

        self.path = self.disk.crash_to(&directory, part, &garbage);
        self.server = None;
        self.open().await.unwrap();
        self.check().await;
    }

    /// Stops the server, flips bits of the closed file, and starts it again: what it serves is unchanged, or it refuses.
    async fn flip_bits(&mut self) {
        self.server = None;
        // Waits until the server has released the file, and moves the log to it.
        let _ = connection(&self.path).await.close().await;
        let whole = fs::read(&self.path).unwrap();
        let mut damaged = whole.clone();
        for _ in 0..=self.random.below(3) {
            let at = usize::try_from(self.random.below(damaged.len() as u64)).unwrap();
            damaged[at] ^= 1 << self.random.below(8);
        }

        self.put(&damaged);
        if let Err(error) = self.open().await {
            let _ = writeln!(self.log, "refused: {error}");
            self.put(&whole);
            self.open().await.unwrap();
        }
        self.check().await;
    }

    /// Returns a directory for the next start.
    fn next_directory(&mut self) -> PathBuf {
        self.starts += 1;
        let directory = self.directory.path().join(format!("start-{}", self.starts));
        fs::create_dir(&directory).unwrap();
        directory
    }

    /// Sets the content of the file for the next start.
    fn put(&mut self, content: &[u8]) {
        self.path = self.next_directory().join("store.sqlite");
        fs::write(&self.path, content).unwrap();
    }

    /// Compares what is stored with what clients know, and learns what became of requests without an answer.
    async fn check(&mut self) {
        let server = self.server();
        let version = server.api.store().version();
        assert!(version >= self.version, "the version went back from {} to {version}", self.version);
        for (name, contents) in &mut self.known {
            let stored = content(&server, name).await;
            assert!(contents.contains(&stored), "{name} is {stored:?}, and not one of {contents:?}");
            *contents = vec![stored];
        }
    }
}

/// Returns the content of a config map.
async fn content(server: &TestServer, name: &str) -> Option<String> {
    let (code, object) = server.get(&format!("{MAPS}/{name}")).await;
    (code == StatusCode::OK).then(|| object["data"]["content"].as_str().unwrap().to_owned())
}

/// Sends the request that fulfills a wish, and returns the version of the acknowledgment.
async fn send(server: &TestServer, wish: &Wish) -> Option<u64> {
    let path = format!("{MAPS}/{}", wish.name);
    let (code, answer) = match &wish.content {
        None => server.delete(&path, json!({})).await,
        Some(content) => {
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": wish.name}, "data": {"content": content},
            });
            let (code, answer) = server.post(MAPS, object.clone()).await;
            if code == StatusCode::CONFLICT {
                server.patch(&path, MERGE, object).await
            } else {
                (code, answer)
            }
        }
    };
    let is_absent = wish.content.is_none() && code == StatusCode::NOT_FOUND;
    if is_absent {
        return Some(0);
    }
    if !code.is_success() {
        assert!(code.is_server_error(), "{code}: {answer}");
        return None;
    }
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str()?.parse().ok();
    Some(version(&answer).unwrap_or_default())
}

/// Runs the plan of a seed and returns its log.
async fn run(seed: u64) -> String {
    let scenario = scenario(seed);
    let calm = TestServer::new().await;
    for wish in scenario.iter().flatten() {
        assert!(send(&calm, wish).await.is_some());
    }

    let mut run = Run::start(seed).await;
    for (number, wishes) in scenario.iter().enumerate() {
        run.step(wishes).await;
        if number == scenario.len() / 2 && run.random.chance(50) {
            run.flip_bits().await;
        }
    }
    run.disk.set(Fault::None);
    run.server = None;
    run.open().await.unwrap();
    run.check().await;

    let server = run.server();
    for wish in scenario.iter().flatten() {
        let (found, expected) = (content(&server, &wish.name).await, content(&calm, &wish.name).await);
        assert_eq!(found, expected, "{} differs from the run without faults", wish.name);
    }
    run.log
}

fn run_on_own_runtime(seed: u64) -> String {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run(seed))
}

#[test]
fn no_acknowledged_write_is_lost_on_a_failing_disk() {
    if let Some(seed) = variable("VITISTACK_DISK_FAULT_SEED") {
        writeln!(stderr(), "{}", run_on_own_runtime(seed)).unwrap();
        return;
    }

    let count = variable("VITISTACK_FAULT_PLANS").unwrap_or(PLANS) / SHARE;
    let next = AtomicU64::new(0);
    let failed: Mutex<Vec<u64>> = Mutex::default();
    let threads = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= count || !failed.lock().unwrap().is_empty() {
                        return;
                    }
                    if std::panic::catch_unwind(|| run_on_own_runtime(seed)).is_err() {
                        failed.lock().unwrap().push(seed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "replay with VITISTACK_DISK_FAULT_SEED={}", failed[0]);
}
