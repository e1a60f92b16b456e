//! A world in ConfigMaps: nothing is lost and nothing is left behind, whichever writer crashes or is suspended.

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
    durability::reloads_when_outdated,
    fixture::{Process, latency, order},
    scale::copy,
};

/// A record size that does not fit into one object.
const LARGE: usize = 1 << 20;

/// A fault of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Disruption {
    #[default]
    None,
    /// The connection fails before this write is carried out.
    Before(usize),
    /// The connection fails after this write was carried out.
    After(usize),
    /// This request, read or write, is suspended until the test resumes it.
    Suspend(usize),
}

/// A connection to a cluster that counts requests.
#[derive(Default)]
struct Connection {
    disruption: Disruption,
    writes: AtomicUsize,
    requests: AtomicUsize,
    suspended: Notify,
    resumed: Notify,
}

impl Connection {
    fn with(disruption: Disruption) -> Arc<Self> {
        Arc::new(Self { disruption, ..Self::default() })
    }

    fn counts(&self) -> (usize, usize) {
        (self.writes.load(Ordering::SeqCst), self.requests.load(Ordering::SeqCst))
    }

    /// Fails if the connection is to fail before or after this write.
    fn check(&self, disruption: fn(usize) -> Disruption, write: Option<usize>) -> Result<(), BoxError> {
        match write {
            Some(number) if self.disruption == disruption(number) => {
                Err(io::Error::from(io::ErrorKind::ConnectionReset).into())
            }
            _ => Ok(()),
        }
    }
}

fn client(server: &ApiServer, connection: &Arc<Connection>) -> Client {
    let (service, connection) = (server.service(), Arc::clone(connection));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (service, connection) = (service.clone(), Arc::clone(&connection));
        async move {
            let count = |counter: &AtomicUsize| counter.fetch_add(1, Ordering::SeqCst) + 1;
            let write = (request.method() != Method::GET).then(|| count(&connection.writes));
            if connection.disruption == Disruption::Suspend(count(&connection.requests)) {
                connection.suspended.notify_one();
                connection.resumed.notified().await;
            }
            connection.check(Disruption::Before, write)?;
            let answer = service.oneshot(request).await?;
            connection.check(Disruption::After, write)?;
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

fn store_on(server: &ApiServer, connection: &Arc<Connection>) -> KubernetesStore {
    store_of(client(server, connection))
}

fn store(server: &ApiServer) -> KubernetesStore {
    store_on(server, &Arc::default())
}

fn config_maps(server: &ApiServer) -> Api<ConfigMap> {
    Api::namespaced(client(server, &Arc::default()), "default")
}

/// Returns all objects of worlds.
async fn objects(server: &ApiServer) -> Vec<ConfigMap> {
    objects_of(config_maps(server)).await
}

async fn objects_of(config_maps: Api<ConfigMap>) -> Vec<ConfigMap> {
    let ours = ListParams::default().labels("vitistack.io/managed-by=simulated-operator");
    config_maps.list(&ours).await.unwrap().items
}

/// Summarizes records by first character and length.
fn summary(records: &[Vec<u8>]) -> Vec<String> {
    records.iter().map(|record| format!("{}x{}", char::from(record[0]), record.len())).collect()
}

async fn stored(server: &ApiServer) -> Vec<String> {
    summary(&store(server).load().await.unwrap().records)
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

    /// Returns the records after this write.
    fn after(self, mut before: Vec<String>) -> Vec<String> {
        let (Self::Append(letter, size) | Self::Replace(letter, size)) = self;
        if matches!(self, Self::Replace(..)) {
            before.clear();
        }
        before.push(format!("{letter}x{size}"));
        before
    }
}

/// All kinds of writes, with records that fit into one object.
const SMALL_SCRIPT: [Write; 6] = [
    Write::Append('a', 1),
    Write::Append('b', 2),
    Write::Replace('c', 3),
    Write::Append('d', 4),
    Write::Replace('e', 5),
    Write::Append('f', 6),
];

/// All kinds of writes, with records that do not fit into one object.
const LARGE_SCRIPT: [Write; 2] = [Write::Append('a', LARGE), Write::Replace('b', LARGE)];

fn is_outdated<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::MatchVersion { .. }))
}

