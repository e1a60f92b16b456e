//! The operators by name, and how they are put into one process.

use std::{collections::BTreeSet, sync::Arc};

use kube::Client;
use vitistack_runtime::Process;

use crate::{
    Caches, Needs,
    backends::{SimulatedOpener, Stores, kubevirt::KubeVirtOpener},
    datacenter,
    machine::MachineOperator,
    machine_provider::{self, KubeVirtProbe, Probe, SimulatedProbe},
};

/// An operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// Places the Machines of Datacenters, within their quotas.
    Datacenter,
    /// Checks the providers, and keeps them as long as machines are on them.
    MachineProvider,
    /// Makes machines on KubeVirt.
    Kubevirt,
    /// Makes machines on simulated providers.
    Simulated,
}

impl Operator {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Datacenter, Self::MachineProvider, Self::Kubevirt, Self::Simulated];

    /// The word by which users name it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Datacenter => "datacenter",
            Self::MachineProvider => "machine-provider",
            Self::Kubevirt => "kubevirt",
            Self::Simulated => "simulated",
        }
    }

    /// The name of its lease, its series and its service account.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Datacenter => datacenter::NAME,
            Self::MachineProvider => machine_provider::NAME,
            Self::Kubevirt => "kubevirt-operator",
            Self::Simulated => "simulated-operator",
        }
    }
}

/// What the operators of one process are told.
pub struct Options {
    /// Which of them run.
    pub operators: BTreeSet<Operator>,
    /// Where simulated worlds are kept.
    pub stores: Stores,
    /// Whether the cluster itself takes Machines as long as there is no MachineProvider.
    pub is_own_cluster_offered: bool,
}

/// Puts operators into a process that works on the cluster of `client`.
pub fn add(process: &mut Process, client: &Client, options: &Options) {
    let caches = Caches::new(process, client.clone(), needs(&options.operators));
    // One of them, or a Machine that nobody can act on would be told of twice.
    let teller =
        options.operators.iter().find(|each| matches!(each, Operator::Kubevirt | Operator::Simulated));
    for operator in &options.operators {
        match operator {
            Operator::Datacenter => datacenter::add(process, &caches),
            Operator::MachineProvider => {
                let probes: [Arc<dyn Probe>; 2] =
                    [Arc::new(KubeVirtProbe::new(client.clone())), Arc::new(SimulatedProbe)];
                machine_provider::add(process, &caches, probes, Arc::clone(&options.stores));
            }
            Operator::Kubevirt => MachineOperator {
                name: operator.name(),
                opener: Arc::new(KubeVirtOpener::new(client.clone())),
                is_own_cluster_offered: options.is_own_cluster_offered,
                tells_homeless: Some(operator) == teller,
            }
            .add(process, &caches),
            Operator::Simulated => MachineOperator {
                name: operator.name(),
                opener: Arc::new(SimulatedOpener::new(Arc::clone(&options.stores))),
                is_own_cluster_offered: options.is_own_cluster_offered,
                tells_homeless: Some(operator) == teller,
            }
            .add(process, &caches),
        }
    }
}

/// What the operators read together.
fn needs(operators: &BTreeSet<Operator>) -> Needs {
    use Operator::{Datacenter, Kubevirt, MachineProvider, Simulated};
    let any = |readers: &[Operator]| readers.iter().any(|operator| operators.contains(operator));
    Needs {
        datacenters: any(&[Datacenter, Kubevirt, Simulated]),
        networks: any(&[Kubevirt, Simulated]),
        secrets: any(&[MachineProvider, Kubevirt, Simulated]),
    }
}
