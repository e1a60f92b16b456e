//! Third-party clients, unmodified, over the socket: kubectl, helm, the official Python client, a client-go
//! informer. kubectl tests also run against a real kube-apiserver, so that a test cannot expect behavior that
//! only this server has.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;
use vitistack_apiserver::{ServeOptions, Serving, serve};
use vitistack_testkit::{KubeServer, Options, Tools};

/// An API server.
enum Server {
    Ours { _serving: Serving },
    Real(KubeServer),
}

/// A served API and the programs that use it.
struct Bed {
    tools: Tools,
    directory: TempDir,
    server: Server,
}

impl Bed {
    async fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let data_dir = Some(directory.path().to_owned());
        let options = ServeOptions { listen: "127.0.0.1:0".parse().unwrap(), data_dir, kubeconfig: None };
        let server = Server::Ours { _serving: serve(options).await.unwrap() };
        Self { tools: Tools::find().unwrap(), server, directory }
    }

    /// A real kube-apiserver, with the controllers that delete namespaces.
    async fn real() -> Self {
        let options = Options { has_controller_manager: true, ..Options::default() };
        let server = Server::Real(KubeServer::start(&options).await.unwrap());
        Self { tools: Tools::find().unwrap(), server, directory: TempDir::new().unwrap() }
    }

    fn kubeconfig(&self) -> PathBuf {
        match &self.server {
            Server::Ours { .. } => self.directory.path().join("kubeconfig"),
            Server::Real(server) => server.kubeconfig_path(),
        }
    }

    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        // A separate home directory: kubectl stores discovery there, and helm its repositories.
        command.args(arguments).env("KUBECONFIG", self.kubeconfig()).env("HOME", self.directory.path());
        command
    }

    /// Runs a program off the runtime's threads, which serve it meanwhile, and returns its output.
    fn run(&self, program: &Path, arguments: &[&str]) -> String {
        let output = tokio::task::block_in_place(|| self.command(program, arguments).output().unwrap());
        said(&output, arguments)
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        self.run(&self.tools.kubectl, arguments)
    }

    /// Runs kubectl with a manifest on its standard input.
    fn feed(&self, arguments: &[&str], manifest: &str) -> Output {
        let mut command = self.command(&self.tools.kubectl, arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(manifest.as_bytes()).unwrap();
        tokio::task::block_in_place(|| child.wait_with_output().unwrap())
    }
}

fn said(output: &Output, arguments: &[&str]) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

const DEFINITION: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Boat, plural: boats, singular: boat, shortNames: [bt]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.oars, statusReplicasPath: .status.oars}
    additionalPrinterColumns:
    - {name: Oars, type: integer, jsonPath: .spec.oars}
    - {name: Name, type: string, jsonPath: .spec.name, priority: 1}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            description: The desired state of the boat.
            properties:
              oars: {type: integer, minimum: 1, description: Oars on board.}
              name: {type: string, description: Its name.}
          status:
            type: object
            properties:
              oars: {type: integer}
              conditions: {type: array, items: {type: object, properties: {type: {type: string}, status: {type: string}}}}
";

