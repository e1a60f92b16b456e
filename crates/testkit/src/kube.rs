//! A real kube-apiserver on loopback.

use std::{
    fs::{self, File, OpenOptions},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use http::Request;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::json;
use snafu::{ResultExt, Snafu, ensure};
use tempfile::TempDir;

use crate::{AuditedRequest, Guarded, GuardedError, free_port, tools::built_by};

/// The environment variable with the directory of the programs.
const PROGRAMS_VARIABLE: &str = "VITISTACK_KUBE_BIN";
/// The time that etcd and then the server have to become ready; they take 4 s on an idle machine.
const READY_LIMIT: Duration = Duration::from_mins(2);
/// The name of the administrator.
const ADMIN: &str = "admin";
/// The name of the server in requests to aggregated API servers.
const FRONT_PROXY: &str = "front-proxy";
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived, ResponseStarted]\nrules: [{level: Metadata}]\n";

/// Why a server could not be started or used.
#[derive(Debug, Snafu)]
pub enum KubeServerError {
    /// The programs were not found.
    #[snafu(display(
        "failed to find kube-apiserver and etcd: {message}; build them with dev/kube/build.sh, or set VITISTACK_KUBE_BIN to their directory"
    ))]
    FindPrograms {
        /// What is missing.
        message: String,
    },
    /// A file or socket could not be created.
    #[snafu(display("failed to prepare {what}: {source}"))]
    Prepare {
        /// The file or socket.
        what: String,
        /// The cause.
        source: std::io::Error,
    },
    /// A certificate could not be created.
    #[snafu(display("failed to create certificates: {source}"))]
    CreateCertificates {
        /// The cause.
        source: rcgen::Error,
    },
    /// A program could not be started.
    #[snafu(display("{source}"), context(false))]
    Start {
        /// The program and the cause.
        source: GuardedError,
    },
    /// A program did not become ready.
    #[snafu(display("{program} did not become ready; its log ends with:\n{log}"))]
    AwaitReady {
        /// The program.
        program: &'static str,
        /// The end of its log.
        log: String,
    },
    /// A client could not be created.
    #[snafu(display("failed to create a client: {message}"))]
    CreateClient {
        /// The cause.
        message: String,
    },
}

/// A user with a bearer token.
#[derive(Clone, Debug)]
pub struct User {
    /// Name; the token is the name followed by `-token`.
    pub name: String,
    /// Groups.
    pub groups: Vec<String>,
}

impl User {
    /// Returns a user with these groups.
    #[must_use]
    pub fn new(name: &str, groups: &[&str]) -> Self {
        Self { name: name.to_owned(), groups: groups.iter().map(ToString::to_string).collect() }
    }

    /// Returns the bearer token.
    #[must_use]
    pub fn token(&self) -> String {
        format!("{}-token", self.name)
    }
}

/// The options of a server.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether the controller manager runs too, which collects garbage and completes the deletion of namespaces.
    pub has_controller_manager: bool,
    /// Whether etcd syncs each write to disk, as in production; only useful for benchmarks.
    pub is_durable: bool,
    /// Users in addition to the administrator.
    pub users: Vec<User>,
}

/// etcd, kube-apiserver and optionally kube-controller-manager, terminated in reverse order when dropped.
#[derive(Debug)]
pub struct KubeServer {
    controller_manager: Option<Guarded>,
    api_server: Mutex<Option<Guarded>>,
    etcd: Option<Guarded>,
    programs: PathBuf,
    directory: TempDir,
    etcd_port: u16,
    port: u16,
}

impl KubeServer {
    /// Starts a server and waits until it is ready.
    pub async fn start(options: &Options) -> Result<Self, KubeServerError> {
        let programs = find_programs()?;
        let directory =
            TempDir::with_prefix("vitistack-kube-").context(PrepareSnafu { what: "a directory" })?;
        let path = directory.path();
        write_files(path, options)?;

        let (etcd_port, peer_port, port) = (free_port()?, free_port()?, free_port()?);
        let client_url = format!("http://127.0.0.1:{etcd_port}");
        let peer_url = format!("http://127.0.0.1:{peer_port}");
        let etcd = Guarded::start(
            &programs.join("etcd"),
            [
                format!("--data-dir={}", path.join("etcd").display()),
                format!("--listen-client-urls={client_url}"),
                format!("--advertise-client-urls={client_url}"),
                format!("--listen-peer-urls={peer_url}"),
                format!("--initial-advertise-peer-urls={peer_url}"),
                format!("--initial-cluster=default={peer_url}"),
                format!("--unsafe-no-fsync={}", !options.is_durable),
                "--log-level=error".to_owned(),
            ],
            log_file(path, "etcd.log")?,
            Some(path),
        )?;

        let mut server = Self {
            controller_manager: None,
            api_server: Mutex::new(None),
            etcd: Some(etcd),
            programs,
            directory,
            etcd_port,
            port,
        };

        for user in options.users.iter().chain([&User::new(ADMIN, &[])]) {
            server.write_kubeconfig(user)?;
        }
        server.await_etcd().await?;
        server.start_api().await?;
        if options.has_controller_manager {
            server.controller_manager = Some(server.start_controller_manager()?);
        }
        Ok(server)
    }

