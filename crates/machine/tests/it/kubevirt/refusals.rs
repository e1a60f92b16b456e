//! Machines that KubeVirt would refuse, or accept and never run, are refused in advance, with the fix.

use vitistack_plan::machine::Problem;

use super::case::case;

/// Title, and the case in YAML.
const CASES: &[(&str, &str)] = &[
    ("KubeVirt is missing", "{lacks: [VirtualMachine, VirtualMachineInstance], spec: {template: small}}"),
    (
        "CDI is missing",
        "{lacks: [DataVolume], spec: {template: small, disks: [{name: root, source: {image: quay.io/containerdisks/debian:13}}]}}",
    ),
    ("CDI is missing and not needed", "{lacks: [DataVolume], spec: {template: small}}"),
    (
        "Multus is missing",
        "{lacks: [NetworkAttachmentDefinition], spec: {template: small, networks: [{name: eth0, networkName: prod}]}, networks: {prod: {bridge: br0}}}",
    ),
    ("Multus is missing and not needed", "{lacks: [NetworkAttachmentDefinition], spec: {template: small}}"),
    (
        "a missing storage class",
        "{spec: {template: small, disks: [{name: data, size: 1Gi, storageClass: slow}]}}",
    ),
    ("no default storage class", "{storage_classes: [], spec: {template: small}}"),
    (
        "no storage class and no default one",
        "{storage_classes: [{kind: StorageClass, metadata: {name: fast-ssd}}], spec: {resources: {cpu: {cores: 1}, memory: {size: 1Gi}}, disks: [{name: root, size: 1Gi}]}}",
    ),
    (
        "a storage class named default",
        "{storage_classes: [{kind: StorageClass, metadata: {name: default}}], spec: {template: small}}",
    ),
    ("a missing source claim", "{spec: {template: small, disks: [{name: root, source: {claim: golden}}]}}"),
    (
        "a source larger than the disk",
        "{spec: {template: small, disks: [{name: root, source: {claim: golden}}]}, cluster: [{kind: PersistentVolumeClaim, metadata: {name: golden, namespace: default}, spec: {resources: {requests: {storage: 30Gi}}}, status: {capacity: {storage: 32Gi}}}]}",
    ),
    (
        "machine type pc-i440fx",
        "{spec: {template: small, domain: {machine: {type: pc-i440fx}}}, cluster: [{kind: KubeVirt, metadata: {name: kubevirt, namespace: kubevirt}, spec: {}}]}",
    ),
    (
        "machine type pc-i440fx, allowed",
        "{spec: {template: small, domain: {machine: {type: pc-i440fx}}}, cluster: [{kind: KubeVirt, metadata: {name: kubevirt, namespace: kubevirt}, spec: {configuration: {architectureConfiguration: {amd64: {emulatedMachines: ['q35*', pc]}}}}}]}",
    ),
    (
        "machine type pc-i440fx, allowed by the deprecated field",
        "{spec: {template: small, domain: {machine: {type: pc-i440fx}}}, cluster: [{kind: KubeVirt, metadata: {name: kubevirt, namespace: kubevirt}, spec: {configuration: {emulatedMachines: ['pc*']}}}]}",
    ),
    (
        "machine type pc-i440fx with secure boot",
        "{spec: {template: small, domain: {machine: {type: pc-i440fx}, firmware: {bootloader: {efi: true, secureBoot: true}}}}}",
    ),
    (
        "a disk with the name of a volume of the virt-launcher pod",
        "{spec: {template: small, disks: [{name: sockets, size: 1Gi}]}}",
    ),
    (
        "a disk with the name of the cloud-init disk",
        "{spec: {template: small, disks: [{name: cloudinitdisk, size: 1Gi}], cloudInit: {userData: '#cloud-config'}}}",
    ),
    ("the same without cloud-init", "{spec: {template: small, disks: [{name: cloudinitdisk, size: 1Gi}]}}"),
    ("boot from a missing CD-ROM", "{spec: {template: small, bootOrder: [cdrom]}}"),
    ("a zone that the provider does not have", "{zones: [hq-1, hq-2], spec: {template: small, zone: moon}}"),
    ("a zone that the provider has", "{zones: [hq-1, hq-2], spec: {template: small, zone: hq-2}}"),
    ("a zone of a provider without zones", "{spec: {template: small, zone: hq-2}}"),
    (
        "a zone that the provider had when the machine was created",
        "{zones: [hq-1], spec: {template: small, zone: hq-2}, cluster: [{kind: VirtualMachine, metadata: {name: vm, namespace: default, labels: {vitistack.io/identity: 6f9619ff-8b86-4d01-b42d-00cf4fc964ff}}}]}",
    ),
    (
        "two problems",
        "{lacks: [NetworkAttachmentDefinition], spec: {template: small, disks: [{name: data, size: 1Gi, storageClass: slow}], networks: [{name: eth0, networkName: prod}]}, networks: {prod: {bridge: br0}}}",
    ),
];

