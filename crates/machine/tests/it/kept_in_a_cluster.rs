//! A world in the control plane's own cluster: nothing is lost and nothing is left, whoever dies or sleeps when.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::{StreamExt as _, stream};
use http::{Method, Request};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, PostParams},
    client::Body,
};
use tokio::sync::Notify;
use tower::{BoxError, ServiceExt as _};
use vitistack_apiserver::ApiServer;
use vitistack_machine::{
    Backend as _,
    simulated::{KubernetesStore, Settings, StoreError, Stored, WorldStore, world_name},
};

use crate::{
    durability::the_late_one_is_told,
    fixture::{Process, order},
    scale::copy,
};

/// Larger than fits into one object.
const LARGE: usize = 1 << 20;

/// What happens to one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trouble {
    #[default]
    None,
    /// The connection breaks before this write is carried out.
    Before(usize),
    /// The connection breaks after this write was carried out.
    After(usize),
    /// This request, a write or not, waits until it is told to go on.
    Sleep(usize),
}

/// A connection to a cluster that counts what goes over it.
#[derive(Default)]
struct Line {
    trouble: Trouble,
    writes: AtomicUsize,
    requests: AtomicUsize,
    asleep: Notify,
    awake: Notify,
}

impl Line {
    fn with(trouble: Trouble) -> Arc<Self> {
        Arc::new(Self { trouble, ..Self::default() })
    }

    fn counts(&self) -> (usize, usize) {
        (self.writes.load(Ordering::SeqCst), self.requests.load(Ordering::SeqCst))
    }

    /// Whether the connection breaks around this write, before or after it.
    fn breaks(&self, trouble: fn(usize) -> Trouble, write: Option<usize>) -> Result<(), BoxError> {
        match write {
            Some(number) if self.trouble == trouble(number) => {
                Err(io::Error::from(io::ErrorKind::ConnectionReset).into())
            }
            _ => Ok(()),
        }
    }
}

fn client(server: &ApiServer, line: &Arc<Line>) -> Client {
    let (service, line) = (server.service(), Arc::clone(line));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (service, line) = (service.clone(), Arc::clone(&line));
        async move {
            let count = |counter: &AtomicUsize| counter.fetch_add(1, Ordering::SeqCst) + 1;
            let write = (request.method() != Method::GET).then(|| count(&line.writes));
            if line.trouble == Trouble::Sleep(count(&line.requests)) {
                line.asleep.notify_one();
                line.awake.notified().await;
            }
            line.breaks(Trouble::Before, write)?;
            let answer = service.oneshot(request).await?;
            line.breaks(Trouble::After, write)?;
            Ok::<_, BoxError>(answer)
        }
    });
    Client::new(service, "default")
}

async fn server() -> ApiServer {
    ApiServer::builder().build().await.unwrap()
}

fn store_of(client: Client) -> KubernetesStore {
    KubernetesStore::new(client, "default", &world_name("default", "simulated-a", "uid-1"))
}

fn store_on(server: &ApiServer, line: &Arc<Line>) -> KubernetesStore {
    store_of(client(server, line))
}

fn store(server: &ApiServer) -> KubernetesStore {
    store_on(server, &Arc::default())
}

fn config_maps(server: &ApiServer) -> Api<ConfigMap> {
    Api::namespaced(client(server, &Arc::default()), "default")
}

/// Every object that is there for worlds.
async fn objects(server: &ApiServer) -> Vec<ConfigMap> {
    objects_of(config_maps(server)).await
}

async fn objects_of(config_maps: Api<ConfigMap>) -> Vec<ConfigMap> {
    let ours = ListParams::default().labels("vitistack.io/managed-by=simulated-operator");
    config_maps.list(&ours).await.unwrap().items
}

/// Records in few letters: what they begin with, and how long they are.
fn brief(records: &[Vec<u8>]) -> Vec<String> {
    records.iter().map(|record| format!("{}x{}", char::from(record[0]), record.len())).collect()
}

