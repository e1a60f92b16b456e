//! The operators by name.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::v1alpha1::ProviderType;

/// The name of an operator, a role of `vitistack run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperatorName {
    /// Places the Machines of Datacenters, within their quotas.
    Datacenter,
    /// Checks providers, and keeps them while machines are on them.
    MachineProvider,
    /// Creates machines on providers of one type.
    Machine(ProviderType),
}

impl OperatorName {
    /// The operator whose own cluster can host Machines while the platform has no MachineProvider.
    pub const OWN_CLUSTER: Self = Self::Machine(ProviderType::OWN_CLUSTER);

    /// Every operator.
    pub fn all() -> impl Iterator<Item = Self> {
        let of_machines = ProviderType::ALL.into_iter().map(Self::Machine);
        [Self::Datacenter, Self::MachineProvider].into_iter().chain(of_machines)
    }

    /// The name as users type it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Datacenter => "datacenter",
            Self::MachineProvider => "machine-provider",
            Self::Machine(provider_type) => provider_type.as_str(),
        }
    }

    /// The name of its lease, its metrics and its service account.
    #[must_use]
    pub fn lease(self) -> String {
        format!("{self}-operator")
    }
}

impl fmt::Display for OperatorName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl Serialize for OperatorName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_has_a_name_and_a_lease() {
        let names: Vec<(&str, String)> =
            OperatorName::all().map(|operator| (operator.as_str(), operator.lease())).collect();
        let leases: Vec<(&str, &str)> = names.iter().map(|(name, lease)| (*name, lease.as_str())).collect();
        assert_eq!(
            leases,
            [
                ("datacenter", "datacenter-operator"),
                ("machine-provider", "machine-provider-operator"),
                ("kubevirt", "kubevirt-operator"),
                ("simulated", "simulated-operator"),
            ]
        );
    }
}
