//! The embedded Kubernetes API compared with a real kube-apiserver in the same run.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use futures::StreamExt as _;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use snafu::{OptionExt, ResultExt, Whatever, whatever};
use tempfile::TempDir;
use tower::ServiceExt as _;
use vitistack_apiserver::{ApiServer, store::sqlite::SqliteStore};
use vitistack_testkit::{KubeServer, Options};

use super::{
    Figures,
    load::{CLIENTS, Connection, InProcess, Remote, creates, object, resident},
};

/// The number of watchers that receive one event.
const WATCHERS: usize = 100;
/// The number of events whose fan-out is measured; the median is reported.
const EVENTS: usize = 25;

/// Measures everything.
pub async fn measure(root: &Path, count: usize) -> Result<Figures, Whatever> {
    let mut figures = Figures::default();
    let (real, real_ready) = start_real(false).await?;
    let (ours, first_answer) = first_answer().await?;
    figures.beside(
        "first_answer",
        first_answer.as_secs_f64() * 1e3,
        real_ready.as_secs_f64() * 1e3,
        "ms",
        false,
    );

    let real_clients = remote(&real).await?;
    // The real server is much slower: fewer objects give the same precision.
    let real_memory = creates(&real_clients, "memory", count / 10).await?;
    let memory = creates(&vec![InProcess::of(&ours); CLIENTS], "memory", count).await?;
    figures.beside("creates_memory", memory, real_memory, "per_s", true);

    let real_fan_out = fan_out(&real_clients, &real_clients).await?;
    let in_process = vec![InProcess::of(&ours); CLIENTS];
    figures.beside("watch_fan_out_100", fan_out(&in_process, &in_process).await?, real_fan_out, "ms", false);
    // Same server and same size, so that only the watchers differ.
    let unwatched = creates(&in_process, "unwatched", count).await?;
    let _watchers = watch_elsewhere(&in_process).await?;
    let watched = creates(&in_process, "watched", count).await?;
    figures.add("creates_with_1000_other_watchers", watched / unwatched, "of_without");
    drop(ours);

    let real_rss: f64 = real.pids().into_iter().map(resident).sum::<Result<f64, _>>()?;
    figures.beside("idle_rss", idle_rss(root)?, real_rss, "MiB", false);
    drop(real);

    let (real, _) = start_real(true).await?;
    let real_durable = creates(&remote(&real).await?, "durable", count / 10).await?;
    drop(real);
    let directory = TempDir::new().whatever_context("failed to create a directory")?;
    let store = SqliteStore::open(&directory.path().join("store.sqlite")).await;
    let store = store.whatever_context("failed to open a store")?;
    let ours =
        ApiServer::builder().store(store).build().await.whatever_context("failed to start the API server")?;
    let durable = creates(&vec![InProcess::of(&ours); CLIENTS], "durable", count).await?;
    figures.beside("creates_durable", durable, real_durable, "per_s", true);
    Ok(figures)
}

async fn start_real(is_durable: bool) -> Result<(KubeServer, Duration), Whatever> {
    let started = Instant::now();
    let options = Options { is_durable, ..Options::default() };
    let server =
        KubeServer::start(&options).await.whatever_context("failed to start the real kube-apiserver")?;
    Ok((server, started.elapsed()))
}

/// Returns an embedded server, and the time until its first response.
async fn first_answer() -> Result<(ApiServer, Duration), Whatever> {
    let started = Instant::now();
    let server = ApiServer::builder().build().await.whatever_context("failed to start the API server")?;
    let status =
        InProcess::of(&server).send(Method::GET, "/api/v1/namespaces/default".into(), "".into()).await?;
    if status != StatusCode::OK {
        whatever!("the first request returned {status}");
    }
    Ok((server, started.elapsed()))
}

/// Returns one connection per client, as separate processes would have.
async fn remote(server: &KubeServer) -> Result<Vec<Remote>, Whatever> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Remote(server.client().await.whatever_context("failed to create a client")?));
    }
    Ok(clients)
}

