//! Fault injection as a tower layer: breaks the environment of a controller in a reproducible way.

pub mod plan;

use std::{
    collections::HashMap,
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use futures::StreamExt as _;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use snafu::Snafu;
use tower::{Layer, Service, ServiceExt as _};
use vitistack_schema::Cause;

use crate::{
    reply,
    request::Options,
    status::{Failure, Subject},
};

pub use self::plan::{Fault, FaultPlan, ParseError};

/// The delay of a delayed event.
const DELAY: Duration = Duration::from_millis(50);
/// The maximum number of responses that are stored to be replayed as stale.
const STALE_ANSWERS: usize = 256;

/// Indicates that the connection broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("the connection broke {} the write was applied (planned fault)", if *applied { "after" } else { "before" }))]
pub struct Crash {
    /// Whether the write was applied.
    pub applied: bool,
}

/// Wraps a service and injects the faults of a plan.
#[derive(Clone, Debug)]
pub struct FaultLayer {
    plan: Arc<FaultPlan>,
}

impl FaultLayer {
    /// The faults of a plan.
    #[must_use]
    pub fn new(plan: FaultPlan) -> Self {
        Self { plan: Arc::new(plan) }
    }
}

impl<S> Layer<S> for FaultLayer {
    type Service = Faulty<S>;

    fn layer(&self, inner: S) -> Faulty<S> {
        Faulty { inner, plan: Arc::clone(&self.plan), seen: Arc::default() }
    }
}

/// What has been observed so far.
#[derive(Debug, Default)]
struct Seen {
    /// The number of occurrences of each request.
    counts: HashMap<String, u64>,
    /// The last response to each read.
    answers: HashMap<String, (StatusCode, Bytes)>,
}

/// A service with faults.
#[derive(Clone, Debug)]
pub struct Faulty<S> {
    inner: S,
    plan: Arc<FaultPlan>,
    seen: Arc<Mutex<Seen>>,
}

impl<S, B> Service<Request<B>> for Faulty<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response<Body>;
    type Error = Crash;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Crash>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Crash>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let faulty = self.clone();
        Box::pin(faulty.handle(request.map(Body::new)))
    }
}

impl<S> Faulty<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Send,
    S::Future: Send,
{
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn handle(self, request: Request<Body>) -> Result<Response<Body>, Crash> {
        let write = !matches!(*request.method(), Method::GET | Method::HEAD);
        let watch = !write && Options::parse(request.uri().query()).flag("watch") == Some(true);
        // The version that a client has reached differs between runs; what it requests does not.
        let what = format!("{} {}", request.method(), request.uri().path());
        let count = {
            let mut seen = self.seen();
            let count = seen.counts.entry(what.clone()).or_default();
            *count += 1;
            *count
        };

        if let Some(failure) = self.failure_for(&what, count, write, watch) {
            return Ok(reply::failure(&failure));
        }
        if write && self.plan.happens(Fault::CrashBefore, &what, count) {
            return Err(Crash { applied: false });
        }

        let whole = format!("{what}?{}", request.uri().query().unwrap_or_default());
        if !write && !watch && self.plan.happens(Fault::Stale, &what, count) {
            let old = self.seen().answers.get(&whole).cloned();
            if let Some((code, bytes)) = old {
                return Ok(json_response(code, bytes));
            }
        }

        let plan = Arc::clone(&self.plan);
        let seen = Arc::clone(&self.seen);
        let response = match self.inner.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };

        if write && plan.happens(Fault::CrashAfter, &what, count) {
            return Err(Crash { applied: true });
        }
        if watch {
            return Ok(response.map(|body| disturbed(body, plan, format!("{what}#{count}"))));
        }
        if write { Ok(response) } else { Ok(remembered(response, &seen, whole).await) }
    }

    fn failure_for(&self, what: &str, count: u64, write: bool, watch: bool) -> Option<Failure> {
        let any = [Fault::Busy, Fault::Error, Fault::Timeout];
        let writes = [Fault::Conflict, Fault::Invalid, Fault::Busy, Fault::Error, Fault::Timeout];
        let watches = [Fault::Gone, Fault::Busy, Fault::Error, Fault::Timeout];
        let possible: &[Fault] = match (write, watch) {
            (true, _) => &writes,
            (_, true) => &watches,
            _ => &any,
        };

        let name = what.rsplit('/').next().unwrap_or_default();
        let subject = Subject { group: "", name: "objects" };
        Some(match self.plan.first(possible, what, count)? {
            Fault::Conflict => Failure::modified(subject, name),
            Fault::Gone => Failure::expired("too old resource version (planned fault)"),
            Fault::Invalid => Failure::invalid(subject, name, &[Cause::forbidden("spec", "planned fault")]),
            Fault::Busy => Failure::too_many_requests(1),
            Fault::Timeout => Failure::timeout(),
            _ => Failure::internal("planned fault"),
        })
    }
}

fn json_response(code: StatusCode, bytes: Bytes) -> Response<Body> {
    let mut reply = reply::Reply::bytes(bytes);
    reply.code = code;
    reply.into_response(reply::Syntax::Json)
}

/// Stores a response, to be replayed later.
async fn remembered(response: Response<Body>, seen: &Mutex<Seen>, whole: String) -> Response<Body> {
    let (parts, body) = response.into_parts();
    let Ok(collected) = body.collect().await else { return Response::from_parts(parts, Body::empty()) };
    let bytes = collected.to_bytes();
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.answers.len() < STALE_ANSWERS || seen.answers.contains_key(&whole) {
        seen.answers.insert(whole, (parts.status, bytes.clone()));
    }
    Response::from_parts(parts, Body::from(bytes))
}

/// The lines of a watch, with the faults of the plan.
fn disturbed(body: Body, plan: Arc<FaultPlan>, what: String) -> Body {
    let lines = body.into_data_stream().flat_map(|chunk| {
        let chunk = chunk.unwrap_or_default();
        let lines: Vec<Bytes> =
            chunk.split_inclusive(|byte| *byte == b'\n').map(Bytes::copy_from_slice).collect();
        futures::stream::iter(lines)
    });

    let cutting = Arc::clone(&plan);
    let operation = what.clone();
    let open = lines.enumerate().take_while(move |(count, _)| {
        let cut = cutting.happens(Fault::Cut, &operation, *count as u64);
        std::future::ready(!cut)
    });

    let sent = open.then(move |(count, line)| {
        let count = count as u64;
        let faults = [Fault::Drop, Fault::Delay, Fault::Duplicate];
        let fault = plan.first(&faults, &what, count);
        async move {
            match fault {
                Some(Fault::Drop) => Bytes::new(),
                Some(Fault::Duplicate) => Bytes::from([line.as_ref(), line.as_ref()].concat()),
                Some(Fault::Delay) => {
                    tokio::time::sleep(DELAY).await;
                    line
                }
                _ => line,
            }
        }
    });

    Body::from_stream(sent.map(Ok::<_, Infallible>))
}
