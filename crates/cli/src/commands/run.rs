//! Any set of operators in one process.

use std::{collections::BTreeSet, sync::Arc};

use clap::{Args, builder::PossibleValuesParser};
use kube::Client;
use snafu::{ResultExt, Snafu};
use vitistack_controller::{
    backends::{Stores, world_of},
    operators::{self, Operator, Options},
};
use vitistack_machine::simulated::KubernetesStore;
use vitistack_runtime::{
    KitArgs, Process, StartError, client_from, shutdown,
    shutdown::ShutdownError,
    telemetry::{Telemetry, TelemetryError},
};

use super::Ending;

/// The word for every operator there is.
const ALL: &str = "all";

/// Which operators, and how.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vitistack run kubevirt --kubeconfig ~/.kube/config\n  vitistack run datacenter machine-provider simulated\n  vitistack run all --leader-election=false"
)]
pub struct RunArgs {
    /// Operators to run, or `all`
    #[arg(required = true, value_name = "OPERATOR", value_parser = words())]
    operators: Vec<String>,

    #[command(flatten)]
    kit: KitArgs,
}

/// Indicates that the operators do not run.
#[derive(Debug, Snafu)]
pub enum RunError {
    /// Indicates that nothing can be logged.
    #[snafu(display("{source}"), context(false))]
    StartTelemetry { source: TelemetryError },
    /// Indicates that the end of the process could not be listened for.
    #[snafu(display("{source}"), context(false))]
    ListenForEnd { source: ShutdownError },
    /// Indicates that the operators did not start.
    #[snafu(display("{source}"))]
    Start { source: StartError },
}

fn words() -> PossibleValuesParser {
    Operator::ALL.into_iter().map(Operator::word).chain([ALL]).collect::<Vec<_>>().into()
}

/// Runs the operators until the process is told to end.
pub async fn run(arguments: &RunArgs) -> Result<Ending, RunError> {
    let RunArgs { operators, kit } = arguments;
    let telemetry = Telemetry::start(kit)?;
    let end = shutdown::on_signal()?;
    let client = client_from(kit).await.context(StartSnafu)?;
    let is_wanted = |operator: &Operator| operators.iter().any(|word| word == ALL || word == operator.word());
    let options = Options {
        operators: Operator::ALL.into_iter().filter(is_wanted).collect::<BTreeSet<_>>(),
        stores: stores(&client, &kit.own_namespace()),
        is_own_cluster_offered: true,
    };
    let mut process = Process::new(kit.clone(), client.clone());
    operators::add(&mut process, &client, &options);
    let ended = process.run(end).await.context(StartSnafu);
    telemetry.finish().await;
    ended.map(|()| Ending::Done)
}

/// Simulated worlds are kept in the cluster, beside the operator, so that they outlive it.
pub fn stores(client: &Client, namespace: &str) -> Stores {
    let (client, namespace) = (client.clone(), namespace.to_owned());
    Arc::new(move |provider| Arc::new(KubernetesStore::new(client.clone(), &namespace, &world_of(provider))))
}
