//! What the operators ask of the Kubernetes API: the source of their generated roles.

use vitistack_clients::kubernetes::{Permission, PermissionScope};
use vitistack_machine::{backend_type, backend_types};
use vitistack_types::{GROUP, OperatorName, v1alpha1::ProviderType};

/// What the operator `datacenter` asks.
const DATACENTER: [Permission; 4] = [
    namespaced(&["datacenters", "machineproviders"], &["list", "watch"]),
    namespaced(&["machines"], &["list", "watch", "patch"]),
    namespaced(&["datacenters/status", "machines/status"], &["patch"]),
    CLASSES,
];

/// What the operator `machine-provider` asks, besides what backends need to probe and clean up.
const MACHINE_PROVIDER: [Permission; 5] = [
    namespaced(&["machines"], &["list", "watch"]),
    namespaced(&["machineproviders"], &["list", "watch", "patch"]),
    namespaced(&["machineproviders/status"], &["patch"]),
    SECRETS,
    CLASSES,
];

/// What every operator that hosts machines asks, besides what its backend does.
const MACHINE: [Permission; 6] = [
    namespaced(&["machines"], &["list", "watch", "patch"]),
    namespaced(&["machines/status", "networkconfigurations/status"], &["patch"]),
    namespaced(&["datacenters", "networkconfigurations"], &["list", "watch"]),
    namespaced(&["machineproviders"], &["get", "list", "watch"]),
    CLASSES,
    Permission { resources: &["machineclasses/status"], verbs: &["patch"], ..CLASSES },
];

/// MachineClasses are cluster-scoped.
const CLASSES: Permission = Permission {
    group: GROUP,
    resources: &["machineclasses"],
    verbs: &["list", "watch"],
    scope: PermissionScope::Cluster,
};

/// The metadata of Namespaces is watched: they permit providers to create machines in them.
const NAMESPACES: Permission = Permission {
    group: "",
    resources: &["namespaces"],
    verbs: &["list", "watch"],
    scope: PermissionScope::Cluster,
};

/// The metadata of Secrets is watched; those that objects refer to are read.
const SECRETS: Permission = Permission {
    group: "",
    resources: &["secrets"],
    verbs: &["get", "list", "watch"],
    scope: PermissionScope::Namespaces,
};

/// Permissions for kinds of ours in the namespaces that the operators work in.
const fn namespaced(resources: &'static [&'static str], verbs: &'static [&'static str]) -> Permission {
    Permission { group: GROUP, resources, verbs, scope: PermissionScope::Namespaces }
}

/// Returns exactly what an operator asks, besides what the runtime asks for all of them.
#[must_use]
pub fn permissions(operator: OperatorName) -> Vec<Permission> {
    match operator {
        OperatorName::Datacenter => DATACENTER.to_vec(),
        OperatorName::MachineProvider => {
            let of_backends =
                backend_types().into_iter().rev().flat_map(|backend| backend.provider_permissions());
            MACHINE_PROVIDER.into_iter().chain(of_backends).collect()
        }
        OperatorName::Machine(provider_type) => {
            let namespaces = (provider_type == ProviderType::OWN_CLUSTER).then_some(NAMESPACES);
            MACHINE.into_iter().chain(namespaces).chain(backend_type(provider_type).permissions()).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_that_reads_secrets_has_the_verbs_for_it() {
        for operator in OperatorName::all().filter(|operator| *operator != OperatorName::Datacenter) {
            let permissions = permissions(operator);
            let secrets = permissions.iter().find(|permission| permission.resources == SECRETS.resources);
            let verbs = secrets.map(|permission| permission.verbs).unwrap_or_default();
            assert!(SECRETS.verbs.iter().all(|verb| verbs.contains(verb)), "{operator}: {verbs:?}");
        }
    }
}
