//! Runs the commands of the README.

use std::{
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
};

use vitistack_testkit::{KubeServer, Options};

use crate::guide::{Killed, blocks, programs, script, succeed, until, up};

fn block_with(line: &str) -> String {
    blocks("README.md").into_iter().find(|block| block.contains(line)).unwrap()
}

#[test]
fn the_commands_for_a_second_terminal_work_beside_a_running_up() {
    let directory = tempfile::TempDir::new().unwrap();
    let directory = directory.path();
    // The block uses the path of the binary of `make run`.
    let built = Path::new(env!("CARGO_BIN_EXE_vitistack")).parent().unwrap();
    std::fs::create_dir(directory.join("target")).unwrap();
    symlink(built, directory.join("target/debug")).unwrap();
    let _up = up(directory, &[]);
    let output = succeed(
        &script(directory, &programs(), &block_with("kubectl get machines -A"))
            .env_remove("KUBECONFIG")
            .output()
            .unwrap(),
    );
    for expected in ["NAMESPACE", "Datacenter default/local", "machine/basic-vm powered off"] {
        assert!(output.contains(expected), "{expected}:\n{output}");
    }
    let is_why = |line: &str| line.contains("Machine default/basic-vm") && line.contains("desired: stopped");
    assert!(output.lines().any(is_why), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_for_a_cluster_work_on_a_real_server() {
    let server = KubeServer::start(&Options::default()).await.unwrap();
    let home = tempfile::TempDir::new().unwrap();
    std::fs::create_dir(home.path().join(".kube")).unwrap();
    std::fs::copy(server.kubeconfig_path(), home.path().join(".kube/config")).unwrap();
    let run = |line: &str| {
        let mut command: Command = script(home.path(), server.programs(), line);
        // Other tests use the default ports.
        let settings = [("METRICS_BIND_ADDRESS", "0"), ("HEALTH_PROBE_BIND_ADDRESS", "0")];
        command.env_remove("KUBECONFIG").env("HOME", home.path()).envs(settings);
        command
    };
    let mut operators = Vec::new();
    for line in block_with("vitistack run kubevirt").lines() {
        if line.starts_with("vitistack run") {
            let line = format!("exec {line}");
            operators.push(Killed(run(&line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()));
        } else if line.starts_with("vitistack doctor") {
            let output = run(line).output().unwrap();
            let output = String::from_utf8(output.stdout).unwrap();
            assert!(output.contains("CRD machines.vitistack.io") && output.contains("KubeVirt"), "{output}");
        } else {
            succeed(&run(line).output().unwrap());
        }
    }
    assert_eq!(operators.len(), 1);
    // KubeVirt is not installed on that server, so only a condition can be expected.
    let machine = "kubectl get machine basic-vm -o jsonpath='{.status.conditions}'";
    until("the operator reports a status", || !succeed(&run(machine).output().unwrap()).is_empty());
}
