//! Prints the operators as a cluster runs them.

use clap::Args;

use super::{Ending, Error, documents};
use crate::{
    deployment::{Deployment, IMAGE},
    manifests,
    output::Console,
};

/// What differs between one cluster and another.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vitistack manager | kubectl apply --server-side -f -\n  vitistack manager --image registry.example/vitistack:1 --replicas 2"
)]
pub struct ManagerArgs {
    /// Image of the operators
    #[arg(long, default_value = IMAGE)]
    image: String,
    /// How many pods; one acts, the others stand by
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = clap::value_parser!(u16).range(1..))]
    replicas: u16,
}

/// Prints them.
pub fn run(arguments: &ManagerArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let ManagerArgs { image, replicas } = arguments;
    documents(manifests::manager(&Deployment { image, replicas: *replicas }), console)
}
