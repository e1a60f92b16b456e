//! Runs operators in one process.

use clap::{Args, builder::PossibleValuesParser};
use snafu::{ResultExt, Snafu};
use vitistack_controller::operators::{self, Options};
use vitistack_machine::BackendContext;
use vitistack_runtime::{
    OperatorArgs, Process, StartError, client_from, shutdown,
    shutdown::ShutdownError,
    telemetry::{Telemetry, TelemetryError},
};
use vitistack_types::OperatorName;

use super::Ending;

/// Selects every operator.
pub(super) const ALL: &str = "all";

/// The arguments of `vitistack run`.
#[derive(Args, Debug)]
// backend: allow, examples
#[command(after_help = "Examples:
  # Run one operator
  vitistack run kubevirt --kubeconfig ~/.kube/config

  # Run some operators in one process
  vitistack run datacenter machine-provider simulated

  # Run all operators as the only replica
  vitistack run all --leader-election=false

  # Watch two namespaces and the one with the providers, and nothing else
  vitistack run kubevirt --namespaces team-a,team-b,vitistack-system")]
pub struct RunArgs {
    /// Operators to run
    #[arg(required = true, value_name = "OPERATOR", value_parser = names())]
    operators: Vec<String>,

    #[command(flatten)]
    kit: OperatorArgs,
}

/// Errors of running operators.
#[derive(Debug, Snafu)]
pub enum RunError {
    /// Telemetry cannot be started.
    #[snafu(display("{source}"), context(false))]
    StartTelemetry { source: TelemetryError },
    /// Signals cannot be handled.
    #[snafu(display("{source}"), context(false))]
    HandleSignals { source: ShutdownError },
    /// The operators cannot be started.
    #[snafu(display("{source}"))]
    Start { source: StartError },
}

/// Returns the names of the operators.
fn names() -> PossibleValuesParser {
    OperatorName::all().map(OperatorName::as_str).chain([ALL]).collect::<Vec<_>>().into()
}

/// Runs the operators until the process is interrupted.
pub async fn run(arguments: &RunArgs) -> Result<Ending, RunError> {
    let RunArgs { operators, kit } = arguments;
    let telemetry = Telemetry::start(kit)?;
    let end = shutdown::on_signal()?;
    let client = client_from(kit).await.context(StartSnafu)?;

    let is_wanted =
        |operator: &OperatorName| operators.iter().any(|name| name == ALL || name == operator.as_str());
    let options = Options {
        operators: OperatorName::all().filter(is_wanted).collect(),
        context: BackendContext::in_cluster(client.clone(), &kit.own_namespace(), kit.watched_namespaces()),
        is_own_cluster_offered: true,
    };

    let mut process = Process::new(kit.clone(), client);
    operators::add(&mut process, &options);
    let ended = process.run(end).await.context(StartSnafu);
    telemetry.finish().await;
    ended.map(|()| Ending::Done)
}
