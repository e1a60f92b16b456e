//! Tests of the binary.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

mod backup;
mod changes;
mod crash;
#[cfg(feature = "integration")]
mod deployment;
mod doctor;
mod export;
#[cfg(feature = "integration")]
mod guide;
mod habits;
#[cfg(feature = "integration")]
mod hostile;
#[cfg(feature = "integration")]
mod hostile_disk;
mod lines;
mod output;
mod plan;
mod reading;
#[cfg(feature = "integration")]
mod readme;
#[cfg(feature = "integration")]
mod real;
mod render;
#[cfg(feature = "integration")]
mod restore;
#[cfg(feature = "integration")]
mod rights;
mod stage;
mod up;

use std::process::{Command, Output, Stdio};

fn vitistack(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vitistack")).args(arguments).env("COLUMNS", "100").output().unwrap()
}

/// Runs the binary and returns a transcript: standard output, standard error and exit code.
fn transcript(arguments: &[&str]) -> String {
    let output = vitistack(arguments);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    format!(
        "$ vitistack {}\n{}{}(exit {})",
        arguments.join(" "),
        text(&output.stdout),
        text(&output.stderr),
        output.status.code().unwrap()
    )
}

#[test]
fn help_of_every_command() {
    let pages = [
        &["--help"][..],
        &["get", "--help"],
        &["describe", "--help"],
        &["why", "--help"],
        &["events", "--help"],
        &["watch", "--help"],
        &["version", "--help"],
        &["plan", "--help"],
        &["crds", "--help"],
        &["rbac", "--help"],
        &["manager", "--help"],
        &["samples", "--help"],
        &["summary", "--help"],
    ];
    insta::assert_snapshot!(pages.map(transcript).join("\n\n"));
}

#[test]
fn the_summary_lists_the_kinds_operators_and_manifests() {
    insta::assert_snapshot!(transcript(&["summary"]));
}

#[test]
fn samples_are_listed_and_printed_as_they_are_written() {
    insta::assert_snapshot!(transcript(&["samples", "--list"]));
    let printed = String::from_utf8(vitistack(&["samples", "machine-basic"]).stdout).unwrap();
    assert_eq!(printed, format!("---\n{}", include_str!("../../../../config/samples/machine-basic.yaml")));
}

#[test]
fn the_deployment_is_the_same_as_in_config() {
    let printed = String::from_utf8(vitistack(&["manager"]).stdout).unwrap();
    let file = include_str!("../../../../config/manager/manager.yaml");
    assert_eq!(printed.strip_prefix("---\n"), file.split_once('\n').map(|(_header, rest)| rest));
    let more =
        String::from_utf8(vitistack(&["manager", "--image", "other:1", "--replicas", "3"]).stdout).unwrap();
    for line in ["image: other:1", "replicas: 3", "kind: PodDisruptionBudget"] {
        assert!(more.contains(line) && !printed.contains(line), "{line}");
    }
}

#[test]
fn a_crd_is_found_by_kind_plural_or_short_name() {
    let machine = vitistack(&["crds", "Machine"]).stdout;
    assert!(String::from_utf8(machine.clone()).unwrap().contains("name: machines.vitistack.io"));
    for name in ["machines", "vsm", "machine"] {
        assert_eq!(vitistack(&["crds", name]).stdout, machine, "{name}");
    }
}

#[test]
fn an_unknown_name_is_refused_with_the_known_names() {
    let refusals = [&["crds", "pod"][..], &["samples", "nothing"], &["summarize"], &["crds", "--all"], &[]];
    insta::assert_snapshot!(refusals.map(transcript).join("\n\n"));
}

/// A process that is killed when the test ends.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_data_directory_is_locked_by_one_process() {
    let directory = tempfile::TempDir::new().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_vitistack"));
    command.args(["apiserver", "--data-dir"]).arg(directory.path()).stdout(Stdio::null());
    let _first = Killed(command.spawn().unwrap());
    let limit = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while !directory.path().join("kubeconfig").exists() {
        assert!(std::time::Instant::now() < limit, "the first did not start");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let second = command.output().unwrap();
    let output = String::from_utf8(second.stderr).unwrap();
    assert!(!second.status.success() && output.contains("another process"), "{output}");
}

#[test]
fn a_closed_pipe_is_not_a_failure() {
    let mut crds =
        Command::new(env!("CARGO_BIN_EXE_vitistack")).arg("crds").stdout(Stdio::piped()).spawn().unwrap();
    drop(crds.stdout.take());
    assert!(crds.wait().unwrap().success());
}
