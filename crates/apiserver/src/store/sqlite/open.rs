//! Opens the file: checks that it is whole, brings an older format up to date, and reads the objects.

use std::{
    collections::HashMap,
    fs::{OpenOptions, Permissions},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use snafu::{ResultExt, Snafu, ensure};
use sqlx::{
    Connection, Row,
    sqlite::{
        SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteLockingMode, SqliteRow,
        SqliteSynchronous,
    },
};

use super::commit::{checksum, primary_code};
use crate::store::{Entry, Key, memory::MemoryStore};

/// The format version of the file. A newer one is rejected, because this program cannot know what it means.
///
/// 1: objects and the counter. 2: a checksum for each object.
const FORMAT: i64 = 2;

/// Codes of SQLite.
const BUSY: i32 = 5;
const CORRUPT: i32 = 11;
const NOT_A_DATABASE: i32 = 26;

/// Indicates that the file could not be opened.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
pub enum OpenError {
    /// The file could not be created.
    #[snafu(display("failed to create the store \"{}\"; check that its directory exists and is writable: {source}", path.display()))]
    CreateFile {
        /// The path.
        path: PathBuf,
        /// The underlying error.
        source: std::io::Error,
    },
    /// SQLite could not use the file.
    #[snafu(display("failed to open the store \"{}\": {source}", path.display()))]
    OpenStore {
        /// The path.
        path: PathBuf,
        /// The underlying error.
        source: sqlx::Error,
    },
    /// Another process has locked it.
    #[snafu(display("failed to open the store \"{}\": another process uses it; stop that process first", path.display()))]
    LockStore {
        /// The path.
        path: PathBuf,
    },
    /// It was written by a newer version.
    #[snafu(display(
        "failed to open the store \"{}\": its format {found} is newer than {FORMAT}, the newest that this program supports; run the version that wrote it or a newer one, or put the copy from before the upgrade in its place, \"{}\"",
        path.display(), copy(path, FORMAT).display()
    ))]
    ReadNewerFormat {
        /// The path.
        path: PathBuf,
        /// Its format.
        found: i64,
    },
    /// The file is missing or empty, although this directory has held objects.
    #[snafu(display(
        "the store \"{}\" is missing or empty, but \"{}\" shows that it held objects; restore it from a backup, or remove \"{}\" to start with an empty store",
        path.display(), kubeconfig.display(), kubeconfig.display()
    ))]
    LostStore {
        /// The path.
        path: PathBuf,
        /// The kubeconfig of an earlier run.
        kubeconfig: PathBuf,
    },
    /// The content is not what was written.
    #[snafu(display(
        "the store \"{}\" is damaged: {what}; restore it from a backup, or move the file away and remove the kubeconfig beside it to start with an empty store",
        path.display()
    ))]
    Damaged {
        /// The path.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// Opens or creates the file, with mode 0600, for this process only, and reads every object.
pub async fn open(path: &Path) -> Result<(SqliteConnection, MemoryStore), OpenError> {
    let is_new = is_lost(path);
    let kubeconfig = path.with_file_name("kubeconfig");
    ensure!(!(is_new && kubeconfig.exists()), LostStoreSnafu { path, kubeconfig });

    let (mut connection, found) = connect(path).await?;
    if found == 0 {
        create_tables(&mut connection).await.context(OpenStoreSnafu { path })?;
    } else {
        check(&mut connection, path).await?;
    }
    if found == 1 {
        keep_copy(&mut connection, path, found).await?;
        add_checksums(&mut connection).await.map_err(|error| failed(path, error))?;
    }

    let memory = load(&mut connection, path, FORMAT).await?;
    Ok((connection, memory))
}

/// Whether the file is missing or empty.
pub fn is_lost(path: &Path) -> bool {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len()) == 0
}

