//! The only writer of the file.

use std::{
    io::ErrorKind,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sqlx::{Connection, Row, sqlite::SqliteConnection};
use tokio::{sync::mpsc, time::timeout};

use super::{
    BATCH,
    commit::{Batch, Decided, Order, commit, decide, primary_code},
    failpoints::Failpoints,
    open::{connect, counter, is_lost},
    space::{Reserve, UNUSED_PAGES, is_deletion},
};
use crate::store::{Store, WriteError, memory::MemoryStore};

/// How often a store that cannot write tries to recover.
const RECOVERY_INTERVAL: Duration = Duration::from_secs(1);

/// SQLite's code for a full disk.
const FULL: i32 = 13;

/// Why the store cannot write, if so. Shared with those who ask.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<Option<String>>>);

impl Health {
    /// Returns why the store cannot write.
    pub fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, problem: Option<String>) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *current == problem {
            return;
        }
        if let Some(problem) = &problem {
            tracing::error!("{problem}");
        } else {
            tracing::info!("the store accepts all writes again");
        }
        *current = problem;
    }
}

/// The writer, and what it knows about the disk.
pub struct Writer {
    path: PathBuf,
    /// Absent after a failed commit: the file is opened again before the next one.
    connection: Option<SqliteConnection>,
    memory: Arc<MemoryStore>,
    reserve: Reserve,
    health: Health,
    /// The writes of a failed commit. Only the file knows whether they were made.
    unknown: Vec<Decided>,
    /// Only in tests.
    disk: Option<Arc<dyn Failpoints>>,
}

impl Writer {
    /// The writer of an open file.
    pub fn new(
        path: PathBuf,
        connection: SqliteConnection,
        memory: Arc<MemoryStore>,
        health: Health,
        disk: Option<Arc<dyn Failpoints>>,
    ) -> Self {
        let reserve = Reserve::new(&path);
        let mut writer =
            Self { path, connection: Some(connection), memory, reserve, health, unknown: Vec::new(), disk };
        writer.report();
        writer
    }

    /// Writes until the store is dropped.
    pub async fn run(mut self, mut waiting: mpsc::Receiver<Order>) {
        let mut orders = Vec::with_capacity(BATCH);
        loop {
            let received = waiting.recv_many(&mut orders, BATCH);
            let received = if self.health.get().is_none() {
                Ok(received.await)
            } else {
                timeout(RECOVERY_INTERVAL, received).await
            };
            if received == Ok(0) {
                break;
            }
            if self.health.get().is_some() {
                self.recover().await;
            }
            self.write(std::mem::take(&mut orders)).await;
        }

        if let Some(connection) = self.connection
            && let Err(error) = connection.close().await
        {
            tracing::warn!(%error, "failed to close the store");
        }
    }

    /// Writes what can be written, and answers every order.
    async fn write(&mut self, orders: Vec<Order>) {
        let orders = self.admit(orders);
        if self.connection.is_none() {
            return;
        }
        let batch = decide(&self.memory, orders);
        match self.commit(&batch.decided).await {
            Ok(()) => {
                self.install(batch.decided);
                for (result, answer) in batch.answers {
                    // The requester may be gone; the write is still valid.
                    let _ = answer.send(result);
                }
                if !self.reserve.is_held() {
                    self.shrink().await;
                }
            }
            Err(error) => self.fail(batch, &error).await,
        }
    }