const BOAT: &str =
    "apiVersion: example.com/v1\nkind: Boat\nmetadata: {name: argo}\nspec: {oars: 50, name: Argo}\n";

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_works_on_our_server() {
    let bed = Bed::new().await;
    use_kubectl(&bed);
    conflict(&bed);
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_works_the_same_on_kube_apiserver() {
    let bed = Bed::real().await;
    use_kubectl(&bed);
    conflict(&bed);
}

/// Typical use of kubectl.
fn use_kubectl(bed: &Bed) {
    assert!(bed.feed(&["apply", "-f", "-"], DEFINITION).status.success());
    bed.kubectl(&["wait", "crd/boats.example.com", "--for=condition=Established", "--timeout=60s"]);
    assert!(said(&bed.feed(&["apply", "-f", "-"], BOAT), &["apply"]).contains("argo created"));
    assert!(said(&bed.feed(&["apply", "-f", "-"], BOAT), &["apply"]).contains("argo unchanged"));

    let wide = bed.kubectl(&["get", "bt", "-o", "wide"]);
    let columns: Vec<Vec<&str>> =
        wide.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(columns, [["NAME", "OARS", "NAME"], ["argo", "50", "Argo"]]);

    let difference = bed.feed(&["diff", "-f", "-"], &BOAT.replace("50", "40"));
    assert_eq!(difference.status.code(), Some(1), "a difference is exit code 1");
    let difference = String::from_utf8_lossy(&difference.stdout).into_owned();
    assert!(difference.contains("-  oars: 50") && difference.contains("+  oars: 40"), "{difference}");

    let dry = bed.feed(&["apply", "--dry-run=server", "-f", "-"], &BOAT.replace("50", "40"));
    assert!(said(&dry, &["dry run"]).contains("argo configured (server dry run)"));
    bed.kubectl(&["scale", "boat/argo", "--replicas=48"]);
    assert_eq!(bed.kubectl(&["get", "boat", "argo", "-o", "jsonpath={.spec.oars}"]), "48");
    let page = bed.kubectl(&["explain", "boat.spec"]);
    assert!(page.contains("The desired state of the boat.") && page.contains("Oars on board."), "{page}");

    bed.kubectl(&[
        "patch",
        "boat",
        "argo",
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status":{"conditions":[{"type":"Afloat","status":"True"}]}}"#,
    ]);
    bed.kubectl(&["wait", "boat/argo", "--for=condition=Afloat", "--timeout=60s"]);
    assert!(bed.kubectl(&["describe", "boat", "argo"]).contains("Afloat"));
    let rejected =
        bed.feed(&["apply", "--validate=strict", "-f", "-"], &BOAT.replace("oars: 50", "oars: 0, sails: 1"));
    let rejected = String::from_utf8_lossy(&rejected.stderr).into_owned();
    assert!(rejected.contains("unknown field \"spec.sails\""), "{rejected}");
    bed.kubectl(&["delete", "boat", "argo"]);
    assert_eq!(bed.kubectl(&["get", "boats", "-o", "name"]), "");
    bed.kubectl(&["create", "namespace", "harbor"]);
    assert!(bed.feed(&["apply", "-n", "harbor", "-f", "-"], BOAT).status.success());
    bed.kubectl(&["delete", "namespace", "harbor", "--timeout=60s"]);
    assert_eq!(bed.kubectl(&["get", "boats", "-A", "-o", "name"]), "");
}

/// Server-side apply by two managers conflicts, and can be forced.
fn conflict(bed: &Bed) {
    let config = |value: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: shared}}\ndata: {{key: {value}}}\n")
    };
    let apply = |manager: &str, more: &[&str], value: &str| {
        let field_manager = format!("--field-manager={manager}");
        let arguments: Vec<&str> = ["apply", "--server-side", "-f", "-", field_manager.as_str()]
            .into_iter()
            .chain(more.iter().copied())
            .collect();
        bed.feed(&arguments, &config(value))
    };

    assert!(apply("one", &[], "a").status.success());
    let conflict = apply("two", &[], "b");
    let reported = String::from_utf8_lossy(&conflict.stderr).into_owned();
    assert!(
        !conflict.status.success() && reported.contains("conflict with \"one\": .data.key"),
        "{reported}"
    );

    assert!(apply("two", &["--force-conflicts"], "b").status.success());
    assert_eq!(bed.kubectl(&["get", "cm", "shared", "-o", "jsonpath={.data.key}"]), "b");
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_installs_upgrades_and_uninstalls_a_chart() {
    let bed = Bed::new().await;
    let chart = bed.tools.files.join("chart").display().to_string();
    bed.run(&bed.tools.helm, &["install", "hello", &chart]);
    assert_eq!(bed.kubectl(&["get", "cm", "hello-1", "-o", "jsonpath={.data.greeting}"]), "hello");
    bed.run(&bed.tools.helm, &["upgrade", "hello", &chart, "--set", "greeting=hoi", "--set", "replicas=1"]);
    assert_eq!(bed.kubectl(&["get", "cm", "hello-0", "-o", "jsonpath={.data.greeting}"]), "hoi");
    assert!(!bed.kubectl(&["get", "cm", "-o", "name"]).contains("hello-1"), "what the chart dropped is gone");
    assert!(bed.run(&bed.tools.helm, &["history", "hello"]).contains("Upgrade complete"));
    bed.run(&bed.tools.helm, &["uninstall", "hello"]);
    assert!(!bed.kubectl(&["get", "cm,secret", "-o", "name"]).contains("hello"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_watches() {
    let bed = Bed::new().await;
    let script = bed.tools.files.join("watch.py").display().to_string();
    let kubeconfig = bed.kubeconfig().display().to_string();
    let reported = bed.run(&bed.tools.python, &[&script, &kubeconfig, "default"]);
    let lines: Vec<&str> = reported.lines().collect();
    assert_eq!(
        lines,
        [
            "created python",
            "MODIFIED python {'step': '2'}",
            "DELETED python {'step': '2'}",
            "gone 404 Not Found"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_go_informer_receives_every_change() {
    let bed = Bed::new().await;
    bed.kubectl(&["create", "configmap", "before"]);
    let kubeconfig = bed.kubeconfig().display().to_string();
    let mut command = bed.command(&bed.tools.informer, &["-kubeconfig", &kubeconfig, "-count", "5"]);
    let informer = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    bed.kubectl(&["create", "configmap", "during", "--from-literal=a=b"]);
    bed.kubectl(&["patch", "configmap", "during", "--type=merge", "-p", r#"{"data":{"a":"c"}}"#]);
    bed.kubectl(&["delete", "configmap", "during"]);
    bed.kubectl(&["delete", "configmap", "before"]);
    let output = tokio::task::block_in_place(|| informer.wait_with_output().unwrap());
    let reported = said(&output, &["informer"]);
    let lines: Vec<&str> = reported.lines().collect();
    assert_eq!(lines.first(), Some(&"synced"));
    // Whether the first ones arrive as one list or one by one depends on timing.
    assert!(
        lines.contains(&"added before") && lines.ends_with(&["deleted during", "deleted before"]),
        "{reported}"
    );
}
