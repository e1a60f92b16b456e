//! Settings of a real process, whose environment a test can set.

use std::{io::Write, path::PathBuf, process::Command};

/// Returns the path of the example operator, which `cargo test` builds beside the tests.
fn widgets() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path = tests.parent().unwrap().parent().unwrap().join("examples/widgets");
    assert!(path.is_file(), "{} not found; run cargo test for all targets", path.display());
    path
}

/// Returns the error of the operator. The kubeconfig does not exist, which is the last possible error.
fn error(variables: &[(&str, &str)], flags: &[&str]) -> String {
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
fn the_environment_overrides_the_file_and_a_flag_overrides_both() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"reconcileInterval: from-file\n").unwrap();
    let config = ("VITISTACK_CONFIG", file.path().to_str().unwrap());
    let variable = ("RECONCILE_INTERVAL", "from-variable");
    let flag = ["--reconcile-interval", "7s"];
    assert!(error(&[config], &[]).contains("'from-file'"));
    assert!(error(&[config, variable], &[]).contains("'from-variable'"));
    assert!(error(&[config, variable], &flag).contains("kubeconfig"));
    assert!(error(&[config, variable], &flag).contains("/nonexistent"));
}