async fn kept(server: &ApiServer) -> Vec<String> {
    brief(&store(server).load().await.unwrap().records)
}

/// One write.
#[derive(Clone, Copy, Debug)]
enum Write {
    Append(char, usize),
    Replace(char, usize),
}

impl Write {
    async fn send(self, store: &dyn WorldStore, expected: u64) -> Result<u64, StoreError> {
        let record = |letter: char, size| vec![u8::try_from(letter).unwrap(); size];
        match self {
            Self::Append(letter, size) => store.append(expected, record(letter, size)).await,
            Self::Replace(letter, size) => store.replace(expected, record(letter, size)).await,
        }
    }

    /// What is kept afterwards.
    fn after(self, mut before: Vec<String>) -> Vec<String> {
        let (Self::Append(letter, size) | Self::Replace(letter, size)) = self;
        if matches!(self, Self::Replace(..)) {
            before.clear();
        }
        before.push(format!("{letter}x{size}"));
        before
    }
}

/// Everything that a store does, with records that fit into an object.
const SMALL_SCRIPT: [Write; 6] = [
    Write::Append('a', 1),
    Write::Append('b', 2),
    Write::Replace('c', 3),
    Write::Append('d', 4),
    Write::Replace('e', 5),
    Write::Append('f', 6),
];

/// The same with records that do not.
const LARGE_SCRIPT: [Write; 2] = [Write::Append('a', LARGE), Write::Replace('b', LARGE)];

fn is_late<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::MeetVersion { .. }))
}

/// Everything once, in a cluster with no world in it.
async fn keeps_what_was_written(client: Client) {
    let first = store_of(client.clone());
    assert_eq!(first.load().await.unwrap(), Stored::default());
    let (mut version, mut records) = (0, Vec::new());
    for (count, write) in (1..).zip(SMALL_SCRIPT.into_iter().chain(LARGE_SCRIPT)) {
        version = write.send(&first, version).await.unwrap();
        records = write.after(records);
        let stored = store_of(client.clone()).load().await.unwrap();
        assert_eq!((version, stored.version, brief(&stored.records)), (count, count, records.clone()));
    }
    let config_maps = || Api::namespaced(client.clone(), "default");
    assert_eq!(objects_of(config_maps()).await.len(), 4, "the head, and one record of three objects");

    let late = store_of(client.clone());
    late.load().await.unwrap();
    version = first.append(version, b"more".to_vec()).await.unwrap();
    assert!(is_late(&late.append(version - 1, b"late".to_vec()).await));
    late.load().await.unwrap();
    first.replace(version, b"all".to_vec()).await.unwrap();
    assert!(is_late(&late.append(version, b"late".to_vec()).await), "its generation is gone");
    assert_eq!(brief(&late.load().await.unwrap().records), ["ax3"]);
    assert_eq!(objects_of(config_maps()).await.len(), 2);
    first.delete_all().await.unwrap();
    assert!(is_late(&late.append(version + 1, b"late".to_vec()).await), "there is no world");
    assert_eq!(objects_of(config_maps()).await, []);
}

#[tokio::test]
async fn what_was_written_is_there_for_another_process() {
    keeps_what_was_written(client(&server().await, &Arc::default())).await;
}

#[cfg(feature = "integration")]
#[tokio::test]
async fn what_was_written_to_a_real_kube_apiserver_is_there_for_another_process() {
    use vitistack_testkit::{KubeServer, Options};
    let server = KubeServer::start(&Options::default()).await.unwrap();
    keeps_what_was_written(server.client().await.unwrap()).await;
}

#[tokio::test]
async fn a_write_with_an_old_version_changes_nothing() {
    let server = server().await;
    let first = store(&server);
    first.append(0, b"one".to_vec()).await.unwrap();
    for store in [first, store(&server)] {
        assert!(is_late(&store.append(0, b"late".to_vec()).await));
        assert!(is_late(&store.replace(7, b"early".to_vec()).await));
    }
    assert_eq!(kept(&server).await, ["ox3"]);
}

