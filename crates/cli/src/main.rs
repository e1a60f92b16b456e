//! The binary `vitistack`.

use std::process::ExitCode;

fn main() -> ExitCode {
    vitistack_cli::run(std::env::args_os())
}