/// Checks all operations in a cluster without a world.
async fn stores_what_was_written(client: Client) {
    let first = store_of(client.clone());
    assert_eq!(first.load().await.unwrap(), Stored::default());
    let (mut version, mut records) = (0, Vec::new());
    for (count, write) in (1..).zip(SMALL_SCRIPT.into_iter().chain(LARGE_SCRIPT)) {
        version = write.send(&first, version).await.unwrap();
        records = write.after(records);
        let stored = store_of(client.clone()).load().await.unwrap();
        assert_eq!((version, stored.version, summary(&stored.records)), (count, count, records.clone()));
    }
    let config_maps = || Api::namespaced(client.clone(), "default");
    assert_eq!(objects_of(config_maps()).await.len(), 4, "the head, and one record of three objects");

    let outdated = store_of(client.clone());
    outdated.load().await.unwrap();
    version = first.append(version, b"more".to_vec()).await.unwrap();
    assert!(is_outdated(&outdated.append(version - 1, b"late".to_vec()).await));
    outdated.load().await.unwrap();
    first.replace(version, b"all".to_vec()).await.unwrap();
    assert!(is_outdated(&outdated.append(version, b"late".to_vec()).await), "its generation was deleted");
    assert_eq!(summary(&outdated.load().await.unwrap().records), ["ax3"]);
    assert_eq!(objects_of(config_maps()).await.len(), 2);
    first.delete_all().await.unwrap();
    assert!(is_outdated(&outdated.append(version + 1, b"late".to_vec()).await), "the world was deleted");
    assert_eq!(objects_of(config_maps()).await, []);
}

#[tokio::test]
async fn another_process_reads_what_was_written() {
    stores_what_was_written(client(&server().await, &Arc::default())).await;
}

#[cfg(feature = "integration")]
#[tokio::test]
async fn another_process_reads_what_was_written_to_a_real_kube_apiserver() {
    use vitistack_testkit::{KubeServer, Options};
    let server = KubeServer::start(&Options::default()).await.unwrap();
    stores_what_was_written(server.client().await.unwrap()).await;
}

#[tokio::test]
async fn a_write_with_an_outdated_version_changes_nothing() {
    let server = server().await;
    let first = store(&server);
    first.append(0, b"one".to_vec()).await.unwrap();
    for store in [first, store(&server)] {
        assert!(is_outdated(&store.append(0, b"late".to_vec()).await));
        assert!(is_outdated(&store.replace(7, b"early".to_vec()).await));
    }
    assert_eq!(stored(&server).await, ["ox3"]);
}

#[tokio::test]
async fn a_save_costs_one_write_and_one_read() {
    let server = server().await;
    let connection = Arc::default();
    let store = store_on(&server, &connection);
    store.append(0, b"one".to_vec()).await.unwrap();
    let (writes, requests) = connection.counts();
    for version in 1..11 {
        store.append(version, b"more".to_vec()).await.unwrap();
    }
    assert_eq!(connection.counts(), (writes + 10, requests + 20));
}

/// Sends the script over a connection with a disruption, and continues after the failure with the same store or, after a
/// crash, with a new one.
async fn survives(script: &[Write], disruption: Disruption, is_crash: bool) {
    let server = server().await;
    let mut store = store_on(&server, &Connection::with(disruption));
    let (mut version, mut records) = (store.load().await.unwrap().version, Vec::new());
    for write in script {
        let after = write.after(records.clone());
        match write.send(&store, version).await {
            Ok(reached) => version = reached,
            Err(error) => {
                assert!(matches!(error, StoreError::ReachStore { .. }), "{disruption:?}, {write:?}: {error}");
                let mut is_done = false;
                if is_crash {
                    store = self::store(&server);
                    let stored = store.load().await.unwrap();
                    let found = summary(&stored.records);
                    assert!([&records, &after].contains(&&found), "{disruption:?}, {write:?}: {found:?}");
                    is_done = found == after;
                    version = stored.version;
                }
                if !is_done {
                    version = write.send(&store, version).await.unwrap();
                }
                assert_eq!(stored(&server).await, after, "{disruption:?}, crash: {is_crash}, {write:?}");
            }
        }
        records = after;
    }
    let last = self::store(&server);
    let stored = last.load().await.unwrap();
    assert_eq!(summary(&stored.records), records, "{disruption:?}, crash: {is_crash}");
    last.replace(stored.version, b"all".to_vec()).await.unwrap();
    let names: Vec<String> = objects(&server).await.iter().map(ConfigMap::name_any).collect();
    assert_eq!(names.len(), 2, "{disruption:?}, crash: {is_crash}: remaining objects: {names:?}");
}

async fn survives_everything(script: &[Write], disruptions: &[fn(usize) -> Disruption]) {
    let connection = Arc::default();
    let (server, mut version) = (server().await, 0);
    let store = store_on(&server, &connection);
    for write in script {
        version = write.send(&store, version).await.unwrap();
    }
    let (writes, _) = connection.counts();
    assert!(writes > 3, "the script is too short to prove anything: {writes} writes");
    for number in 1..=writes {
        for disruption in disruptions {
            for is_crash in [false, true] {
                survives(script, disruption(number), is_crash).await;
            }
        }
    }
}

