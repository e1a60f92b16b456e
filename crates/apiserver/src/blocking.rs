//! Work that takes long, off the threads that serve requests.

use tokio::runtime::{Handle, RuntimeFlavor};

/// The size of an object from which its processing may take several milliseconds.
const LARGE: usize = 64 * 1024;

/// Processes an object of some size; other tasks do not wait for a large one.
pub fn for_size<T>(size: usize, work: impl FnOnce() -> T) -> T {
    if size < LARGE { work() } else { run(work) }
}

/// Runs work that takes long without blocking other tasks, where the runtime has other threads.
pub fn run<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
