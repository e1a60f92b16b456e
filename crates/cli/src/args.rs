//! The arguments of the command line.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Parser, Subcommand};

use crate::deployment;

/// Hypervisors, clouds and bare metal as one declarative platform on the Kubernetes API.
#[derive(Debug, Parser)]
#[command(
    name = "vitistack",
    version,
    propagate_version = true,
    after_help = "Exit codes: 0 done, 1 failed, 64 the command line is wrong."
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the definitions (CRDs) of every kind, or of those named
    #[command(
        after_help = "Examples:\n  vitistack crds | kubectl apply --server-side -f -\n  vitistack crds machine machineclass"
    )]
    Crds {
        /// Kinds to print, by kind, plural or short name; all when none is given
        kinds: Vec<String>,
    },
    /// Print the roles for people and operators
    #[command(after_help = "Example:\n  vitistack rbac | kubectl apply --server-side -f -")]
    Rbac,
    /// Print the operators as a Deployment, with all that it needs besides definitions and roles
    #[command(
        after_help = "Examples:\n  vitistack manager | kubectl apply --server-side -f -\n  vitistack manager --image registry.example/vitistack:1 --replicas 2"
    )]
    Manager {
        /// Image of the operators
        #[arg(long, default_value = deployment::IMAGE)]
        image: String,
        /// How many pods; one acts, the others stand by
        #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = clap::value_parser!(u16).range(1..))]
        replicas: u16,
    },
    /// Print sample manifests, or list their names
    #[command(
        after_help = "Examples:\n  vitistack samples --list\n  vitistack samples machine-basic | kubectl apply -f -"
    )]
    Samples {
        /// Samples to print, by name; all when none is given
        names: Vec<String>,
        /// Only list the names
        #[arg(long)]
        list: bool,
    },
    /// Tell what this build serves, and what is still missing
    Summary,
    /// Serve the embedded Kubernetes API on loopback until interrupted
    #[command(
        hide = true,
        after_help = "Example:\n  vitistack apiserver --data-dir ./data &\n  kubectl --kubeconfig ./data/kubeconfig get namespaces"
    )]
    Apiserver {
        /// Address to listen on; port 0 takes a free one
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = loopback)]
        listen: SocketAddr,
        /// Directory for the objects and the kubeconfig; without it everything is in memory and --kubeconfig is needed
        #[arg(long, value_name = "DIRECTORY", required_unless_present = "kubeconfig")]
        data_dir: Option<PathBuf>,
        /// File for the kubeconfig, if not DIRECTORY/kubeconfig
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
    },
}

/// One administrator's token guards the API, so it stays on this machine.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        text.parse().map_err(|_| "write it as 127.0.0.1:6443 or [::1]:6443".to_owned())?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err("it must be on loopback, such as 127.0.0.1:6443".to_owned())
    }
}
