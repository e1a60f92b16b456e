//! Runs the control plane, the operators and a simulated datacenter in one process.

mod demo;
mod install;
pub(super) mod leases;
mod progress;

use std::{
    fs::OpenOptions,
    io,
    net::{SocketAddr, TcpListener},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use clap::{Args, Parser};
use kube::Client;
use snafu::{ResultExt, Snafu};
use tokio_util::sync::CancellationToken;
use vitistack_apiserver::{ServeError, ServeOptions, Serving, serve};
use vitistack_controller::operators::{self, Options};
use vitistack_machine::BackendContext;
use vitistack_runtime::{
    OperatorArgs, Process, StartError,
    args::BindAddress,
    client_from, shutdown,
    shutdown::ShutdownError,
    telemetry::{Telemetry, TelemetryError},
};
use vitistack_types::{OperatorName, labels::SYSTEM_NAMESPACE};

use super::{Ending, apiserver::loopback};
use crate::printing::Console;

/// The arguments of `vitistack up`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  # Start a control plane with a simulated datacenter
  vitistack up

  # Use it in another terminal
  export KUBECONFIG=.vitistack/kubeconfig
  kubectl get machines -A

  # Start an empty control plane at a fixed address
  vitistack up --empty --data-dir /srv/vitistack --listen 127.0.0.1:6443

  # Run the operators on an existing cluster
  vitistack up --kubeconfig ~/.kube/config --install-crds")]
pub struct UpArgs {
    /// Directory for objects, kubeconfig and log
    #[arg(long, value_name = "DIRECTORY", default_value = ".vitistack")]
    data_dir: PathBuf,

    /// Loopback address of the Kubernetes API; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = loopback, conflicts_with = "kubeconfig")]
    listen: SocketAddr,

    /// Start without the simulated datacenter and the samples
    #[arg(long, conflicts_with = "kubeconfig")]
    empty: bool,

    /// Run the operators on the cluster of this kubeconfig, without a control plane
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Install the CRDs in the cluster of --kubeconfig first
    #[arg(long, requires = "kubeconfig")]
    install_crds: bool,
}

/// Errors of `vitistack up`.
#[derive(Debug, Snafu)]
pub enum UpError {
    /// The control plane cannot be started.
    #[snafu(display("{source}"), context(false))]
    Serve { source: ServeError },
    /// The operators cannot be started.
    #[snafu(display("{source}"), context(false))]
    Start { source: StartError },
    /// The log cannot be opened.
    #[snafu(display("failed to open log {}: {source}; set --data-dir to a writable directory", path.display()))]
    OpenLog { path: PathBuf, source: io::Error },
    /// Telemetry cannot be started.
    #[snafu(display("{source}"), context(false))]
    StartTelemetry { source: TelemetryError },
    /// Signals cannot be handled.
    #[snafu(display("{source}"), context(false))]
    HandleSignals { source: ShutdownError },
    /// The CRDs cannot be listed or installed.
    #[snafu(display("{source}"), context(false))]
    Install { source: install::InstallError },
    /// The samples cannot be applied.
    #[snafu(display("{source}"), context(false))]
    ApplySamples { source: demo::DemoError },
    /// The output is closed or full.
    #[snafu(display("failed to write the output: {source}"), context(false))]
    WriteOutput { source: io::Error },
}

/// The file in the data directory with the last address of the API.
const ADDRESS_FILE: &str = "address";

/// The default settings of the operators.
#[derive(Parser)]
struct Defaults {
    #[command(flatten)]
    operator_args: OperatorArgs,
}

/// Returns the settings of the operators for interactive use: no servers, and leader election only on a shared cluster.
fn settings(arguments: &UpArgs) -> OperatorArgs {
    let mut operator_args = Defaults::parse_from(["vitistack up"]).operator_args;
    operator_args.kubeconfig.clone_from(&arguments.kubeconfig);
    operator_args.metrics_bind_address = Some(BindAddress::Off);
    operator_args.health_probe_bind_address = Some(BindAddress::Off);
    operator_args.namespaces = None;
    operator_args.metrics_secure = Some(false);
    operator_args.leader_election = arguments.kubeconfig.is_some();
    operator_args.namespace = Some(SYSTEM_NAMESPACE.to_owned());
    operator_args
}

/// Runs until the process is interrupted.
pub async fn run(arguments: &UpArgs, console: &mut Console<'_>) -> Result<Ending, UpError> {
    let end = shutdown::on_signal()?;
    let operator_args = settings(arguments);

    let serving = if arguments.kubeconfig.is_none() {
        let data_dir = Some(arguments.data_dir.clone());
        let (listen, in_use) = listen(arguments);
        let serving = serve(ServeOptions { listen, data_dir, kubeconfig: None }).await?;
        if let Some(in_use) = in_use {
            writeln!(console.errors, "port of the last start is in use ({in_use}): using another port")?;
        }
        Some(serving)
    } else {
        None
    };

    let telemetry = start_log(&arguments.data_dir, &operator_args)?;
    if let Some(serving) = &serving {
        std::fs::write(arguments.data_dir.join(ADDRESS_FILE), serving.address.to_string())?;
    }
    let client = match &serving {
        Some(serving) => Client::new(serving.server.service(), "default"),
        None => client_from(&operator_args).await?,
    };

    let ended = work(arguments, console, operator_args, client.clone(), serving.as_ref(), end).await;
    if let Some(serving) = serving {
        leases::release(&client).await;
        serving.stop().await;
    }
    telemetry.finish().await;
    ended
}

/// Returns the address to listen on: by default that of the last start, since a kubeconfig may have been copied. If that
/// port is in use, it is returned too.
fn listen(arguments: &UpArgs) -> (SocketAddr, Option<SocketAddr>) {
    let last = std::fs::read_to_string(arguments.data_dir.join(ADDRESS_FILE));
    let last = last.ok().and_then(|text| text.trim().parse::<SocketAddr>().ok());
    let Some(last) = last.filter(|last| arguments.listen.port() == 0 && last.ip() == arguments.listen.ip())
    else {
        return (arguments.listen, None);
    };
    match TcpListener::bind(last) {
        Ok(_) => (last, None),
        Err(_) => (arguments.listen, Some(last)),
    }
}

/// Starts logging to a file; the terminal shows results only.
fn start_log(data_dir: &Path, operator_args: &OperatorArgs) -> Result<Telemetry, UpError> {
    let path = data_dir.join("vitistack.log");
    let opened = std::fs::create_dir_all(data_dir)
        .and_then(|()| OpenOptions::new().create(true).append(true).mode(0o600).open(&path));
    Ok(Telemetry::start_to(operator_args, true, opened.context(OpenLogSnafu { path })?)?)
}

/// Runs the operators until `end`.
async fn work(
    arguments: &UpArgs,
    console: &mut Console<'_>,
    operator_args: OperatorArgs,
    client: Client,
    serving: Option<&Serving>,
    end: CancellationToken,
) -> Result<Ending, UpError> {
    writeln!(console.output, "VitiStack {}", env!("CARGO_PKG_VERSION"))?;
    let is_own = serving.is_some();
    if is_own || arguments.install_crds {
        install::install(&client).await?;
    } else if let Some(missing) = install::missing(&client).await? {
        return report_missing(&missing, arguments, console);
    }
    demo::prepare(&client).await?;

    let names: Vec<&str> = OperatorName::all().map(OperatorName::as_str).collect();
    let control_plane = match serving {
        Some(serving) => format!("https://{}, data in {}", serving.address, arguments.data_dir.display()),
        None => format!("cluster of {}", kubeconfig(arguments).display()),
    };
    writeln!(console.output, "  control plane  {control_plane}")?;
    writeln!(console.output, "  operators      {}\n", names.join(", "))?;
    console.output.flush()?;

    let options = Options {
        operators: OperatorName::all().collect(),
        context: BackendContext::in_cluster(
            client.clone(),
            SYSTEM_NAMESPACE,
            operator_args.watched_namespaces(),
        ),
        is_own_cluster_offered: !is_own,
    };
    if is_own {
        leases::acquire(&client).await?;
    }
    let mut process = Process::new(operator_args, client.clone());
    operators::add(&mut process, &options);
    let running = tokio::spawn(process.run(end.clone()));

    if is_own && !arguments.empty {
        let is_new = demo::apply(&client).await?;
        tokio::select! {
            shown = progress::show(&client, is_new, console) => shown?,
            () = end.cancelled() => {}
        }
    }
    if !end.is_cancelled() {
        print_usage(arguments, console)?;
    }
    end.cancelled().await;
    // A panic was reported by the task itself.
    if let Ok(ended) = running.await {
        ended?;
    }
    writeln!(console.output, "\nStopped.")?;
    Ok(Ending::Done)
}

/// Returns the path of the kubeconfig.
fn kubeconfig(arguments: &UpArgs) -> PathBuf {
    arguments.kubeconfig.clone().unwrap_or_else(|| arguments.data_dir.join("kubeconfig"))
}

/// Reports the CRDs that the cluster lacks.
fn report_missing(
    missing: &[String],
    arguments: &UpArgs,
    console: &mut Console<'_>,
) -> Result<Ending, UpError> {
    writeln!(console.output, "\nCRDs not found in the cluster of {}:", kubeconfig(arguments).display())?;
    for name in missing {
        writeln!(console.output, "  {name}")?;
    }
    writeln!(console.output, "\nNothing was changed. Use --install-crds to install the CRDs and start.")?;
    Ok(Ending::Change)
}

/// Prints how to use the control plane.
fn print_usage(arguments: &UpArgs, console: &mut Console<'_>) -> Result<(), UpError> {
    let path = kubeconfig(arguments);
    let path = std::path::absolute(&path).unwrap_or(path);
    writeln!(console.output, "\n  export KUBECONFIG='{}'\n\nTry in another terminal:", path.display())?;
    let commands = if arguments.empty || arguments.kubeconfig.is_some() {
        [
            "vitistack samples machine-basic | kubectl apply -f -",
            "kubectl get vitistack -A",
            "vitistack doctor",
        ]
    } else {
        ["kubectl get machines -A", "vitistack describe datacenter/local", "vitistack why machine/web-1"]
    };
    for command in commands {
        writeln!(console.output, "  {command}")?;
    }
    writeln!(console.output, "\nPress Ctrl-C to stop.")?;
    console.output.flush()?;
    Ok(())
}
