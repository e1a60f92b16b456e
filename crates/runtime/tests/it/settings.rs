//! Settings of a real process, whose environment a test can choose.

use std::{io::Write, path::PathBuf, process::Command};

/// The example operator, which `cargo test` builds beside the tests.
fn widgets() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path = tests.parent().unwrap().parent().unwrap().join("examples/widgets");
    assert!(path.is_file(), "there is no {}; run cargo test for all targets", path.display());
    path
}

/// What the operator complains about, with a kubeconfig that does not exist as the last thing that can be wrong.
fn complaint(variables: &[(&str, &str)], flags: &[&str]) -> String {
    let output = Command::new(widgets())
        .env_clear()
        .envs(variables.iter().copied())
        .args(["--kubeconfig", "/nonexistent"])
        .args(flags)
        .output()
        .unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn the_environment_wins_over_the_file_and_a_flag_over_both() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"reconcileInterval: from-file\n").unwrap();
    let config = ("VITISTACK_CONFIG", file.path().to_str().unwrap());
    let variable = ("RECONCILE_INTERVAL", "from-variable");
    let flag = ["--reconcile-interval", "7s"];
    assert!(complaint(&[config], &[]).contains("'from-file'"));
    assert!(complaint(&[config, variable], &[]).contains("'from-variable'"));
    assert!(complaint(&[config, variable], &flag).contains("kubeconfig"));
    assert!(complaint(&[config, variable], &flag).contains("/nonexistent"));
}
