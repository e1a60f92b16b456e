//! The embedded Kubernetes API as a process of its own.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;
use kube::Client;
use snafu::ResultExt;
use vitistack_apiserver::{ServeOptions, serve};
use vitistack_runtime::shutdown;

use super::{Ending, Error, ListenForEndSnafu, ServeSnafu, WriteOutputSnafu, up::leases::give_back};
use crate::output::Console;

/// Where to serve.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  vitistack apiserver --data-dir ./data &\n  kubectl --kubeconfig ./data/kubeconfig get namespaces"
)]
pub struct ApiserverArgs {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = loopback)]
    listen: SocketAddr,
    /// Directory for the objects and the kubeconfig; without it everything is in memory and --kubeconfig is needed
    #[arg(long, value_name = "DIRECTORY", required_unless_present = "kubeconfig")]
    data_dir: Option<PathBuf>,
    /// File for the kubeconfig, if not DIRECTORY/kubeconfig
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// One administrator's token guards the API, so it stays on this machine.
pub(super) fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        text.parse().map_err(|_| "write it as 127.0.0.1:6443 or [::1]:6443".to_owned())?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err("it must be on loopback, such as 127.0.0.1:6443".to_owned())
    }
}

/// Serves until the process is told to end.
pub async fn run(arguments: &ApiserverArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let ApiserverArgs { listen, data_dir, kubeconfig } = arguments;
    let end = shutdown::on_signal().context(ListenForEndSnafu)?;
    let options =
        ServeOptions { listen: *listen, data_dir: data_dir.clone(), kubeconfig: kubeconfig.clone() };
    let kubeconfig =
        kubeconfig.clone().or_else(|| Some(data_dir.as_ref()?.join("kubeconfig"))).unwrap_or_default();
    let serving = serve(options).await.context(ServeSnafu)?;
    give_back(&Client::new(serving.server.service(), "default")).await;
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
