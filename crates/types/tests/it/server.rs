//! The CRDs and the samples on a real kube-apiserver, used with kubectl.

use std::{
    io::Write as _,
    process::Output,
    thread::sleep,
    time::{Duration, Instant},
};

use tempfile::NamedTempFile;
use vitistack_testkit::{KubeServer, Options};
use vitistack_types::{definitions, samples};

/// Starts a server that serves our kinds.
async fn server() -> KubeServer {
    let server = KubeServer::start(&Options::default()).await.unwrap();
    for crd in definitions() {
        assert_success(&apply(&server, &serde_json::to_string(&crd).unwrap()));
    }

    let kinds =
        server.kubectl(&["wait", "crd", "--all", "--for=condition=Established", "--timeout=60s"]).unwrap();
    assert_success(&kinds);
    // A CRD is established shortly before its kind is served and listed in the category.
    let deadline = Instant::now() + Duration::from_mins(1);
    while !server.kubectl(&["get", "vitistack", "-A"]).unwrap().status.success() && Instant::now() < deadline
    {
        sleep(Duration::from_millis(200));
    }
    server
}

fn apply(server: &KubeServer, manifest: &str) -> Output {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(manifest.as_bytes()).unwrap();
    let path = file.path().to_str().unwrap();
    server.kubectl(&["apply", "--server-side", "--validate=strict", "-f", path]).unwrap()
}

fn assert_success(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn object(kind: &str, spec: &str) -> String {
    format!("apiVersion: vitistack.io/v1alpha1\nkind: {kind}\nmetadata: {{name: refused}}\nspec: {spec}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_server_accepts_every_crd_and_every_sample() {
    let server = server().await;
    for sample in samples() {
        assert_success(&apply(&server, sample.manifest));
    }
    let listed = text(&server.kubectl(&["get", "vitistack", "-A", "-o", "name"]).unwrap().stdout);
    for crd in definitions() {
        let resource = format!("{}.{}/", crd.spec.names.singular.unwrap(), crd.spec.group);
        assert!(listed.contains(&resource), "{resource} is not in\n{listed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_describes_every_field_of_a_disk() {
    let server = server().await;
    let output = server.kubectl(&["explain", "machine.spec.disks"]).unwrap();
    insta::assert_snapshot!(text(&output.stdout));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_object_is_rejected_with_the_field_and_the_fix() {
    let server = server().await;
    let cases = [
        ("a template name with spaces", object("Machine", "{template: very small}")),
        ("no template and no resources", object("Machine", "{}")),
        ("a disk of size zero", object("Machine", "{template: small, disks: [{name: root, size: 0Gi}]}")),
        (
            "a unit that Kubernetes does not support",
            object("Machine", "{template: small, disks: [{name: root, size: 20GiB}]}"),
        ),
        (
            "two disks with the same name",
            object("Machine", "{template: small, disks: [{name: a, size: 1Gi}, {name: a, size: 2Gi}]}"),
        ),
        (
            "an invalid MAC address",
            object(
                "Machine",
                "{template: small, networks: [{name: a, networkName: b, macAddress: 'zz:54:00:12:34:56'}]}",
            ),
        ),
        (
            "an unknown network card model",
            object("Machine", "{template: small, networks: [{name: a, networkName: b, model: ne2k}]}"),
        ),
        (
            "secure boot without EFI",
            object("Machine", "{template: small, domain: {firmware: {bootloader: {secureBoot: true}}}}"),
        ),
        ("no cores", object("Machine", "{template: small, resources: {cpu: {cores: 0}}}")),
        ("an unknown boot device", object("Machine", "{template: small, bootOrder: [floppy]}")),
        ("an unknown field", object("Machine", "{template: small, color: red}")),
        (
            "a disk with two sources",
            object("Machine", "{template: small, disks: [{name: a, source: {image: b, claim: c}}]}"),
        ),
        (
            "a disk without a size",
            object(
                "Machine",
                "{resources: {cpu: {cores: 1}, memory: {size: 1Gi}}, disks: [{name: a, size: 1Gi}, {name: b}]}",
            ),
        ),
        (
            "a password in a URL",
            object(
                "Machine",
                "{template: small, disks: [{name: a, source: {url: 'http://user:secret@example.com/x'}}]}",
            ),
        ),
        (
            "two interfaces with the same MAC address",
            object(
                "Machine",
                "{template: small, networks: [{name: a, networkName: lan, macAddress: '52:54:00:00:00:01'}, {name: b, networkName: lan, macAddress: '52:54:00:00:00:01'}]}",
            ),
        ),
        ("a VLAN out of range", object("NetworkConfiguration", "{bridge: br0, vlan: 5000}")),
        (
            "a negative priority",
            object("Datacenter", "{region: west, machineProviders: [{name: a, priority: -1}]}"),
        ),
        ("a negative quota", object("Datacenter", "{region: west, resourceQuotas: {maxMachines: -1}}")),
        ("an unknown provider type", object("MachineProvider", "{type: abacus}")),
        ("settings of another provider type", object("MachineProvider", "{type: simulated, kubevirt: {}}")),
        ("a duration in days", object("MachineProvider", "{type: simulated, simulated: {latency: 1d}}")),
        (
            "the name of a built-in class",
            object("MachineClass", "{resources: {cpu: {cores: 1}, memory: {size: 1Gi}}}")
                .replace("refused", "small"),
        ),
    ];
    let errors: Vec<String> = cases
        .iter()
        .map(|(case, manifest)| {
            let output = apply(&server, manifest);
            assert!(!output.status.success(), "{case} was accepted");
            format!("# {case}\n{}", text(&output.stderr))
        })
        .collect();
    insta::assert_snapshot!(errors.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_immutable_field_cannot_change_and_a_disk_cannot_shrink() {
    let server = server().await;
    let machine = |spec: &str| object("Machine", spec);
    let first = "{template: small, zone: a, providerRef: {name: p}, disks: [{name: data, size: 10Gi, storageClass: fast}]}";
    assert_success(&apply(&server, &machine(first)));
    assert_success(&apply(&server, &machine(&first.replace("10Gi", "20Gi"))));
    let shrunk = apply(&server, &machine(&first.replace(", size: 10Gi", "")));
    assert!(text(&shrunk.stderr).contains("a disk cannot shrink"), "not even by removing the size");
    let changed = first.replace("zone: a", "zone: b").replace("name: p}", "name: q}").replace("fast", "slow");
    let rejected = apply(&server, &machine(&changed));
    assert!(!rejected.status.success());
    insta::assert_snapshot!(text(&rejected.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_in_config_can_be_applied_unchanged() {
    let server = KubeServer::start(&Options::default()).await.unwrap();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config");
    for folder in ["crd", "rbac", "samples"] {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            let output =
                server.kubectl(&["apply", "--server-side", "-f", &format!("{root}/{folder}")]).unwrap();
            if output.status.success() {
                break;
            }
            // A kind is served shortly after its CRD is accepted.
            assert!(Instant::now() < deadline, "{}", text(&output.stderr));
            sleep(Duration::from_millis(500));
        }
    }
}