    /// Makes a batch durable.
    async fn commit(&mut self, decided: &[Decided]) -> Result<(), sqlx::Error> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let disk = self.disk.as_ref().filter(|_| !decided.is_empty());
        if let Some(disk) = disk {
            disk.before_commit(self.reserve.is_held()).await?;
        }
        commit(connection, decided).await?;
        if let Some(disk) = disk {
            disk.after_commit().await?;
        }
        Ok(())
    }

    /// Answers the orders that cannot be carried out now, and returns the others.
    fn admit(&self, orders: Vec<Order>) -> Vec<Order> {
        let Some(problem) = self.health.get() else { return orders };
        let is_writable = self.connection.is_some();
        let (admitted, refused): (Vec<Order>, Vec<Order>) =
            orders.into_iter().partition(|order| is_writable && is_deletion(&order.write));
        for order in refused {
            let _ = order.answer.send(Err(WriteError::Fail { message: problem.clone() }));
        }
        admitted
    }

    fn install(&self, decided: Vec<Decided>) {
        let changes = decided.into_iter();
        self.memory
            .install(changes.map(|change| (change.key, change.version, change.object, change.removed)));
    }

    /// Opens the file again after a failed commit, and answers its orders when it is known what was written.
    async fn fail(&mut self, batch: Batch, error: &sqlx::Error) {
        tracing::error!(%error, "failed to commit");
        if is_full(error) {
            self.reserve.release();
        }
        if let Some(connection) = self.connection.take() {
            // Whatever it reports, the lock of the file is released.
            let _ = connection.close().await;
        }

        let last = batch.decided.last().map(|change| change.version);
        self.unknown = batch.decided;
        self.recover().await;
        let is_written = self.connection.is_some() && last == Some(self.memory.version());
        for (result, answer) in batch.answers {
            let failed = WriteError::Fail { message: format!("the commit failed: {error}") };
            let result = if is_written || result.is_err() { result } else { Err(failed) };
            let _ = answer.send(result);
        }
    }

    /// Tries to write again: opens the file, finds out what a failed commit has written, and restores the reserve.
    async fn recover(&mut self) {
        if self.connection.is_none() {
            match self.reopen().await {
                Ok(connection) => self.connection = Some(connection),
                Err(problem) => return self.health.set(Some(problem)),
            }
        }
        self.hold_reserve();
        self.report();
    }

    /// Holds the reserve again, if there is space for it.
    fn hold_reserve(&mut self) {
        let has_space = self.disk.as_ref().is_none_or(|disk| disk.has_space());
        if has_space && !self.reserve.is_held() {
            self.reserve.hold();
        }
    }

    /// Opens the file again. It has to be the one that this process wrote: all of what it acknowledged is there, and
    /// nothing that it does not know.
    async fn reopen(&mut self) -> Result<SqliteConnection, String> {
        let path = self.path.display();
        if is_lost(&self.path) {
            return Err(format!(
                "the store \"{path}\" is missing or empty: stop the server and restore it from a backup"
            ));
        }
        let (mut connection, _) = connect(&self.path).await.map_err(|error| error.to_string())?;
        let version =
            counter(&mut connection).await.map_err(|error| format!("failed to read the store: {error}"))?;
        let written = self.unknown.last().map(|change| change.version);
        if Some(version) == written {
            let unknown = std::mem::take(&mut self.unknown);
            self.install(unknown);
        } else if version != self.memory.version() {
            return Err(format!("the store \"{path}\" was replaced: restart the server to use it as it is"));
        }
        self.unknown.clear();
        Ok(connection)
    }

    /// Returns the space of deleted objects to the disk, and tries to hold the reserve again.
    async fn shrink(&mut self) {
        if let Some(connection) = &mut self.connection
            && let Err(error) = shrink(connection).await
        {
            tracing::debug!(%error, "failed to shrink the store");
        }
        self.hold_reserve();
        self.report();
    }

    fn report(&mut self) {
        let problem = (!self.reserve.is_held()).then(|| {
            format!(
                "no space is left for the store \"{}\": free space on its disk or delete objects; only deletions are accepted until then",
                self.path.display()
            )
        });
        self.health.set(problem);
    }
}

/// Whether a commit failed because the disk is full.
fn is_full(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded),
        error => primary_code(error) == Some(FULL),
    }
}

/// Shrinks the file if enough of it is unused, and moves the log to it.
async fn shrink(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let unused: i64 = sqlx::query("PRAGMA freelist_count").fetch_one(&mut *connection).await?.try_get(0)?;
    if unused >= UNUSED_PAGES {
        sqlx::query("VACUUM").execute(&mut *connection).await?;
    }
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(connection).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::open::open;

    /// A writer whose last commit failed.
    async fn failed(path: &std::path::Path) -> Writer {
        let (connection, memory) = open(path).await.unwrap();
        let mut writer = Writer::new(path.to_owned(), connection, Arc::new(memory), Health::default(), None);
        writer.connection.take().unwrap().close().await.unwrap();
        writer
    }

    #[tokio::test]
    async fn a_file_that_was_removed_is_not_created_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.sqlite");
        let mut writer = failed(&path).await;
        std::fs::remove_file(&path).unwrap();

        writer.recover().await;
        assert!(writer.connection.is_none() && !path.exists());
        assert!(writer.health.get().unwrap().contains("restore it from a backup"));
    }

    #[tokio::test]
    async fn a_file_of_another_version_is_not_written_to() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.sqlite");
        let mut writer = failed(&path).await;
        let (mut other, _) = connect(&path).await.unwrap();
        sqlx::query("UPDATE counter SET version = 7").execute(&mut other).await.unwrap();
        other.close().await.unwrap();

        writer.recover().await;
        assert!(writer.connection.is_none());
        assert!(writer.health.get().unwrap().contains("was replaced"));
    }

    #[tokio::test]
    async fn a_failed_commit_that_was_made_is_known_afterwards() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.sqlite");
        let mut writer = failed(&path).await;
        let key = crate::store::Key { resource: "/maps".into(), namespace: "a".into(), name: "b".into() };
        let decided = Decided { key: key.clone(), version: 1, object: "{}".into(), removed: false };
        let (mut other, _) = connect(&path).await.unwrap();
        commit(&mut other, std::slice::from_ref(&decided)).await.unwrap();
        other.close().await.unwrap();
        writer.unknown = vec![decided];

        writer.recover().await;
        assert_eq!(writer.memory.get(&key).map(|entry| entry.version), Some(1));
        assert_eq!(writer.health.get(), None);
    }
}
