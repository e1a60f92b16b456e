//! The real virt-api and virt-controller of KubeVirt on loopback, with a simulated node.

use std::{
    fs,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

use http::Request;
use kube::{
    Api, Client,
    api::{DynamicObject, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use snafu::{ResultExt, Snafu, ensure};
use tempfile::TempDir;

use crate::{
    Guarded, GuardedError, KubeServer, KubeServerError, free_port,
    kube::{end_of_log, log_file, write},
    tools::built_by,
};

/// The environment variable with the directory of the programs.
const PROGRAMS_VARIABLE: &str = "VITISTACK_KUBEVIRT_BIN";
/// The time limit for one step of the start; all steps together take 10 s on an idle machine.
const STEP_LIMIT: Duration = Duration::from_mins(3);
/// The file from which KubeVirt's programs read their namespace; `kubevirt` if it does not exist.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// The service accounts of the programs. The webhooks check their names.
const ACCOUNTS: [&str; 3] = ["kubevirt-apiserver", "kubevirt-controller", "kubevirt-handler"];

/// Why KubeVirt could not be started.
#[derive(Debug, Snafu)]
pub enum KubeVirtError {
    /// The programs were not found.
    #[snafu(display(
        "failed to find KubeVirt's programs: {message}; build them with dev/kubevirt/build.sh, or set VITISTACK_KUBEVIRT_BIN to their directory"
    ))]
    FindPrograms {
        /// What is missing.
        message: String,
    },
    /// A file could not be created.
    #[snafu(display("failed to prepare {what}: {source}"))]
    Prepare {
        /// The file.
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
    /// The API server failed.
    #[snafu(display("{source}"), context(false))]
    UseServer {
        /// The cause.
        source: KubeServerError,
    },
    /// A command failed.
    #[snafu(display("failed to run {command:?}: {message}"))]
    RunCommand {
        /// The command.
        command: String,
        /// Its error output.
        message: String,
    },
    /// A step did not complete in time.
    #[snafu(display(
        "timed out after {STEP_LIMIT:?} waiting for {what}: {message}; the log of {program} ends with:\n{log}"
    ))]
    Await {
        /// The step.
        what: &'static str,
        /// The error of the last attempt.
        message: String,
        /// The program responsible for the step.
        program: &'static str,
        /// The end of its log.
        log: String,
    },
}

/// Third-party CRDs that KubeVirt uses if they exist. They must be installed before KubeVirt starts, because its programs
/// exit when the CRDs appear later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Companion {
    /// The CRDs of CDI. The stand-in simulates CDI if they exist.
    Cdi,
    /// The CRD of Multus.
    Multus,
}

/// virt-api, virt-controller and the stand-in, terminated when dropped. Must be dropped before the server.
#[derive(Debug)]
pub struct KubeVirt {
    // Dropped in this order.
    _standin: Guarded,
    _controller: Guarded,
    api: Guarded,
    directory: TempDir,
}

impl KubeVirt {
    /// Installs third-party CRDs.
    pub fn install(server: &KubeServer, companion: Companion) -> Result<(), KubeVirtError> {
        let name = match companion {
            Companion::Cdi => "cdi.yaml",
            Companion::Multus => "multus.yaml",
        };
        apply(server, &sources().join("crds").join(name))?;
        await_crds(server)
    }

    /// Installs the CRDs of KubeVirt without its controllers, for tests that simulate KubeVirt themselves.
    pub fn install_crds(server: &KubeServer) -> Result<(), KubeVirtError> {
        let programs = find_programs()?;
        let directory =
            TempDir::with_prefix("vitistack-kubevirt-").context(PrepareSnafu { what: "a directory" })?;
        let setup = Setup { server, programs, directory: directory.path().to_owned(), namespace: "kubevirt" };
        setup.apply_manifests("crds", None)?;
        await_crds(server)
    }

