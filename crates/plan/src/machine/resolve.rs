//! From a Machine and what it refers to, to its desired state.

use std::collections::BTreeMap;

use vitistack_types::{
    ObjectName, SecretKeyReference, Size, labels,
    v1alpha1::{
        CloudInit, Machine, MachineClass, MachineSpec, NetworkConfiguration, NetworkConfigurationSpec,
        NetworkInterface, NetworkModel, PowerState,
    },
};

use super::{
    AttachedNetwork, CpuShape, Desired, DesiredCloudInit, DesiredDisk, DesiredInterface, SecretPart,
    template::{self, Template},
};
use crate::{Redacted, Refusal, refusals};

/// The objects that a Machine refers to, in the Machine's namespace.
#[derive(Clone, Debug, Default)]
pub struct References {
    /// The MachineClass that `template` refers to, if it exists.
    pub class: Option<MachineClass>,
    /// NetworkConfigurations, by name.
    pub networks: BTreeMap<String, NetworkConfiguration>,
    /// The data of the Secret that `cloudInit.secretRef` refers to, if it exists.
    pub secret: Option<BTreeMap<String, Redacted<String>>>,
}

/// Returns the desired state of a Machine, or what has to change first. Only the first problem is reported, because a
/// condition has one reason; `problems` returns all.
pub fn resolve(machine: &Machine, references: &References) -> Result<Desired, Refusal> {
    let spec = &machine.spec;
    let ObjectName { namespace, name } = ObjectName::of(machine);
    let Shape { cpu, memory, disks } = shape(spec, references.class.as_ref())?;
    let interfaces = spec.networks.iter().map(|interface| attach(&namespace, interface, references));

    Ok(Desired {
        interfaces: interfaces.collect::<Result<_, _>>()?,
        cloud_init: spec
            .cloud_init
            .as_ref()
            .map(|cloud_init| read_secret(&namespace, cloud_init, references))
            .transpose()?,
        name,
        namespace,
        cpu,
        memory,
        disks,
        boot_order: spec.boot_order.clone(),
        domain: spec.domain.clone().unwrap_or_default(),
        zone: spec.zone.clone().or_else(|| placed_zone(machine)),
        power: spec.power_state.unwrap_or(PowerState::Running),
    })
}

/// Returns everything that has to change before a Machine has a desired state. The first is what [`resolve`] returns.
pub(crate) fn problems(machine: &Machine, references: &References) -> Vec<Refusal> {
    let spec = &machine.spec;
    let namespace = ObjectName::of(machine).namespace;
    let interfaces = spec.networks.iter().map(|interface| attach(&namespace, interface, references).err());
    let secret = spec.cloud_init.as_ref().and_then(|data| read_secret(&namespace, data, references).err());

    let mut problems = shape_problems(spec, references.class.as_ref());
    problems.extend(interfaces.flatten());
    problems.extend(secret);
    problems
}

/// The zone that the Datacenter chose.
fn placed_zone(machine: &Machine) -> Option<String> {
    machine.metadata.annotations.as_ref()?.get(labels::ZONE).cloned()
}

/// The size of a machine.
pub(crate) struct Shape {
    pub(crate) cpu: CpuShape,
    pub(crate) memory: Size,
    pub(crate) disks: Vec<DesiredDisk>,
}

/// Returns the desired size of a machine, from its own spec and its class.
pub(crate) fn shape(spec: &MachineSpec, class: Option<&MachineClass>) -> Result<Shape, Refusal> {
    let template = match spec.template.as_deref() {
        None => Template::default(),
        Some(name) => find_template(name, class)?,
    };

    Ok(Shape {
        cpu: template::cpu(&template, spec).ok_or_else(|| refusals::field_required("resources.cpu.cores"))?,
        memory: template::memory(&template, spec)
            .ok_or_else(|| refusals::field_required("resources.memory.size"))?,
        disks: template::disks(&template, spec)
            .map_err(|name| refusals::field_required(&format!("disks[{name}].size")))?,
    })
}

/// Returns what is missing of the size of a machine. Without its class it is not known what else is.
fn shape_problems(spec: &MachineSpec, class: Option<&MachineClass>) -> Vec<Refusal> {
    let template = match spec.template.as_deref().map(|name| find_template(name, class)).transpose() {
        Ok(template) => template.unwrap_or_default(),
        Err(refusal) => return vec![refusal],
    };

    let missing = [
        template::cpu(&template, spec).is_none().then(|| "resources.cpu.cores".to_owned()),
        template::memory(&template, spec).is_none().then(|| "resources.memory.size".to_owned()),
        template::disks(&template, spec).err().map(|name| format!("disks[{name}].size")),
    ];
    missing.iter().flatten().map(|field| refusals::field_required(field)).collect()
}

fn find_template(name: &str, class: Option<&MachineClass>) -> Result<Template, Refusal> {
    Template::built_in(name)
        .or_else(|| class.map(Template::from))
        .ok_or_else(|| refusals::template_not_found(name))
}

fn attach(
    namespace: &str,
    interface: &NetworkInterface,
    references: &References,
) -> Result<DesiredInterface, Refusal> {
    let name = &interface.network_name;
    let network = references
        .networks
        .get(name)
        .ok_or_else(|| refusals::network_not_found(&interface.name, ObjectName::new(namespace, name)))?;

    let NetworkConfigurationSpec { bridge, vlan } = &network.spec;
    Ok(DesiredInterface {
        name: interface.name.clone(),
        network: AttachedNetwork { name: name.clone(), bridge: bridge.clone(), vlan: *vlan },
        model: interface.model.unwrap_or(NetworkModel::Virtio),
        mac_address: interface.mac_address,
    })
}

