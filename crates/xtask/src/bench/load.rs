//! Load on an API server: many clients that create objects as fast as the server responds.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::future::{BoxFuture, try_join_all};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use snafu::{OptionExt, ResultExt, Whatever, whatever};
use tower::ServiceExt as _;
use vitistack_apiserver::{ApiServer, ApiService};

/// The number of concurrent clients.
pub const CLIENTS: usize = 16;

/// One connection to a server.
pub trait Connection: Clone + Send + Sync + 'static {
    /// Sends a request and reads the whole response.
    fn send(
        &self,
        method: Method,
        path: String,
        body: Bytes,
    ) -> BoxFuture<'static, Result<StatusCode, Whatever>>;
}

/// A client in the process of the server, without a socket.
#[derive(Clone)]
pub struct InProcess(pub ApiService);

impl InProcess {
    /// Creates a client of the server.
    pub fn of(server: &ApiServer) -> Self {
        Self(server.service())
    }
}

impl Connection for InProcess {
    fn send(
        &self,
        method: Method,
        path: String,
        body: Bytes,
    ) -> BoxFuture<'static, Result<StatusCode, Whatever>> {
        let service = self.0.clone();
        Box::pin(async move {
            let request =
                Request::builder().method(method).uri(path).header("content-type", "application/json");
            let request = request.body(Full::new(body)).whatever_context("failed to create a request")?;
            let response: Response<_> = match service.oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            let status = response.status();
            response.into_body().collect().await.whatever_context("failed to read a response")?;
            Ok(status)
        })
    }
}

/// A client over HTTPS.
#[derive(Clone)]
pub struct Remote(pub kube::Client);

impl Connection for Remote {
    fn send(
        &self,
        method: Method,
        path: String,
        body: Bytes,
    ) -> BoxFuture<'static, Result<StatusCode, Whatever>> {
        let client = self.0.clone();
        Box::pin(async move {
            let request =
                Request::builder().method(method).uri(path).header("content-type", "application/json");
            let body = kube::client::Body::from(body.to_vec());
            let request = request.body(body).whatever_context("failed to create a request")?;
            let response = client.send(request).await.whatever_context("failed to send a request")?;
            let status = response.status();
            response.into_body().collect().await.whatever_context("failed to read a response")?;
            Ok(status)
        })
    }
}

/// Returns a ConfigMap of about one kibibyte.
pub fn object(name: &str) -> Bytes {
    let payload = "x".repeat(900);
    Bytes::from(format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"default"}},"data":{{"payload":"{payload}"}}}}"#
    ))
}

/// Creates `count` objects with this name prefix over all connections concurrently; returns objects per second.
pub async fn creates(connections: &[impl Connection], prefix: &str, count: usize) -> Result<f64, Whatever> {
    let next = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let clients = connections.iter().map(|connection| {
        let (connection, next, prefix) = (connection.clone(), Arc::clone(&next), prefix.to_owned());
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(());
                }
                let body = object(&format!("{prefix}-{number}"));
                let path = "/api/v1/namespaces/default/configmaps".to_owned();
                let status = connection.send(Method::POST, path, body).await?;
                if status != StatusCode::CREATED {
                    whatever!("a create returned {status}");
                }
            }
        })
    });
    for client in try_join_all(clients).await.whatever_context("a client failed")? {
        client?;
    }
    Ok(rate(count, started.elapsed()))
}

/// Returns the count per second.
pub fn rate(count: usize, took: Duration) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / took.as_secs_f64()
}

/// Returns the resident memory of a process in MiB.
pub fn resident(pid: i32) -> Result<f64, Whatever> {
    let status =
        std::fs::read_to_string(format!("/proc/{pid}/status")).whatever_context("failed to read /proc")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).whatever_context("no VmRSS in /proc")?;
    let kibibytes: f64 =
        line.trim().trim_end_matches(" kB").parse().whatever_context("failed to read VmRSS")?;
    Ok(kibibytes / 1024.0)
}
