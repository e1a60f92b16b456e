//! The socket: TLS on loopback for clients outside the process, authenticated with the administrator's token.

use std::{
    fs::OpenOptions,
    io::Write as _,
    net::{SocketAddr, TcpListener},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::{Router, body::Body};
use axum_server::{Handle, tls_rustls::RustlsConfig};
use http::{Request, Response, header::AUTHORIZATION};
use snafu::{ResultExt, Snafu};
use tower::ServiceExt as _;

use crate::{
    ApiServer, ApiService,
    backup::{CREDENTIALS, STORE},
    connection::{InFlight, LimitedAcceptor},
    reply,
    status::Failure,
    store::sqlite::{OpenError, SqliteStore},
    tls::{Credentials, TlsError},
};

/// Indicates that the server could not be started.
#[derive(Debug, Snafu)]
pub enum ServeError {
    /// The directory could not be created.
    #[snafu(display("failed to create the data directory \"{}\"; set --data-dir to a writable directory: {source}", path.display()))]
    CreateDirectory {
        /// The directory.
        path: PathBuf,
        /// The underlying error.
        source: std::io::Error,
    },
    /// The store could not be opened.
    #[snafu(display("{source}"))]
    OpenStore {
        /// The underlying error.
        source: OpenError,
    },
    /// The server did not start.
    #[snafu(display("failed to start the API server: {source}"))]
    StartServer {
        /// The underlying error.
        source: Failure,
    },
    /// The server could not listen on the address.
    #[snafu(display("failed to listen on {address}; choose another with --listen: {source}"))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The underlying error.
        source: std::io::Error,
    },
    /// The certificate could not be created.
    #[snafu(display("{source}"))]
    CreateIdentity {
        /// The underlying error.
        source: TlsError,
    },
    /// The credentials of an earlier run are not valid.
    #[snafu(display("the credentials of the server in \"{}\" are damaged; remove the file to create new ones", path.display()))]
    ReadCredentials {
        /// The path of the file.
        path: PathBuf,
    },
    /// The credentials could not be read or written.
    #[snafu(display("failed to read or write the credentials of the server \"{}\": {source}", path.display()))]
    WriteCredentials {
        /// The path of the file.
        path: PathBuf,
        /// The underlying error.
        source: std::io::Error,
    },
    /// The kubeconfig could not be written.
    #[snafu(display("failed to write the kubeconfig \"{}\": {source}", path.display()))]
    WriteKubeconfig {
        /// The path of the file.
        path: PathBuf,
        /// The underlying error.
        source: std::io::Error,
    },
}

/// The options of [`serve`].
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The address to listen on; port 0 selects a free port.
    pub listen: SocketAddr,
    /// The directory for objects and the kubeconfig; without it, objects are stored in memory.
    pub data_dir: Option<PathBuf>,
    /// The path of the kubeconfig, if it is not in the data directory.
    pub kubeconfig: Option<PathBuf>,
}

/// A server that is listening.
#[derive(Debug)]
pub struct Serving {
    /// The server, for use without the socket.
    pub server: ApiServer,
    /// The address that it listens on.
    pub address: SocketAddr,
    /// A kubeconfig with administrator permissions.
    pub kubeconfig: String,
    handle: Handle<SocketAddr>,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Serving {
    /// Stops listening, waits briefly for open requests, and cancels the rest, such as watches.
    pub async fn stop(self) {
        self.handle.graceful_shutdown(Some(Duration::from_millis(500)));
        let _ = self.task.await;
    }
}

/// Opens the store, starts listening, and writes the kubeconfig once requests are served.
pub async fn serve(options: ServeOptions) -> Result<Serving, ServeError> {
    let kubeconfig = options
        .kubeconfig
        .or_else(|| options.data_dir.as_ref().map(|directory| directory.join("kubeconfig")));
    let mut builder = ApiServer::builder();
    if let Some(directory) = &options.data_dir {
        std::fs::create_dir_all(directory).context(CreateDirectorySnafu { path: directory })?;
        let store = SqliteStore::open(&directory.join(STORE)).await.context(OpenStoreSnafu)?;
        builder = builder.store(store).credentials(credentials(&directory.join(CREDENTIALS))?);
    }

    // A kubeconfig of an earlier run would signal that this server is ready. It is removed only now: until
    // the store is locked, it may belong to a running server.
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

/// Reads the authority and the token of an earlier run, or creates them.
fn credentials(path: &Path) -> Result<Credentials, ServeError> {
    match std::fs::read(path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).map_err(|_| ServeError::ReadCredentials { path: path.to_owned() })
        }
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => {
            let credentials = Credentials::generate().context(CreateIdentitySnafu)?;
            let text = serde_json::to_string(&credentials).unwrap_or_default();
            write_private(path, &text).context(WriteCredentialsSnafu { path })?;
            Ok(credentials)
        }
        Err(source) => Err(source).context(WriteCredentialsSnafu { path }),
    }
}

/// Writes a file that only its owner can read, atomically: a reader never sees a partial file.
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
        let config = self.credentials.listener(bound.ip()).context(CreateIdentitySnafu)?;
        let kubeconfig = self.credentials.kubeconfig(bound);
        let token = self.credentials.token.clone();
        let service = self.service();
        let in_flight = InFlight::new(&self.limits);
        let guarded = tower::service_fn(move |request: Request<Body>| {
            let allowed = authorized(&request, |given| token.is(given));
            let service = service.clone();
            let in_flight = in_flight.clone();
            async move { answer(allowed, service, &in_flight, request).await }
        });

        let router: Router = Router::new().fallback_service(guarded);
        let config = RustlsConfig::from_config(Arc::new(config));
        let handle = Handle::new();
        let limits = self.limits;
        let acceptor = axum_server::from_tcp_rustls(listener, config)
            .context(ListenSnafu { address })?
            .map(|acceptor| LimitedAcceptor::new(acceptor, limits));
        let task = tokio::spawn(acceptor.handle(handle.clone()).serve(router.into_make_service()));
        Ok(Serving { server: self.clone(), address: bound, kubeconfig, handle, task })
    }
}

fn authorized(request: &Request<Body>, is_token: impl Fn(&str) -> bool) -> bool {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    // Health and version need no authentication, as in Kubernetes.
    let open = matches!(request.uri().path(), "/livez" | "/readyz" | "/healthz" | "/version");
    open || header.and_then(|header| header.strip_prefix("Bearer ")).is_some_and(is_token)
}

async fn answer(
    allowed: bool,
    service: ApiService,
    in_flight: &InFlight,
    request: Request<Body>,
) -> Result<Response<Body>, std::convert::Infallible> {
    if !allowed {
        return Ok(reply::failure(&Failure::unauthorized()));
    }
    match in_flight.enter(&request) {
        // The permit is returned when the response is ready.
        Ok(_permit) => service.oneshot(request).await,
        Err(()) => Ok(reply::failure(&Failure::too_many_requests(1))),
    }
}
