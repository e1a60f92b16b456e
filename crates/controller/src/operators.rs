//! The operators, and how they are put into one process.

use std::collections::BTreeSet;

use vitistack_machine::{BackendContext, backend_type, backend_types};
use vitistack_runtime::Process;
use vitistack_types::{OperatorName, v1alpha1::ProviderType};

use crate::{Caches, Needs, datacenter, machine::MachineOperator, machine_provider};

/// The settings of the operators of one process.
pub struct Options {
    /// Which of them run.
    pub operators: BTreeSet<OperatorName>,
    /// What the backends share with the process, among it the cluster that the operators work on.
    pub context: BackendContext,
    /// Whether that cluster hosts Machines while the platform has no MachineProvider.
    pub is_own_cluster_offered: bool,
}

/// Adds operators to a process.
pub fn add(process: &mut Process, options: &Options) {
    let Options { operators, context, is_own_cluster_offered } = options;
    let caches = Caches::new(process, context.client.clone(), needs(operators));

    // One operator reports on Machines that none can act on: two would report twice.
    let reporter = machine_operators(operators).next();
    for operator in operators {
        match operator {
            OperatorName::Datacenter => datacenter::add(process, &caches),
            OperatorName::MachineProvider => {
                machine_provider::add(process, &caches, backend_types(), context.clone());
            }
            OperatorName::Machine(provider_type) => MachineOperator {
                name: operator.lease(),
                opener: backend_type(*provider_type).opener(context),
                is_own_cluster_offered: *is_own_cluster_offered,
                reports_unplaceable: Some(*provider_type) == reporter,
            }
            .add(process, &caches),
        }
    }
}

/// The provider types whose operators run.
fn machine_operators(operators: &BTreeSet<OperatorName>) -> impl Iterator<Item = ProviderType> {
    operators.iter().filter_map(|operator| match operator {
        OperatorName::Machine(provider_type) => Some(*provider_type),
        OperatorName::Datacenter | OperatorName::MachineProvider => None,
    })
}

/// What the operators read together.
fn needs(operators: &BTreeSet<OperatorName>) -> Needs {
    let hosts_machines = machine_operators(operators).next().is_some();
    Needs {
        datacenters: hosts_machines || operators.contains(&OperatorName::Datacenter),
        networks: hosts_machines,
        secrets: hosts_machines || operators.contains(&OperatorName::MachineProvider),
        namespaces: operators.contains(&OperatorName::Machine(ProviderType::OWN_CLUSTER)),
    }
}