#[tokio::test]
async fn a_crash_or_lost_reply_at_any_write_loses_nothing_and_leaves_nothing_behind() {
    survives_everything(&SMALL_SCRIPT, &[Disruption::Before, Disruption::After]).await;
}

#[tokio::test]
async fn a_crash_or_lost_reply_at_any_write_of_a_large_record_loses_nothing() {
    // A failure before a write equals one after the previous write, and large records are slow.
    for write in LARGE_SCRIPT {
        survives_everything(&[write], &[Disruption::After]).await;
    }
}

/// Suspends one writer at a request while another one writes; returns whether there was such a request.
async fn survives_suspension(write: Write, number: usize) -> bool {
    let server = server().await;
    let version = store(&server).append(0, b"a".to_vec()).await.unwrap();
    let before = store(&server).append(version, b"b".to_vec()).await.unwrap();
    let connection = Connection::with(Disruption::Suspend(number));
    let suspended = Arc::new(store_on(&server, &connection));
    let writer = Arc::clone(&suspended);
    let mut sent = tokio::spawn(async move { write.send(&*writer, before).await });
    tokio::select! {
        () = connection.suspended.notified() => {}
        result = &mut sent => {
            assert_eq!(result.unwrap().unwrap(), before + 1);
            return false;
        }
    }
    let busy = store(&server);
    let found = busy.load().await.unwrap();
    let mut version = found.version;
    // Two replacements: the generation that the suspended writer knows was deleted, and so was its seal.
    let mut records = summary(&found.records);
    for write in
        [Write::Append('p', 1), Write::Replace('q', 1), Write::Replace('r', 1), Write::Append('s', 1)]
    {
        version = write.send(&busy, version).await.unwrap();
        records = write.after(records);
    }
    connection.resumed.notify_one();
    let result = sent.await.unwrap();
    assert_eq!(stored(&server).await, records, "{write:?} suspended at {number}");
    let was_visible = summary(&found.records) == write.after(vec!["ax1".to_owned(), "bx1".to_owned()]);
    assert!(
        is_outdated(&result) || (result.is_ok() && was_visible),
        "{write:?} suspended at {number}: {result:?}"
    );

    let stored = suspended.load().await.unwrap();
    assert_eq!(summary(&stored.records), records);
    suspended.replace(stored.version, b"all".to_vec()).await.unwrap();
    assert_eq!(objects(&server).await.len(), 2, "{write:?} suspended at {number} leaves objects behind");
    true
}

#[tokio::test]
async fn a_writer_suspended_at_any_request_neither_loses_nor_reverts_other_writes() {
    for write in
        [Write::Append('x', 1), Write::Append('x', LARGE), Write::Replace('x', 1), Write::Replace('x', LARGE)]
    {
        let mut number = 1;
        while survives_suspension(write, number).await {
            number += 1;
        }
        assert!(number > 3, "{write:?} makes only {number} requests");
    }
}

#[tokio::test]
async fn an_interrupted_replacement_does_not_harm_a_suspended_one() {
    // Both stop before their seal: the third request of the one, the second write of the other.
    for (suspended_at, fails_at) in [(2, 1), (2, 2), (3, 1), (3, 2)] {
        let server = server().await;
        let version = store(&server).append(0, b"a".to_vec()).await.unwrap();
        let connection = Connection::with(Disruption::Suspend(suspended_at));
        let suspended = store_on(&server, &connection);
        let sent = tokio::spawn(async move { Write::Replace('x', 1).send(&suspended, version).await });
        connection.suspended.notified().await;
        let failing = store_on(&server, &Connection::with(Disruption::Before(fails_at)));
        assert!(Write::Replace('y', 1).send(&failing, version).await.is_err());
        connection.resumed.notify_one();
        assert_eq!(sent.await.unwrap().unwrap(), version + 1);
        assert_eq!(stored(&server).await, ["xx1"], "suspended at {suspended_at}, fails at {fails_at}");
    }
}

#[tokio::test]
async fn a_head_with_changed_metadata_is_still_the_head() {
    let server = server().await;
    let connection = Connection::with(Disruption::None);
    let store = store_on(&server, &connection);
    store.append(0, b"one".to_vec()).await.unwrap();
    let mut head = objects(&server).await.into_iter().find(|object| object.immutable.is_none()).unwrap();
    head.annotations_mut().insert("note".to_owned(), "changed".to_owned());
    config_maps(&server).replace(&head.name_any(), &PostParams::default(), &head).await.unwrap();
    let version = store.replace(1, b"all".to_vec()).await.unwrap();
    store.append(version, b"more".to_vec()).await.unwrap();
    assert_eq!(stored(&server).await, ["ax3", "mx4"]);
}

