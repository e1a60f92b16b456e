//! `vitistack up` on a terminal: interrupted, killed, started twice.

use std::{
    fs,
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

/// Longest wait for anything; reached only when something is broken.
const LIMIT: Duration = Duration::from_mins(3);

/// What Ctrl-C sends to a terminal.
const INTERRUPT: &[u8] = b"\x03";

/// `vitistack up` on a terminal of its own, killed when the test ends.
struct Up {
    terminal: Child,
    screen: Arc<Mutex<String>>,
}

impl Up {
    /// Starts the command on a terminal of `script`.
    fn start(directory: &Path, flags: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_vitistack");
        let line = format!("exec '{program}' up --data-dir '{}' {flags}", directory.display());
        let mut terminal = Command::new("script")
            .args(["--quiet", "--flush", "--return", "--command", &line, "/dev/null"])
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = terminal.stdout.take().unwrap();
        let screen = Arc::<Mutex<String>>::default();
        let seen = Arc::clone(&screen);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count) = output.read(&mut buffer) {
                if count == 0 {
                    return;
                }
                seen.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        Self { terminal, screen }
    }

    fn screen(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    /// Waits until the screen shows a text.
    fn await_text(&self, text: &str) -> String {
        let limit = Instant::now() + LIMIT;
        loop {
            let screen = self.screen();
            if screen.contains(text) {
                return screen;
            }
            assert!(Instant::now() < limit, "{text:?} not shown:\n{screen}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Presses Ctrl-C and waits for the end.
    fn interrupt(mut self) -> (Option<i32>, String) {
        self.terminal.stdin.as_mut().unwrap().write_all(INTERRUPT).unwrap();
        let status = self.terminal.wait().unwrap();
        thread::sleep(Duration::from_millis(100));
        (status.code(), self.screen())
    }

    /// Kills the process, as a power failure would.
    fn kill(mut self, directory: &Path) {
        let program = env!("CARGO_BIN_EXE_vitistack");
        let pattern = format!("{program} up --data-dir {}", directory.display());
        assert!(Command::new("pkill").args(["-9", "-f", &pattern]).status().unwrap().success());
        let _ = self.terminal.wait();
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.terminal.kill();
        let _ = self.terminal.wait();
    }
}

fn vitistack(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vitistack"))
        .args(arguments)
        .env("KUBECONFIG", directory.join("kubeconfig"))
        .output()
        .unwrap()
}

fn answer(directory: &Path, arguments: &[&str]) -> String {
    let output = vitistack(directory, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs `vitistack up` with an error and returns its message.
fn refused(flags: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_vitistack")).arg("up").args(flags).output().unwrap();
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let output = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.lines().count(), 1, "{output}");
    output
}

#[test]
fn up_starts_survives_a_kill_and_stops() {
    let directory = tempfile::TempDir::new().unwrap();
    let directory = directory.path();
    let up = Up::start(directory, "");
    let screen = up.await_text("Press Ctrl-C to stop.");
    assert!(screen.contains("export KUBECONFIG="), "{screen}");
    let doctor = answer(directory, &["doctor"]);
    assert!(doctor.contains("leader: vitistack up"), "{doctor}");
    assert!(doctor.lines().skip(1).all(|line| line.contains(" ok ")), "a check did not succeed:\n{doctor}");
    let server = |directory: &Path| {
        let kubeconfig = fs::read_to_string(directory.join("kubeconfig")).unwrap();
        kubeconfig.lines().find(|line| line.contains("server:")).unwrap().trim().to_owned()
    };
    let address = server(directory);
    let machines = answer(directory, &["get", "machines", "-A"]);
    assert!(machines.lines().skip(1).all(|line| line.contains("Running")), "{machines}\n{screen}");
    let output = refused(&["--data-dir", directory.to_str().unwrap()]);
    assert!(output.contains("another process uses it; stop that process first"), "{output}");
    assert_eq!(answer(directory, &["get", "machines", "-A"]).lines().count(), machines.lines().count());
    let (code, screen) = up.interrupt();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.ends_with("Stopped.\r\n"), "{screen:?}");

    let up = Up::start(directory, "");
    up.await_text("Press Ctrl-C to stop.");
    assert_eq!(server(directory), address, "the address is that of the last start");
    answer(directory, &["power", "off", "machine/basic-vm"]);
    up.kill(directory);

    let up = Up::start(directory, "");
    up.await_text("Press Ctrl-C to stop.");
    let limit = Instant::now() + LIMIT;
    while !answer(directory, &["get", "machine", "basic-vm"]).contains("Stopped") {
        assert!(Instant::now() < limit, "{}", answer(directory, &["why", "machine/basic-vm"]));
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(answer(directory, &["get", "machines", "-A"]).lines().count(), machines.lines().count());
    assert_eq!(up.interrupt().0, Some(0));

    let taken = TcpListener::bind(address.rsplit_once("https://").unwrap().1).unwrap();
    let up = Up::start(directory, "");
    let screen = up.await_text("Press Ctrl-C to stop.");
    let count = machines.lines().count() - 1;
    // A stopped machine is not waited for.
    assert!(screen.contains(&format!("{} of {count} machines running.", count - 1)), "{screen}");
    assert!(screen.contains("using another port"), "{screen}");
    assert_ne!(server(directory), address);
    assert_eq!(up.interrupt().0, Some(0));
    drop(taken);
}

#[test]
fn start_errors_are_one_line() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("data");
    let data = path.to_str().unwrap();

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = refused(&["--data-dir", data, "--listen", &address]);
    assert!(output.contains(&address) && output.contains("choose another with --listen"), "{output}");

    let output = refused(&["--data-dir", "/dev/null/data"]);
    assert!(
        output.contains("\"/dev/null/data\"") && output.contains("set --data-dir to a writable directory"),
        "{output}"
    );

    // Bytes 60 to 63 of an SQLite file are the user version.
    let mut file = fs::OpenOptions::new().write(true).open(path.join("store.sqlite")).unwrap();
    file.seek(SeekFrom::Start(60)).unwrap();
    file.write_all(&99_u32.to_be_bytes()).unwrap();
    drop(file);
    for journal in ["store.sqlite-wal", "store.sqlite-shm"] {
        let _ = fs::remove_file(path.join(journal));
    }
    let output = refused(&["--data-dir", data]);
    assert!(
        output.contains("format 99 is newer") && output.contains("run the version that wrote it"),
        "{output}"
    );

    let output = refused(&["--kubeconfig", "/nonexistent"]);
    assert!(output.contains("/nonexistent") && output.contains("kubeconfig"), "{output}");
}