#[tokio::test]
async fn a_save_costs_one_write_and_one_look() {
    let server = server().await;
    let line = Arc::default();
    let store = store_on(&server, &line);
    store.append(0, b"one".to_vec()).await.unwrap();
    let (writes, requests) = line.counts();
    for version in 1..11 {
        store.append(version, b"more".to_vec()).await.unwrap();
    }
    assert_eq!(line.counts(), (writes + 10, requests + 20));
}

/// Sends the script over a line with a trouble, and goes on after the failure with the same store or with that of a new
/// process.
async fn survives(script: &[Write], trouble: Trouble, is_crash: bool) {
    let server = server().await;
    let mut store = store_on(&server, &Line::with(trouble));
    let (mut version, mut records) = (store.load().await.unwrap().version, Vec::new());
    for write in script {
        let after = write.after(records.clone());
        match write.send(&store, version).await {
            Ok(reached) => version = reached,
            Err(error) => {
                assert!(matches!(error, StoreError::ReachStore { .. }), "{trouble:?}, {write:?}: {error}");
                let mut is_done = false;
                if is_crash {
                    store = self::store(&server);
                    let stored = store.load().await.unwrap();
                    let found = brief(&stored.records);
                    assert!([&records, &after].contains(&&found), "{trouble:?}, {write:?}: {found:?}");
                    is_done = found == after;
                    version = stored.version;
                }
                if !is_done {
                    version = write.send(&store, version).await.unwrap();
                }
                assert_eq!(kept(&server).await, after, "{trouble:?}, crash: {is_crash}, {write:?}");
            }
        }
        records = after;
    }
    let last = self::store(&server);
    let stored = last.load().await.unwrap();
    assert_eq!(brief(&stored.records), records, "{trouble:?}, crash: {is_crash}");
    last.replace(stored.version, b"all".to_vec()).await.unwrap();
    let names: Vec<String> = objects(&server).await.iter().map(ConfigMap::name_any).collect();
    assert_eq!(names.len(), 2, "{trouble:?}, crash: {is_crash}: left is {names:?}");
}

async fn survives_everything(script: &[Write], troubles: &[fn(usize) -> Trouble]) {
    let line = Arc::default();
    let (server, mut version) = (server().await, 0);
    let store = store_on(&server, &line);
    for write in script {
        version = write.send(&store, version).await.unwrap();
    }
    let (writes, _) = line.counts();
    assert!(writes > 3, "the script is too short to show anything: {writes} writes");
    for number in 1..=writes {
        for trouble in troubles {
            for is_crash in [false, true] {
                survives(script, trouble(number), is_crash).await;
            }
        }
    }
}

#[tokio::test]
async fn a_crash_or_a_lost_answer_at_any_write_loses_nothing_and_leaves_nothing() {
    survives_everything(&SMALL_SCRIPT, &[Trouble::Before, Trouble::After]).await;
}

#[tokio::test]
async fn a_crash_or_a_lost_answer_at_any_write_of_a_large_record_loses_nothing_and_leaves_nothing() {
    // Before one write is after the other, and large records take their time.
    for write in LARGE_SCRIPT {
        survives_everything(&[write], &[Trouble::After]).await;
    }
}

