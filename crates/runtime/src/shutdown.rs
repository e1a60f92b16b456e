//! Shutdown on SIGTERM and SIGINT.

use snafu::{ResultExt, Snafu};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Why signals cannot be received.
#[derive(Debug, Snafu)]
pub enum ShutdownError {
    /// The signal handler could not be installed.
    #[snafu(display("failed to listen for signals: {source}"))]
    ListenForSignals {
        /// The error of the system.
        source: std::io::Error,
    },
}

/// The exit code after a second signal: 128 + SIGINT, as shells report it.
const INTERRUPTED: i32 = 130;

/// Returns a token that the first SIGTERM or SIGINT cancels. The second signal ends the process at once.
pub fn on_signal() -> Result<CancellationToken, ShutdownError> {
    let mut terminate = signal(SignalKind::terminate()).context(ListenForSignalsSnafu)?;
    let mut interrupt = signal(SignalKind::interrupt()).context(ListenForSignalsSnafu)?;
    let token = CancellationToken::new();
    let cancelled = token.clone();
    tokio::spawn(async move {
        for is_last in [false, true] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if is_last {
                std::process::exit(INTERRUPTED);
            }
            tracing::info!("shutting down; a second signal exits immediately");
            cancelled.cancel();
        }
    });
    Ok(token)
}
