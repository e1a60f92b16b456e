//! Serves the embedded Kubernetes API without operators, backs it up and restores it.

mod backup;
mod restore;

use std::{
    io::Read as _,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use kube::Client;
use snafu::ResultExt;
use vitistack_apiserver::{ServeOptions, serve};
use vitistack_runtime::{LogLevel, shutdown, telemetry};

pub use self::{backup::BackupError, restore::RestoreError};
use super::{
    Ending, Error, HandleSignalsSnafu, ServeSnafu, StartLogSnafu, WriteOutputSnafu, up::leases::release,
};
use crate::printing::Console;

/// The maximum size of a file with a passphrase or keys.
const MAX_SECRET: u64 = 64 << 10;

/// The arguments of `vitistack apiserver`.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  # Serve the objects of a directory
  vitistack apiserver --data-dir ./data &
  kubectl --kubeconfig ./data/kubeconfig get namespaces

  # Back it up, while it is running or stopped
  vitistack apiserver backup --data-dir ./data --out data.age --passphrase-file passphrase"
)]
pub struct ApiserverArgs {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    serve: ServeArgs,
}

/// What else can be done with a data directory.
#[derive(Debug, Subcommand)]
enum Action {
    /// Write a complete, encrypted backup of a data directory, with Secrets
    Backup(backup::BackupArgs),
    /// Restore a backup to a new data directory
    Restore(restore::RestoreArgs),
}

/// The arguments of serving.
#[derive(Args, Debug)]
struct ServeArgs {
    /// Loopback address to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = loopback)]
    listen: SocketAddr,
    /// Directory for the objects and the kubeconfig; without it objects are stored in memory and --kubeconfig is required
    #[arg(long, value_name = "DIRECTORY", required_unless_present = "kubeconfig")]
    data_dir: Option<PathBuf>,
    /// Path of the kubeconfig to write (default: kubeconfig in the data directory)
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Minimum level of log lines
    #[arg(long, env = "LOG_LEVEL", value_name = "LEVEL", default_value = "info", ignore_case = true)]
    log_level: LogLevel,
}

/// Parses a loopback address. The API has a single administrator token, so it must not be reachable from elsewhere.
pub(super) fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        text.parse().map_err(|_| "use ADDRESS:PORT, such as 127.0.0.1:6443 or [::1]:6443".to_owned())?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err("use a loopback address, such as 127.0.0.1:6443".to_owned())
    }
}

/// Runs one of the actions, or serves.
pub async fn run(arguments: &ApiserverArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    match &arguments.action {
        None => serve_until_signal(&arguments.serve, console).await,
        Some(Action::Backup(arguments)) => Ok(backup::run(arguments, console).await?),
        Some(Action::Restore(arguments)) => Ok(restore::run(arguments, console).await?),
    }
}

/// Reads the file of a passphrase or of keys.
fn read_secret(path: &Path) -> std::io::Result<Vec<u8>> {
    // A device such as /dev/zero never ends.
    let mut content = Vec::new();
    std::fs::File::open(path)?.take(MAX_SECRET).read_to_end(&mut content)?;
    Ok(content)
}

/// Serves until the process is interrupted.
async fn serve_until_signal(arguments: &ServeArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let ServeArgs { listen, data_dir, kubeconfig, log_level } = arguments;
    telemetry::log_to_stderr(*log_level).context(StartLogSnafu)?;
    let end = shutdown::on_signal().context(HandleSignalsSnafu)?;
    let options =
        ServeOptions { listen: *listen, data_dir: data_dir.clone(), kubeconfig: kubeconfig.clone() };
    let kubeconfig =
        kubeconfig.clone().or_else(|| Some(data_dir.as_ref()?.join("kubeconfig"))).unwrap_or_default();

    let serving = serve(options).await.context(ServeSnafu)?;
    release(&Client::new(serving.server.service(), "default")).await;
    writeln!(
        console.output,
        "serving on https://{}\nexport KUBECONFIG='{}'",
        serving.address,
        kubeconfig.display()
    )
    .and_then(|()| console.output.flush())
    .context(WriteOutputSnafu)?;

    end.cancelled().await;
    serving.stop().await;
    Ok(Ending::Done)
}
