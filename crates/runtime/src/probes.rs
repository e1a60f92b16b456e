//! `/healthz` and `/readyz`.
//!
//! Anyone who reaches the port can read the answers, so they contain the names of the checks that fail and not why: errors
//! contain addresses and certificates. The log has the details.

use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::time::Instant;
use vitistack_types::WatchedNamespaces;

use crate::health::{Health, Report};

/// What the probes answer from.
#[derive(Clone)]
struct Probes {
    health: Health,
    /// The answer of `/readyz` while every check passes.
    ready: String,
}

/// The routes of the probe server of a process that watches these namespaces.
pub fn router(health: Health, watched: &WatchedNamespaces) -> Router {
    let probes = Probes { health, ready: ready_text(watched) };
    Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).with_state(probes)
}

fn ready_text(watched: &WatchedNamespaces) -> String {
    let names = watched.to_setting();
    names.map_or_else(|| "ok\n".to_owned(), |names| format!("ok: watching namespaces {names}\n"))
}

async fn healthz(State(probes): State<Probes>) -> (StatusCode, String) {
    let report = probes.health.live(Instant::now());
    if !report.is_good {
        // The process is about to be restarted for it.
        tracing::error!("not alive: {}", report.details.trim_end().replace('\n', "; "));
    }
    response(&report, "ok\n")
}

async fn readyz(State(probes): State<Probes>) -> (StatusCode, String) {
    let report = probes.health.ready();
    if !report.is_good {
        tracing::debug!("not ready: {}", report.details.trim_end().replace('\n', "; "));
    }
    response(&report, &probes.ready)
}

/// The answer: `good`, or the names of the checks that fail.
fn response(report: &Report, good: &str) -> (StatusCode, String) {
    if report.is_good {
        return (StatusCode::OK, good.to_owned());
    }
    let lines: Vec<String> = report.failing.iter().map(|name| format!("[-] {name}\n")).collect();
    let text = format!("{}not ok: see the log of the operator\n", lines.concat());
    (StatusCode::INTERNAL_SERVER_ERROR, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probes(health: &Health, watched: &WatchedNamespaces) -> State<Probes> {
        State(Probes { health: health.clone(), ready: ready_text(watched) })
    }

    #[tokio::test]
    async fn probes_answer_with_the_names_of_failing_checks_and_nothing_else() {
        let health = Health::default();
        let all = WatchedNamespaces::ALL;
        let check = health.readiness("lease");
        health.readiness("cache widgets").pass("watching https://10.0.0.1");
        check.fail("failed to connect to https://10.0.0.1:6443: invalid peer certificate");
        let (code, text) = readyz(probes(&health, &all)).await;
        assert_eq!((code.as_u16(), text.as_str()), (500, "[-] lease\nnot ok: see the log of the operator\n"));
        check.pass("standby, the leader is host-a");
        let (code, text) = readyz(probes(&health, &all)).await;
        assert_eq!((code.as_u16(), text.as_str()), (200, "ok\n"));

        let heart = health.heart("loop", Instant::now());
        let (code, text) = healthz(probes(&health, &all)).await;
        assert_eq!((code.as_u16(), text.as_str()), (200, "ok\n"));
        drop(heart);
        let (code, text) = healthz(probes(&health, &all)).await;
        assert_eq!((code.as_u16(), text.as_str()), (500, "[-] loop\nnot ok: see the log of the operator\n"));
    }

    #[tokio::test]
    async fn readiness_says_which_namespaces_are_watched() {
        let watched = "team-b,team-a".parse().unwrap();
        let (_, text) = readyz(probes(&Health::default(), &watched)).await;
        assert_eq!(text, "ok: watching namespaces team-a,team-b\n");
    }
}
