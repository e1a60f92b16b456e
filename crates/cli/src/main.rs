//! The binary `vitistack`.

use std::process::ExitCode;

/// The system allocator spends a third of the time on many small objects and does not return their memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    vitistack_cli::run(std::env::args_os())
}
