//! One suite for two servers: the cases in `tests/conformance` hold answers recorded from a real kube-apiserver.
//! With the feature `integration` the recording is checked against a real server (and with `BLESS=1` written).
//! `CASE=text` runs only the cases whose name contains the text.

mod case;
mod normalise;
mod report;
mod run;
mod write;

use std::io::Write as _;

use kube::Client;
use vitistack_apiserver::ApiServer;

/// Runs the suite against one server; fails on what is not listed in `known`.
async fn check(client: &Client, known: &[case::Difference]) {
    let cases = case::load(&filter());
    let answers = run::run(client, &cases).await;
    finish(&report::compare(&cases, &answers, known));
}

/// `CASE`, or everything.
fn filter() -> String {
    std::env::var("CASE").unwrap_or_default()
}

/// Prints the summary and fails on failures.
fn finish(report: &report::Report) {
    say(&report.summary);
    assert!(report.failures.is_empty(), "{}\n{}", report.failures, report.summary);
}

/// Prints a line where it is seen even when the test passes.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn our_server_answers_as_the_real_one() {
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

    /// A client of the real server that sends each request once: errors are what the suite is about.
    async fn client(server: &KubeServer) -> Client {
        let kubeconfig = Kubeconfig::read_from(server.kubeconfig_path()).unwrap();
        let mut config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        config.default_retry = false;
        Client::try_from(config).unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_real_server_answers_as_recorded() {
        let server = KubeServer::start(&Options::default()).await.unwrap();
        let client = client(&server).await;
        if std::env::var_os("BLESS").is_none() {
            return check(&client, &[]).await;
        }
        let cases = case::load(&filter());
        for (case, answers) in cases.iter().zip(run::run(&client, &cases).await) {
            let file = case::folder().join(format!("{}.yaml", case.name));
            let text = std::fs::read_to_string(&file).unwrap();
            std::fs::write(&file, write::record(&text, &answers)).unwrap();
        }
    }
}
