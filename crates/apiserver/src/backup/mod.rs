//! Complete backups of a data directory: all objects, the version of the store, and the identity of the server.
//!
//! A running server returns its objects at one version (`GET /backup`): they are in memory, so neither its disk nor its
//! writers are involved, and every write that was acknowledged before is included. A store that no server uses is read
//! from its file. The identity is in a file of the data directory either way, and never sent.

mod archive;
mod restore;

use std::path::{Path, PathBuf};

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::StatusCode;
use jiff::Timestamp;
use snafu::{ResultExt, Snafu};

pub use self::{
    archive::{Archive, ArchiveError, Contents, Reader},
    restore::{DEFAULT_BUMP, RestoreError, Restored, restore},
};
use crate::{
    reply::{Payload, Reply},
    store::{
        Snapshot,
        sqlite::{OpenError, read},
    },
    tls::Credentials,
};

/// The path of a running server that returns the objects of a backup.
pub const PATH: &str = "/backup";

/// The file of the objects in a data directory.
pub(crate) const STORE: &str = "store.sqlite";

/// The file of the identity in a data directory.
pub(crate) const CREDENTIALS: &str = "credentials.json";

/// Indicates that a data directory could not be backed up.
#[derive(Debug, Snafu)]
pub enum BackupError {
    /// There is no store.
    #[snafu(display("no store found in \"{}\"; set --data-dir to the data directory of vitistack up or vitistack apiserver", path.display()))]
    FindStore {
        /// The directory.
        path: PathBuf,
    },
    /// The store could not be read.
    #[snafu(display("{source}"))]
    ReadStore {
        /// The underlying error.
        source: OpenError,
    },
    /// The identity could not be read.
    #[snafu(display("failed to read \"{}\": {source}", path.display()))]
    ReadIdentity {
        /// The path of the file.
        path: PathBuf,
        /// The underlying error.
        source: std::io::Error,
    },
    /// The identity is not valid.
    #[snafu(display("the credentials of the server in \"{}\" are damaged; remove the file and restart the server to create new ones", path.display()))]
    ParseIdentity {
        /// The path of the file.
        path: PathBuf,
    },
}

/// What clients know a server by: its certificate authority and the administrator's token.
#[derive(Clone, Debug)]
pub struct Identity(Credentials);

impl Identity {
    /// Reads the identity of a data directory. A directory has none before its first start.
    pub fn read(data_dir: &Path) -> Result<Option<Self>, BackupError> {
        let path = data_dir.join(CREDENTIALS);
        match std::fs::read(&path) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(credentials) => Ok(Some(Self(credentials))),
                Err(_) => ParseIdentitySnafu { path }.fail(),
            },
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(source).context(ReadIdentitySnafu { path }),
        }
    }

    /// Returns a kubeconfig for a server with this identity.
    #[must_use]
    pub fn kubeconfig(&self, address: std::net::SocketAddr) -> String {
        self.0.kubeconfig(address)
    }
}

/// The objects of a data directory.
#[derive(Debug)]
pub enum Objects {
    /// No server uses the directory: its objects.
    Stopped(Snapshot),
    /// A server uses the directory: it has to be asked for [`PATH`].
    Running,
}

/// Reads the objects of a data directory that no server uses. The store is locked meanwhile.
pub async fn objects(data_dir: &Path) -> Result<Objects, BackupError> {
    let path = data_dir.join(STORE);
    if !path.exists() {
        return FindStoreSnafu { path: data_dir }.fail();
    }
    match read(&path).await {
        Ok(snapshot) => Ok(Objects::Stopped(snapshot)),
        Err(OpenError::LockStore { .. }) => Ok(Objects::Running),
        Err(source) => Err(source).context(ReadStoreSnafu),
    }
}

/// Answers a request for the objects.
pub(crate) fn reply(snapshot: Snapshot, now: Timestamp) -> Reply {
    let chunks = Archive::new(snapshot, now).into_chunks().map(Ok::<Bytes, std::convert::Infallible>);
    let body = Body::from_stream(stream::iter(chunks));
    let mut reply = Reply::new(StatusCode::OK, Payload::Stream(body));
    reply.content_type = Some("application/jsonl");
    reply
}
