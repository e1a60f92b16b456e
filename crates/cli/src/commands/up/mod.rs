//! Everything on one machine: the control plane, the operators, and a simulated datacenter to look at.

mod demo;
mod install;
pub(super) mod leases;
mod progress;

use std::{
    collections::BTreeSet,
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
use vitistack_controller::operators::{self, Operator, Options};
use vitistack_runtime::{
    KitArgs, Process, StartError,
    args::BindAddress,
    client_from, shutdown,
    shutdown::ShutdownError,
    telemetry::{Telemetry, TelemetryError},
};
use vitistack_types::labels::SYSTEM_NAMESPACE;

use super::{Ending, apiserver::loopback, run::stores};
use crate::output::Console;

/// Where to run, and on what.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vitistack up\n  vitistack up --empty --data-dir /srv/vitistack --listen 127.0.0.1:6443\n  vitistack up --kubeconfig ~/.kube/config --install-crds\n\nIn another terminal:\n  export KUBECONFIG=.vitistack/kubeconfig\n  kubectl get machines -A"
)]
pub struct UpArgs {
    /// Directory for everything that is kept: objects, kubeconfig, log
    #[arg(long, value_name = "DIRECTORY", default_value = ".vitistack")]
    data_dir: PathBuf,

    /// Address of the Kubernetes API, on loopback; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = loopback, conflicts_with = "kubeconfig")]
    listen: SocketAddr,

    /// Start without the simulated datacenter and the samples
    #[arg(long, conflicts_with = "kubeconfig")]
    empty: bool,

    /// Work on this cluster instead of the control plane that comes along
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Install the definitions into the cluster of --kubeconfig first
    #[arg(long, requires = "kubeconfig")]
    install_crds: bool,
}

/// Indicates that the platform does not run.
#[derive(Debug, Snafu)]
pub enum UpError {
    /// Indicates that the control plane did not start.
    #[snafu(display("{source}"), context(false))]
    Serve { source: ServeError },
    /// Indicates that the operators did not start.
    #[snafu(display("{source}"), context(false))]
    Start { source: StartError },
    /// Indicates that the log cannot be written.
    #[snafu(display("failed to write the log {}: {source}; give --data-dir a directory that you may write", path.display()))]
    OpenLog { path: PathBuf, source: io::Error },
    /// Indicates that nothing can be logged.
    #[snafu(display("{source}"), context(false))]
    StartTelemetry { source: TelemetryError },
    /// Indicates that the end of the process could not be listened for.
    #[snafu(display("{source}"), context(false))]
    ListenForEnd { source: ShutdownError },
    /// Indicates that the definitions are missing or could not be installed.
    #[snafu(display("{source}"), context(false))]
    Install { source: install::InstallError },
    /// Indicates that the samples could not be applied.
    #[snafu(display("{source}"), context(false))]
    Show { source: demo::DemoError },
    /// Indicates that the output is closed or full.
    #[snafu(display("failed to write the output: {source}"), context(false))]
    WriteOutput { source: io::Error },
}

/// The file of the data directory that says where the API was the last time.
const ADDRESS: &str = "address";

/// The settings of operators, at their defaults.
#[derive(Parser)]
struct Defaults {
    #[command(flatten)]
    kit: KitArgs,
}

/// Settings for operators that run for one person at a terminal: nothing listens, and only a shared cluster has replicas
/// to agree with.
fn settings(arguments: &UpArgs) -> KitArgs {
    let mut kit = Defaults::parse_from(["vitistack up"]).kit;
    kit.kubeconfig.clone_from(&arguments.kubeconfig);
    kit.metrics_bind_address = BindAddress::Off;
    kit.health_probe_bind_address = BindAddress::Off;
    kit.metrics_secure = Some(false);
    kit.leader_election = arguments.kubeconfig.is_some();
    kit.namespace = Some(SYSTEM_NAMESPACE.to_owned());
    kit
}

/// Runs until the process is told to end.
pub async fn run(arguments: &UpArgs, console: &mut Console<'_>) -> Result<Ending, UpError> {
    let end = shutdown::on_signal()?;
    let kit = settings(arguments);
    let serving = if arguments.kubeconfig.is_none() {
        let data_dir = Some(arguments.data_dir.clone());
        let (listen, taken) = listen(arguments);
        let serving = serve(ServeOptions { listen, data_dir, kubeconfig: None }).await?;
        if let Some(taken) = taken {
            let text = "where the API was the last time, is taken: it has another port now";
            writeln!(console.errors, "{taken}, {text}")?;
        }
        Some(serving)
    } else {
        None
    };
    let telemetry = start_log(&arguments.data_dir, &kit)?;
    if let Some(serving) = &serving {
        std::fs::write(arguments.data_dir.join(ADDRESS), serving.address.to_string())?;
    }
    let client = match &serving {
        Some(serving) => Client::new(serving.server.service(), "default"),
        None => client_from(&kit).await?,
    };
    let ended = work(arguments, console, kit, client.clone(), serving.as_ref(), end).await;
    if let Some(serving) = serving {
        leases::give_back(&client).await;
        serving.stop().await;
    }
    telemetry.finish().await;
    ended
}

