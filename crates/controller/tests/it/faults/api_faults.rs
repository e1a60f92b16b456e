//! The API as one incarnation of an operator process reaches it, with its faults.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use futures::StreamExt;
use http::{Method, Request, Response};
use serde_json::json;
use tower::{Layer, Service, ServiceExt};
use vitistack_apiserver::{
    ApiService,
    faults::{Crash, FaultLayer, FaultPlan, Faulty},
};

use super::{
    checked_store::{WRITER, Writer},
    context::RunContext,
    incarnation::Incarnation,
    plan::{CrashPoint, Plan, WriteFault},
};

/// The API as one incarnation reaches it.
#[derive(Clone)]
pub struct FaultyApi {
    incarnation: Arc<Incarnation>,
    /// The API without faults.
    direct: ApiService,
    faults: ApiFaults,
}

/// The faults of the API, shared by all incarnations of a run.
#[derive(Clone)]
pub struct ApiFaults {
    faulty: Faulty<ApiService>,
    /// For reads of one object, which may be stale; a list never is.
    stale: Faulty<ApiService>,
    watch_lag: Duration,
    lease_outage: Option<(Duration, Duration)>,
}

impl ApiFaults {
    pub fn new(service: &ApiService, plan: &Plan) -> Self {
        let layered = |plan: &FaultPlan| FaultLayer::new(plan.clone()).layer(service.clone());
        Self {
            faulty: layered(&plan.api),
            stale: layered(&plan.stale_reads),
            watch_lag: plan.watch_lag,
            lease_outage: plan.lease_outage,
        }
    }

    /// Whether the process cannot reach its leases now.
    fn has_lease_outage(&self, incarnation: &Incarnation) -> bool {
        let now = incarnation.context.elapsed();
        incarnation.process == 0 && self.lease_outage.is_some_and(|(from, until)| from <= now && now < until)
    }
}

impl FaultyApi {
    pub fn new(incarnation: &Arc<Incarnation>, service: &ApiService, faults: &ApiFaults) -> Self {
        Self { incarnation: Arc::clone(incarnation), direct: service.clone(), faults: faults.clone() }
    }

    async fn handle(self, request: Request<kube::client::Body>) -> Result<Response<Body>, Crash> {
        let incarnation = Arc::clone(&self.incarnation);
        let context = &incarnation.context;
        let is_write = !matches!(*request.method(), Method::GET | Method::HEAD);
        let path = request.uri().path().to_owned();
        if is_write && path.ends_with("/events") {
            return Ok(incarnation.accept_event(request).await);
        }

        let is_lease = path.contains("/leases");
        if is_lease {
            incarnation.checkpoint(None).await;
            if self.faults.has_lease_outage(&incarnation) {
                return Err(Crash { applied: false });
            }
        }

        // Lease renewals follow from time alone: they are neither counted nor crash points.
        let is_counted = is_write && !is_lease && !incarnation.has_ended();
        let number = is_counted.then(|| context.count_write());
        incarnation.checkpoint(number.map(CrashPoint::BeforeWrite)).await;

        let tail = path.rsplit_once("/namespaces/").map_or(&*path, |(_, tail)| tail);
        let what = format!("{} {tail}", request.method());
        let writer = Writer { incarnation: incarnation.number, has_stored: Arc::new(AtomicBool::new(false)) };
        let fault = context.write_fault(number);
        let response = WRITER.scope(writer.clone(), self.send(request, is_write, &path, fault)).await;

        if let Some(number) = number {
            context.record_activity();
            let outcome = match &response {
                Ok(response) => response.status().as_u16().to_string(),
                Err(crash) => crash.to_string(),
            };
            let is_accepted = response.as_ref().is_ok_and(|response| response.status().is_success());
            if is_accepted && !writer.has_stored.load(Ordering::SeqCst) {
                context.checker.record_no_op_write(&what);
            }
            context.log(&format!("write {number}: {what}: {outcome}"));
        }
        incarnation.checkpoint(number.map(CrashPoint::AfterWrite)).await;
        response
    }

    /// Sends a request with the fault of its write, or through the faulty API.
    async fn send(
        self,
        request: Request<kube::client::Body>,
        is_write: bool,
        path: &str,
        fault: Option<WriteFault>,
    ) -> Result<Response<Body>, Crash> {
        let Self { incarnation, direct, faults } = self;
        if fault == Some(WriteFault::Conflict) {
            return Ok(conflict());
        }

        let is_watch = !is_write && request.uri().query().is_some_and(|query| query.contains("watch=true"));
        if !incarnation.context.is_faulty() {
            let Ok(response): Result<_, Infallible> = direct.oneshot(request).await;
            return Ok(response);
        }
        if fault == Some(WriteFault::LostResponse) {
            let Ok(_): Result<_, Infallible> = direct.oneshot(request).await;
            return Err(Crash { applied: true });
        }

        let response = if !is_write && is_object_path(path) {
            faults.stale.oneshot(request).await
        } else {
            faults.faulty.oneshot(request).await
        };
        if is_watch && !faults.watch_lag.is_zero() {
            let context = Arc::clone(&incarnation.context);
            return Ok(response?.map(|body| delayed(body, context, faults.watch_lag)));
        }
        response
    }
}

/// Returns the response of a write that is refused with 409.
fn conflict() -> Response<Body> {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": "Conflict", "message": "planned fault", "code": 409 });
    Response::builder().status(409).body(Body::from(status.to_string())).unwrap()
}

/// Delays every event of a watch while faults are injected.
fn delayed(body: Body, context: Arc<RunContext>, lag: Duration) -> Body {
    Body::from_stream(body.into_data_stream().then(move |chunk| {
        let context = Arc::clone(&context);
        async move {
            if context.is_faulty() {
                tokio::time::sleep(lag).await;
            }
            chunk
        }
    }))
}

/// Whether the path is that of one object of a core kind.
fn is_object_path(path: &str) -> bool {
    path.starts_with("/api/v1/namespaces/") && path.split('/').count() == 7
}

impl Service<Request<kube::client::Body>> for FaultyApi {
    type Response = Response<Body>;
    type Error = Crash;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Crash>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Crash>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        Box::pin(self.clone().handle(request))
    }
}
