//! Builders accept what the CRD accepts, and reject the rest with the messages of the CRD.

use vitistack_types::{
    Size, decode, definitions,
    v1alpha1::{
        Bootloader, ClassCpu, ClassResources, Cpu, Datacenter, Disk, DiskSource, Domain, Firmware,
        InstanceType, KubeVirtProvider, Machine, MachineClass, MachineProvider, Memory, NetworkConfiguration,
        NetworkInterface, ProviderReference, ProviderType, ResourceQuotas, Resources,
    },
};

fn size(text: &str) -> Size {
    text.parse().unwrap()
}

#[test]
fn a_machine_is_built_fluently() {
    let machine = Machine::builder()
        .template("small")
        .resources(
            Resources::builder()
                .cpu(Cpu::builder().cores(4).build())
                .memory(Memory { size: size("8Gi") })
                .build(),
        )
        .disks([Disk::builder().name("data").size(size("100Gi")).storage_class("fast-ssd").build()])
        .networks([NetworkInterface::builder().name("eth0").network_name("prod-network").build()])
        .build("custom-vm", "default")
        .unwrap();
    assert_eq!(machine.metadata.namespace.as_deref(), Some("default"));
    assert_eq!(machine.spec.resources.unwrap().cpu.unwrap().cores, Some(4));
}

#[test]
fn an_object_that_violates_its_crd_cannot_be_built() {
    let machine = || Machine::builder().template("small");
    let disk = |name: &str| Disk::builder().name(name).size(size("1Gi")).build();
    let provider = || MachineProvider::builder().provider_type(ProviderType::Simulated);
    let region = || Datacenter::builder().region("us-west");
    let class = || {
        let cpu = ClassCpu::builder().cores(2).build();
        MachineClass::builder().resources(ClassResources { cpu, memory: Memory { size: size("4Gi") } })
    };
    let cores = |cores| Resources::builder().cpu(Cpu::builder().cores(cores).build()).build();
    let bootloader = Bootloader::builder().secure_boot(true).build();
    let secure_boot = Domain::builder().firmware(Firmware::builder().bootloader(bootloader).build()).build();

    let results = [
        Machine::builder().template("very small").build("vm", "default").map(drop),
        Machine::builder().build("vm", "default").map(drop),
        machine().disks([disk("root"), disk("root")]).build("vm", "default").map(drop),
        machine().disks([disk("Root Disk")]).build("vm", "default").map(drop),
        machine()
            .disks([Disk::builder()
                .name("root")
                .source(DiskSource { image: None, url: None, claim: None })
                .build()])
            .build("vm", "default")
            .map(drop),
        machine()
            .disks([Disk::builder().name("root").source(DiskSource::url("ftp://x")).build()])
            .build("vm", "default")
            .map(drop),
        machine().resources(cores(0)).build("vm", "default").map(drop),
        machine().resources(cores(5000)).build("vm", "default").map(drop),
        machine().domain(secure_boot).build("vm", "default").map(drop),
        machine().build("Not A Name", "default").map(drop),
        machine().build(&"x".repeat(64), "default").map(drop),
        class().build("small").map(drop),
        class().disks([Disk::builder().name("root").build()]).build("huge").map(drop),
        provider().kubevirt(KubeVirtProvider::default()).build("p", "default").map(drop),
        provider()
            .instance_types([InstanceType::builder().name("a b").cpu(0).memory(size("1Gi")).build()])
            .build("p", "default")
            .map(drop),
        region()
            .machine_providers([ProviderReference::builder().name("aws").priority(0).build()])
            .build("dc", "default")
            .map(drop),
        region()
            .resource_quotas(ResourceQuotas::builder().max_machines(2_000_000).build())
            .build("dc", "default")
            .map(drop),
        NetworkConfiguration::builder().bridge("br0").vlan(5000).build("net", "default").map(drop),
        NetworkConfiguration::builder().bridge("a bridge").build("net", "default").map(drop),
    ];

    let errors: Vec<String> = results.into_iter().map(|result| result.unwrap_err().to_string()).collect();
    insta::assert_snapshot!(errors.join("\n"));
}

/// Returns the error of a Machine that cannot be read.
fn decode_error(spec: &serde_json::Value) -> String {
    let document = serde_json::json!({
        "apiVersion": "vitistack.io/v1alpha1", "kind": "Machine", "metadata": { "name": "vm" }, "spec": spec,
    });
    decode::<Machine>(document).unwrap_err().to_string()
}

#[test]
fn a_decode_error_names_the_field() {
    let errors = [
        decode_error(&serde_json::json!({ "disks": [{ "name": "root", "size": "20GiB" }] })),
        decode_error(&serde_json::json!({ "disks": [{ "name": "root", "size": "0Gi" }] })),
        decode_error(
            &serde_json::json!({ "networks": [{ "name": "eth0", "networkName": "n", "macAddress": "zz:00:00:00:00:01" }] }),
        ),
        decode_error(
            &serde_json::json!({ "networks": [{ "name": "eth0", "networkName": "n", "model": "ne2k" }] }),
        ),
        decode_error(&serde_json::json!({ "bootOrder": ["floppy"] })),
        decode_error(&serde_json::json!({ "resources": { "cpu": { "cores": "four" } } })),
    ];
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn the_crd_reserves_the_names_of_the_built_in_classes() {
    let crds = definitions();
    let class = crds.iter().find(|crd| crd.spec.names.kind == "MachineClass").unwrap();
    let schema = class.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
    let rule = &schema.x_kubernetes_validations.as_ref().unwrap()[0].rule;
    for name in vitistack_types::v1alpha1::BUILT_IN_CLASSES {
        assert!(rule.contains(&format!("'{name}'")), "{rule}");
    }
}
