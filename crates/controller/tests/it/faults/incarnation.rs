//! One incarnation of an operator process.
//!
//! Everything that the process can reach goes through [`Incarnation::checkpoint`], so that it can be ended
//! between any two operations, and so that anything it does after its end is noticed.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::body::Body;
use http::{Request, Response};
use tokio::sync::Notify;

use super::{context::RunContext, plan::CrashPoint};

/// An operator process from one start to its end: a planned crash, or a stop.
pub struct Incarnation {
    pub context: Arc<RunContext>,
    /// Its number among all incarnations of the run.
    pub number: u64,
    /// The process it belongs to, counted from 0.
    pub process: usize,
    has_ended: AtomicBool,
    /// Whether the tasks of the process are aborted, so that nothing excuses another operation.
    is_stopped: AtomicBool,
    /// Notified when the process crashes.
    pub crashed: Notify,
}

impl Incarnation {
    pub fn new(context: &Arc<RunContext>, process: usize) -> Arc<Self> {
        Arc::new(Self {
            context: Arc::clone(context),
            number: context.count_incarnation(),
            process,
            has_ended: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            crashed: Notify::new(),
        })
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Records that the process is stopped: every operation from here on is a zombie operation.
    pub fn mark_stopped(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
        self.is_stopped.store(true, Ordering::SeqCst);
    }

    /// Crashes the process if the plan has this point, and never returns once the process has ended.
    pub async fn checkpoint(&self, point: Option<CrashPoint>) {
        if let Some(point) = point.filter(|point| self.context.is_crash(*point)) {
            self.context.log(&format!("the operator crashes: {point:?}"));
            self.has_ended.store(true, Ordering::SeqCst);
            self.crashed.notify_one();
        }

        if self.is_stopped.load(Ordering::SeqCst) {
            self.context.log("a stopped operator attempts an operation");
            self.context.zombie_operations.fetch_add(1, Ordering::SeqCst);
        }
        if self.has_ended() {
            pending::<()>().await;
        }

        if point.is_some() {
            self.context.pause_if_requested().await;
        }
    }

    /// Accepts a Kubernetes Event without storing it: no operator reads Events, and storing them would double
    /// the run time. A crash at an Event is the same as a crash after the write before it.
    pub async fn accept_event(&self, request: Request<kube::client::Body>) -> Response<Body> {
        self.checkpoint(None).await;
        self.context.events.fetch_add(1, Ordering::SeqCst);
        let event = request.into_body().collect_bytes().await.unwrap();
        Response::builder().status(201).body(Body::from(event)).unwrap()
    }
}
