//! Decides a batch of writes and makes it durable.

use std::collections::HashMap;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use sqlx::{Connection, QueryBuilder, sqlite::SqliteConnection};
use tokio::sync::oneshot;

use crate::store::{
    Entry, Key, Store, Write, WriteError,
    memory::{MemoryStore, allowed},
};

/// A write that waits for its turn.
pub struct Order {
    /// The write.
    pub write: Write,
    /// Where its result goes.
    pub answer: oneshot::Sender<Result<Entry, WriteError>>,
}

/// A write that is allowed, with its version.
pub struct Decided {
    /// The key.
    pub key: Key,
    /// The version of the write.
    pub version: u64,
    /// The object.
    pub object: Bytes,
    /// Whether the object is deleted.
    pub removed: bool,
}

/// Writes that are committed together, and what to answer once they are.
#[derive(Default)]
pub struct Batch {
    /// The writes, in order.
    pub decided: Vec<Decided>,
    /// The answers to all orders, also to those that are not allowed.
    pub answers: Vec<Answer>,
}

type Answer = (Result<Entry, WriteError>, oneshot::Sender<Result<Entry, WriteError>>);

/// Decides and numbers the writes of one batch, each on top of the ones before it.
pub fn decide(memory: &MemoryStore, orders: Vec<Order>) -> Batch {
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

/// Makes a batch durable. One statement for all rows: each statement is a round trip to SQLite's own thread,
/// which together cost as much as the flush to disk.
pub async fn commit(connection: &mut SqliteConnection, decided: &[Decided]) -> Result<(), sqlx::Error> {
    let Some(last) = decided.last() else { return Ok(()) };
    // Of several writes to one key only the last is stored, as if they ran one after the other.
    let latest: HashMap<&Key, &Decided> = decided.iter().map(|change| (&change.key, change)).collect();
    let (removed, stored): (Vec<&Decided>, Vec<&Decided>) =
        latest.into_values().partition(|change| change.removed);
    let mut transaction = connection.begin().await?;

    if !stored.is_empty() {
        let mut insert = QueryBuilder::new(
            "INSERT OR REPLACE INTO objects (resource, namespace, name, version, object, checksum) ",
        );
        insert.push_values(stored, |mut row, change| {
            row.push_bind(&*change.key.resource)
                .push_bind(&change.key.namespace)
                .push_bind(&change.key.name)
                .push_bind(change.version.cast_signed())
                .push_bind(&change.object[..])
                .push_bind(checksum(&change.key, change.version, &change.object));
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

    // Separate from the objects: a version is not reused even if its object is deleted.
    let version = last.version.cast_signed();
    sqlx::query("UPDATE counter SET version = ?").bind(version).execute(&mut *transaction).await?;
    transaction.commit().await
}

/// The checksum of a row, which shows damage that leaves the file readable. It is not a protection against forgery, so
/// eight bytes are enough.
pub fn checksum(key: &Key, version: u64, object: &[u8]) -> i64 {
    let mut hasher = Sha256::new();
    for part in [&*key.resource, &key.namespace, &key.name] {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    hasher.update(version.to_be_bytes());
    hasher.update(object);
    let digest = hasher.finalize();
    digest.iter().take(8).fold(0, |sum: i64, byte| (sum << 8) | i64::from(*byte))
}

/// The primary code of an error of SQLite.
pub fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code = error.as_database_error()?.code()?;
    // The upper bits say more about the same cause.
    Some(code.parse::<i32>().ok()? & 0xff)
}
