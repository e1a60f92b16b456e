//! Processes that never outlive the test that started them.

use std::{
    ffi::OsStr,
    fs::File,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use snafu::{OptionExt, ResultExt, Snafu};

/// The time that a process has to terminate before it is killed.
const END_LIMIT: Duration = Duration::from_secs(20);

/// Runs a program until the standard input of this script is closed, which the kernel does however the test process ends.
/// Then terminates the program, and kills it after ten seconds. The first argument is a directory to remove at the end.
const GUARD: &str = r#"
directory=$1; shift
"$@" </dev/null &
pid=$!
echo "$pid"
exec >/dev/null
cat >/dev/null
kill "$pid" 2>/dev/null
tries=0
while kill -0 "$pid" 2>/dev/null && [ "$tries" -lt 50 ]; do sleep 0.2; tries=$((tries + 1)); done
kill -9 "$pid" 2>/dev/null
wait "$pid" 2>/dev/null
[ -z "$directory" ] || rm -rf "$directory"
"#;

/// Why a process was not started.
#[derive(Debug, Snafu)]
pub enum GuardedError {
    /// The program could not be started.
    #[snafu(display("failed to start {program:?}: {source}"))]
    StartProcess {
        /// The program.
        program: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The guard did not report the process ID.
    #[snafu(display("failed to read the process ID of {program:?}"))]
    ReadPid {
        /// The program.
        program: String,
    },
}

/// A running process, terminated when dropped.
#[derive(Debug)]
pub struct Guarded {
    guard: Child,
    pid: Pid,
}

impl Guarded {
    /// Starts a program whose output is written to `log`. The directory `clean` is removed after it has terminated.
    pub fn start(
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        log: File,
        clean: Option<&Path>,
    ) -> Result<Self, GuardedError> {
        let name = program.display().to_string();
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(GUARD).arg("guard").arg(clean.unwrap_or(Path::new("")));
        // The guard reports the process ID on standard output, so both outputs of the program use standard error.
        command.arg("/bin/sh").arg("-c").arg("exec \"$@\" >&2").arg("program").arg(program).args(arguments);
        // In its own process group: an interrupt at the terminal is sent to the test, which then terminates this process.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).process_group(0);
        let mut guard = command.spawn().context(StartProcessSnafu { program: &name })?;
        let mut line = String::new();
        if let Some(output) = guard.stdout.take() {
            BufReader::new(output).read_line(&mut line).context(StartProcessSnafu { program: &name })?;
        }

        let pid = line.trim().parse().ok().and_then(Pid::from_raw).context(ReadPidSnafu { program: name })?;
        Ok(Self { guard, pid })
    }

    /// Returns the process ID of the program.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Whether the program is running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        test_kill_process(self.pid).is_ok()
    }

    /// Terminates the program and waits for it; kills it if that takes too long.
    pub fn stop(&mut self) {
        drop(self.guard.stdin.take());
        let limit = Instant::now() + END_LIMIT;
        while matches!(self.guard.try_wait(), Ok(None)) {
            if Instant::now() > limit {
                // An error means that it has already terminated.
                let _ = kill_process(self.pid, Signal::KILL);
                let _ = self.guard.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(script: &str) -> (Guarded, tempfile::NamedTempFile) {
        let log = tempfile::NamedTempFile::new().unwrap();
        let guarded =
            Guarded::start(Path::new("/bin/sh"), ["-c", script], log.reopen().unwrap(), None).unwrap();
        (guarded, log)
    }

    #[test]
    fn a_dropped_process_is_terminated() {
        let (guarded, _log) = start("exec sleep 1000");
        let pid = guarded.pid();
        assert!(guarded.is_running());
        drop(guarded);
        assert!(test_kill_process(Pid::from_raw(pid).unwrap()).is_err());
    }

    #[test]
    fn output_is_written_to_the_log() {
        let (mut guarded, log) =
            start("trap 'echo ended; exit' TERM; echo said; echo wrong >&2; while :; do sleep 0.1; done");
        let limit = Instant::now() + Duration::from_secs(30);
        while !std::fs::read_to_string(log.path()).unwrap().contains("wrong") && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(10));
        }
        guarded.stop();
        assert_eq!(std::fs::read_to_string(log.path()).unwrap(), "said\nwrong\nended\n");
    }
}
