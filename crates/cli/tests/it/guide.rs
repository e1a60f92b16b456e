//! Runs the commands of the documentation.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Longest wait for anything; reached only when something is broken.
const LIMIT: Duration = Duration::from_mins(1);

/// Returns the `sh` code blocks of a document of the repository.
pub fn blocks(document: &str) -> Vec<String> {
    let text = std::fs::read_to_string(format!("{ROOT}/{document}")).unwrap();
    text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Returns a script that runs in this directory, with kubectl and the binary in the path.
pub fn script(directory: &Path, programs: &Path, text: &str) -> Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_vitistack")).parent().unwrap();
    let path = format!("{}:{}:{}", binary.display(), programs.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", text]).env("PATH", path).current_dir(directory);
    command
}

pub fn succeed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A process that is killed when the test ends.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts `vitistack up` in this directory and waits until it is ready.
pub fn up(directory: &Path, flags: &[&str]) -> Killed {
    let name = flags.join("").replace('/', "-");
    let path = directory.join(format!("up{name}.out"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_vitistack"));
    command.arg("up").args(flags).current_dir(directory).stdin(Stdio::null());
    let up = Killed(command.stdout(File::create(&path).unwrap()).spawn().unwrap());
    until("it is ready", || std::fs::read_to_string(&path).unwrap().contains("Press Ctrl-C to stop."));
    up
}

/// Waits until something holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < limit, "timed out waiting until {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the folder of kubectl.
pub fn programs() -> PathBuf {
    vitistack_testkit::Tools::find().unwrap().kubectl.parent().unwrap().to_owned()
}
