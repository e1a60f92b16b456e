//! The arguments of the command line. Only this module reads the environment.

use std::{io::IsTerminal, path::PathBuf};

use clap::{Args, Parser, Subcommand};

use crate::{
    commands::{
        adopt::AdoptArgs,
        apiserver::ApiserverArgs,
        crds::CrdsArgs,
        describe::DescribeArgs,
        doctor::DoctorArgs,
        events::EventsArgs,
        export::ExportArgs,
        get::GetArgs,
        manager::ManagerArgs,
        pause::{PauseArgs, ResumeArgs},
        plan::PlanArgs,
        power::PowerArgs,
        release::ReleaseArgs,
        render::RenderArgs,
        run::RunArgs,
        samples::SamplesArgs,
        shell::{CompletionArgs, ManArgs},
        up::UpArgs,
        version::VersionArgs,
        watch::WatchArgs,
        why::WhyArgs,
    },
    printing::{OutputFormat, Terminal},
};

/// Manage hypervisors, clouds and bare metal as one declarative platform on the Kubernetes API
#[derive(Debug, Parser)]
#[command(
    name = "vitistack",
    version,
    propagate_version = true,
    after_help = "Exit status:
  0   success
  1   failure
  2   changes pending
  3   partial result
  64  usage error"
)]
pub struct Arguments {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the control plane, the operators and a simulated datacenter on this computer
    Up(UpArgs),
    /// Display one or many objects
    Get(GetArgs),
    /// Show details of an object and its related objects
    Describe(DescribeArgs),
    /// Explain an object's state and what is blocking it
    Why(WhyArgs),
    /// Show events for VitiStack objects
    Events(EventsArgs),
    /// Watch objects for changes
    Watch(WatchArgs),
    /// Run operators until interrupted
    Run(RunArgs),
    /// Print the CustomResourceDefinitions (CRDs) of all or some kinds
    Crds(CrdsArgs),
    /// Print the roles for users and operators
    #[command(after_help = "Examples:
  # Install the roles
  vitistack rbac | kubectl apply --server-side -f -")]
    Rbac,
    /// Print the Deployment of the operators and the objects it requires
    Manager(ManagerArgs),
    /// Print sample manifests
    Samples(SamplesArgs),
    /// Show the kinds and manifests in this build
    Summary,
    /// Power machines on or off, or restart them
    Power(PowerArgs),
    /// Pause reconciliation of objects
    Pause(PauseArgs),
    /// Resume reconciliation of objects
    Resume(ResumeArgs),
    /// Attach a restored Machine to its existing backing machine
    Adopt(AdoptArgs),
    /// Stop managing a machine and keep the backing machine and its disks
    Release(ReleaseArgs),
    /// Preview the changes that applying files would make, and their cost
    Plan(PlanArgs),
    /// Print the objects that would be created for a Machine
    Render(RenderArgs),
    /// Print all objects as manifests for backup or migration
    Export(ExportArgs),
    /// Check that a cluster is ready for the operators
    Doctor(DoctorArgs),
    /// Generate shell completions
    Completion(CompletionArgs),
    /// Generate man pages
    Man(ManArgs),
    /// Print the versions of the client and the server
    Version(VersionArgs),
    /// Serve, back up or restore the embedded Kubernetes API
    Apiserver(ApiserverArgs),
}

/// The cluster and the namespace; flatten it into a command that talks to a cluster.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// Path to the kubeconfig file (default: that of a running "vitistack up" in this directory, the service account of the pod, or ~/.kube/config)
    #[arg(long, env = "KUBECONFIG", hide_env_values = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Kubeconfig context (default: current context)
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,

    /// Namespace (default: the namespace of the context)
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// The choice of all namespaces; flatten it beside [`ClusterArgs`].
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub struct AllNamespacesArgs {
    /// Select objects in all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
}

/// The output format; flatten it into a command that prints a result.
#[derive(Args, Clone, Copy, Debug)]
pub struct OutputArgs {
    /// Output format
    #[arg(
        short, long, value_name = "FORMAT", default_value = "text", ignore_case = true,
        value_parser = OutputFormat::parser(&[OutputFormat::Text, OutputFormat::Json, OutputFormat::Yaml]),
    )]
    pub output: OutputFormat,
}

/// The output format of a list of objects; flatten it into a command that prints objects in columns.
#[derive(Args, Clone, Copy, Debug)]
pub struct ListOutputArgs {
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text", ignore_case = true)]
    pub output: OutputFormat,
}

/// Reads the answer to a question from standard input; `None` if that is not a terminal.
pub fn answer() -> Option<String> {
    let mut line = String::new();
    (std::io::stdin().is_terminal() && std::io::stdin().read_line(&mut line).is_ok()).then_some(line)
}

/// Returns what standard output is connected to.
pub fn terminal() -> Terminal {
    let is_terminal = std::io::stdout().is_terminal();
    let allows_color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|value| value != "dumb");

    Terminal { is_terminal, has_color: is_terminal && allows_color }
}