fn read_secret(
    namespace: &str,
    cloud_init: &CloudInit,
    references: &References,
) -> Result<DesiredCloudInit, Refusal> {
    const FIELD: &str = "spec.cloudInit.secretRef";
    let read = |reference: &SecretKeyReference| {
        let SecretKeyReference { name, key } = reference;
        let secret = ObjectName::new(namespace, name);
        let data =
            references.secret.as_ref().ok_or_else(|| refusals::secret_not_found(FIELD, secret.clone()))?;
        let content =
            data.get(key).cloned().ok_or_else(|| refusals::secret_key_not_found(FIELD, secret, key))?;
        Ok(SecretPart { name: name.clone(), key: key.clone(), content })
    };

    Ok(DesiredCloudInit {
        user_data: cloud_init.user_data.clone(),
        network_data: cloud_init.network_data.clone(),
        secret: cloud_init.secret_ref.as_ref().map(read).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use vitistack_types::{decode, samples};

    use super::*;

    fn sample(name: &str) -> Machine {
        let sample = samples().iter().find(|sample| sample.name == name).unwrap();
        decode(serde_saphyr::from_str(sample.manifest).unwrap()).unwrap()
    }

    fn references() -> References {
        let network = |name: &str, bridge: &str, vlan| {
            let network = NetworkConfiguration::builder()
                .bridge(bridge)
                .maybe_vlan(vlan)
                .build(name, "default")
                .unwrap();
            (name.to_owned(), network)
        };
        let secret = BTreeMap::from([("userdata".to_owned(), Redacted::new("#cloud-config\n".to_owned()))]);
        References {
            class: None,
            networks: [network("prod-network", "br0", Some(100)), network("storage-network", "br1", None)]
                .into(),
            secret: Some(secret),
        }
    }

    #[test]
    fn every_sample_resolves_to_a_machine() {
        let machines = [
            "machine-basic",
            "machine-with-overrides",
            "machine-with-networking",
            "machine-with-cloud-init",
            "machine-every-field",
        ];
        let pages = machines.map(|name| {
            let desired = resolve(&sample(name), &references()).unwrap();
            format!("# {name}\n{}", serde_saphyr::to_string(&desired).unwrap())
        });
        insta::assert_snapshot!(pages.join("\n"));
    }

    #[test]
    fn the_templates_are_those_of_the_specification() {
        for (name, cores, memory, root) in
            [("small", 1, "2Gi", "20Gi"), ("medium", 2, "4Gi", "40Gi"), ("large", 4, "8Gi", "80Gi")]
        {
            let machine = Machine::builder().template(name).build("vm", "default").unwrap();
            let desired = resolve(&machine, &References::default()).unwrap();
            assert_eq!(desired.cpu, CpuShape { cores, threads: 1, sockets: 1 });
            assert_eq!((desired.memory.to_string().as_str(), desired.disks.len()), (memory, 1));
            let disk = &desired.disks[0];
            assert_eq!((disk.name.as_str(), disk.size.to_string().as_str()), ("root", root));
            assert_eq!(disk.storage_class.as_deref(), Some("default"));
        }
    }

    #[test]
    fn a_missing_reference_is_refused_with_the_fix() {
        let mut unsized_disk = sample("machine-basic");
        unsized_disk.spec.disks = vec![vitistack_types::v1alpha1::Disk::builder().name("data").build()];
        let mut unknown_template = sample("machine-basic");
        unknown_template.spec.template = Some("huge".to_owned());
        let none = References::default();
        let without_key = References { secret: Some(BTreeMap::new()), ..references() };
        let refusals = [
            resolve(&unknown_template, &none),
            resolve(&unsized_disk, &none),
            resolve(&sample("machine-with-networking"), &none),
            resolve(&sample("machine-every-field"), &References { secret: None, ..references() }),
            resolve(&sample("machine-every-field"), &without_key),
        ];
        let messages = refusals.map(|refusal| {
            let refusal = refusal.unwrap_err();
            format!("{}: {}", refusal.reason, refusal.message)
        });
        insta::assert_snapshot!(messages.join("\n"));
    }

    #[test]
    fn every_problem_is_found_and_the_first_is_the_one_that_is_reported() {
        let mut machine = sample("machine-every-field");
        machine.spec.template = None;
        machine.spec.resources = None;
        machine.spec.disks = vec![vitistack_types::v1alpha1::Disk::builder().name("data").build()];
        let mut unknown_template = machine.clone();
        unknown_template.spec.template = Some("huge".to_owned());
        let complete = sample("machine-every-field");

        for (machine, references) in [
            (&machine, References::default()),
            (&unknown_template, References::default()),
            (&complete, References { secret: None, ..references() }),
            (&complete, references()),
        ] {
            let first = problems(machine, &references).into_iter().next();
            assert_eq!(first, resolve(machine, &references).err());
        }
        let fields: Vec<String> = problems(&machine, &References::default())
            .iter()
            .map(|problem| problem.message.split([' ', ':']).next().unwrap().to_owned())
            .collect();
        insta::assert_snapshot!(fields.join("\n"));
    }
}