fn describe(problem: &Problem) -> String {
    let about = match problem {
        Problem::Storage(_) => "storage",
        Problem::Network(_) => "network",
        Problem::Machine(_) => "machine",
    };
    format!("  {about} {}: {}\n", problem.refusal().reason, problem.refusal())
}

#[test]
fn machines_that_would_not_run_are_refused_with_the_fix() {
    let lines = CASES.iter().map(|(title, yaml)| {
        let problems = case(yaml).planned().problems;
        let described: String = problems.iter().map(describe).collect();
        format!("{title}\n{}", if described.is_empty() { "  nothing\n" } else { &described })
    });
    insta::assert_snapshot!(lines.collect::<String>());
}

#[test]
fn user_data_that_exceeds_a_secret_is_refused() {
    let large = "x".repeat(1 << 20);
    let case = case(&format!(
        "{{spec: {{template: small, cloudInit: {{userData: '#cloud-config', secretRef: {{name: s, key: userdata}}}}}}, secret: {{userdata: {large}}}}}"
    ));
    let problems = case.planned().problems;
    assert_eq!(problems.len(), 1);
    assert!(problems[0].refusal().message.contains("1 MiB"));
}

#[test]
fn existing_volumes_need_no_storage_class_and_no_cdi() {
    let case = case(
        "{lacks: [DataVolume], storage_classes: [], spec: {template: small, disks: [{name: root, source: {claim: golden}}]}, cluster: [{kind: PersistentVolumeClaim, metadata: {name: vm-root, labels: {vitistack.io/identity: 6f9619ff-8b86-4d01-b42d-00cf4fc964ff}, annotations: {cdi.kubevirt.io/storage.usePopulator: 'true'}}, spec: {resources: {requests: {storage: 20Gi}}}, status: {phase: Bound}}]}",
    );
    assert_eq!(case.planned().problems, []);
}

#[test]
fn a_foreign_object_with_the_same_name_blocks() {
    let other =
        "metadata: {namespace: default, labels: {vitistack.io/machine: web, vitistack.io/identity: other}";
    let foreign: Vec<String> = [
        format!("{{kind: VirtualMachine, {other}, name: vm}}}}"),
        "{kind: VirtualMachineInstance, metadata: {namespace: default, name: vm}}".to_owned(),
        "{kind: PersistentVolumeClaim, metadata: {namespace: default, name: vm-root}}".to_owned(),
        format!("{{kind: PersistentVolumeClaim, {other}, name: vm-root}}}}"),
        "{kind: DataVolume, metadata: {namespace: default, name: vm-data}}".to_owned(),
        "{kind: Secret, metadata: {namespace: default, name: vm-cloudinit}}".to_owned(),
        "{kind: NetworkAttachmentDefinition, metadata: {namespace: default, name: prod-untagged-NETWORK}}".to_owned(),
        "{kind: PersistentVolumeClaim, metadata: {namespace: elsewhere, name: vm-root}}".to_owned(),
    ]
    .iter()
    .map(|object| {
        let spec = "{template: small, disks: [{name: data, size: 1Gi, source: {url: 'https://example.com/a.img'}}], networks: [{name: eth0, networkName: prod}], cloudInit: {userData: '#cloud-config'}}";
        let yaml = |object: &str| format!("{{spec: {spec}, networks: {{prod: {{bridge: br0}}}}, cluster: [{object}]}}");
        let name = case(&yaml("{kind: Secret, metadata: {name: x}}")).planned().attachments[0].object.metadata.name.clone();
        case(&yaml(&object.replace("prod-untagged-NETWORK", &name.unwrap()))).observed().foreign.unwrap_or_else(|| "nothing".to_owned())
    })
    .collect();
    insta::assert_snapshot!(foreign.join("\n"));
}
