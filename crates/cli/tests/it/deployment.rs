//! The operators in a cluster: the manifests on a real kube-apiserver, by the commands of the guide.

use std::{io::Write as _, path::Path, process::Output};

use serde_json::{Value, json};
use tempfile::NamedTempFile;
use vitistack_testkit::{KubeServer, Options};

use crate::{
    guide::{ROOT, blocks, script, succeed},
    lines::transcript_of,
};

const ACCOUNT: &str = "--as=system:serviceaccount:vitistack-system:vitistack-manager";

async fn server() -> KubeServer {
    KubeServer::start(&Options::default()).await.unwrap()
}

/// Runs a script at the root of the repository, with kubectl and the binary in the path.
fn shell(server: &KubeServer, text: &str) -> Output {
    let mut script = script(Path::new(ROOT), server.programs(), text);
    script.env("KUBECONFIG", server.kubeconfig_path()).output().unwrap()
}

fn get(server: &KubeServer, arguments: &[&str]) -> Value {
    let arguments: Vec<&str> = arguments.iter().copied().chain(["-o", "json"]).collect();
    serde_json::from_str(&succeed(&server.kubectl(&arguments).unwrap())).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_server_accepts_config_default() {
    let server = server().await;
    let folder = format!("{ROOT}/config/default");
    let apply = ["apply", "--server-side", "--validate=strict", "-k", &folder];
    let applied = succeed(&server.kubectl(&apply).unwrap());
    let deployment = get(&server, &["get", "-n", "vitistack-system", "deployment", "vitistack-manager"]);
    assert_eq!(deployment.pointer("/spec/replicas"), Some(&json!(1)));
    insta::assert_snapshot!(applied);

    // The same folders one by one, as in the specification.
    for folder in ["crd", "rbac", "manager"] {
        let folder = format!("{ROOT}/config/{folder}");
        succeed(&server.kubectl(&["apply", "--server-side", "--validate=strict", "-f", &folder]).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_comply_with_the_restricted_pod_security_standard() {
    let server = server().await;
    let folder = format!("{ROOT}/config/manager");
    succeed(&server.kubectl(&["apply", "--server-side", "-k", &folder]).unwrap());
    let deployment = get(&server, &["get", "-n", "vitistack-system", "deployment", "vitistack-manager"]);
    let pod = |spec: Value| {
        let mut file = NamedTempFile::new().unwrap();
        let metadata = json!({ "name": "pod", "namespace": "vitistack-system" });
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec });
        file.write_all(pod.to_string().as_bytes()).unwrap();
        server.kubectl(&["create", "--dry-run=server", "-f", file.path().to_str().unwrap()]).unwrap()
    };
    let mut spec = deployment.pointer("/spec/template/spec").unwrap().clone();
    succeed(&pod(spec.clone()));
    spec.pointer_mut("/securityContext").unwrap().take();
    let refused = pod(spec);
    assert!(String::from_utf8(refused.stderr).unwrap().contains("violates PodSecurity \"restricted"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_account_has_the_roles_of_its_operators_and_leases_in_its_namespace_only() {
    let server = server().await;
    let folder = format!("{ROOT}/config/default");
    succeed(&server.kubectl(&["apply", "--server-side", "-k", &folder]).unwrap());
    let may = |action: &[&str]| {
        let arguments: Vec<&str> = ["auth", "can-i", ACCOUNT].iter().chain(action).copied().collect();
        server.kubectl(&arguments).unwrap().status.success()
    };
    assert!(may(&["create", "leases.coordination.k8s.io", "-n", "vitistack-system"]));
    assert!(!may(&["create", "leases.coordination.k8s.io", "-n", "default"]));
    assert!(may(&["create", "events.events.k8s.io", "-n", "default"]));
    assert!(may(&["create", "tokenreviews.authentication.k8s.io"]));

    let bindings = get(&server, &["get", "-A", "clusterrolebinding,rolebinding"]);
    let bound: Vec<&str> = bindings
        .pointer("/items")
        .and_then(Value::as_array)
        .unwrap()
        .iter()
        .filter_map(|binding| binding.pointer("/roleRef/name")?.as_str())
        .collect();
    let roles = get(&server, &["get", "clusterrole"]);
    let operator_roles: Vec<&str> = roles
        .pointer("/items")
        .and_then(Value::as_array)
        .unwrap()
        .iter()
        .filter_map(|role| role.pointer("/metadata/name")?.as_str())
        .filter(|name| name.starts_with("vitistack-operator-"))
        .collect();
    assert!(operator_roles.iter().any(|role| role.contains("simulated")));
    for role in operator_roles {
        // The simulated backend is not installed by default.
        assert_eq!(bound.contains(&role), !role.contains("simulated"), "{role}");
    }
}

const MACHINE: &str = "
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: web, namespace: shop, annotations: {vitistack.io/paused: 'true'}}
spec: {template: small}
";

/// Changes annotations of a Machine as this user.
fn annotate(server: &KubeServer, user: &str, annotations: &[&str]) -> Output {
    let start = ["annotate", "--overwrite", user, "-n", "shop", "machine", "web"];
    server.kubectl(&[&start[..], annotations].concat()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_operators_change_reserved_annotations() {
    let server = server().await;
    let folder = format!("{ROOT}/config/default");
    succeed(&server.kubectl(&["apply", "--server-side", "-k", &folder]).unwrap());
    succeed(
        &server.kubectl(&["wait", "crd", "--all", "--for=condition=Established", "--timeout=60s"]).unwrap(),
    );
    succeed(&server.kubectl(&["create", "namespace", "shop"]).unwrap());
    let tenant = "--as=tenant";
    for role in ["vitistack-editor", "vitistack-viewer"] {
        let named = format!("--clusterrole={role}");
        let bind = ["create", "rolebinding", role, "-n", "shop", "--user=tenant", &named];
        succeed(&server.kubectl(&bind).unwrap());
    }
    let plain = NamedTempFile::new().unwrap();
    std::fs::write(plain.path(), MACHINE).unwrap();
    let file = plain.path().to_str().unwrap();
    succeed(&server.kubectl(&["create", tenant, "-f", file]).unwrap());

    // A policy takes effect shortly after its creation.
    let dry =
        |value: &str| annotate(&server, tenant, &["--dry-run=server", &format!("vitistack.io/zone={value}")]);
    let limit = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while dry("a").status.success() {
        assert!(std::time::Instant::now() < limit, "the policy has no effect");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let mut report = String::new();
    let mut refused = |output: &Output| {
        assert!(!output.status.success());
        report.push_str(&String::from_utf8_lossy(&output.stderr).replace(file, "FILE"));
    };
    for annotation in ["identity", "placement", "placement-reason", "zone", "passed-over", "admitted"] {
        refused(&annotate(&server, tenant, &[&format!("vitistack.io/{annotation}=default/aws")]));
    }
    // Other annotations are not restricted.
    let own = ["vitistack.io/restart-at=now", "vitistack.io/adopted=me", "vitistack.io/paused-", "team=a"];
    succeed(&annotate(&server, tenant, &own));

    // Annotations that the service account of the operators writes cannot be changed or removed by the tenant.
    let manifest = "{apiVersion: vitistack.io/v1alpha1, kind: Machine, metadata: {name: web, namespace: shop, annotations: {vitistack.io/placement: default/aws, vitistack.io/identity: '1'}}}";
    std::fs::write(plain.path(), manifest).unwrap();
    let manager = "--field-manager=operators";
    let apply = ["apply", "--server-side", "--validate=false", manager, ACCOUNT, "-f", file];
    succeed(&server.kubectl(&apply).unwrap());
    refused(&annotate(&server, tenant, &["vitistack.io/placement=default/gcp"]));
    refused(&annotate(&server, tenant, &["vitistack.io/identity-"]));
    succeed(&annotate(&server, tenant, &["vitistack.io/placement=default/aws", "team=b"]));

    // Restoring an export requires the permission.
    let export = succeed(&server.kubectl(&["get", "-n", "shop", "machine", "web", "-o", "yaml"]).unwrap());
    succeed(&server.kubectl(&["delete", tenant, "-n", "shop", "machine", "web"]).unwrap());
    std::fs::write(plain.path(), export).unwrap();
    refused(&server.kubectl(&["create", tenant, "-f", file]).unwrap());
    succeed(&server.kubectl(&["create", "-f", file]).unwrap());
    insta::assert_snapshot!(report);
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_on_a_real_server() {
    let server = server().await;
    let folder = format!("{ROOT}/config/default");
    succeed(&server.kubectl(&["apply", "--server-side", "-k", &folder]).unwrap());
    succeed(
        &server.kubectl(&["wait", "crd", "--all", "--for=condition=Established", "--timeout=60s"]).unwrap(),
    );
    let checks = || {
        let output = transcript_of(&server.kubeconfig_path(), "doctor");
        output
            .lines()
            .filter(|line| ["CRD", "permissions", "policy"].iter().any(|check| line.contains(check)))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let before = checks();
    succeed(&server.kubectl(&["delete", "clusterrolebinding", "vitistack-operator-common"]).unwrap());
    let policy = "validatingadmissionpolicybinding/vitistack-machine-annotations";
    succeed(&server.kubectl(&["delete", policy]).unwrap());
    insta::assert_snapshot!(format!("{before}\n\n# without bindings\n{}", checks()));
}

/// A minimal CRD, sufficient for the garbage collector.
const VIRTUAL_MACHINES: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: virtualmachines.kubevirt.io}
spec:
  group: kubevirt.io
  names: {kind: VirtualMachine, plural: virtualmachines}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_released_machine_survive_the_garbage_collector() {
    let options = Options { has_controller_manager: true, ..Options::default() };
    let server = KubeServer::start(&options).await.unwrap();
    succeed(&server.kubectl(&["apply", "--server-side", "-k", &format!("{ROOT}/config/crd")]).unwrap());
    let apply = |manifest: &str| {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(manifest.as_bytes()).unwrap();
        succeed(&server.kubectl(&["apply", "--server-side", "-f", file.path().to_str().unwrap()]).unwrap());
    };
    apply(VIRTUAL_MACHINES);
    succeed(
        &server.kubectl(&["wait", "crd", "--all", "--for=condition=Established", "--timeout=60s"]).unwrap(),
    );
    apply(
        "{apiVersion: vitistack.io/v1alpha1, kind: Machine, metadata: {name: web, finalizers: [machine.vitistack.io/cleanup]}, spec: {template: small}}",
    );
    let made = get(&server, &["get", "machine", "web"]);
    let uid = made.pointer("/metadata/uid").and_then(Value::as_str).unwrap();
    let machine = format!("{{apiVersion: vitistack.io/v1alpha1, kind: Machine, name: web, uid: {uid}}}");
    let owned = |api_version: &str, kind: &str, name: &str, labels: &str| {
        apply(&format!(
            "{{apiVersion: {api_version}, kind: {kind}, metadata: {{name: {name}, labels: {{{labels}}}, ownerReferences: [{machine}]}}}}"
        ));
    };
    let identity = format!("vitistack.io/identity: {uid}");
    owned("kubevirt.io/v1", "VirtualMachine", "web", &identity);
    owned("v1", "Secret", "web-cloudinit", &identity);
    // Not known to the command; the garbage collector finds it.
    owned("v1", "ConfigMap", "notes", "");

    let report = transcript_of(&server.kubeconfig_path(), "release machine/web --without-operator");
    assert!(report.ends_with("(exit 0)"), "{report}");
    succeed(&server.kubectl(&["wait", "machine/web", "--for=delete", "--timeout=60s"]).unwrap());
    for kind in ["virtualmachine/web", "secret/web-cloudinit", "configmap/notes"] {
        let left = get(&server, &["get", kind]);
        assert_eq!(left.pointer("/metadata/ownerReferences"), None, "{kind}");
        assert_eq!(left.pointer("/metadata/deletionTimestamp"), None, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_guide_install_upgrade_and_uninstall() {
    let server = server().await;
    let there = |what: &str| {
        let listed = server.kubectl(&["get", what, "-A", "-o", "name", "--ignore-not-found"]).unwrap();
        succeed(&listed).lines().filter(|name| name.contains("vitistack")).count()
    };
    for block in blocks("docs/deploy.md") {
        let is_removal = block.contains("uninstall.sh");
        if is_removal {
            // The operators are removed, the objects of users are not.
            assert_eq!(there("deployment") + there("service") + there("poddisruptionbudget"), 0);
            assert_eq!(there("namespace"), 1);
            succeed(&shell(&server, "vitistack samples machine-basic | kubectl apply -f -"));
            let refused = shell(&server, &block);
            assert!(!refused.status.success(), "CRDs were removed while a Machine existed");
            let report = String::from_utf8(refused.stderr).unwrap();
            assert!(report.contains("machine.vitistack.io/"), "{report}");
            succeed(&shell(&server, "kubectl delete machines --all"));
        }
        succeed(&shell(&server, &block));
        if block.contains("--replicas 2") && block.contains("apply") {
            assert_eq!(there("poddisruptionbudget"), 1);
        }
    }
    succeed(&shell(&server, "dev/uninstall.sh"));
    assert_eq!(there("customresourcedefinition") + there("clusterrole"), 0);
}

#[test]
fn the_image_is_built_with_the_toolchain_of_the_workspace() {
    let read = |file: &str| std::fs::read_to_string(format!("{ROOT}/{file}")).unwrap();
    let toolchain = read("rust-toolchain.toml");
    let version = toolchain.lines().find_map(|line| line.strip_prefix("channel = \"")?.strip_suffix('"'));
    assert!(read("Dockerfile").contains(&format!("/rust:{}-", version.unwrap())));
}
