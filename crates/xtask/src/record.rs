//! The picture in the README: the output of a real run, drawn as SVG.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use snafu::{OptionExt, ResultExt, Whatever, whatever};
use tempfile::TempDir;

/// The commands in the second terminal.
const COMMANDS: [&[&str]; 3] =
    [&["get", "machines"], &["describe", "datacenter/local"], &["why", "machine/web-1"]];

/// The width of a letter and the height of a line, in pixels.
const LETTER: f64 = 7.8;
const LINE: usize = 18;
/// The margin around the text.
const MARGIN: usize = 14;

/// The platform, killed when dropped.
struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the platform and writes the picture.
pub fn run(root: &Path) -> Result<(), Whatever> {
    let program =
        std::env::current_exe().whatever_context("failed to find this program")?.with_file_name("vitistack");
    let directory = TempDir::new().whatever_context("failed to create a directory")?;
    let child = Command::new(&program)
        .arg("up")
        .current_dir(directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .whatever_context("failed to start vitistack up; build it first")?;
    let mut up = Up(child);
    let output = up.0.stdout.take().whatever_context("no output")?;
    let mut text = "$ vitistack up\n".to_owned();
    let path = directory.path().display().to_string();
    for line in BufReader::new(output).lines() {
        let line = line.whatever_context("failed to read what it says")?.replace(&path, "/home/me");
        let is_last = line.starts_with("Press Ctrl-C");
        // One line per step of every machine is for logs; a terminal shows a bar instead.
        if !line.starts_with("  default/") {
            text.push_str(&line);
            text.push('\n');
        }
        if is_last {
            break;
        }
    }

    for command in COMMANDS {
        let output = Command::new(&program)
            .args(command)
            .current_dir(directory.path())
            .env_remove("KUBECONFIG")
            .output()
            .whatever_context("failed to run vitistack")?;
        if !output.status.success() {
            whatever!("vitistack {}: {}", command.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        let _ =
            write!(text, "\n$ vitistack {}\n{}", command.join(" "), String::from_utf8_lossy(&output.stdout));
    }

    let path = root.join("docs/images/up.svg");
    fs::create_dir_all(root.join("docs/images")).whatever_context("failed to create docs/images")?;
    fs::write(&path, picture(text.trim_end())).whatever_context("failed to write the picture")
}

/// Draws a text as SVG.
fn picture(text: &str) -> String {
    let columns = text.lines().map(|line| line.chars().count()).max().unwrap_or_default();
    let width = f64::from(u32::try_from(columns).unwrap_or(u32::MAX)) * LETTER;
    let height = text.lines().count() * LINE + 2 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0}\" height=\"{height}\" font-family=\"monospace\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#1d2430\"/>\n",
        width + 2.0 * f64::from(u32::try_from(MARGIN).unwrap_or_default())
    );
    for (number, line) in text.lines().enumerate() {
        let color = if line.starts_with("$ ") { "#7fd1ff" } else { "#e6e6e6" };
        let escaped = line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{}\" fill=\"{color}\" xml:space=\"preserve\">{escaped}</text>",
            MARGIN + LINE * (number + 1) - 5
        );
    }
    svg.push_str("</svg>\n");
    svg
}
