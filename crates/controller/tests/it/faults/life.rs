//! One life of an operator's process: everything that it can reach goes through here, so that it can be ended between any
//! two things it does, and so that nothing it does after its end stays unnoticed.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use http::{Request, Response};
use tokio::{
    sync::{Notify, oneshot},
    time::timeout,
};

use super::{
    plan::{Plan, Trip},
    random::{Random, RuntimeClock},
    witness::Witness,
};

/// Something that the process does and that can be its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// Before the n-th write to the API, counted from 1 over all lives.
    BeforeWrite(u64),
    /// After it, unheard.
    AfterWrite(u64),
    /// Before the n-th step in a provider.
    BeforeStep(u64),
    /// After it, unheard.
    AfterStep(u64),
}

/// What all lives of one play share.
pub struct Script {
    pub clock: RuntimeClock,
    pub witness: Arc<Witness>,
    began: Duration,
    crashes: BTreeSet<Point>,
    trips: BTreeMap<u64, Trip>,
    /// Whether anything goes wrong now.
    is_faulty: AtomicBool,
    store_faults: Mutex<Option<(Random, u64)>>,
    no_room: Mutex<Option<(Random, u64)>>,
    lives: AtomicU64,
    /// How many processes have died and are not back yet.
    pub dead: AtomicU64,
    writes: AtomicU64,
    steps: AtomicU64,
    pub events: AtomicU64,
    activity: AtomicU64,
    pub ghosts: AtomicU64,
    told: Mutex<Vec<String>>,
    lurking: Mutex<Option<Lurking>>,
}

/// A user who waits for the operator to do so many more things.
struct Lurking {
    left: u64,
    met: oneshot::Sender<Meeting>,
}