/// Returns the median time in milliseconds from a write until the last of a hundred watchers receives it.
async fn fan_out(writers: &[impl Connection], watchers: &[impl Watched]) -> Result<f64, Whatever> {
    let (received, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let mut streams = tokio::task::JoinSet::new();
    for watcher in watchers.iter().cycle().take(WATCHERS) {
        let mut lines = watcher
            .watch("/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0&labelSelector=fan=out")
            .await?;
        let received = received.clone();
        streams.spawn(async move {
            while lines.next().await.is_some() && received.send(Instant::now()).is_ok() {}
        });
    }
    // The initial events of the watches are not measured.
    tokio::time::sleep(Duration::from_millis(500)).await;
    while arrivals.try_recv().is_ok() {}

    let writer = writers.first().whatever_context("no client")?;
    let mut took = Vec::new();
    for number in 0..EVENTS {
        let body = String::from_utf8_lossy(&object(&format!("fan-out-{number}")))
            .replace(r#""namespace":"default""#, r#""namespace":"default","labels":{"fan":"out"}"#);
        let started = Instant::now();
        writer.send(Method::POST, "/api/v1/namespaces/default/configmaps".into(), body.into()).await?;
        let mut last = started;
        for _ in 0..WATCHERS {
            let next = tokio::time::timeout(Duration::from_secs(30), arrivals.recv()).await;
            last = next
                .whatever_context("a watcher did not receive an event")?
                .whatever_context("the watchers ended")?
                .max(last);
        }
        took.push(last - started);
    }

    took.sort();
    Ok(took.get(EVENTS / 2).copied().unwrap_or_default().as_secs_f64() * 1e3)
}

/// Opens a thousand watches of objects that do not change.
async fn watch_elsewhere(watchers: &[impl Watched]) -> Result<tokio::task::JoinSet<()>, Whatever> {
    let mut streams = tokio::task::JoinSet::new();
    for watcher in watchers.iter().cycle().take(1000) {
        let mut lines = watcher.watch("/api/v1/secrets?watch=1").await?;
        streams.spawn(async move { while lines.next().await.is_some() {} });
    }
    Ok(streams)
}

/// A connection that can watch: a stream with one item per chunk of the response.
pub trait Watched {
    /// Opens the watch.
    async fn watch(&self, path: &str) -> Result<futures::stream::BoxStream<'static, ()>, Whatever>;
}

impl Watched for InProcess {
    async fn watch(&self, path: &str) -> Result<futures::stream::BoxStream<'static, ()>, Whatever> {
        let request = Request::get(path).body(Full::<bytes::Bytes>::default());
        let request = request.whatever_context("failed to create a request")?;
        let response = match self.0.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        Ok(response.into_body().into_data_stream().map(drop).boxed())
    }
}

impl Watched for Remote {
    async fn watch(&self, path: &str) -> Result<futures::stream::BoxStream<'static, ()>, Whatever> {
        let request = Request::get(path).body(kube::client::Body::empty());
        let request = request.whatever_context("failed to create a request")?;
        let response = self.0.send(request).await.whatever_context("failed to watch")?;
        Ok(response.into_body().into_data_stream().map(drop).boxed())
    }
}

/// A process that is killed when dropped.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the resident memory of an idle `vitistack apiserver`.
fn idle_rss(root: &Path) -> Result<f64, Whatever> {
    let directory = TempDir::new().whatever_context("failed to create a directory")?;
    let program =
        std::env::current_exe().whatever_context("failed to find this program")?.with_file_name("vitistack");
    let child = Command::new(program)
        .args(["apiserver", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(directory.path())
        .current_dir(root)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .whatever_context("failed to start vitistack apiserver")?;
    let child = KillOnDrop(child);
    let limit = Instant::now() + Duration::from_mins(1);
    while !directory.path().join("kubeconfig").exists() {
        if Instant::now() > limit {
            whatever!("vitistack apiserver did not become ready");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_secs(2));
    resident(i32::try_from(child.0.id()).whatever_context("the process id is out of range")?)
}
