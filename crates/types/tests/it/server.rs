//! The definitions and the samples on a real kube-apiserver, through kubectl as a user would.

use std::{
    io::Write as _,
    process::Output,
    thread::sleep,
    time::{Duration, Instant},
};

use tempfile::NamedTempFile;
use vitistack_testkit::{KubeServer, Options};
use vitistack_types::{definitions, samples};

/// A server that knows our kinds.
async fn server() -> KubeServer {
    let server = KubeServer::start(&Options::default()).await.unwrap();
    let definitions: Vec<String> =
        definitions().iter().map(|definition| serde_json::to_string(definition).unwrap()).collect();
    for definition in definitions {
        assert_success(&apply(&server, &definition));
    }
    let kinds =
        server.kubectl(&["wait", "crd", "--all", "--for=condition=Established", "--timeout=60s"]).unwrap();
    assert_success(&kinds);
    // Established comes a moment before the kind is served and in the category.
    let limit = Instant::now() + Duration::from_mins(1);
    while !server.kubectl(&["get", "vitistack", "-A"]).unwrap().status.success() && Instant::now() < limit {
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
async fn a_real_server_takes_every_definition_and_every_sample() {
    let server = server().await;
    for sample in samples() {
        assert_success(&apply(&server, sample.manifest));
    }
    let listed = text(&server.kubectl(&["get", "vitistack", "-A", "-o", "name"]).unwrap().stdout);
    for definition in definitions() {
        let resource = format!("{}.{}/", definition.spec.names.singular.unwrap(), definition.spec.group);
        assert!(listed.contains(&resource), "{resource} is not in\n{listed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_has_text_for_each_field_of_a_disk() {
    let server = server().await;
    let output = server.kubectl(&["explain", "machine.spec.disks"]).unwrap();
    insta::assert_snapshot!(text(&output.stdout));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_refused_with_the_field_and_the_fix() {
    let server = server().await;
    let refusals = [
        ("a template name with blanks", object("Machine", "{template: very small}")),
        ("no template and nothing else", object("Machine", "{}")),
        ("a disk without extent", object("Machine", "{template: small, disks: [{name: root, size: 0Gi}]}")),
        (
            "a unit that Kubernetes has not",
            object("Machine", "{template: small, disks: [{name: root, size: 20GiB}]}"),
        ),
        (
            "two disks of one name",
            object("Machine", "{template: small, disks: [{name: a, size: 1Gi}, {name: a, size: 2Gi}]}"),
        ),
        (
            "a MAC address that is none",
            object(
                "Machine",
                "{template: small, networks: [{name: a, networkName: b, macAddress: 'zz:54:00:12:34:56'}]}",
            ),
        ),
        (
            "an unknown network card",
            object("Machine", "{template: small, networks: [{name: a, networkName: b, model: ne2k}]}"),
        ),
        (
            "secure boot without EFI",
            object("Machine", "{template: small, domain: {firmware: {bootloader: {secureBoot: true}}}}"),
        ),
        ("no cores", object("Machine", "{template: small, resources: {cpu: {cores: 0}}}")),
        ("a floppy", object("Machine", "{template: small, bootOrder: [floppy]}")),
        ("a field that is none", object("Machine", "{template: small, colour: red}")),
        (
            "a source that is two",
            object("Machine", "{template: small, disks: [{name: a, source: {image: b, claim: c}}]}"),
        ),
        (
            "a disk that nobody sized",
            object(
                "Machine",
                "{resources: {cpu: {cores: 1}, memory: {size: 1Gi}}, disks: [{name: a, size: 1Gi}, {name: b}]}",
            ),
        ),
        (
            "a password in an address",
            object(
                "Machine",
                "{template: small, disks: [{name: a, source: {url: 'http://user:secret@example.com/x'}}]}",
            ),
        ),
        (
            "two interfaces of one address",
            object(
                "Machine",
                "{template: small, networks: [{name: a, networkName: lan, macAddress: '52:54:00:00:00:01'}, {name: b, networkName: lan, macAddress: '52:54:00:00:00:01'}]}",
            ),
        ),
        ("a VLAN beyond the last", object("NetworkConfiguration", "{bridge: br0, vlan: 5000}")),
        (
            "a negative priority",
            object("Datacenter", "{region: west, machineProviders: [{name: a, priority: -1}]}"),
        ),
        ("a negative quota", object("Datacenter", "{region: west, resourceQuotas: {maxMachines: -1}}")),
        ("a type nobody knows", object("MachineProvider", "{type: abacus}")),
        ("a block of another type", object("MachineProvider", "{type: simulated, kubevirt: {}}")),
        ("a duration in days", object("MachineProvider", "{type: simulated, simulated: {latency: 1d}}")),
        (
            "a built-in class",
            object("MachineClass", "{resources: {cpu: {cores: 1}, memory: {size: 1Gi}}}")
                .replace("refused", "small"),
        ),
    ];
    let told: Vec<String> = refusals
        .iter()
        .map(|(what, manifest)| {
            let output = apply(&server, manifest);
            assert!(!output.status.success(), "{what} was taken");
            format!("# {what}\n{}", text(&output.stderr))
        })
        .collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_set_once_cannot_change_and_a_disk_only_grows() {
    let server = server().await;
    let machine = |spec: &str| object("Machine", spec);
    let first = "{template: small, zone: a, providerRef: {name: p}, disks: [{name: data, size: 10Gi, storageClass: fast}]}";
    assert_success(&apply(&server, &machine(first)));
    assert_success(&apply(&server, &machine(&first.replace("10Gi", "20Gi"))));
    let shrunk = apply(&server, &machine(&first.replace(", size: 10Gi", "")));
    assert!(text(&shrunk.stderr).contains("a disk only grows"), "not even by leaving the size out");
    let turned = first.replace("zone: a", "zone: b").replace("name: p}", "name: q}").replace("fast", "slow");
    let refused = apply(&server, &machine(&turned));
    assert!(!refused.status.success());
    insta::assert_snapshot!(text(&refused.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_in_config_can_be_applied_as_they_are() {
    let server = KubeServer::start(&Options::default()).await.unwrap();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config");
    for folder in ["crd", "rbac", "samples"] {
        let limit = Instant::now() + Duration::from_mins(1);
        loop {
            let output =
                server.kubectl(&["apply", "--server-side", "-f", &format!("{root}/{folder}")]).unwrap();
            if output.status.success() {
                break;
            }
            // A kind is served a moment after its definition was taken.
            assert!(Instant::now() < limit, "{}", text(&output.stderr));
            sleep(Duration::from_millis(500));
        }
    }
}