/// The operator stands still, between two things, as long as this is there.
#[derive(Debug)]
pub struct Meeting(#[expect(dead_code, reason = "its end is what tells")] oneshot::Sender<()>);

impl Script {
    pub fn new(clock: RuntimeClock, plan: &Plan, is_calm: bool) -> Arc<Self> {
        Arc::new(Self {
            clock,
            witness: Witness::new(clock, is_calm),
            began: clock.elapsed(),
            crashes: plan.crashes.clone(),
            trips: plan.trips.clone(),
            is_faulty: AtomicBool::new(!is_calm),
            store_faults: Mutex::new(plan.store_faults.clone()),
            no_room: Mutex::new(plan.no_room.clone()),
            lives: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            events: AtomicU64::new(0),
            activity: AtomicU64::new(0),
            ghosts: AtomicU64::new(0),
            told: Mutex::default(),
            lurking: Mutex::default(),
        })
    }

    /// Whether anything goes wrong now.
    pub fn is_faulty(&self) -> bool {
        self.is_faulty.load(Ordering::SeqCst)
    }

    /// From here on nothing goes wrong.
    pub fn end_faults(&self) {
        self.is_faulty.store(false, Ordering::SeqCst);
    }

    /// How many writes and steps there were.
    pub fn counts(&self) -> (u64, u64) {
        (self.writes.load(Ordering::SeqCst), self.steps.load(Ordering::SeqCst))
    }

    pub fn count_write(&self) -> u64 {
        self.writes.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn count_step(&self) -> u64 {
        self.steps.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// A number that grows with everything that is changed anywhere.
    pub fn activity(&self) -> u64 {
        self.activity.load(Ordering::SeqCst)
    }

    /// Something was changed.
    pub fn stir(&self) {
        self.activity.fetch_add(1, Ordering::SeqCst);
    }

    /// The time since the play began.
    pub fn passed(&self) -> Duration {
        self.clock.since(self.began)
    }

    /// Adds a line to the story.
    pub fn tell(&self, line: &str) {
        let line = format!("{:9.3} s  {line}", self.passed().as_secs_f64());
        lock(&self.told).push(line);
    }

    /// Everything that happened.
    pub fn story(&self) -> Vec<String> {
        lock(&self.told).clone()
    }

    /// What goes wrong with this write.
    pub fn trip(&self, write: Option<u64>) -> Option<Trip> {
        self.trips.get(&write?).copied().filter(|_| self.is_faulty())
    }

    /// Whether the store of a world fails now: before it wrote, or after.
    pub fn store_fault(&self) -> Option<bool> {
        self.throw(&self.store_faults)
    }

    /// Whether a provider says now that it has no room: having done nothing, or everything.
    pub fn no_room(&self) -> Option<bool> {
        self.throw(&self.no_room)
    }

    fn throw(&self, faults: &Mutex<Option<(Random, u64)>>) -> Option<bool> {
        let mut faults = lock(faults);
        let (random, percent) = faults.as_mut().filter(|_| self.is_faulty())?;
        random.is(*percent).then(|| random.is(50))
    }

    /// Waits until the operator is at the `deeds`-th thing from here, which then stands still; not longer than `limit`.
    pub async fn lurk(&self, deeds: u64, limit: Duration) -> Option<Meeting> {
        let (met, meeting) = oneshot::channel();
        *lock(&self.lurking) = Some(Lurking { left: deeds, met });
        let meeting = timeout(limit, meeting).await;
        lock(&self.lurking).take();
        meeting.ok()?.ok()
    }

    /// Stands still for the user who has waited for this.
    async fn meet(&self) {
        let met = {
            let mut lurking = lock(&self.lurking);
            match &mut *lurking {
                Some(Lurking { left, .. }) if *left > 0 => {
                    *left -= 1;
                    None
                }
                _ => lurking.take(),
            }
        };
        if let Some(Lurking { met, .. }) = met {
            let (meeting, end) = oneshot::channel();
            if met.send(Meeting(meeting)).is_ok() {
                self.tell("the user comes between");
                let _ = end.await;
            }
        }
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One life. Ends at a point of the script, or when it is told to.
pub struct Life {
    pub script: Arc<Script>,
    /// Its number among all lives of the play.
    pub number: u64,
    /// Which of the processes it is a life of.
    pub process: usize,
    is_over: AtomicBool,
    is_buried: AtomicBool,
    pub over: Notify,
}

impl Life {
    pub fn new(script: &Arc<Script>, process: usize) -> Arc<Self> {
        Arc::new(Self {
            script: Arc::clone(script),
            number: script.lives.fetch_add(1, Ordering::SeqCst) + 1,
            process,
            is_over: AtomicBool::new(false),
            is_buried: AtomicBool::new(false),
            over: Notify::new(),
        })
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// From here on everything that it still does is told as the work of a ghost.
    pub fn bury(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.is_buried.store(true, Ordering::SeqCst);
    }

    /// Ends here if this is the point; nothing after it is reached.
    pub async fn pass(&self, point: Option<Point>) {
        if let Some(point) = point.filter(|point| self.script.crashes.contains(point)) {
            self.script.tell(&format!("the operator dies: {point:?}"));
            self.is_over.store(true, Ordering::SeqCst);
            self.over.notify_one();
        }
        if self.is_buried.load(Ordering::SeqCst) {
            self.script.tell("a dead operator does something");
            self.script.ghosts.fetch_add(1, Ordering::SeqCst);
        }
        if self.is_over() {
            pending::<()>().await;
        }
        if point.is_some() {
            self.script.meet().await;
        }
    }

    /// Takes an Event without storing it: nobody here reads it, and it would take half of the time. To die at an Event is
    /// to die after the write before it.
    pub async fn hear(&self, request: Request<kube::client::Body>) -> Response<Body> {
        self.pass(None).await;
        self.script.events.fetch_add(1, Ordering::SeqCst);
        let event = request.into_body().collect_bytes().await.unwrap();
        Response::builder().status(201).body(Body::from(event)).unwrap()
    }
}
