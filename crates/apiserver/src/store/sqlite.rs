//! The durable store: one SQLite file, and the working set in memory.
//!
//! WAL with `synchronous=FULL`: every commit is flushed to the disk, so neither `kill -9` nor a power loss takes a write
//! that was answered (`NORMAL` would survive only the former). The flush is what costs, so one writer task commits all
//! writes that wait as one transaction and answers them after it. Readers use the memory, which gets a change only when it
//! is on the disk: nobody sees what a crash could take back.

use std::collections::HashMap;
use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use snafu::{ResultExt, Snafu, ensure};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteLockingMode, SqliteSynchronous,
};
use sqlx::{Connection, QueryBuilder, Row};
use tokio::sync::{mpsc, oneshot};

use super::memory::{MemoryStore, allowed};
use super::{Compacted, Entry, Key, Page, Scope, Start, Store, Subscription, Write, WriteError};

/// The layout of the file this program writes. A newer one is refused, since it may mean what this program cannot know.
const FORMAT: i64 = 1;
/// Writes committed together, at most.
const BATCH: usize = 512;

/// Why the file could not be opened.
#[derive(Debug, Snafu)]
pub enum OpenError {
    /// The file could not be made.
    #[snafu(display("failed to create the store \"{}\"; check that its directory exists and is writable: {source}", path.display()))]
    CreateFile {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// SQLite could not use the file.
    #[snafu(display("failed to open the store \"{}\": {source}", path.display()))]
    OpenStore {
        /// Where.
        path: PathBuf,
        /// Why.
        source: sqlx::Error,
    },
    /// Another process has it.
    #[snafu(display("failed to open the store \"{}\": another process uses it; stop that process first", path.display()))]
    LockStore {
        /// Where.
        path: PathBuf,
    },
    /// A newer program wrote it.
    #[snafu(display(
        "failed to open the store \"{}\": its format {found} is newer than {FORMAT}, the newest this program knows; run the version that wrote it, or a newer one",
        path.display()
    ))]
    ReadNewerFormat {
        /// Where.
        path: PathBuf,
        /// Its format.
        found: i64,
    },
}

struct Order {
    write: Write,
    answer: oneshot::Sender<Result<Entry, WriteError>>,
}

/// Objects in a SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    memory: Arc<MemoryStore>,
    orders: mpsc::Sender<Order>,
}

impl SqliteStore {
    /// Opens the file, or makes it, mode 0600, for this process alone.
    pub async fn open(path: &Path) -> Result<Self, OpenError> {
        let mut connection = connect(path).await?;
        let memory = Arc::new(load(&mut connection).await.context(OpenStoreSnafu { path })?);
        let (orders, waiting) = mpsc::channel(4 * BATCH);
        tokio::spawn(write_all(connection, Arc::clone(&memory), waiting));
        Ok(Self { memory, orders })
    }
}

async fn connect(path: &Path) -> Result<SqliteConnection, OpenError> {
    // Made here, for SQLite would make it readable by all; its -wal file takes the mode of this one.
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .context(CreateFileSnafu { path })?;
    file.set_permissions(Permissions::from_mode(0o600)).context(CreateFileSnafu { path })?;
    // Closed before SQLite locks: closing any descriptor of a file drops every lock the process has on it.
    drop(file);
    let options = SqliteConnectOptions::new()
        .filename(path)
        .locking_mode(SqliteLockingMode::Exclusive)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        // 16 MiB between checkpoints: each flushes the whole file once more.
        .pragma("wal_autocheckpoint", "4000")
        .busy_timeout(std::time::Duration::from_millis(200));
    let opened = async {
        let mut connection = SqliteConnection::connect_with(&options).await?;
        let found: i64 = sqlx::query("PRAGMA user_version").fetch_one(&mut connection).await?.get(0);
        // The exclusive lock is taken by the first write, so write something at once.
        sqlx::query("CREATE TABLE IF NOT EXISTS counter (version INTEGER NOT NULL)")
            .execute(&mut connection)
            .await?;
        sqlx::query("UPDATE counter SET version = version").execute(&mut connection).await?;
        Ok((connection, found))
    };
    let (mut connection, found) = match opened.await {
        Err(sqlx::Error::Database(error))
            if error.code().is_some_and(|code| code == "5" || code == "261") =>
        {
            return LockStoreSnafu { path }.fail();
        }
        other => other.context(OpenStoreSnafu { path })?,
    };
    ensure!(found <= FORMAT, ReadNewerFormatSnafu { path, found });
    create_tables(&mut connection).await.context(OpenStoreSnafu { path })?;
    Ok(connection)
}

async fn create_tables(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    for statement in [
        "INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM counter)",
        "CREATE TABLE IF NOT EXISTS objects (resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, \
         version INTEGER NOT NULL, object BLOB NOT NULL, PRIMARY KEY (resource, namespace, name)) WITHOUT ROWID",
        "PRAGMA user_version = 1",
    ] {
        sqlx::query(statement).execute(&mut *transaction).await?;
    }
    transaction.commit().await
}

