//! One suite for two servers: the cases in `tests/conformance` contain responses recorded from
//! kube-apiserver. With the feature `integration`, the recording is checked against a real kube-apiserver
//! (and written with `BLESS=1`). `CASE=text` runs only the cases whose name contains the text.

mod case;
mod normalize;
mod report;
mod run;
mod write;

use std::io::Write as _;

use kube::Client;
use vitistack_apiserver::ApiServer;

/// Runs the suite against one server; fails on differences that are not in `known`.
async fn check(client: &Client, known: &[case::Difference]) {
    let cases = case::load(&filter());
    let responses = run::run(client, &cases).await;
    finish(&report::compare(&cases, &responses, known));
}

/// Returns `CASE`; empty for all cases.
fn filter() -> String {
    std::env::var("CASE").unwrap_or_default()
}

/// Prints the summary and fails on failures.
fn finish(report: &report::Report) {
    print(&report.summary);
    assert!(report.failures.is_empty(), "{}\n{}", report.failures, report.summary);
}

/// Prints a line that is visible even when the test passes.
fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_match_the_recording() {
    let server = ApiServer::builder().build().await.unwrap();
    check(&Client::new(server.service(), "default"), &case::differences()).await;
}

#[cfg(feature = "integration")]
mod real {
    use kube::{
        Client, Config,
        config::{KubeConfigOptions, Kubeconfig},
    };
    use vitistack_testkit::{KubeServer, Options};

    use super::{case, check, filter, run, write};

    /// Returns a client of kube-apiserver that does not retry: errors are what the suite is about.
    async fn client(server: &KubeServer) -> Client {
        let kubeconfig = Kubeconfig::read_from(server.kubeconfig_path()).unwrap();
        let mut config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        config.default_retry = false;
        Client::try_from(config).unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn kube_apiserver_matches_the_recording() {
        let server = KubeServer::start(&Options::default()).await.unwrap();
        let client = client(&server).await;
        if std::env::var_os("BLESS").is_none() {
            return check(&client, &[]).await;
        }
        let cases = case::load(&filter());
        for (case, responses) in cases.iter().zip(run::run(&client, &cases).await) {
            let file = case::folder().join(format!("{}.yaml", case.name));
            let text = std::fs::read_to_string(&file).unwrap();
            std::fs::write(&file, write::record(&text, &responses)).unwrap();
        }
    }
}
