//! SIGTERM and SIGINT.

use snafu::{ResultExt, Snafu};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Why signals cannot be heard.
#[derive(Debug, Snafu)]
pub enum ShutdownError {
    /// The handler could not be installed.
    #[snafu(display("failed to listen for signals: {source}"))]
    ListenForSignals {
        /// What the system said.
        source: std::io::Error,
    },
}

/// Status of a process that was told twice to end: 128 + SIGINT, as shells have it.
const ENDED_AT_ONCE: i32 = 130;

/// A token that is cancelled by the first SIGTERM or SIGINT. The second ends the process at once.
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
                std::process::exit(ENDED_AT_ONCE);
            }
            tracing::info!("ending; a second signal ends at once");
            cancelled.cancel();
        }
    });
    Ok(token)
}
