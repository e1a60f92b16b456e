//! `vitistack up` as a person uses it: on a terminal, interrupted, killed, started twice.

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
    /// Starts it on a terminal, which `script` makes.
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

    /// Waits until the screen shows this.
    fn shows(&self, text: &str) -> String {
        let limit = Instant::now() + LIMIT;
        loop {
            let screen = self.screen();
            if screen.contains(text) {
                return screen;
            }
            assert!(Instant::now() < limit, "{text:?} never came:\n{screen}");
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

    /// Ends it as a power failure would.
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

/// What a second `up` says of why it does not start.
fn refused(flags: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_vitistack")).arg("up").args(flags).output().unwrap();
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(told.lines().count(), 1, "{told}");
    told
}

#[test]
fn everything_runs_survives_and_stops() {
    let directory = tempfile::TempDir::new().unwrap();
    let directory = directory.path();
    let up = Up::start(directory, "");
    let screen = up.shows("Ctrl-C stops it.");
    assert!(screen.contains("export KUBECONFIG="), "{screen}");
    let doctor = answer(directory, &["doctor"]);
    assert!(doctor.contains("vitistack up acts"), "{doctor}");
    assert!(doctor.lines().skip(1).all(|line| line.contains(" ok ")), "nothing is wrong here:\n{doctor}");
    let server = |directory: &Path| {
        let kubeconfig = fs::read_to_string(directory.join("kubeconfig")).unwrap();
        kubeconfig.lines().find(|line| line.contains("server:")).unwrap().trim().to_owned()
    };
    let address = server(directory);
    let machines = answer(directory, &["get", "machines", "-A"]);
    assert!(machines.lines().skip(1).all(|line| line.contains("Running")), "{machines}\n{screen}");
    let told = refused(&["--data-dir", directory.to_str().unwrap()]);
    assert!(told.contains("another process uses it; stop that process first"), "{told}");
    assert_eq!(answer(directory, &["get", "machines", "-A"]).lines().count(), machines.lines().count());
    let (code, screen) = up.interrupt();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.ends_with("Stopped.\r\n"), "{screen:?}");

    let up = Up::start(directory, "");
    up.shows("Ctrl-C stops it.");
    assert_eq!(server(directory), address, "it is where it was");
    answer(directory, &["power", "off", "machine/basic-vm"]);
    up.kill(directory);

    let up = Up::start(directory, "");
    up.shows("Ctrl-C stops it.");
    let limit = Instant::now() + LIMIT;
    while !answer(directory, &["get", "machine", "basic-vm"]).contains("Stopped") {
        assert!(Instant::now() < limit, "{}", answer(directory, &["why", "machine/basic-vm"]));
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(answer(directory, &["get", "machines", "-A"]).lines().count(), machines.lines().count());
    assert_eq!(up.interrupt().0, Some(0));

    let taken = TcpListener::bind(address.rsplit_once("https://").unwrap().1).unwrap();
    let up = Up::start(directory, "");
    let screen = up.shows("Ctrl-C stops it.");
    let count = machines.lines().count() - 1;
    // Nobody waits for a machine that is off.
    assert!(screen.contains(&format!("{} of {count} machines run.", count - 1)), "{screen}");
    assert!(screen.contains("is taken: it has another port now"), "{screen}");
    assert_ne!(server(directory), address);
    assert_eq!(up.interrupt().0, Some(0));
    drop(taken);
}

#[test]
fn what_keeps_it_from_starting_is_told_in_one_sentence() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("data");
    let data = path.to_str().unwrap();

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let told = refused(&["--data-dir", data, "--listen", &address]);
    assert!(told.contains(&address) && told.contains("choose another with --listen"), "{told}");

    let told = refused(&["--data-dir", "/dev/null/data"]);
    assert!(
        told.contains("\"/dev/null/data\"") && told.contains("give --data-dir one that you may write"),
        "{told}"
    );

    // Bytes 60 to 63 of an SQLite file are the version that its owner gives it.
    let mut file = fs::OpenOptions::new().write(true).open(path.join("store.sqlite")).unwrap();
    file.seek(SeekFrom::Start(60)).unwrap();
    file.write_all(&99_u32.to_be_bytes()).unwrap();
    drop(file);
    for journal in ["store.sqlite-wal", "store.sqlite-shm"] {
        let _ = fs::remove_file(path.join(journal));
    }
    let told = refused(&["--data-dir", data]);
    assert!(told.contains("format 99 is newer") && told.contains("run the version that wrote it"), "{told}");

    let told = refused(&["--kubeconfig", "/nonexistent"]);
    assert!(told.contains("/nonexistent") && told.contains("kubeconfig"), "{told}");
}