async fn load(connection: &mut SqliteConnection) -> Result<MemoryStore, sqlx::Error> {
    let version: i64 = sqlx::query("SELECT version FROM counter").fetch_one(&mut *connection).await?.get(0);
    let mut names: HashMap<String, Arc<str>> = HashMap::new();
    let rows = sqlx::query("SELECT resource, namespace, name, version, object FROM objects")
        .fetch_all(connection)
        .await?;
    let objects = rows.into_iter().map(|row| {
        let resource: String = row.get(0);
        let resource = Arc::clone(names.entry(resource).or_insert_with_key(|name| Arc::from(name.as_str())));
        let entry = Entry {
            version: row.get::<i64, _>(3).cast_unsigned(),
            bytes: Bytes::from(row.get::<Vec<u8>, _>(4)),
        };
        (Key { resource, namespace: row.get(1), name: row.get(2) }, entry)
    });
    Ok(MemoryStore::load(version.cast_unsigned(), objects))
}

struct Decided {
    key: Key,
    version: u64,
    object: Bytes,
    removed: bool,
}

/// The only writer. It ends when the store is dropped, or for good after a commit failed: what is on the disk is then
/// unknown, and only opening it again can tell.
async fn write_all(
    mut connection: SqliteConnection,
    memory: Arc<MemoryStore>,
    mut waiting: mpsc::Receiver<Order>,
) {
    let mut orders = Vec::with_capacity(BATCH);
    while waiting.recv_many(&mut orders, BATCH).await > 0 {
        let batch = decide(&memory, std::mem::take(&mut orders));
        let committed = commit(&mut connection, &batch.decided).await;
        if let Err(error) = committed {
            tracing::error!(%error, "failed to commit; the store takes no more writes until it is opened again");
            for (_, answer) in batch.answers {
                let _ = answer.send(Err(WriteError::Fail { message: error.to_string() }));
            }
            return;
        }
        let changes = batch.decided.into_iter();
        memory.install(changes.map(|change| (change.key, change.version, change.object, change.removed)));
        for (result, answer) in batch.answers {
            // Whoever asked may be gone; the write stands.
            let _ = answer.send(result);
        }
    }
    if let Err(error) = connection.close().await {
        tracing::warn!(%error, "failed to close the store");
    }
}

type Answer = (Result<Entry, WriteError>, oneshot::Sender<Result<Entry, WriteError>>);

#[derive(Default)]
struct Batch {
    decided: Vec<Decided>,
    answers: Vec<Answer>,
}

/// Decides and numbers the writes of one batch, each over the ones before it.
fn decide(memory: &MemoryStore, orders: Vec<Order>) -> Batch {
    let mut batch = Batch::default();
    let mut version = memory.version();
    let mut pending: HashMap<Key, Option<Entry>> = HashMap::new();
    for Order { write, answer } in orders {
        let current = pending.get(&write.key).cloned().unwrap_or_else(|| memory.get(&write.key));
        if !allowed(write.expect, current.as_ref().map(|entry| entry.version)) {
            batch.answers.push((Err(WriteError::Unexpected { current }), answer));
            continue;
        }
        version += 1;
        let entry = Entry { version, bytes: write.draft.stamp(version) };
        pending.insert(write.key.clone(), (!write.remove).then(|| entry.clone()));
        batch.decided.push(Decided {
            key: write.key,
            version,
            object: entry.bytes.clone(),
            removed: write.remove,
        });
        batch.answers.push((Ok(entry), answer));
    }
    batch
}

/// Makes a batch durable. One statement for all rows: each statement is a trip to SQLite's own thread and back, which
/// together cost as much as the flush to the disk.
async fn commit(connection: &mut SqliteConnection, decided: &[Decided]) -> Result<(), sqlx::Error> {
    let Some(last) = decided.last() else { return Ok(()) };
    // Of several writes to one key only the last is kept, as it would be one after the other.
    let latest: HashMap<&Key, &Decided> = decided.iter().map(|change| (&change.key, change)).collect();
    let (removed, kept): (Vec<&Decided>, Vec<&Decided>) =
        latest.into_values().partition(|change| change.removed);
    let mut transaction = connection.begin().await?;
    if !kept.is_empty() {
        let mut insert =
            QueryBuilder::new("INSERT OR REPLACE INTO objects (resource, namespace, name, version, object) ");
        insert.push_values(kept, |mut row, change| {
            row.push_bind(&*change.key.resource)
                .push_bind(&change.key.namespace)
                .push_bind(&change.key.name)
                .push_bind(change.version.cast_signed())
                .push_bind(&change.object[..]);
        });
        insert.build().execute(&mut *transaction).await?;
    }
    for change in removed {
        sqlx::query("DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?")
            .bind(&*change.key.resource)
            .bind(&change.key.namespace)
            .bind(&change.key.name)
            .execute(&mut *transaction)
            .await?;
    }
    // Kept apart from the objects: a version is not used again even if its object is gone.
    let version = last.version.cast_signed();
    sqlx::query("UPDATE counter SET version = ?").bind(version).execute(&mut *transaction).await?;
    transaction.commit().await
}

#[async_trait]
impl Store for SqliteStore {
    fn version(&self) -> u64 {
        self.memory.version()
    }

    fn get(&self, key: &Key) -> Option<Entry> {
        self.memory.get(key)
    }

    fn list(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: Option<usize>,
        at: Option<u64>,
    ) -> Result<Page, Compacted> {
        self.memory.list(scope, after, limit, at)
    }

    fn watch(&self, scope: &Scope, start: Start) -> Result<Subscription, Compacted> {
        self.memory.watch(scope, start)
    }

    async fn write(&self, write: Write) -> Result<Entry, WriteError> {
        let (answer, answered) = oneshot::channel();
        let stopped = || WriteError::Fail {
            message: "the store has stopped after a failed commit; restart".to_owned(),
        };
        self.orders.send(Order { write, answer }).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }

    fn compact(&self) {
        self.memory.compact();
    }
}
