//! What would be refused by KubeVirt, or accepted and never run: refused first, with the fix.

use vitistack_plan::machine::Problem;

use super::stage::case;

/// What is wrong, and the case in YAML.
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
        "a class that names nothing",
        "{spec: {template: small, disks: [{name: data, size: 1Gi, storageClass: slow}]}}",
    ),
    ("a default class that is none", "{storage_classes: [], spec: {template: small}}"),
    (
        "no class and no default one",
        "{storage_classes: [{kind: StorageClass, metadata: {name: fast-ssd}}], spec: {resources: {cpu: {cores: 1}, memory: {size: 1Gi}}, disks: [{name: root, size: 1Gi}]}}",
    ),
    (
        "a class named default",
        "{storage_classes: [{kind: StorageClass, metadata: {name: default}}], spec: {template: small}}",
    ),
    (
        "a source that names nothing",
        "{spec: {template: small, disks: [{name: root, source: {claim: golden}}]}}",
    ),
    (
        "a source that is larger",
        "{spec: {template: small, disks: [{name: root, source: {claim: golden}}]}, cluster: [{kind: PersistentVolumeClaim, metadata: {name: golden, namespace: default}, spec: {resources: {requests: {storage: 30Gi}}}, status: {capacity: {storage: 32Gi}}}]}",
    ),
    (
        "the old board",
        "{spec: {template: small, domain: {machine: {type: pc-i440fx}}}, cluster: [{kind: KubeVirt, metadata: {name: kubevirt, namespace: kubevirt}, spec: {}}]}",
    ),
    (
        "the old board, allowed",
        "{spec: {template: small, domain: {machine: {type: pc-i440fx}}}, cluster: [{kind: KubeVirt, metadata: {name: kubevirt, namespace: kubevirt}, spec: {configuration: {architectureConfiguration: {amd64: {emulatedMachines: ['q35*', pc]}}}}}]}",
    ),
    (
        "the old board, allowed the old way",
        "{spec: {template: small, domain: {machine: {type: pc-i440fx}}}, cluster: [{kind: KubeVirt, metadata: {name: kubevirt, namespace: kubevirt}, spec: {configuration: {emulatedMachines: ['pc*']}}}]}",
    ),
    (
        "the old board with secure boot",
        "{spec: {template: small, domain: {machine: {type: pc-i440fx}, firmware: {bootloader: {efi: true, secureBoot: true}}}}}",
    ),
    (
        "a disk named as a volume of KubeVirt's pod",
        "{spec: {template: small, disks: [{name: sockets, size: 1Gi}]}}",
    ),
    (
        "a disk named as that of cloud-init",
        "{spec: {template: small, disks: [{name: cloudinitdisk, size: 1Gi}], cloudInit: {userData: '#cloud-config'}}}",
    ),
    ("the same without cloud-init", "{spec: {template: small, disks: [{name: cloudinitdisk, size: 1Gi}]}}"),
    ("boots from a CD-ROM that is not there", "{spec: {template: small, bootOrder: [cdrom]}}"),
    ("a zone that the provider has not", "{zones: [hq-1, hq-2], spec: {template: small, zone: moon}}"),
    ("a zone that the provider has", "{zones: [hq-1, hq-2], spec: {template: small, zone: hq-2}}"),
    ("a zone of a provider that names none", "{spec: {template: small, zone: hq-2}}"),
    (
        "a zone that the provider had when the machine was made",
        "{zones: [hq-1], spec: {template: small, zone: hq-2}, cluster: [{kind: VirtualMachine, metadata: {name: vm, namespace: default, labels: {vitistack.io/identity: 6f9619ff-8b86-4d01-b42d-00cf4fc964ff}}}]}",
    ),
    (
        "two things at once",
        "{lacks: [NetworkAttachmentDefinition], spec: {template: small, disks: [{name: data, size: 1Gi, storageClass: slow}], networks: [{name: eth0, networkName: prod}]}, networks: {prod: {bridge: br0}}}",
    ),
];

fn tell(problem: &Problem) -> String {
    let about = match problem {
        Problem::Storage(_) => "storage",
        Problem::Network(_) => "network",
        Problem::Machine(_) => "machine",
    };
    format!("  {about} {}: {}\n", problem.refusal().reason, problem.refusal())
}

#[test]
fn everything_that_would_not_run_is_refused_with_the_fix() {
    let told = CASES.iter().map(|(title, yaml)| {
        let problems = case(yaml).planned().problems;
        let told: String = problems.iter().map(tell).collect();
        format!("{title}\n{}", if told.is_empty() { "  nothing\n" } else { &told })
    });
    insta::assert_snapshot!(told.collect::<String>());
}

#[test]
fn user_data_beyond_a_secret_is_refused() {
    let large = "x".repeat(1 << 20);
    let case = case(&format!(
        "{{spec: {{template: small, cloudInit: {{userData: '#cloud-config', secretRef: {{name: s, key: userdata}}}}}}, secret: {{userdata: {large}}}}}"
    ));
    let problems = case.planned().problems;
    assert_eq!(problems.len(), 1);
    assert!(problems[0].refusal().message.contains("1 MiB"));
}

#[test]
fn what_is_there_needs_no_class_and_no_program_any_more() {
    let case = case(
        "{lacks: [DataVolume], storage_classes: [], spec: {template: small, disks: [{name: root, source: {claim: golden}}]}, cluster: [{kind: PersistentVolumeClaim, metadata: {name: vm-root, labels: {vitistack.io/identity: 6f9619ff-8b86-4d01-b42d-00cf4fc964ff}, annotations: {cdi.kubevirt.io/storage.usePopulator: 'true'}}, spec: {resources: {requests: {storage: 20Gi}}}, status: {phase: Bound}}]}",
    );
    assert_eq!(case.planned().problems, []);
}

#[test]
fn something_of_a_needed_name_that_is_not_ours_blocks() {
    let other =
        "metadata: {namespace: default, labels: {vitistack.io/machine: web, vitistack.io/identity: other}";
    let told: Vec<String> = [
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
    insta::assert_snapshot!(told.join("\n"));
}
