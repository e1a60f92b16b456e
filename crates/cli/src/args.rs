//! The arguments of the command line, and the only place that reads the environment.

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
        watch::WatchArgs,
        why::WhyArgs,
    },
    output::{AnswerFormat, OutputFormat, Terminal},
};

/// Hypervisors, clouds and bare metal as one declarative platform on the Kubernetes API.
#[derive(Debug, Parser)]
#[command(
    name = "vitistack",
    version,
    propagate_version = true,
    after_help = "Exit codes: 0 done, 1 failed, 2 there is a change, 3 only a part of the answer could be had, 64 the command line is wrong."
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run everything on this machine: control plane, operators and a simulated datacenter
    Up(UpArgs),
    /// List objects, or show one
    Get(GetArgs),
    /// Show one object with everything around it
    Describe(DescribeArgs),
    /// Say why an object is as it is, and what stands in its way
    Why(WhyArgs),
    /// Show what operators told of objects
    Events(EventsArgs),
    /// Follow objects as they change
    Watch(WatchArgs),
    /// Run operators until interrupted
    Run(RunArgs),
    /// Print the definitions (CRDs) of every kind, or of those named
    Crds(CrdsArgs),
    /// Print the roles for people and operators
    #[command(after_help = "Example:\n  vitistack rbac | kubectl apply --server-side -f -")]
    Rbac,
    /// Print the operators as a Deployment, with all that it needs besides definitions and roles
    Manager(ManagerArgs),
    /// Print sample manifests, or list their names
    Samples(SamplesArgs),
    /// Tell what this build serves, and what is still missing
    Summary,
    /// Switch machines on or off, or restart them
    Power(PowerArgs),
    /// Stop all action on objects
    Pause(PauseArgs),
    /// Let action on objects go on
    Resume(ResumeArgs),
    /// Give a restored or moved Machine the real machine whose identity it carries
    Adopt(AdoptArgs),
    /// Let go of a machine: its object goes, the real machine stays
    Release(ReleaseArgs),
    /// Show what files would change, and what that costs, without changing it
    Plan(PlanArgs),
    /// Show what a Machine becomes on KubeVirt, without making it
    Render(RenderArgs),
    /// Print every object so that it can be restored elsewhere
    Export(ExportArgs),
    /// Look at a cluster for everything that the operators need
    Doctor(DoctorArgs),
    /// Print the script that completes these commands in a shell
    Completion(CompletionArgs),
    /// Write a page for each command, for `man`
    Man(ManArgs),
    /// Serve the embedded Kubernetes API on loopback until interrupted
    #[command(hide = true)]
    Apiserver(ApiserverArgs),
}

/// Which cluster, and which namespace of it; flatten it into a command that asks one.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// Kubeconfig of the cluster; without it a running `vitistack up` of this directory, the pod's own cluster, or ~/.kube/config
    #[arg(long, env = "KUBECONFIG", hide_env_values = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig; its current one when absent
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,

    /// Namespace to look at; that of the context when absent
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// Whether to look at every namespace; flatten it beside [`ClusterArgs`] where that makes sense.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub struct AllNamespacesArgs {
    /// Look at all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
}

/// In which form to print; flatten it into a command that prints objects.
#[derive(Args, Clone, Copy, Debug)]
pub struct OutputArgs {
    /// Form of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "table", ignore_case = true)]
    pub output: OutputFormat,
}

/// In which form to tell; flatten it into a command that explains.
#[derive(Args, Clone, Copy, Debug)]
pub struct AnswerArgs {
    /// Form of the answer
    #[arg(short, long, value_name = "FORMAT", default_value = "text", ignore_case = true)]
    pub output: AnswerFormat,
}

/// What a person answers to a question that was just asked; none where nobody sits at standard input.
pub fn answer() -> Option<String> {
    let mut line = String::new();
    (std::io::stdin().is_terminal() && std::io::stdin().read_line(&mut line).is_ok()).then_some(line)
}

/// What standard output is.
pub fn terminal() -> Terminal {
    let is_terminal = std::io::stdout().is_terminal();
    let wants_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|value| value != "dumb");
    Terminal { is_terminal, has_colour: is_terminal && wants_colour }
}