    /// Returns a new client of the administrator, because a client is bound to the runtime that created it.
    pub async fn client(&self) -> Result<Client, KubeServerError> {
        self.client_of(ADMIN).await
    }

    /// Returns a new client of one of the users.
    pub async fn client_of(&self, user: &str) -> Result<Client, KubeServerError> {
        let loaded = async {
            let kubeconfig = Kubeconfig::read_from(self.kubeconfig_of(user))?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await
        };
        let config =
            loaded.await.map_err(|error| KubeServerError::CreateClient { message: error.to_string() })?;
        Client::try_from(config).map_err(|error| KubeServerError::CreateClient { message: error.to_string() })
    }

    /// Returns the path of the kubeconfig of the administrator.
    #[must_use]
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.kubeconfig_of(ADMIN)
    }

    /// Returns the path of the kubeconfig of one of the users.
    #[must_use]
    pub fn kubeconfig_of(&self, user: &str) -> PathBuf {
        self.directory.path().join(format!("{user}.kubeconfig"))
    }

    /// Runs kubectl as the administrator.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<Output, KubeServerError> {
        Command::new(self.programs.join("kubectl"))
            .env("KUBECONFIG", self.kubeconfig_path())
            .args(arguments)
            .output()
            .context(PrepareSnafu { what: "kubectl" })
    }

    /// Returns the directory of kubectl and the servers, for `PATH`.
    #[must_use]
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// Returns the process IDs of etcd and kube-apiserver.
    #[must_use]
    pub fn pids(&self) -> Vec<i32> {
        let api_server = self.api_server.lock().unwrap_or_else(PoisonError::into_inner);
        self.etcd.iter().chain(api_server.iter()).map(Guarded::pid).collect()
    }

    /// Returns all requests that were answered so far.
    pub fn audit(&self) -> Result<Vec<AuditedRequest>, KubeServerError> {
        let log = fs::read_to_string(self.directory.path().join("audit.log"))
            .context(PrepareSnafu { what: "the audit log" })?;
        Ok(log.lines().filter_map(AuditedRequest::parse).collect())
    }

    /// Stops the API server; its data is retained.
    pub fn stop_api(&self) {
        drop(self.api_server.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Starts the API server at the same address as before, and waits until it is ready.
    pub async fn start_api(&self) -> Result<(), KubeServerError> {
        let file = |name: &str| self.directory.path().join(name).display().to_string();
        let server = Guarded::start(
            &self.programs.join("kube-apiserver"),
            [
                format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
                "--bind-address=127.0.0.1".to_owned(),
                "--advertise-address=127.0.0.1".to_owned(),
                format!("--secure-port={}", self.port),
                format!("--cert-dir={}", file("certs")),
                format!("--tls-cert-file={}", file("server.crt")),
                format!("--tls-private-key-file={}", file("server.key")),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                format!("--service-account-key-file={}", file("account.pub")),
                format!("--service-account-signing-key-file={}", file("account.key")),
                "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
                "--authorization-mode=RBAC".to_owned(),
                format!("--token-auth-file={}", file("tokens.csv")),
                "--disable-admission-plugins=ServiceAccount".to_owned(),
                format!("--audit-policy-file={}", file("audit.yaml")),
                format!("--audit-log-path={}", file("audit.log")),
                // API aggregation, which KubeVirt uses, requires a front proxy certificate.
                format!("--requestheader-client-ca-file={}", file("authority.crt")),
                format!("--requestheader-allowed-names={FRONT_PROXY}"),
                "--requestheader-username-headers=X-Remote-User".to_owned(),
                "--requestheader-group-headers=X-Remote-Group".to_owned(),
                "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
                format!("--proxy-client-cert-file={}", file("front-proxy.crt")),
                format!("--proxy-client-key-file={}", file("front-proxy.key")),
                "--shutdown-delay-duration=0s".to_owned(),
                "--v=0".to_owned(),
            ],
            log_file(self.directory.path(), "kube-apiserver.log")?,
            None,
        )?;
        *self.api_server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        self.await_api().await
    }

    /// Waits for etcd: the API server exits after 20 s without it and does not report its state.
    async fn await_etcd(&self) -> Result<(), KubeServerError> {
        let is_listening = async || Ok(TcpStream::connect(("127.0.0.1", self.etcd_port)).is_ok());
        self.await_program("etcd", is_listening, || self.etcd.as_ref().is_some_and(Guarded::is_running)).await
    }

    async fn await_api(&self) -> Result<(), KubeServerError> {
        let is_ready = async || {
            let client = self.client().await?;
            let request = Request::get("/readyz")
                .body(Vec::new())
                .map_err(|error| KubeServerError::CreateClient { message: error.to_string() })?;
            Ok(client.request_text(request).await.is_ok())
        };
        let is_running = || {
            let server = self.api_server.lock().unwrap_or_else(PoisonError::into_inner);
            server.as_ref().is_some_and(Guarded::is_running)
        };
        self.await_program("kube-apiserver", is_ready, is_running).await
    }

    async fn await_program(
        &self,
        program: &'static str,
        is_ready: impl AsyncFn() -> Result<bool, KubeServerError>,
        is_running: impl Fn() -> bool,
    ) -> Result<(), KubeServerError> {
        let limit = Instant::now() + READY_LIMIT;
        while !is_ready().await? {
            let is_in_time = is_running() && Instant::now() < limit;
            ensure!(is_in_time, {
                AwaitReadySnafu { program, log: end_of_log(self.directory.path(), program) }
            });
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    fn start_controller_manager(&self) -> Result<Guarded, KubeServerError> {
        let path = self.directory.path();
        let arguments = [
            format!("--kubeconfig={}", self.kubeconfig_path().display()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", free_port()?),
            format!("--cert-dir={}", path.join("controller-manager").display()),
            "--leader-elect=false".to_owned(),
            format!("--service-account-private-key-file={}", path.join("account.key").display()),
        ];
        let program = self.programs.join("kube-controller-manager");
        Ok(Guarded::start(&program, arguments, log_file(path, "kube-controller-manager.log")?, None)?)
    }

    fn write_kubeconfig(&self, user: &User) -> Result<(), KubeServerError> {
        let authority = self.directory.path().join("authority.crt");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user.name}}],
            "clusters": [{"name": "test", "cluster": {
                "server": format!("https://127.0.0.1:{}", self.port),
                "certificate-authority": authority,
            }}],
            "users": [{"name": user.name, "user": {"token": user.token()}}],
        });
        write(&self.kubeconfig_of(&user.name), config.to_string())
    }
}

