//! The binary as a person uses it.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

mod changes;
mod crash;
#[cfg(feature = "integration")]
mod deployment;
mod doctor;
mod export;
#[cfg(feature = "integration")]
mod guide;
mod lines;
mod plan;
mod reading;
#[cfg(feature = "integration")]
mod readme;
#[cfg(feature = "integration")]
mod real;
mod render;
#[cfg(feature = "integration")]
mod restore;
mod stage;
mod up;

use std::process::{Command, Output, Stdio};

fn vitistack(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vitistack")).args(arguments).env("COLUMNS", "100").output().unwrap()
}

/// Exit code, standard output and standard error, as a reader sees them.
fn told(arguments: &[&str]) -> String {
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
fn every_command_explains_itself() {
    let pages = [
        &["--help"][..],
        &["get", "--help"],
        &["describe", "--help"],
        &["why", "--help"],
        &["events", "--help"],
        &["watch", "--help"],
        &["plan", "--help"],
        &["crds", "--help"],
        &["rbac", "--help"],
        &["manager", "--help"],
        &["samples", "--help"],
        &["summary", "--help"],
    ];
    insta::assert_snapshot!(pages.map(told).join("\n\n"));
}

#[test]
fn the_summary_lists_the_kinds_and_what_is_missing() {
    insta::assert_snapshot!(told(&["summary"]));
}

#[test]
fn samples_are_listed_and_printed_as_they_are_written() {
    insta::assert_snapshot!(told(&["samples", "--list"]));
    let printed = String::from_utf8(vitistack(&["samples", "machine-basic"]).stdout).unwrap();
    assert_eq!(printed, format!("---\n{}", include_str!("../../../../config/samples/machine-basic.yaml")));
}

#[test]
fn the_operators_are_printed_as_config_has_them() {
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
fn a_definition_is_found_by_kind_plural_or_short_name() {
    let machine = vitistack(&["crds", "Machine"]).stdout;
    assert!(String::from_utf8(machine.clone()).unwrap().contains("name: machines.vitistack.io"));
    for word in ["machines", "vsm", "machine"] {
        assert_eq!(vitistack(&["crds", word]).stdout, machine, "{word}");
    }
}

#[test]
fn a_wrong_word_is_refused_with_the_words_there_are() {
    let refusals = [&["crds", "pod"][..], &["samples", "nothing"], &["summarise"], &["crds", "--all"], &[]];
    insta::assert_snapshot!(refusals.map(told).join("\n\n"));
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
fn a_data_directory_is_for_one_process() {
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
    let told = String::from_utf8(second.stderr).unwrap();
    assert!(!second.status.success() && told.contains("another process"), "{told}");
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let mut crds =
        Command::new(env!("CARGO_BIN_EXE_vitistack")).arg("crds").stdout(Stdio::piped()).spawn().unwrap();
    drop(crds.stdout.take());
    assert!(crds.wait().unwrap().success());
}