#[tokio::test]
async fn a_missing_object_is_an_error_and_not_the_end_of_the_journal() {
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
        assert!(error.contains("delete it to start over"), "without {name}: {error}");
        self::store(&server).delete_all().await.unwrap();
        assert_eq!(self::store(&server).load().await.unwrap(), Stored::default());
    }
}

#[tokio::test]
async fn a_deleted_world_leaves_nothing_behind_not_even_by_outdated_writers() {
    let server = server().await;
    let outdated = [store(&server), store(&server)];
    let other = KubernetesStore::new(client(&server, &Arc::default()), "default", "another-world");
    other.append(0, b"other".to_vec()).await.unwrap();
    let first = store(&server);
    let version = first.append(0, vec![b'a'; LARGE]).await.unwrap();
    for store in &outdated {
        store.load().await.unwrap();
    }
    first.delete_all().await.unwrap();
    first.delete_all().await.unwrap();
    assert!(is_outdated(&outdated[0].append(version, vec![b'b'; LARGE]).await));
    assert!(is_outdated(&outdated[1].replace(version, vec![b'c'; LARGE]).await));
    first.delete_all().await.unwrap();
    assert_eq!(objects(&server).await.len(), 2, "only the other world remains");
    assert_eq!(other.load().await.unwrap().records, [b"other"]);
}

#[tokio::test]
async fn an_outdated_process_gets_an_error_and_reloads_the_world() {
    let server = server().await;
    reloads_when_outdated([Arc::new(store(&server)), Arc::new(store(&server))]).await;
}

#[tokio::test]
async fn a_world_survives_the_end_of_its_process_and_of_its_store() {
    let server = server().await;
    let mut snapshots = Vec::new();
    {
        let mut process = Process::start_on(latency(3), Arc::new(store(&server))).await;
        process.backend.create(&order("one")).await.unwrap();
        process.settle();
        snapshots.push(process.snapshot());
        process.restart().await;
        snapshots.push(process.snapshot());
    }

    let process = Process::start_on(latency(3), Arc::new(store(&server))).await;
    process.settle();
    snapshots.push(process.snapshot());
    assert_eq!((&snapshots[0], &snapshots[0]), (&snapshots[1], &snapshots[2]));
}

#[tokio::test]
async fn a_world_restored_under_an_open_backend_is_found_before_a_machine_is_duplicated() {
    let (old, new) = (server().await, server().await);
    let original = Process::start_on(Settings::default(), Arc::new(store(&old))).await;
    for name in ["vm-1", "vm-2"] {
        original.backend.create(&order(name)).await.unwrap();
    }
    let open = Process::start_on(Settings::default(), Arc::new(store(&new))).await;
    let (heads, records): (Vec<_>, Vec<_>) =
        objects(&old).await.into_iter().partition(|object| object.immutable.is_none());
    // A world without its head is incomplete, not empty.
    for mut object in records.into_iter().chain(heads) {
        let found = store(&new).load().await;
        assert!(found.as_ref().map_or(true, |stored| *stored == Stored::default()), "{found:?}");
        object.metadata.resource_version = None;
        config_maps(&new).create(&PostParams::default(), &object).await.unwrap();
    }
    assert!(open.backend.create(&order("vm-1")).await.is_err(), "it has not loaded the restored world");
    assert_eq!(open.snapshot(), original.snapshot());
    open.backend.create(&order("vm-1")).await.unwrap();
    assert_eq!(open.snapshot(), original.snapshot(), "the machine already exists");
}

#[tokio::test]
async fn a_world_of_five_thousand_machines_is_loaded_in_a_few_requests() {
    const COUNT: usize = 5_000;
    let server = server().await;
    let connection = Arc::<Connection>::default();
    let process = Process::start_on(Settings::default(), Arc::new(store_on(&server, &connection))).await;
    let pattern = order("vm");
    let orders: Vec<_> = (0..COUNT).map(|number| copy(&pattern, number)).collect();
    let backend = &process.backend;
    stream::iter(&orders)
        .for_each_concurrent(16, |order| async move {
            backend.create(order).await.unwrap();
        })
        .await;
    let (writes, _) = connection.counts();
    assert!(writes < COUNT, "{writes} writes for {COUNT} creates that share them");
    let connection = Arc::<Connection>::default();
    let other = Process::start_on(Settings::default(), Arc::new(store_on(&server, &connection))).await;
    assert!(other.snapshot() == process.snapshot(), "a world of {COUNT} machines differs after a restart");
    let (writes, requests) = connection.counts();
    let pages = objects(&server).await.len().div_ceil(500);
    assert_eq!((writes, requests), (0, pages));
}
