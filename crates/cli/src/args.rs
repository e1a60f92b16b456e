//! The arguments of the command line.

use clap::{Parser, Subcommand};

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
}