    /// Installs KubeVirt, starts it and waits until it admits VirtualMachines. The server needs the controller manager,
    /// which binds volumes and collects garbage.
    pub async fn start(server: &KubeServer) -> Result<Self, KubeVirtError> {
        let programs = find_programs()?;
        let directory =
            TempDir::with_prefix("vitistack-kubevirt-").context(PrepareSnafu { what: "a directory" })?;
        let namespace = fs::read_to_string(NAMESPACE_FILE).unwrap_or_else(|_| "kubevirt".to_owned());
        let setup =
            Setup { server, programs, directory: directory.path().to_owned(), namespace: namespace.trim() };
        setup.install()?;
        setup.write_certificates()?;
        setup.write_kubeconfigs()?;

        let (api_port, controller_port) = (free_port()?, free_port()?);
        let kubevirt = Self {
            api: setup.start_api(api_port)?,
            _controller: setup.start_controller(controller_port)?,
            _standin: setup.start_standin()?,
            directory,
        };

        let client = server.client().await?;
        kubevirt.await_listening(api_port).await?;
        // Aggregation requires a host name; webhooks also accept an address.
        setup.apply_manifests("apiservices", Some(&format!("https://localhost:{api_port}")))?;
        kubevirt.await_answer(&client).await?;
        setup.apply_manifests("webhooks", Some(&format!("https://127.0.0.1:{api_port}")))?;
        kubevirt.await_admission(&client).await?;
        kubevirt.await_node(&client).await?;
        Ok(kubevirt)
    }

    /// Returns the log of `virt-api`, `virt-controller` or `standin`, for the message of a failing test.
    #[must_use]
    pub fn log(&self, program: &str) -> String {
        fs::read_to_string(self.directory.path().join(format!("{program}.log"))).unwrap_or_default()
    }

