//! `/healthz` and `/readyz`.

use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::time::Instant;

use crate::health::{Health, Report};

/// The routes of the probe server.
pub fn router(health: Health) -> Router {
    Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).with_state(health)
}

async fn healthz(State(health): State<Health>) -> (StatusCode, String) {
    answer(health.live(Instant::now()))
}

async fn readyz(State(health): State<Health>) -> (StatusCode, String) {
    answer(health.ready())
}

fn answer(report: Report) -> (StatusCode, String) {
    let code = if report.is_good { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    (code, report.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn probes_answer_200_or_500_with_the_reasons() {
        let health = Health::default();
        let check = health.readiness("lease");
        let (code, text) = readyz(State(health.clone())).await;
        assert_eq!((code.as_u16(), text.as_str()), (500, "[-] lease: not started\n"));
        check.pass("standing by");
        let (code, text) = readyz(State(health.clone())).await;
        assert_eq!((code.as_u16(), text.as_str()), (200, "[+] lease: standing by\n"));
        let heart = health.heart("loop", Instant::now());
        assert_eq!(healthz(State(health.clone())).await.0.as_u16(), 200);
        drop(heart);
        assert_eq!(healthz(State(health)).await.0.as_u16(), 500);
    }
}
