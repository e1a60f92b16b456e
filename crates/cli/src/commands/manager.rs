//! Prints the Deployments of the operators.

use std::net::IpAddr;

use clap::{Args, builder::PossibleValuesParser};
use vitistack_types::{OperatorName, WatchedNamespaces};

use super::{Ending, Error, documents};
use crate::{
    manifests::{
        self,
        deployment::{Accounts, Deployment, IMAGE, default_operators},
    },
    printing::Console,
};

/// The arguments of `vitistack manager`.
#[derive(Args, Debug)]
#[command(
    // backend: allow, examples
    after_help = "CRDs and roles are not included; print them with \"vitistack crds\" and \"vitistack rbac\".

Examples:
  # Install the operators
  vitistack manager | kubectl apply --server-side -f -

  # Use another image, and a standby replica
  vitistack manager --image registry.example/vitistack:1 --replicas 2

  # Give each operator an account of its own
  vitistack manager --account per-operator

  # Grant permissions in the namespaces of two teams and of the platform only
  vitistack manager --namespaces team-a,team-b,vitistack-system

  # Also run the simulated backend
  vitistack manager --operators datacenter,machine-provider,kubevirt,simulated"
)]
pub struct ManagerArgs {
    /// Container image
    #[arg(long, default_value = IMAGE)]
    image: String,
    /// Number of pods of each Deployment; one is the leader, the others stand by
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = clap::value_parser!(u16).range(1..))]
    replicas: u16,
    /// Operators to run, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = operator_names(), default_values_t = default_names())]
    operators: Vec<String>,
    /// Namespaces to watch and act in, separated by commas (default: all); permissions are granted only there
    #[arg(long, value_name = "NAMES")]
    namespaces: Option<WatchedNamespaces>,
    /// Service accounts: one for all operators, or one for each
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Accounts::Shared)]
    account: Accounts,
    /// TCP port that providers or a telemetry collector listen on, besides 443 and 6443; can be repeated
    #[arg(long = "egress-port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    egress_ports: Vec<u16>,
    /// Addresses that operators may connect to, among them the API server (default: all); can be repeated
    #[arg(long = "egress-cidr", value_name = "CIDR", value_parser = cidr)]
    egress_cidrs: Vec<String>,
}

/// Prints the Deployments and the objects they require.
pub fn run(arguments: &ManagerArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let is_wanted =
        |operator: &OperatorName| arguments.operators.iter().any(|name| name == operator.as_str());
    let deployment = Deployment {
        image: &arguments.image,
        replicas: arguments.replicas,
        operators: OperatorName::all().filter(is_wanted).collect(),
        namespaces: arguments.namespaces.clone().unwrap_or_default(),
        accounts: arguments.account,
        egress_ports: &arguments.egress_ports,
        egress_cidrs: &arguments.egress_cidrs,
    };
    documents(manifests::manager(&deployment), console)
}

fn operator_names() -> PossibleValuesParser {
    OperatorName::all().map(OperatorName::as_str).collect::<Vec<_>>().into()
}

fn default_names() -> Vec<String> {
    default_operators().into_iter().map(|operator| operator.to_string()).collect()
}

/// Parses a range of addresses.
fn cidr(text: &str) -> Result<String, &'static str> {
    const FIX: &str = "write an address and the length of its prefix, such as 10.0.0.0/8";
    let (address, length) = text.split_once('/').ok_or(FIX)?;
    let address: IpAddr = address.parse().map_err(|_| FIX)?;
    let length: u8 = length.parse().map_err(|_| FIX)?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    if length <= longest { Ok(text.to_owned()) } else { Err(FIX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_addresses_have_a_prefix_length() {
        for text in ["10.0.0.0/8", "192.0.2.1/32", "2001:db8::/48", "0.0.0.0/0"] {
            assert_eq!(cidr(text).as_deref(), Ok(text));
        }
        for text in ["", "10.0.0.0", "10.0.0.0/33", "2001:db8::/129", "example.org/8", "10.0.0.0/-1"] {
            assert!(cidr(text).is_err(), "{text:?}");
        }
    }
}
