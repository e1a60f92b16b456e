//! The price of a machine.

use vitistack_types::v1alpha1::{InstanceType, MachineProviderSpec};

/// Returns the smallest instance type of a provider that fits a machine with these virtual CPUs and bytes of memory: fewest
/// CPUs first, then least memory, then by name. Its price is the machine's price.
#[must_use]
pub fn price_of(provider: &MachineProviderSpec, cpu: u32, memory: u64) -> Option<&InstanceType> {
    provider
        .instance_types
        .iter()
        .filter(|size| size.cpu >= cpu && size.memory.bytes() >= memory)
        .min_by_key(|size| (size.cpu, size.memory.bytes(), &size.name))
}

#[cfg(test)]
mod tests {
    use vitistack_types::v1alpha1::{MachineProvider, Price, ProviderType};

    use super::*;

    #[test]
    fn a_machine_costs_what_the_smallest_fitting_type_costs() {
        let size = |name: &str, cpu, memory: &str, price: &str| {
            let price = Price::builder().per_hour(price.parse().unwrap()).currency("EUR").build();
            InstanceType::builder().name(name).cpu(cpu).memory(memory.parse().unwrap()).price(price).build()
        };
        let sizes =
            [size("wide", 4, "8Gi", "0.2"), size("tall", 2, "16Gi", "0.15"), size("tiny", 2, "4Gi", "0.05")];
        let provider = MachineProvider::builder()
            .provider_type(ProviderType::Simulated)
            .instance_types(sizes)
            .build("p", "default")
            .unwrap();
        let price = |cpu, gibibytes: u64| {
            let found = price_of(&provider.spec, cpu, gibibytes << 30)?;
            Some(format!("{} {}", found.name, found.price.as_ref()?.per_hour))
        };
        assert_eq!(price(1, 2).as_deref(), Some("tiny 0.05"));
        assert_eq!(price(2, 5).as_deref(), Some("tall 0.15"));
        assert_eq!(price(3, 1).as_deref(), Some("wide 0.2"));
        assert_eq!(price(8, 1), None);
    }
}
