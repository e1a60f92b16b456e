//! Known vulnerabilities of dependencies, from the RustSec database.
//!
//! The database is fetched from the network. Where that is not possible, the check is reported as not run: it neither
//! passes nor fails.

use std::{
    io::{self, Read as _, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use snafu::{ResultExt, Whatever};

use super::{call, tools::CARGO_DENY};

/// The time limit for fetching the database.
const FETCH_LIMIT: Duration = Duration::from_secs(45);
/// The interval between two looks at the process.
const INTERVAL: Duration = Duration::from_millis(100);

/// Fetches the database and checks all dependencies.
pub fn run(root: &Path) -> Result<(), Whatever> {
    let program = CARGO_DENY.path(root)?;
    let fetch = Command::new(&program)
        .args(["--log-level=error", "--locked", "fetch", "db"])
        .current_dir(root)
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .whatever_context("failed to run cargo-deny: run dev/setup.sh lint")?;

    if let Err(reason) = wait(fetch, FETCH_LIMIT) {
        return writeln!(io::stdout(), "advisories: not run: {reason}")
            .whatever_context("failed to print the result");
    }
    call(root, &program, &["--log-level=error", "--locked", "check", "--disable-fetch", "advisories"])
}

/// Waits for a process, not longer than the limit, and returns why it failed.
fn wait(mut process: Child, limit: Duration) -> Result<(), String> {
    let deadline = Instant::now() + limit;
    loop {
        match process.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(_)) => return Err(last_line(&mut process)),
            Ok(None) if Instant::now() < deadline => thread::sleep(INTERVAL),
            Ok(None) => {
                let _ = process.kill();
                let _ = process.wait();
                return Err(format!("the database was not fetched within {} s", limit.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Returns the last line that a process printed as an error: the cause, if there is a chain of them.
fn last_line(process: &mut Child) -> String {
    let mut text = String::new();
    if let Some(errors) = &mut process.stderr {
        let _ = errors.read_to_string(&mut text);
    }
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    line.unwrap_or("the database cannot be fetched").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stderr(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn a_process_that_fails_is_reported_with_its_last_line() {
        assert_eq!(wait(shell("exit 0"), FETCH_LIMIT), Ok(()));
        let failed =
            wait(shell("echo failed to fetch >&2; echo >&2; echo '  no route' >&2; exit 1"), FETCH_LIMIT);
        assert_eq!(failed, Err("no route".to_owned()));
        assert_eq!(wait(shell("exit 1"), FETCH_LIMIT), Err("the database cannot be fetched".to_owned()));
    }

    #[test]
    fn a_process_that_hangs_is_ended() {
        let failed = wait(shell("exec sleep 60"), Duration::from_millis(200));
        assert_eq!(failed, Err("the database was not fetched within 0 s".to_owned()));
    }
}
