//! Reads and writes whole stores that no server uses.

use std::path::Path;

use snafu::ensure;
use sqlx::{Connection as _, sqlite::SqliteConnection};

use super::{
    BATCH,
    commit::{Decided, commit},
    open::{self, LostStoreSnafu, OpenError, failed, is_lost},
};
use crate::store::{Entry, Key, Snapshot, Store as _};

/// Reads all objects of a file, with the checks of a start. A file of an older format is not upgraded.
pub async fn read(path: &Path) -> Result<Snapshot, OpenError> {
    ensure!(!is_lost(path), LostStoreSnafu { path, kubeconfig: path.with_file_name("kubeconfig") });
    let (mut connection, format) = open::connect(path).await?;
    open::check(&mut connection, path).await?;
    let memory = open::load(&mut connection, path, format).await?;
    close(connection, path).await?;
    Ok(memory.snapshot())
}

/// Creates a file with these objects and this version, and reads it with the checks of a start.
pub async fn write(path: &Path, snapshot: &Snapshot) -> Result<Snapshot, OpenError> {
    let (mut connection, _) = open::open(path).await?;
    for objects in snapshot.objects.chunks(BATCH) {
        let decided = |(key, entry): &(Key, Entry)| Decided {
            key: key.clone(),
            version: entry.version,
            object: entry.bytes.clone(),
            removed: false,
        };
        let decided: Vec<Decided> = objects.iter().map(decided).collect();
        commit(&mut connection, &decided).await.map_err(|error| failed(path, error))?;
    }
    sqlx::query("UPDATE counter SET version = ?")
        .bind(snapshot.version.cast_signed())
        .execute(&mut connection)
        .await
        .map_err(|error| failed(path, error))?;
    close(connection, path).await?;
    read(path).await
}

/// Closes a file, which moves the log to it.
async fn close(connection: SqliteConnection, path: &Path) -> Result<(), OpenError> {
    connection.close().await.map_err(|error| failed(path, error))
}
