//! The API as one life of an operator sees it.

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
    life::{Life, Point, Script},
    plan::Trip,
    store::{WRITER, Writer},
};

/// The API as one life sees it.
#[derive(Clone)]
pub struct Gate {
    life: Arc<Life>,
    calm: ApiService,
    faults: Faults,
}

/// The faults of the API, for all lives.
#[derive(Clone)]
pub struct Faults {
    faulty: Faulty<ApiService>,
    /// For reads of one object, which may be stale; a list never is.
    stale: Faulty<ApiService>,
    /// How late a watch is with everything.
    lag: Duration,
    /// From when to when the first process cannot reach its leases.
    cut_off: Option<(Duration, Duration)>,
}

impl Faults {
    pub fn new(
        service: &ApiService,
        plan: &FaultPlan,
        stale: &FaultPlan,
        lag: Duration,
        cut_off: Option<(Duration, Duration)>,
    ) -> Self {
        let layered = |plan: &FaultPlan| FaultLayer::new(plan.clone()).layer(service.clone());
        Self { faulty: layered(plan), stale: layered(stale), lag, cut_off }
    }

    /// Whether the process cannot reach its leases now.
    fn is_cut_off(&self, life: &Life) -> bool {
        let now = life.script.passed();
        life.process == 0 && self.cut_off.is_some_and(|(from, until)| from <= now && now < until)
    }
}

impl Gate {
    pub fn new(life: &Arc<Life>, service: &ApiService, faults: &Faults) -> Self {
        Self { life: Arc::clone(life), calm: service.clone(), faults: faults.clone() }
    }

    async fn handle(self, request: Request<kube::client::Body>) -> Result<Response<Body>, Crash> {
        let life = Arc::clone(&self.life);
        let script = &life.script;
        let is_write = !matches!(*request.method(), Method::GET | Method::HEAD);
        let path = request.uri().path().to_owned();
        if is_write && path.ends_with("/events") {
            return Ok(life.hear(request).await);
        }
        let is_lease = path.contains("/leases");
        if is_lease {
            life.pass(None).await;
            if self.faults.is_cut_off(&life) {
                return Err(Crash { applied: false });
            }
        }
        let is_counted = is_write && !is_lease && !life.is_over();
        let number = is_counted.then(|| script.count_write());
        life.pass(number.map(Point::BeforeWrite)).await;
        let tail = path.rsplit_once("/namespaces/").map_or(&*path, |(_, tail)| tail);
        let what = format!("{} {tail}", request.method());
        let writer = Writer { life: life.number, wrote: Arc::new(AtomicBool::new(false)) };
        let trip = script.trip(number);
        let answer = WRITER.scope(writer.clone(), self.send(request, is_write, &path, trip)).await;
        if let Some(number) = number {
            script.stir();
            let how = match &answer {
                Ok(answer) => answer.status().as_u16().to_string(),
                Err(crash) => crash.to_string(),
            };
            let is_taken = answer.as_ref().is_ok_and(|answer| answer.status().is_success());
            if is_taken && !writer.wrote.load(Ordering::SeqCst) {
                script.witness.repeated(&what);
            }
            script.tell(&format!("write {number}: {what}: {how}"));
        }
        life.pass(number.map(Point::AfterWrite)).await;
        answer
    }

    async fn send(
        self,
        request: Request<kube::client::Body>,
        is_write: bool,
        path: &str,
        trip: Option<Trip>,
    ) -> Result<Response<Body>, Crash> {
        let Self { life, calm, faults } = self;
        if trip == Some(Trip::Conflict) {
            let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "reason": "Conflict", "message": "planned fault", "code": 409 });
            return Ok(Response::builder().status(409).body(Body::from(status.to_string())).unwrap());
        }
        let is_watch = !is_write && request.uri().query().is_some_and(|query| query.contains("watch=true"));
        if !life.script.is_faulty() {
            let Ok(answer): Result<_, Infallible> = calm.oneshot(request).await;
            return Ok(answer);
        }
        if trip == Some(Trip::Unheard) {
            let Ok(_): Result<_, Infallible> = calm.oneshot(request).await;
            return Err(Crash { applied: true });
        }
        let answer = if !is_write && names_one(path) {
            faults.stale.oneshot(request).await
        } else {
            faults.faulty.oneshot(request).await
        };
        if is_watch && !faults.lag.is_zero() {
            return Ok(answer?.map(|body| late(body, Arc::clone(&life.script), faults.lag)));
        }
        answer
    }
}

/// Everything that the watch tells, later.
fn late(body: Body, script: Arc<Script>, lag: Duration) -> Body {
    Body::from_stream(body.into_data_stream().then(move |chunk| {
        let script = Arc::clone(&script);
        async move {
            if script.is_faulty() {
                tokio::time::sleep(lag).await;
            }
            chunk
        }
    }))
}

/// Whether the path is that of one object.
fn names_one(path: &str) -> bool {
    path.starts_with("/api/v1/namespaces/") && path.split('/').count() == 7
}

impl Service<Request<kube::client::Body>> for Gate {
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