    async fn await_listening(&self, port: u16) -> Result<(), KubeVirtError> {
        let attempt = async || TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string());
        self.retry("virt-api to listen", "virt-api", attempt).await.map(drop)
    }

    async fn await_answer(&self, client: &Client) -> Result<(), KubeVirtError> {
        let attempt = async || {
            let path = "/apis/subresources.kubevirt.io/v1/healthz";
            let request = Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
            client.request_text(request).await.map_err(|error| error.to_string())
        };
        self.retry("virt-api to respond through the API server", "virt-api", attempt).await.map(drop)
    }

    async fn await_admission(&self, client: &Client) -> Result<(), KubeVirtError> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachine"));
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
        let machine = DynamicObject::new("admission-check", &kind).data(json!({"spec": {
            "runStrategy": "Halted",
            "template": {"spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}}},
        }}));
        let attempt = async || {
            let parameters = PostParams { dry_run: true, ..PostParams::default() };
            let created = api.create(&parameters, &machine).await.map_err(|error| error.to_string())?;
            // Only the webhook sets the machine type.
            let machine_type = created.data.pointer("/spec/template/spec/domain/machine/type");
            machine_type.map(drop).ok_or_else(|| "the webhook was not called".to_owned())
        };
        self.retry("the admission of a VirtualMachine", "virt-api", attempt).await
    }

    async fn await_node(&self, client: &Client) -> Result<(), KubeVirtError> {
        let api: Api<DynamicObject> =
            Api::all_with(client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Node")));
        let attempt = async || {
            let node = api.get("standin").await.map_err(|error| error.to_string())?;
            let is_ready = |condition: &Value| {
                condition.get("type") == Some(&json!("Ready"))
                    && condition.get("status") == Some(&json!("True"))
            };
            let conditions = node.data.pointer("/status/conditions").and_then(Value::as_array);
            let ready = conditions.is_some_and(|conditions| conditions.iter().any(is_ready));
            ready.then_some(()).ok_or_else(|| "the node is not ready".to_owned())
        };
        self.retry("the simulated node to become ready", "standin", attempt).await
    }

    async fn retry<T>(
        &self,
        what: &'static str,
        program: &'static str,
        attempt: impl AsyncFn() -> Result<T, String>,
    ) -> Result<T, KubeVirtError> {
        let limit = Instant::now() + STEP_LIMIT;
        loop {
            match attempt().await {
                Ok(value) => return Ok(value),
                Err(message) if Instant::now() > limit => {
                    let log = end_of_log(self.directory.path(), program);
                    return AwaitSnafu { what, message, program, log }.fail();
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }
}

impl Drop for KubeVirt {
    fn drop(&mut self) {
        // On SIGTERM virt-api waits 5 s for load balancers, which do not exist here.
        if let Some(pid) = Pid::from_raw(self.api.pid()) {
            // An error means that it has already terminated.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// The context of the installation steps.
struct Setup<'a> {
    server: &'a KubeServer,
    programs: PathBuf,
    directory: PathBuf,
    namespace: &'a str,
}

impl Setup<'_> {
    /// Creates everything that virt-operator creates before it starts the other programs.
    fn install(&self) -> Result<(), KubeVirtError> {
        self.apply_manifests("crds", None)?;
        self.apply_manifests("accounts", None)?;
        await_crds(self.server)?;
        let path = self.directory.join("kubevirt.json");
        let object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
            "metadata": {"name": "kubevirt", "namespace": self.namespace},
            "spec": {},
        });
        write(&path, object.to_string())?;
        apply(self.server, &path)?;
        let status = json!({"status": {"phase": "Deployed", "defaultArchitecture": "amd64"}}).to_string();
        let arguments =
            ["patch", "kubevirt", "kubevirt", "--subresource=status", "--type=merge", "-p", &status];
        kubectl(self.server, &[&["-n", self.namespace], &arguments[..]].concat())?;
        Ok(())
    }

    fn apply_manifests(&self, part: &str, url: Option<&str>) -> Result<(), KubeVirtError> {
        let mut command = Command::new(self.programs.join("manifests"));
        command.arg("--namespace").arg(self.namespace);
        if let Some(url) = url {
            command.arg("--url").arg(url).arg("--ca-file").arg(self.directory.join("authority.crt"));
        }
        let output = command.arg(part).output().context(PrepareSnafu { what: "manifests" })?;
        let printed = succeeded("manifests", &output)?;
        let path = self.directory.join(format!("{part}.yaml"));
        write(&path, printed)?;
        apply(self.server, &path)
    }

    /// Creates a CA, a certificate for each of the two servers, and the ConfigMaps with the CA bundle.
    fn write_certificates(&self) -> Result<(), KubeVirtError> {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().context(CreateCertificatesSnafu)?;
        let authority = CertifiedIssuer::self_signed(authority, key).context(CreateCertificatesSnafu)?;
        write(&self.directory.join("authority.crt"), authority.pem())?;
        for program in ["virt-api", "virt-controller"] {
            let service = format!("{program}.{}.svc", self.namespace);
            let names = vec![service, "localhost".to_owned(), "127.0.0.1".to_owned()];
            let key = KeyPair::generate().context(CreateCertificatesSnafu)?;
            let certificate = CertificateParams::new(names)
                .and_then(|parameters| parameters.signed_by(&key, &authority))
                .context(CreateCertificatesSnafu)?;
            // In its own directory: the programs reload their certificate whenever a file in its directory changes.
            let path = self.directory.join(program);
            fs::create_dir(&path).context(PrepareSnafu { what: "a directory" })?;
            write(&path.join("tls.crt"), certificate.pem())?;
            write(&path.join("tls.key"), key.serialize_pem())?;
        }
        let maps = ["kubevirt-ca", "kubevirt-export-ca", "kubevirt-backup-ca"].map(|name| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": self.namespace},
                "data": {"ca-bundle": authority.pem()},
            })
        });
        let path = self.directory.join("authorities.json");
        write(&path, json!({"apiVersion": "v1", "kind": "List", "items": maps}).to_string())?;
        apply(self.server, &path)
    }

    /// Writes a kubeconfig for each service account.
    fn write_kubeconfigs(&self) -> Result<(), KubeVirtError> {
        let admin = self.server.kubeconfig_path();
        let text = fs::read(&admin).context(PrepareSnafu { what: "a kubeconfig" })?;
        let mut config: Value = serde_json::from_slice(&text)
            .map_err(std::io::Error::from)
            .context(PrepareSnafu { what: "a kubeconfig" })?;
        for account in ACCOUNTS {
            let token =
                kubectl(self.server, &["-n", self.namespace, "create", "token", account, "--duration=24h"])?;
            if let Some(user) = config.pointer_mut("/users/0/user") {
                *user = json!({"token": token.trim()});
            }
            write(&self.kubeconfig(account), config.to_string())?;
        }
        Ok(())
    }

    fn kubeconfig(&self, account: &str) -> PathBuf {
        self.directory.join(format!("{account}.kubeconfig"))
    }

    fn start_api(&self, port: u16) -> Result<Guarded, KubeVirtError> {
        let file = |name: &str| self.directory.join("virt-api").join(name).display().to_string();
        self.start(
            "virt-api",
            Some(&self.directory),
            vec![
                format!("--kubeconfig={}", self.kubeconfig("kubevirt-apiserver").display()),
                "--listen=127.0.0.1".to_owned(),
                format!("--port={port}"),
                format!("--tls-cert-file={}", file("tls.crt")),
                format!("--tls-key-file={}", file("tls.key")),
                format!("--handler-cert-file={}", file("tls.crt")),
                format!("--handler-key-file={}", file("tls.key")),
            ],
        )
    }

    fn start_controller(&self, port: u16) -> Result<Guarded, KubeVirtError> {
        let file = |name: &str| self.directory.join("virt-controller").join(name).display().to_string();
        self.start(
            "virt-controller",
            None,
            vec![
                format!("--kubeconfig={}", self.kubeconfig("kubevirt-controller").display()),
                "--listen=127.0.0.1".to_owned(),
                format!("--port={port}"),
                format!("--prom-cert-file={}", file("tls.crt")),
                format!("--prom-key-file={}", file("tls.key")),
                "--launcher-image=virt-launcher".to_owned(),
                "--exporter-image=virt-exportserver".to_owned(),
            ],
        )
    }

    fn start_standin(&self) -> Result<Guarded, KubeVirtError> {
        self.start(
            "standin",
            None,
            vec![
                format!("--kubeconfig={}", self.server.kubeconfig_path().display()),
                format!("--handler-kubeconfig={}", self.kubeconfig("kubevirt-handler").display()),
            ],
        )
    }

    fn start(
        &self,
        program: &str,
        clean: Option<&Path>,
        arguments: Vec<String>,
    ) -> Result<Guarded, KubeVirtError> {
        // virt-api creates a temporary directory and does not remove it.
        let temporary = format!("TMPDIR={}", self.directory.display());
        let path = self.programs.join(program).display().to_string();
        let arguments = [temporary, path].into_iter().chain(arguments);
        let log = log_file(&self.directory, &format!("{program}.log"))?;
        Ok(Guarded::start(Path::new("/usr/bin/env"), arguments, log, clean)?)
    }
}