/// Where to listen: where nobody said otherwise, on the port of the last time, which may be written down elsewhere; with
/// that port if somebody else has it.
fn listen(arguments: &UpArgs) -> (SocketAddr, Option<SocketAddr>) {
    let last = std::fs::read_to_string(arguments.data_dir.join(ADDRESS));
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

/// The log goes to a file: the terminal is for what a person wants to read.
fn start_log(data_dir: &Path, kit: &KitArgs) -> Result<Telemetry, UpError> {
    let path = data_dir.join("vitistack.log");
    let opened = std::fs::create_dir_all(data_dir)
        .and_then(|()| OpenOptions::new().create(true).append(true).mode(0o600).open(&path));
    Ok(Telemetry::start_to(kit, true, opened.context(OpenLogSnafu { path })?)?)
}

async fn work(
    arguments: &UpArgs,
    console: &mut Console<'_>,
    kit: KitArgs,
    client: Client,
    serving: Option<&Serving>,
    end: CancellationToken,
) -> Result<Ending, UpError> {
    writeln!(console.output, "VitiStack {}", env!("CARGO_PKG_VERSION"))?;
    let is_own = serving.is_some();
    if is_own || arguments.install_crds {
        install::definitions(&client).await?;
    } else if let Some(missing) = install::missing(&client).await? {
        return tell_missing(&missing, arguments, console);
    }
    demo::prepare(&client).await?;
    let names: Vec<&str> = Operator::ALL.into_iter().map(Operator::word).collect();
    let control_plane = match serving {
        Some(serving) => format!("https://{}, kept in {}", serving.address, arguments.data_dir.display()),
        None => format!("the cluster of {}", kubeconfig(arguments).display()),
    };
    writeln!(console.output, "  control plane  {control_plane}")?;
    writeln!(console.output, "  operators      {}\n", names.join(", "))?;
    console.output.flush()?;
    let options = Options {
        operators: Operator::ALL.into_iter().collect::<BTreeSet<_>>(),
        stores: stores(&client, SYSTEM_NAMESPACE),
        is_own_cluster_offered: !is_own,
    };
    if is_own {
        leases::take(&client).await?;
    }
    let mut process = Process::new(kit, client.clone());
    operators::add(&mut process, &client, &options);
    let running = tokio::spawn(process.run(end.clone()));
    if is_own && !arguments.empty {
        let is_new = demo::show(&client).await?;
        tokio::select! {
            told = progress::tell(&client, is_new, console) => told?,
            () = end.cancelled() => {}
        }
    }
    if !end.is_cancelled() {
        tell_ready(arguments, console)?;
    }
    end.cancelled().await;
    // A panic in there was told by its own task.
    if let Ok(ended) = running.await {
        ended?;
    }
    writeln!(console.output, "\nStopped.")?;
    Ok(Ending::Done)
}

fn kubeconfig(arguments: &UpArgs) -> PathBuf {
    arguments.kubeconfig.clone().unwrap_or_else(|| arguments.data_dir.join("kubeconfig"))
}

fn tell_missing(
    missing: &[String],
    arguments: &UpArgs,
    console: &mut Console<'_>,
) -> Result<Ending, UpError> {
    writeln!(console.output, "\nThe cluster of {} lacks:", kubeconfig(arguments).display())?;
    for name in missing {
        writeln!(console.output, "  CustomResourceDefinition {name}")?;
    }
    writeln!(console.output, "\nNothing was changed. Add --install-crds to install them and start.")?;
    Ok(Ending::Change)
}

fn tell_ready(arguments: &UpArgs, console: &mut Console<'_>) -> Result<(), UpError> {
    let path = kubeconfig(arguments);
    let path = std::path::absolute(&path).unwrap_or(path);
    writeln!(console.output, "\n  export KUBECONFIG='{}'\n\nTry in another terminal:", path.display())?;
    let tries = if arguments.empty || arguments.kubeconfig.is_some() {
        [
            "vitistack samples machine-basic | kubectl apply -f -",
            "kubectl get vitistack -A",
            "vitistack doctor",
        ]
    } else {
        ["kubectl get machines -A", "vitistack describe datacenter/local", "vitistack why machine/web-1"]
    };
    for each in tries {
        writeln!(console.output, "  {each}")?;
    }
    writeln!(console.output, "\nCtrl-C stops it.")?;
    console.output.flush()?;
    Ok(())
}