/// Connects to the file and locks it. Returns its format, 0 for a new one.
pub async fn connect(path: &Path) -> Result<(SqliteConnection, i64), OpenError> {
    // Created here, because SQLite would make it readable by everyone; its -wal file inherits the mode.
    create_private(path)?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .locking_mode(SqliteLockingMode::Exclusive)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        // 16 MiB between checkpoints, because each flushes the whole file once more.
        .pragma("wal_autocheckpoint", "4000")
        .busy_timeout(std::time::Duration::from_millis(200));

    let failed = |error| failed(path, error);
    let mut connection = SqliteConnection::connect_with(&options).await.map_err(failed)?;
    let found = format(&mut connection).await.map_err(failed)?;
    ensure!(found <= FORMAT, ReadNewerFormatSnafu { path, found });
    lock(&mut connection, found).await.map_err(failed)?;
    Ok((connection, found))
}

/// Locks the file: SQLite takes the exclusive lock with the first write.
async fn lock(connection: &mut SqliteConnection, format: i64) -> Result<(), sqlx::Error> {
    if format == 0 {
        sqlx::query("CREATE TABLE IF NOT EXISTS counter (version INTEGER NOT NULL)")
            .execute(&mut *connection)
            .await?;
    }
    sqlx::query("UPDATE counter SET version = version").execute(connection).await.map(drop)
}

/// Creates a file that only its owner can read, unless it exists.
fn create_private(path: &Path) -> Result<(), OpenError> {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .context(CreateFileSnafu { path })?;
    file.set_permissions(Permissions::from_mode(0o600)).context(CreateFileSnafu { path })
    // Closed before SQLite locks: closing any descriptor of a file releases every lock the process has on it.
}

/// Tells a damaged or locked file from other failures.
pub fn failed(path: &Path, error: sqlx::Error) -> OpenError {
    let is_unreadable = matches!(
        error,
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::RowNotFound | sqlx::Error::ColumnNotFound(_)
    );
    // A table that is missing is reported with the general code 1.
    let is_table_missing = error.as_database_error().is_some_and(|error| error.message().contains("no such"));
    match primary_code(&error) {
        Some(BUSY) => OpenError::LockStore { path: path.to_owned() },
        Some(CORRUPT | NOT_A_DATABASE) => damaged(path, &error),
        _ if is_unreadable || is_table_missing => damaged(path, &error),
        _ => OpenError::OpenStore { path: path.to_owned(), source: error },
    }
}

fn damaged(path: &Path, error: &sqlx::Error) -> OpenError {
    OpenError::Damaged { path: path.to_owned(), what: error.to_string() }
}

async fn format(connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    sqlx::query("PRAGMA user_version").fetch_one(connection).await?.try_get(0)
}

async fn create_tables(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    for statement in [
        "INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM counter)",
        "CREATE TABLE IF NOT EXISTS objects (resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, \
         version INTEGER NOT NULL, object BLOB NOT NULL, checksum INTEGER NOT NULL, \
         PRIMARY KEY (resource, namespace, name)) WITHOUT ROWID",
        "PRAGMA user_version = 2",
    ] {
        sqlx::query(statement).execute(&mut *transaction).await?;
    }
    transaction.commit().await
}

/// Lets SQLite check the structure of the file.
pub async fn check(connection: &mut SqliteConnection, path: &Path) -> Result<(), OpenError> {
    let rows = sqlx::query("PRAGMA quick_check(1)")
        .fetch_all(connection)
        .await
        .map_err(|error| failed(path, error))?;
    let found = rows.first().and_then(|row| row.try_get::<String, _>(0).ok()).unwrap_or_default();
    // The details may span lines; the first one is enough to recognize the damage.
    let line = found.lines().find(|line| !line.starts_with("***")).unwrap_or("it cannot be read").to_owned();
    ensure!(found == "ok", DamagedSnafu { path, what: line });
    Ok(())
}

/// The path of the copy that is kept when the file is brought from a format to the next one.
fn copy(path: &Path, format: i64) -> PathBuf {
    path.with_extension(format!("format-{format}.sqlite"))
}

