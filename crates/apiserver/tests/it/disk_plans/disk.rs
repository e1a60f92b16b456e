//! A disk that fails on demand, and what a crash leaves on it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::sync::Notify;
use vitistack_apiserver::store::sqlite::Failpoints;

/// How long a slow flush takes.
const SLOW_FLUSH: Duration = Duration::from_millis(3);

/// What the next commit meets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    /// No space is left until the fault is changed.
    Full,
    /// The commit is refused with an I/O error.
    RefusedCommit,
    /// The commit is made, and an I/O error hides it.
    HiddenCommit,
    /// The commit takes a while.
    SlowFlush,
    /// The server is killed before the commit.
    CrashBefore,
    /// The server is killed when the commit is written, and before it is acknowledged.
    CrashAfter,
}

/// The disk of one plan.
#[derive(Debug, Default)]
pub struct Disk {
    state: Mutex<State>,
    crash: Notify,
}

#[derive(Debug, Default)]
struct State {
    fault: Fault,
    path: PathBuf,
    /// The length of the log before the last commit: everything in front of it was acknowledged.
    acknowledged: u64,
    /// Whether a commit is being made.
    is_committing: bool,
}

impl Disk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what the next commit meets.
    pub fn set(&self, fault: Fault) {
        self.lock().fault = fault;
    }

    /// Sets the file that is in use.
    pub fn set_path(&self, path: &Path) {
        path.clone_into(&mut self.lock().path);
    }

    /// Whether a commit is being made.
    pub fn is_committing(&self) -> bool {
        self.lock().is_committing
    }

    /// Waits until the server is killed.
    pub async fn crashed(&self) {
        self.crash.notified().await;
    }

    /// Takes a fault that affects one commit only.
    fn take(&self, fault: Fault) -> bool {
        let mut state = self.lock();
        let is_it = state.fault == fault;
        if is_it {
            state.fault = Fault::None;
        }
        is_it
    }

    /// Copies the files to another directory as a crash leaves them: of the log, everything that was acknowledged and
    /// `part` percent of the rest, behind which there may be `garbage`.
    pub fn crash_to(&self, directory: &Path, part: u64, garbage: &[u8]) -> PathBuf {
        let (from, acknowledged) = {
            let state = self.lock();
            (state.path.clone(), state.acknowledged)
        };
        let to = directory.join("store.sqlite");
        fs::copy(&from, &to).unwrap();
        if let Ok(mut log) = fs::read(log_of(&from)) {
            let unflushed = (log.len() as u64).saturating_sub(acknowledged);
            log.truncate(usize::try_from(acknowledged + unflushed * part / 100).unwrap());
            if part < 100 {
                log.extend_from_slice(garbage);
            }
            fs::write(log_of(&to), log).unwrap();
        }
        to
    }
}

/// The write-ahead log of a file.
fn log_of(path: &Path) -> PathBuf {
    path.with_extension("sqlite-wal")
}

#[async_trait]
impl Failpoints for Disk {
    async fn before_commit(&self, has_reserve: bool) -> io::Result<()> {
        {
            let mut state = self.lock();
            state.acknowledged = fs::metadata(log_of(&state.path)).map_or(0, |log| log.len());
            state.is_committing = true;
            if state.fault == Fault::Full && has_reserve {
                state.is_committing = false;
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        if self.take(Fault::RefusedCommit) {
            return Err(io::Error::other("refused by the plan"));
        }
        if self.take(Fault::SlowFlush) {
            tokio::time::sleep(SLOW_FLUSH).await;
        }
        if self.take(Fault::CrashBefore) {
            self.crash.notify_one();
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn after_commit(&self) -> io::Result<()> {
        if self.take(Fault::CrashAfter) {
            self.crash.notify_one();
            std::future::pending::<()>().await;
        }
        self.lock().is_committing = false;
        if self.take(Fault::HiddenCommit) {
            return Err(io::Error::other("hidden by the plan"));
        }
        Ok(())
    }

    fn has_space(&self) -> bool {
        self.lock().fault != Fault::Full
    }
}
