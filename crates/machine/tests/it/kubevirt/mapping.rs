//! The mapping from the spec of a Machine to the VirtualMachine, row by row.

use super::case::case;

/// Title, spec in YAML, and the path in the VirtualMachine to print.
const ROWS: &[(&str, &str, &str)] = &[
    ("cores", "{template: small, resources: {cpu: {cores: 2}}}", "domain/cpu"),
    ("threads", "{template: small, resources: {cpu: {threads: 2}}}", "domain/cpu"),
    ("sockets", "{template: small, resources: {cpu: {sockets: 2}}}", "domain/cpu"),
    ("memory", "{template: small, resources: {memory: {size: 4Gi}}}", "domain/memory"),
    ("one processor, one queue", "{template: small}", "domain/devices/networkInterfaceMultiqueue"),
    ("more processors, more queues", "{template: medium}", "domain/devices/networkInterfaceMultiqueue"),
    (
        "only virtio has queues",
        "{template: medium, networks: [{name: eth0, networkName: prod, model: e1000}]}",
        "domain/devices/networkInterfaceMultiqueue",
    ),
    ("no networks", "{template: small}", "domain/devices/interfaces"),
    ("no networks", "{template: small}", "networks"),
    (
        "virtio",
        "{template: small, networks: [{name: eth0, networkName: prod, model: virtio}]}",
        "domain/devices/interfaces",
    ),
    (
        "e1000",
        "{template: small, networks: [{name: eth0, networkName: prod, model: e1000}]}",
        "domain/devices/interfaces",
    ),
    (
        "rtl8139",
        "{template: small, networks: [{name: eth0, networkName: prod, model: rtl8139}]}",
        "domain/devices/interfaces",
    ),
    (
        "MAC address",
        "{template: small, networks: [{name: eth0, networkName: prod, macAddress: '52:54:00:AB:CD:EF'}]}",
        "domain/devices/interfaces",
    ),
    (
        "two on one network",
        "{template: small, networks: [{name: eth0, networkName: prod}, {name: eth1, networkName: prod}]}",
        "networks",
    ),
    ("a disk", "{template: small}", "domain/devices/disks"),
    ("a disk", "{template: small}", "volumes"),
    ("a CD-ROM", "{template: small, disks: [{name: iso, size: 1Gi, device: cdrom}]}", "domain/devices/disks"),
    (
        "a disk from an image",
        "{template: small, disks: [{name: root, source: {image: quay.io/containerdisks/debian:13}}]}",
        "volumes",
    ),
    ("no machine type", "{template: small}", "domain/machine"),
    ("pc-q35", "{template: small, domain: {machine: {type: pc-q35}}}", "domain/machine"),
    ("pc-i440fx", "{template: small, domain: {machine: {type: pc-i440fx}}}", "domain/machine"),
    ("no features", "{template: small, domain: {features: {}}}", "domain/features"),
    ("ACPI on", "{template: small, domain: {features: {acpi: true}}}", "domain/features"),
    ("ACPI off", "{template: small, domain: {features: {acpi: false}}}", "domain/features"),
    ("APIC on", "{template: small, domain: {features: {apic: true}}}", "domain/features"),
    ("Hyper-V", "{template: small, domain: {features: {hyperv: true}}}", "domain/features"),
    ("Hyper-V", "{template: small, domain: {features: {hyperv: true}}}", "domain/clock"),
    ("no Hyper-V", "{template: small, domain: {features: {hyperv: false}}}", "domain/features"),
    ("no firmware", "{template: small}", "domain/firmware"),
    ("EFI", "{template: small, domain: {firmware: {bootloader: {efi: true}}}}", "domain/firmware"),
    ("EFI", "{template: small, domain: {firmware: {bootloader: {efi: true}}}}", "domain/features"),
    ("no EFI", "{template: small, domain: {firmware: {bootloader: {efi: false}}}}", "domain/firmware"),
    (
        "secure boot",
        "{template: small, domain: {firmware: {bootloader: {efi: true, secureBoot: true}}}}",
        "domain/firmware",
    ),
    (
        "secure boot",
        "{template: small, domain: {firmware: {bootloader: {efi: true, secureBoot: true}}}}",
        "domain/features",
    ),
    ("a zone", "{template: small, zone: zone-a}", "nodeSelector"),
    ("eviction", "{template: small}", "evictionStrategy"),
];

/// Boot orders, on a machine with two disks, a CD-ROM and two interfaces.
const BOOT_ORDERS: &[&str] = &[
    "[]",
    "[disk]",
    "[network]",
    "[cdrom]",
    "[disk, network]",
    "[network, disk]",
    "[cdrom, disk]",
    "[cdrom, disk, network]",
    "[network, cdrom, disk]",
];

fn json(case: &super::case::Case, path: &str) -> String {
    let machine = case.planned().virtual_machine;
    let found = machine.object.data.pointer(&format!("/spec/template/spec/{path}")).cloned();
    serde_json::to_string(&found).unwrap()
}

#[test]
fn every_row_of_the_mapping() {
    let rows = ROWS.iter().map(|(title, spec, path)| {
        let case = case(&format!("{{spec: {spec}, networks: {{prod: {{bridge: br0}}}}}}"));
        format!("{title}\n  {spec}\n  {path}: {}\n", json(&case, path))
    });
    insta::assert_snapshot!(rows.collect::<String>());
}

#[test]
fn every_boot_order() {
    let orders = BOOT_ORDERS.iter().map(|order| {
        let case = case(&format!(
            "{{spec: {{template: small, bootOrder: {order}, disks: [{{name: data, size: 1Gi}}, {{name: iso, size: 1Gi, device: cdrom}}], networks: [{{name: eth0, networkName: prod}}, {{name: eth1, networkName: prod}}]}}, networks: {{prod: {{bridge: br0}}}}}}"
        ));
        let machine = case.planned().virtual_machine;
        let devices = machine.object.data.pointer("/spec/template/spec/domain/devices").unwrap();
        let mut numbered: Vec<(u64, String)> = ["disks", "interfaces"]
            .iter()
            .flat_map(|kind| devices[*kind].as_array().unwrap())
            .filter_map(|device| Some((device["bootOrder"].as_u64()?, device["name"].as_str()?.to_owned())))
            .collect();
        numbered.sort();
        format!("{order}: {numbered:?}\n")
    });
    insta::assert_snapshot!(orders.collect::<String>());
}

#[test]
fn a_boot_device_that_the_machine_lacks_is_skipped() {
    let case = case("spec: {template: small, bootOrder: [cdrom, disk]}");
    assert!(json(&case, "domain/devices/disks").contains("\"bootOrder\":1"));
    assert_eq!(case.planned().problems, []);
}

#[test]
fn a_machine_with_power_state_stopped_is_halted() {
    for (power, strategy) in [("Running", "Always"), ("Stopped", "Halted")] {
        let case = case(&format!("spec: {{template: small, powerState: {power}}}"));
        let machine = case.planned().virtual_machine;
        assert_eq!(machine.object.data["spec"]["runStrategy"], strategy);
    }
}