/// Copies the file as it is, for those who have to return to the version that wrote it.
async fn keep_copy(connection: &mut SqliteConnection, path: &Path, format: i64) -> Result<(), OpenError> {
    let copy = copy(path, format);
    // A copy of an upgrade that was interrupted is incomplete, or as old as this one.
    if copy.exists() {
        std::fs::remove_file(&copy).context(CreateFileSnafu { path: &copy })?;
    }
    create_private(&copy)?;
    sqlx::query("VACUUM INTO ?")
        .bind(copy.display().to_string())
        .execute(connection)
        .await
        .map_err(|error| failed(path, error))?;
    tracing::info!(copy = %copy.display(), "kept a copy of the store before its upgrade");
    Ok(())
}

/// Brings format 1 to format 2.
async fn add_checksums(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mut transaction = connection.begin().await?;
    sqlx::query("ALTER TABLE objects ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0")
        .execute(&mut *transaction)
        .await?;
    let rows = sqlx::query("SELECT resource, namespace, name, version, object FROM objects")
        .fetch_all(&mut *transaction)
        .await?;

    let mut names = HashMap::new();
    for row in rows {
        let (key, entry) = object(&row, &mut names)?;
        // Without checksums nothing else shows a damaged object.
        if let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(&entry.bytes) {
            return Err(sqlx::Error::ColumnDecode { index: "object".to_owned(), source: error.into() });
        }
        sqlx::query("UPDATE objects SET checksum = ? WHERE resource = ? AND namespace = ? AND name = ?")
            .bind(checksum(&key, entry.version, &entry.bytes))
            .bind(&*key.resource)
            .bind(&key.namespace)
            .bind(&key.name)
            .execute(&mut *transaction)
            .await?;
    }

    sqlx::query("PRAGMA user_version = 2").execute(&mut *transaction).await?;
    transaction.commit().await
}

/// The version of the last commit.
pub async fn counter(connection: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
    let row = sqlx::query("SELECT version FROM counter").fetch_one(connection).await?;
    Ok(row.try_get::<i64, _>(0)?.cast_unsigned())
}

/// Reads every object, and compares each with its checksum.
pub async fn load(
    connection: &mut SqliteConnection,
    path: &Path,
    format: i64,
) -> Result<MemoryStore, OpenError> {
    let failed = |error| failed(path, error);
    let counted = counter(connection).await.map_err(failed)?;
    let query = if format == 1 {
        "SELECT resource, namespace, name, version, object, NULL FROM objects"
    } else {
        "SELECT resource, namespace, name, version, object, checksum FROM objects"
    };
    let rows = sqlx::query(query).fetch_all(&mut *connection).await.map_err(failed)?;

    let mut version = counted;
    let mut names = HashMap::new();
    let mut objects = Vec::with_capacity(rows.len());
    for row in rows {
        let (key, entry) = object(&row, &mut names).map_err(failed)?;
        let expected: Option<i64> = row.try_get(5).map_err(failed)?;
        let is_whole = match expected {
            Some(expected) => checksum(&key, entry.version, &entry.bytes) == expected,
            // Without a checksum nothing else shows a damaged object.
            None => format == 1 && serde_json::from_slice::<serde::de::IgnoredAny>(&entry.bytes).is_ok(),
        };
        let what = || format!("the checksum of {} \"{}\" does not match", key.resource, key.path());
        ensure!(is_whole, DamagedSnafu { path, what: what() });
        // A counter that lags behind would number another write with a version that is in use.
        version = version.max(entry.version);
        objects.push((key, entry));
    }

    if version > counted {
        sqlx::query("UPDATE counter SET version = ?")
            .bind(version.cast_signed())
            .execute(connection)
            .await
            .map_err(failed)?;
    }
    Ok(MemoryStore::load(version, objects))
}

/// One object of a row. `names` holds each resource once.
fn object(row: &SqliteRow, names: &mut HashMap<String, Arc<str>>) -> Result<(Key, Entry), sqlx::Error> {
    let resource: String = row.try_get(0)?;
    let resource = Arc::clone(names.entry(resource).or_insert_with_key(|name| Arc::from(name.as_str())));
    let entry = Entry {
        version: row.try_get::<i64, _>(3)?.cast_unsigned(),
        bytes: Bytes::from(row.try_get::<Vec<u8>, _>(4)?),
    };
    Ok((Key { resource, namespace: row.try_get(1)?, name: row.try_get(2)? }, entry))
}
