//! What the README shows, run as it stands there.

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
    // The block says where `make run` leaves the binary.
    let built = Path::new(env!("CARGO_BIN_EXE_vitistack")).parent().unwrap();
    std::fs::create_dir(directory.join("target")).unwrap();
    symlink(built, directory.join("target/debug")).unwrap();
    let _up = up(directory, &[]);
    let told = succeed(
        &script(directory, &programs(), &block_with("kubectl get machines -A"))
            .env_remove("KUBECONFIG")
            .output()
            .unwrap(),
    );
    for expected in ["NAMESPACE", "Datacenter default/local", "machine/basic-vm shall be off"] {
        assert!(told.contains(expected), "{expected}:\n{told}");
    }
    let is_why = |line: &str| line.contains("Machine default/basic-vm") && line.contains("shall be off");
    assert!(told.lines().any(is_why), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_for_a_cluster_work_on_a_real_server() {
    let server = KubeServer::start(&Options::default()).await.unwrap();
    let home = tempfile::TempDir::new().unwrap();
    std::fs::create_dir(home.path().join(".kube")).unwrap();
    std::fs::copy(server.kubeconfig_path(), home.path().join(".kube/config")).unwrap();
    let run = |line: &str| {
        let mut command: Command = script(home.path(), server.programs(), line);
        // Other tests serve there too.
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
            let told = run(line).output().unwrap();
            let told = String::from_utf8(told.stdout).unwrap();
            assert!(told.contains("definition of Machine") && told.contains("KubeVirt"), "{told}");
        } else {
            succeed(&run(line).output().unwrap());
        }
    }
    assert_eq!(operators.len(), 1);
    // There is no KubeVirt on that server: what the operator says of it is all that can be had.
    let machine = "kubectl get machine basic-vm -o jsonpath='{.status.conditions}'";
    until("the operator tells of the Machine", || !succeed(&run(machine).output().unwrap()).is_empty());
}