/// Lets one writer fall asleep at a request while another does a lot, and says whether there was such a request.
async fn survives_sleep(write: Write, number: usize) -> bool {
    let server = server().await;
    let version = store(&server).append(0, b"a".to_vec()).await.unwrap();
    let before = store(&server).append(version, b"b".to_vec()).await.unwrap();
    let line = Line::with(Trouble::Sleep(number));
    let sleeper = Arc::new(store_on(&server, &line));
    let sleeping = Arc::clone(&sleeper);
    let mut sent = tokio::spawn(async move { write.send(&*sleeping, before).await });
    tokio::select! {
        () = line.asleep.notified() => {}
        result = &mut sent => {
            assert_eq!(result.unwrap().unwrap(), before + 1);
            return false;
        }
    }
    let busy = store(&server);
    let found = busy.load().await.unwrap();
    let mut version = found.version;
    // Two replacements: the generation that the sleeper knows is gone, and so is its end.
    let mut records = brief(&found.records);
    for write in
        [Write::Append('p', 1), Write::Replace('q', 1), Write::Replace('r', 1), Write::Append('s', 1)]
    {
        version = write.send(&busy, version).await.unwrap();
        records = write.after(records);
    }
    line.awake.notify_one();
    let result = sent.await.unwrap();
    assert_eq!(kept(&server).await, records, "{write:?} asleep at {number}");
    let was_seen = brief(&found.records) == write.after(vec!["ax1".to_owned(), "bx1".to_owned()]);
    assert!(is_late(&result) || (result.is_ok() && was_seen), "{write:?} asleep at {number}: {result:?}");

    let stored = sleeper.load().await.unwrap();
    assert_eq!(brief(&stored.records), records);
    sleeper.replace(stored.version, b"all".to_vec()).await.unwrap();
    assert_eq!(objects(&server).await.len(), 2, "{write:?} asleep at {number} leaves something");
    true
}

#[tokio::test]
async fn a_writer_that_sleeps_at_any_request_neither_loses_nor_brings_back_what_others_wrote() {
    for write in
        [Write::Append('x', 1), Write::Append('x', LARGE), Write::Replace('x', 1), Write::Replace('x', LARGE)]
    {
        let mut number = 1;
        while survives_sleep(write, number).await {
            number += 1;
        }
        assert!(number > 3, "{write:?} makes only {number} requests");
    }
}

#[tokio::test]
async fn a_replacement_that_dies_half_way_does_no_harm_to_one_that_sleeps() {
    // Both before the write that makes it count: the third request of the one, the second write of the other.
    for (asleep_at, dies_at) in [(2, 1), (2, 2), (3, 1), (3, 2)] {
        let server = server().await;
        let version = store(&server).append(0, b"a".to_vec()).await.unwrap();
        let line = Line::with(Trouble::Sleep(asleep_at));
        let sleeper = store_on(&server, &line);
        let sent = tokio::spawn(async move { Write::Replace('x', 1).send(&sleeper, version).await });
        line.asleep.notified().await;
        let dying = store_on(&server, &Line::with(Trouble::Before(dies_at)));
        assert!(Write::Replace('y', 1).send(&dying, version).await.is_err());
        line.awake.notify_one();
        assert_eq!(sent.await.unwrap().unwrap(), version + 1);
        assert_eq!(kept(&server).await, ["xx1"], "asleep at {asleep_at}, dies at {dies_at}");
    }
}

#[tokio::test]
async fn a_head_that_somebody_touched_is_still_the_head() {
    let server = server().await;
    let line = Line::with(Trouble::None);
    let store = store_on(&server, &line);
    store.append(0, b"one".to_vec()).await.unwrap();
    let mut head = objects(&server).await.into_iter().find(|object| object.immutable.is_none()).unwrap();
    head.annotations_mut().insert("note".to_owned(), "look here".to_owned());
    config_maps(&server).replace(&head.name_any(), &PostParams::default(), &head).await.unwrap();
    let version = store.replace(1, b"all".to_vec()).await.unwrap();
    store.append(version, b"more".to_vec()).await.unwrap();
    assert_eq!(kept(&server).await, ["ax3", "mx4"]);
}

#[tokio::test]
async fn damage_is_told_rather_than_taken_for_the_end() {
    for missing in ["-0", "-1", "head"] {
        let server = server().await;
        let store = store(&server);
        for version in 0..3 {
            store.append(version, b"record".to_vec()).await.unwrap();
        }
        let is_missing = |name: &str| {
            if missing == "head" { name.split('-').count() == 5 } else { name.ends_with(missing) }
        };
        let name =
            objects(&server).await.iter().map(ConfigMap::name_any).find(|name| is_missing(name)).unwrap();
        config_maps(&server).delete(&name, &DeleteParams::default()).await.unwrap();
        let error = self::store(&server).load().await.unwrap_err().to_string();
        assert!(error.contains("remove it to begin anew"), "without {name}: {error}");
        self::store(&server).delete_all().await.unwrap();
        assert_eq!(self::store(&server).load().await.unwrap(), Stored::default());
    }
}

