//! Complete backups of a data directory: under load, of a stopped server, damaged, with wrong keys, and interrupted.

use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams, WatchEvent, WatchParams},
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;

use crate::{Killed, crash::client_of};

/// A key pair that age-keygen has written.
const RECIPIENT: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
const SECRET_KEY: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";

/// A directory with data directories, backups and keys.
struct Bed(tempfile::TempDir);

impl Bed {
    fn new() -> Self {
        let bed = Self(tempfile::TempDir::new().unwrap());
        std::fs::write(bed.path("passphrase"), "correct horse\n").unwrap();
        std::fs::write(bed.path("key.txt"), format!("# {RECIPIENT}\n{SECRET_KEY}\n")).unwrap();
        bed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Starts the API on a data directory.
    async fn serve(&self, data: &str) -> (Killed, Client) {
        let mut command = self.vitistack(&["apiserver", "--data-dir", data]);
        let _ = std::fs::remove_file(self.path(data).join("kubeconfig"));
        let process = Killed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let client = client_of(&self.path(data).join("kubeconfig")).await;
        (process, client)
    }

    fn vitistack(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vitistack"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    fn backup(&self, out: &str, more: &[&str]) -> Output {
        let arguments = ["apiserver", "backup", "--data-dir", "data", "--out", out];
        self.vitistack(&arguments).args(more).output().unwrap()
    }

    /// Backs up with the key, which takes less time than a passphrase.
    fn back_up(&self, out: &str) -> String {
        succeed(&self.backup(out, &["--recipient", RECIPIENT]))
    }

    fn restore(&self, from: &str, data: &str, more: &[&str]) -> Output {
        let arguments = ["apiserver", "restore", "--from", from, "--data-dir", data];
        self.vitistack(&arguments).args(more).output().unwrap()
    }

    /// Restores with the key and returns the error.
    fn refused(&self, from: &str, data: &str, more: &[&str]) -> String {
        let output = self.restore(from, data, &[&["--identity-file", "key.txt"], more].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Returns the output of a command that succeeded.
fn succeed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Waits until something holds.
fn until(what: &str, holds: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_mins(1);
    while !holds() {
        assert!(Instant::now() < limit, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Stops a server as a user does.
fn stop(mut process: Killed) {
    kill_process(Pid::from_child(&process.0), Signal::TERM).unwrap();
    process.0.wait().unwrap();
}

async fn create(maps: &Api<ConfigMap>, name: &str) -> Result<u64, kube::Error> {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object.data = Some([("text".to_owned(), name.repeat(20))].into());
    Ok(version(&maps.create(&PostParams::default(), &object).await?))
}

fn version(object: &ConfigMap) -> u64 {
    object.resource_version().unwrap().parse().unwrap()
}

/// The names and versions of all config maps.
async fn versions(client: &Client) -> BTreeMap<String, u64> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let list = maps.list(&ListParams::default()).await.unwrap();
    list.iter().map(|object| (object.name_any(), version(object))).collect()
}

/// The first answer to a watch from a version.
async fn watch_from(client: &Client, version: u64) -> String {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let mut events = match maps.watch(&WatchParams::default(), &version.to_string()).await {
        Ok(events) => events.boxed(),
        Err(error) => return error.to_string(),
    };
    match tokio::time::timeout(Duration::from_secs(5), events.next()).await {
        Ok(Some(Ok(WatchEvent::Error(status)))) => status.code.to_string(),
        Ok(other) => format!("{other:?}"),
        Err(_) => "silence".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_load_contains_every_write_that_was_acknowledged_before() {
    let bed = Bed::new();
    let (process, client) = bed.serve("data").await;
    let mut secret = Secret::default();
    secret.metadata.name = Some("secret".to_owned());
    secret.string_data = Some([("password".to_owned(), "hunter2".to_owned())].into());
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    secrets.create(&PostParams::default(), &secret).await.unwrap();

    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let (acknowledge, mut acknowledged) = tokio::sync::mpsc::unbounded_channel();
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let (maps, acknowledge) = (maps.clone(), acknowledge.clone());
        writers.spawn(async move {
            for number in 0.. {
                let name = format!("writer-{writer}-{number}");
                match create(&maps, &name).await {
                    Ok(version) => acknowledge.send((name, version)).unwrap(),
                    Err(_) => return,
                }
            }
        });
    }
    let mut before = BTreeMap::new();
    while before.len() < 200 {
        let (name, version) = acknowledged.recv().await.unwrap();
        before.insert(name, version);
    }

    let output = bed.back_up("one.age");
    assert!(output.starts_with("backup \"one.age\" written: "), "{output}");
    let mode = std::fs::metadata(bed.path("one.age")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let bytes = std::fs::read(bed.path("one.age")).unwrap();
    assert!(!bytes.windows(7).any(|part| part == b"writer-"), "it is not encrypted");

    // The server was not disturbed.
    let count = versions(&client).await.len();
    until("the writers continue", || acknowledged.len() > 100);
    assert!(count >= before.len());
    writers.abort_all();
    let last = create(&maps, "last").await.unwrap();
    let kubeconfig = std::fs::read_to_string(bed.path("data/kubeconfig")).unwrap();
    stop(process);

    let output = succeed(&bed.restore("one.age", "new", &["--identity-file", "key.txt"]));
    assert!(output.contains("data directory \"new\" restored: "), "{output}");
    let (_process, client) = bed.serve("new").await;
    let restored = versions(&client).await;
    let missing: Vec<_> =
        before.iter().filter(|(name, version)| restored.get(*name) != Some(version)).collect();
    assert!(missing.is_empty(), "lost {missing:?}");
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let data = secrets.get("secret").await.unwrap().data.unwrap();
    assert_eq!(data["password"].0, b"hunter2");

    // The identity is the same, and no version is used twice: one that is newer than the backup has expired.
    let identity = |text: &str| {
        let lines = text.lines().filter(|line| line.contains("token:") || line.contains("authority"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let new = std::fs::read_to_string(bed.path("new/kubeconfig")).unwrap();
    assert_eq!(identity(&new), identity(&kubeconfig));
    assert!(!restored.contains_key("last"));
    assert_eq!(watch_from(&client, last).await, "410");
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    assert!(create(&maps, "next").await.unwrap() > last + 900_000_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_server_is_backed_up_with_a_passphrase_and_restored_as_it_was() {
    let bed = Bed::new();
    let (process, client) = bed.serve("data").await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    for name in ["one", "two"] {
        create(&maps, name).await.unwrap();
    }
    let before = versions(&client).await;
    // Killed, so that the last writes are only in the log.
    drop(process);

    let passphrase = &["--passphrase-file", "passphrase"];
    succeed(&bed.backup("one.age", passphrase));
    let existing = bed.backup("one.age", passphrase);
    assert_eq!(existing.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&existing.stderr)
            .contains("\"one.age\" exists: choose another file, or pass --overwrite")
    );
    succeed(&bed.backup("one.age", &["--passphrase-file", "passphrase", "--overwrite"]));

    std::fs::write(bed.path("wrong"), "correct house\n").unwrap();
    let wrong = bed.restore("one.age", "new", &["--passphrase-file", "wrong"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&wrong.stderr),
        "vitistack: --from \"one.age\": the passphrase or key does not open it: use the one that it was encrypted with\n"
    );
    let other_kind = bed.refused("one.age", "new", &[]);
    assert!(other_kind.contains("it is encrypted with a passphrase: set --passphrase-file"), "{other_kind}");
    assert!(!bed.path("new").exists());

    succeed(&bed.restore("one.age", "new", &["--passphrase-file", "passphrase", "--bump-revision", "0"]));
    let mode = |name: &str| std::fs::metadata(bed.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("new/store.sqlite"), mode("new/credentials.json")), (0o600, 0o600));
    let (process, client) = bed.serve("new").await;
    assert_eq!(versions(&client).await, before);
    drop(process);

    // The old server still works too.
    let (_process, client) = bed.serve("data").await;
    assert_eq!(versions(&client).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_in_use_is_not_restored_to() {
    let bed = Bed::new();
    let (process, client) = bed.serve("data").await;
    bed.back_up("one.age");
    let error = bed.refused("one.age", "data", &[]);
    assert!(error.contains("store.sqlite\" exists; set --data-dir to a new directory"), "{error}");
    let error = bed.refused("one.age", "new", &["--bump-revision", "9007199254740992"]);
    assert!(error.contains("--bump-revision 9007199254740992 is too large"), "{error}");

    // Neither the log of another store nor another identity is mixed with the backup.
    for name in ["store.sqlite-wal", "credentials.json"] {
        let directory = format!("with-{name}");
        std::fs::create_dir(bed.path(&directory)).unwrap();
        std::fs::write(bed.path(&directory).join(name), "of another server").unwrap();
        let error = bed.refused("one.age", &directory, &[]);
        assert!(error.contains(&format!("{name}\" exists")), "{error}");
        assert!(!bed.path(&directory).join("store.sqlite").exists());
    }
    create(&Api::default_namespaced(client), "after").await.unwrap();

    // A store that was lost is the reason for a restore: what is left of it does not prevent it.
    stop(process);
    for name in ["store.sqlite", "store.sqlite-wal"] {
        let _ = std::fs::remove_file(bed.path("data").join(name));
    }
    succeed(&bed.restore("one.age", "data", &["--identity-file", "key.txt"]));
    bed.serve("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_or_foreign_backup_is_refused() {
    let bed = Bed::new();
    let (process, client) = bed.serve("data").await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    for number in 0..150 {
        create(&maps, &format!("map-{number}")).await.unwrap();
    }
    bed.back_up("one.age");
    stop(process);

    let bytes = std::fs::read(bed.path("one.age")).unwrap();
    assert!(bytes.len() > 70_000, "it has more than one chunk: {}", bytes.len());
    let indexes = (0..24).map(|step| step * bytes.len() / 24).chain([22, 30, 150, 200, bytes.len() - 1]);
    for index in indexes {
        let mut damaged = bytes.clone();
        damaged[index] ^= 1 << (index % 8);
        std::fs::write(bed.path("damaged.age"), damaged).unwrap();
        let error = bed.refused("damaged.age", "new", &[]);
        assert!(error.starts_with("vitistack: --from \"damaged.age\": "), "{index}: {error}");
        assert!(!bed.path("new").exists(), "{index}");
    }
    for length in [0, 10, 150, 70_000, bytes.len() - 1] {
        std::fs::write(bed.path("damaged.age"), &bytes[..length]).unwrap();
        bed.refused("damaged.age", "new", &[]);
        assert!(!bed.path("new").exists(), "{length}");
    }

    std::fs::write(bed.path("damaged.age"), "apiVersion: v1\n").unwrap();
    let error = bed.refused("damaged.age", "new", &[]);
    assert!(error.contains("it is not an encrypted backup"), "{error}");
    succeed(&bed.restore("one.age", "new", &["--identity-file", "key.txt"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_backup_leaves_no_file() {
    let bed = Bed::new();
    let (process, client) = bed.serve("data").await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    create(&maps, "one").await.unwrap();
    let files = bed.files();

    // The server does not answer, so the backup waits for it.
    let server = Pid::from_child(&process.0);
    kill_process(server, Signal::STOP).unwrap();
    let is_waiting = || bed.files().iter().any(|name| name.ends_with(".partial"));
    for (signal, is_removed) in [(Signal::TERM, true), (Signal::KILL, false)] {
        let mut command = bed.vitistack(&["apiserver", "backup", "--data-dir", "data", "--out", "one.age"]);
        command.args(["--recipient", RECIPIENT]).stderr(Stdio::piped());
        let mut backup = Killed(command.spawn().unwrap());
        until("the backup has started", is_waiting);
        // A moment in which it would have written the file.
        std::thread::sleep(Duration::from_millis(500));
        kill_process(Pid::from_child(&backup.0), signal).unwrap();
        assert!(!backup.0.wait().unwrap().success());
        assert!(!bed.path("one.age").exists());
        assert_eq!(bed.files() == files, is_removed, "{:?}", bed.files());
    }

    // A server that ends in between.
    let left: Vec<String> = bed.files();
    let backup = std::thread::scope(|scope| {
        let backup = scope.spawn(|| bed.backup("one.age", &["--recipient", RECIPIENT]));
        std::thread::sleep(Duration::from_secs(1));
        drop(process);
        backup.join().unwrap()
    });
    assert_eq!(backup.status.code(), Some(1));
    let error = String::from_utf8_lossy(&backup.stderr);
    assert!(error.contains("failed to read the objects of the running server"), "{error}");
    assert_eq!(bed.files(), left);
}

#[test]
fn what_cannot_be_backed_up_is_refused_with_the_fix() {
    let bed = Bed::new();
    let key = &["--recipient", RECIPIENT];
    let error = |output: Output| {
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(error(bed.backup("one.age", key)).contains("no store found in \"data\""));
    assert!(!bed.path("data").exists());
    std::fs::create_dir(bed.path("data")).unwrap();
    std::fs::write(bed.path("data/store.sqlite"), "x".repeat(5000)).unwrap();
    assert!(error(bed.backup("one.age", key)).contains("is damaged"));
    assert!(error(bed.backup("one.age", &[])).contains("--passphrase-file <FILE>|--recipient <KEY>"));
    assert!(error(bed.backup("one.age", &["--recipient", "age1x"])).contains("it is not a recipient"));
    let missing = error(bed.backup("one.age", &["--passphrase-file", "missing"]));
    assert!(missing.contains("failed to read --passphrase-file \"missing\""), "{missing}");
    assert!(!bed.path("one.age").exists());
}

#[test]
fn help_of_backup_and_restore() {
    let pages = [
        &["apiserver", "--help"][..],
        &["apiserver", "backup", "--help"],
        &["apiserver", "restore", "--help"],
    ];
    insta::assert_snapshot!(pages.map(crate::transcript).join("\n\n"));
}