impl Drop for KubeServer {
    fn drop(&mut self) {
        // The shutdown of the API server hangs if etcd is terminated first.
        drop(self.controller_manager.take());
        self.stop_api();
        drop(self.etcd.take());
    }
}

fn find_programs() -> Result<PathBuf, KubeServerError> {
    let directory = if let Some(directory) = std::env::var_os(PROGRAMS_VARIABLE) {
        PathBuf::from(directory)
    } else {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev/kube/build.sh");
        built_by(&script).map_err(|error| KubeServerError::FindPrograms { message: error.to_string() })?
    };
    for program in ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl"] {
        let path = directory.join(program);
        ensure!(path.is_file(), FindProgramsSnafu { message: format!("{} does not exist", path.display()) });
    }
    Ok(directory)
}

/// Writes keys, tokens and the audit policy.
fn write_files(directory: &Path, options: &Options) -> Result<(), KubeServerError> {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().context(CreateCertificatesSnafu)?;
    let authority = CertifiedIssuer::self_signed(authority, key).context(CreateCertificatesSnafu)?;
    let key = KeyPair::generate().context(CreateCertificatesSnafu)?;
    let server = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])
        .and_then(|parameters| parameters.signed_by(&key, &authority))
        .context(CreateCertificatesSnafu)?;
    let account = KeyPair::generate().context(CreateCertificatesSnafu)?;

    let admin = User::new(ADMIN, &["system:masters"]);
    let line = |user: &User| {
        let User { name, groups } = user;
        format!("{},{name},{name},\"{}\"", user.token(), groups.join(","))
    };
    let tokens = options.users.iter().chain([&admin]).map(line).collect::<Vec<_>>().join("\n");

    let proxy_key = KeyPair::generate().context(CreateCertificatesSnafu)?;
    let mut proxy = CertificateParams::default();
    proxy.distinguished_name.push(DnType::CommonName, FRONT_PROXY);
    let proxy = proxy.signed_by(&proxy_key, &authority).context(CreateCertificatesSnafu)?;

    write(&directory.join("front-proxy.crt"), proxy.pem())?;
    write(&directory.join("front-proxy.key"), proxy_key.serialize_pem())?;
    write(&directory.join("authority.crt"), authority.pem())?;
    write(&directory.join("server.crt"), server.pem())?;
    write(&directory.join("server.key"), key.serialize_pem())?;
    write(&directory.join("account.key"), account.serialize_pem())?;
    write(&directory.join("account.pub"), account.public_key_pem())?;
    write(&directory.join("tokens.csv"), tokens)?;
    write(&directory.join("audit.yaml"), AUDIT_POLICY)
}

pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), KubeServerError> {
    fs::write(path, content).with_context(|_| PrepareSnafu { what: path.display().to_string() })
}

pub(crate) fn log_file(directory: &Path, name: &str) -> Result<File, KubeServerError> {
    let path = directory.join(name);
    let opened = OpenOptions::new().create(true).append(true).open(&path);
    opened.with_context(|_| PrepareSnafu { what: path.display().to_string() })
}

/// Returns the last lines of a log, for error messages.
pub(crate) fn end_of_log(directory: &Path, program: &str) -> String {
    let log = fs::read_to_string(directory.join(format!("{program}.log"))).unwrap_or_default();
    let lines: Vec<_> = log.lines().rev().take(15).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
