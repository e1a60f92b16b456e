//! What the operators ask of the Kubernetes API beyond what the kit does: the source of their generated roles.

use vitistack_machine::kubevirt::Kind;
use vitistack_runtime::permissions::Permission;
use vitistack_types::GROUP;

use crate::{datacenter, machine_provider, operators::Operator};

/// What every operator that makes machines reads and writes of our own kinds.
const MACHINES: [Permission; 4] = [
    Permission {
        group: GROUP,
        resources: &["machines"],
        verbs: &["list", "watch", "patch"],
        own_namespace_only: false,
    },
    Permission {
        group: GROUP,
        resources: &["machines/status", "machineclasses/status", "networkconfigurations/status"],
        verbs: &["patch"],
        own_namespace_only: false,
    },
    Permission {
        group: GROUP,
        resources: &["datacenters", "machineclasses", "networkconfigurations"],
        verbs: &["list", "watch"],
        own_namespace_only: false,
    },
    Permission {
        group: GROUP,
        resources: &["machineproviders"],
        verbs: &["get", "list", "watch"],
        own_namespace_only: false,
    },
];

/// The metadata of Secrets is watched; those that something refers to are read.
const SECRETS: Permission = Permission {
    group: "",
    resources: &["secrets"],
    verbs: &["get", "list", "watch"],
    own_namespace_only: false,
};

/// Simulated worlds are kept beside the operator.
const WORLDS: Permission = Permission {
    group: "",
    resources: &["configmaps"],
    verbs: &["get", "list", "create", "update", "delete", "deletecollection"],
    own_namespace_only: true,
};

impl Operator {
    /// Exactly what the operator uses, beside what the kit uses for all of them. KubeVirt's part is needed in every
    /// cluster that has its machines: the operator's own, and those that providers have credentials for.
    #[must_use]
    pub fn permissions(self) -> Vec<Permission> {
        match self {
            Self::Datacenter => datacenter::PERMISSIONS.to_vec(),
            Self::MachineProvider => [
                machine_provider::PERMISSIONS,
                &[Permission { verbs: &["list"], ..kubevirt(Kind::KubeVirt) }],
            ]
            .concat(),
            // Its own Secrets are among what it makes, with all the verbs that reading takes.
            Self::Kubevirt => [&MACHINES[..], &Kind::ALL.map(kubevirt)].concat(),
            Self::Simulated => [&MACHINES[..], &[SECRETS, WORLDS]].concat(),
        }
    }
}

fn kubevirt(kind: Kind) -> Permission {
    let (group, resources) = kind.rule();
    Permission { group, resources, verbs: kind.verbs(), own_namespace_only: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_that_reads_secrets_has_the_verbs_for_it() {
        for operator in Operator::ALL.into_iter().filter(|operator| *operator != Operator::Datacenter) {
            let permissions = operator.permissions();
            let secrets = permissions.iter().find(|permission| permission.resources == SECRETS.resources);
            let verbs = secrets.map(|permission| permission.verbs).unwrap_or_default();
            assert!(SECRETS.verbs.iter().all(|verb| verbs.contains(verb)), "{operator:?}: {verbs:?}");
        }
    }
}