fn apply(server: &KubeServer, path: &Path) -> Result<(), KubeVirtError> {
    // Server-side, because six of KubeVirt's CRDs are too large for the last-applied annotation.
    let path = path.display().to_string();
    kubectl(server, &["apply", "--server-side", "-f", &path]).map(drop)
}

fn await_crds(server: &KubeServer) -> Result<(), KubeVirtError> {
    let limit = format!("--timeout={}s", STEP_LIMIT.as_secs());
    kubectl(server, &["wait", "--for=condition=Established", &limit, "crd", "--all"]).map(drop)
}

fn kubectl(server: &KubeServer, arguments: &[&str]) -> Result<String, KubeVirtError> {
    let output = server.kubectl(arguments)?;
    succeeded(&format!("kubectl {}", arguments.join(" ")), &output)
}

fn succeeded(command: &str, output: &Output) -> Result<String, KubeVirtError> {
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), RunCommandSnafu { command, message });
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn find_programs() -> Result<PathBuf, KubeVirtError> {
    let directory = match std::env::var_os(PROGRAMS_VARIABLE) {
        Some(directory) => PathBuf::from(directory),
        None => built_by(&sources().join("build.sh"))
            .map_err(|error| KubeVirtError::FindPrograms { message: error.to_string() })?,
    };
    for program in ["virt-api", "virt-controller", "manifests", "standin"] {
        let path = directory.join(program);
        ensure!(path.is_file(), FindProgramsSnafu { message: format!("{} does not exist", path.display()) });
    }
    Ok(directory)
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev/kubevirt")
}