#[tokio::test]
async fn a_world_whose_provider_is_gone_leaves_nothing_not_even_by_those_who_come_late() {
    let server = server().await;
    let late = [store(&server), store(&server)];
    let other = KubernetesStore::new(client(&server, &Arc::default()), "default", "another-world");
    other.append(0, b"other".to_vec()).await.unwrap();
    let first = store(&server);
    let version = first.append(0, vec![b'a'; LARGE]).await.unwrap();
    for late in &late {
        late.load().await.unwrap();
    }
    first.delete_all().await.unwrap();
    first.delete_all().await.unwrap();
    assert!(is_late(&late[0].append(version, vec![b'b'; LARGE]).await));
    assert!(is_late(&late[1].replace(version, vec![b'c'; LARGE]).await));
    first.delete_all().await.unwrap();
    assert_eq!(objects(&server).await.len(), 2, "those of the other world");
    assert_eq!(other.load().await.unwrap().records, [b"other"]);
}

#[tokio::test]
async fn of_two_processes_the_late_one_is_told_and_takes_the_world_up_again() {
    let server = server().await;
    the_late_one_is_told([Arc::new(store(&server)), Arc::new(store(&server))]).await;
}

#[tokio::test]
async fn a_world_that_is_restored_under_an_open_backend_is_found_before_a_machine_is_made_twice() {
    let (old, new) = (server().await, server().await);
    let made = Process::start_on(Settings::default(), Arc::new(store(&old))).await;
    for name in ["vm-1", "vm-2"] {
        made.backend.create(&order(name)).await.unwrap();
    }
    let early = Process::start_on(Settings::default(), Arc::new(store(&new))).await;
    let (heads, records): (Vec<_>, Vec<_>) =
        objects(&old).await.into_iter().partition(|object| object.immutable.is_none());
    // Without its head a world is not whole, and nobody takes it for an empty one.
    for mut object in records.into_iter().chain(heads) {
        let found = store(&new).load().await;
        assert!(found.as_ref().map_or(true, |stored| *stored == Stored::default()), "{found:?}");
        object.metadata.resource_version = None;
        config_maps(&new).create(&PostParams::default(), &object).await.unwrap();
    }
    assert!(early.backend.create(&order("vm-1")).await.is_err(), "it does not know what is there");
    assert_eq!(early.snapshot(), made.snapshot());
    early.backend.create(&order("vm-1")).await.unwrap();
    assert_eq!(early.snapshot(), made.snapshot(), "it is there already");
}

#[tokio::test]
async fn a_world_of_five_thousand_machines_is_taken_up_in_a_few_requests() {
    const COUNT: usize = 5_000;
    let server = server().await;
    let line = Arc::<Line>::default();
    let process = Process::start_on(Settings::default(), Arc::new(store_on(&server, &line))).await;
    let pattern = order("vm");
    let orders: Vec<_> = (0..COUNT).map(|number| copy(&pattern, number)).collect();
    let backend = &process.backend;
    stream::iter(&orders)
        .for_each_concurrent(16, |order| async move {
            backend.create(order).await.unwrap();
        })
        .await;
    let (writes, _) = line.counts();
    assert!(writes < COUNT, "{writes} writes for {COUNT} creates that share them");
    let line = Arc::<Line>::default();
    let other = Process::start_on(Settings::default(), Arc::new(store_on(&server, &line))).await;
    assert!(other.snapshot() == process.snapshot(), "a world of {COUNT} machines differs after a restart");
    let (writes, requests) = line.counts();
    let pages = objects(&server).await.len().div_ceil(500);
    assert_eq!((writes, requests), (0, pages));
}
