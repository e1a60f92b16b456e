//! The socket: TLS on loopback for clients outside the process, with the administrator's token.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use http::header::AUTHORIZATION;
use http::{Request, Response};
use snafu::{ResultExt, Snafu};
use tower::ServiceExt as _;

use crate::status::Failure;
use crate::store::sqlite::{OpenError, SqliteStore};
use crate::tls::{Identity, TlsError};
use crate::{ApiServer, ApiService, reply};

/// Why the server does not serve.
#[derive(Debug, Snafu)]
pub enum ServeError {
    /// The directory could not be made.
    #[snafu(display("failed to make the data directory \"{}\"; give --data-dir one that you may write: {source}", path.display()))]
    MakeDirectory {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The store could not be opened.
    #[snafu(display("{source}"))]
    OpenStore {
        /// Why.
        source: OpenError,
    },
    /// The server did not start.
    #[snafu(display("failed to start the API server: {source}"))]
    StartServer {
        /// Why.
        source: Failure,
    },
    /// The address could not be listened on.
    #[snafu(display("failed to listen on {address}; choose another with --listen: {source}"))]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// No certificate.
    #[snafu(display("{source}"))]
    MakeIdentity {
        /// Why.
        source: TlsError,
    },
    /// The kubeconfig could not be written.
    #[snafu(display("failed to write the kubeconfig \"{}\": {source}", path.display()))]
    WriteKubeconfig {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where to keep objects and the kubeconfig; without it objects are in memory.
    pub data_dir: Option<PathBuf>,
    /// Where to write the kubeconfig, if not into the data directory.
    pub kubeconfig: Option<PathBuf>,
}

/// A server that listens.
#[derive(Debug)]
pub struct Serving {
    /// The server, for use without the socket.
    pub server: ApiServer,
    /// Where it listens.
    pub address: SocketAddr,
    /// A kubeconfig with the administrator's rights.
    pub kubeconfig: String,
    handle: Handle<SocketAddr>,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Serving {
    /// Stops listening, waits a moment for requests under way, and cuts off those that stay (watches do).
    pub async fn stop(self) {
        self.handle.graceful_shutdown(Some(Duration::from_millis(500)));
        let _ = self.task.await;
    }
}

/// Opens the store, listens, and writes the kubeconfig when requests are answered.
pub async fn serve(options: ServeOptions) -> Result<Serving, ServeError> {
    let kubeconfig = options
        .kubeconfig
        .or_else(|| options.data_dir.as_ref().map(|directory| directory.join("kubeconfig")));
    let mut builder = ApiServer::builder();
    if let Some(directory) = &options.data_dir {
        std::fs::create_dir_all(directory).context(MakeDirectorySnafu { path: directory })?;
        let store = SqliteStore::open(&directory.join("store.sqlite")).await.context(OpenStoreSnafu)?;
        builder = builder.store(store);
    }
    // One of an earlier run would tell those who wait that this one is ready. Only now: until the store is ours, it may be
    // that of a server which runs.
    if let Some(path) = &kubeconfig
        && let Err(source) = std::fs::remove_file(path)
        && source.kind() != std::io::ErrorKind::NotFound
    {
        return Err(source).context(WriteKubeconfigSnafu { path });
    }
    let server = builder.build().await.context(StartServerSnafu)?;
    let serving = server.listen(options.listen)?;
    if let Some(path) = kubeconfig {
        write_private(&path, &serving.kubeconfig).context(WriteKubeconfigSnafu { path })?;
    }
    Ok(serving)
}

/// Writes a file only its owner may read, all at once: who waits for it never sees half.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let draft = path.with_extension("draft");
    let _ = std::fs::remove_file(&draft);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(draft, path)
}

impl ApiServer {
    /// Listens on an address over TLS. Requests must carry the administrator's token.
    pub fn listen(&self, address: SocketAddr) -> Result<Serving, ServeError> {
        let listener = TcpListener::bind(address).context(ListenSnafu { address })?;
        listener.set_nonblocking(true).context(ListenSnafu { address })?;
        let bound = listener.local_addr().context(ListenSnafu { address })?;
        let identity = Identity::generate(bound.ip()).context(MakeIdentitySnafu)?;
        let kubeconfig = identity.kubeconfig(bound, &self.token);
        let token = self.token.clone();
        let service = self.service();
        let guarded = tower::service_fn(move |request: Request<Body>| {
            let allowed = authorized(&request, |given| token.is(given));
            let service = service.clone();
            async move { answer(allowed, service, request).await }
        });
        let router: Router = Router::new().fallback_service(guarded);
        let config = RustlsConfig::from_config(Arc::new(identity.config));
        let handle = Handle::new();
        let acceptor = axum_server::from_tcp_rustls(listener, config).context(ListenSnafu { address })?;
        let task = tokio::spawn(acceptor.handle(handle.clone()).serve(router.into_make_service()));
        Ok(Serving { server: self.clone(), address: bound, kubeconfig, handle, task })
    }
}

fn authorized(request: &Request<Body>, is_token: impl Fn(&str) -> bool) -> bool {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    // Anyone may ask whether the server lives and what it is, as in Kubernetes.
    let open = matches!(request.uri().path(), "/livez" | "/readyz" | "/healthz" | "/version");
    open || header.and_then(|header| header.strip_prefix("Bearer ")).is_some_and(is_token)
}

async fn answer(
    allowed: bool,
    service: ApiService,
    request: Request<Body>,
) -> Result<Response<Body>, std::convert::Infallible> {
    if allowed { service.oneshot(request).await } else { Ok(reply::failure(&Failure::unauthorized())) }
}
