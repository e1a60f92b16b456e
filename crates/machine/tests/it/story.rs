//! A story of two machines from creation to deletion, played by a caller that only does what is missing.

use vitistack_machine::{Backend as _, BackendError, Order, Part, Progress, Update};
use vitistack_plan::machine::{Observed, Power};
use vitistack_types::v1alpha1::{PowerState, ReclaimPolicy};

use crate::fixture::{Process, order};

/// The desired state of one machine in one part of the story.
#[derive(Clone)]
pub enum Chapter {
    Present(Order, Option<&'static str>),
    Absent(Order),
}

/// Returns the chapters in order.
pub fn chapters() -> Vec<Chapter> {
    let (first, mut second) = (order("first"), order("second"));
    second.desired.disks[0].reclaim_policy = ReclaimPolicy::Retain;

    let mut grown = first.clone();
    grown.desired.cpu.cores = 4;
    grown.desired.disks[0].size = "40Gi".parse().unwrap();

    let mut stopped = second.clone();
    stopped.desired.power = PowerState::Stopped;

    vec![
        Chapter::Present(first.clone(), None),
        Chapter::Present(second.clone(), None),
        Chapter::Present(grown.clone(), None),
        Chapter::Present(grown.clone(), Some("first-restart")),
        Chapter::Present(stopped.clone(), None),
        Chapter::Absent(first),
        Chapter::Present(second.clone(), None),
        Chapter::Absent(second),
    ]
}

/// One call of the story and its result.
pub type Call = (String, Result<Progress, BackendError>);

/// Does what is missing; returns none if nothing is.
pub async fn step(process: &Process, chapter: &Chapter) -> Option<Call> {
    let backend = &process.backend;
    let (order, restart) = match chapter {
        Chapter::Present(order, restart) => (order, *restart),
        Chapter::Absent(order) => (order, None),
    };

    let observed = match backend.observe(&order.target, Some(order)).await {
        Ok(observed) => observed,
        Err(error) => return Some(("observe".to_owned(), Err(error))),
    };
    if observed.task.is_some() {
        process.settle();
        return Some(("wait".to_owned(), Ok(Progress::Done)));
    }

    match chapter {
        Chapter::Present(..) => bring_up(process, order, restart, observed).await,
        Chapter::Absent(_) => {
            let deleted =
                order.desired.disks.iter().filter(|disk| disk.reclaim_policy == ReclaimPolicy::Delete);
            let mut disks: Vec<String> = deleted.map(|disk| disk.name.clone()).collect();
            disks.retain(|name| observed.disks.iter().any(|disk| disk.name == *name));
            let part = match (&observed.machine, disks.is_empty()) {
                (Some(_), _) => Part::Machine,
                (None, false) => Part::Disks(disks),
                (None, true) => return None,
            };
            Some((format!("delete {part:?}"), backend.delete(&order.target, &part).await))
        }
    }
}

async fn bring_up(
    process: &Process,
    order: &Order,
    restart: Option<&str>,
    observed: Observed,
) -> Option<Call> {
    let backend = &process.backend;
    let Some(machine) = observed.machine else {
        return Some(("create".to_owned(), backend.create(order).await));
    };
    let update = match (machine.power, order.desired.power) {
        _ if !machine.is_current => Update::Specification,
        (Power::Stopped, PowerState::Running) => Update::Start,
        (Power::Running, PowerState::Stopped) => Update::Stop,
        _ if restart.is_some() && machine.restarted_for.as_deref() != restart => {
            Update::Restart { request: restart?.to_owned() }
        }
        _ => return None,
    };
    Some((format!("{update:?}"), backend.update(order, &update).await))
}

/// Plays the story to its end; `between` runs after each call and may change the process.
pub async fn play(process: &mut Process, mut between: impl AsyncFnMut(&mut Process, usize)) -> Vec<Call> {
    let mut calls = Vec::new();
    for chapter in chapters() {
        while let Some(call) = step(process, &chapter).await {
            calls.push(call);
            assert!(calls.len() < 2_000, "the story does not end: {:?}", calls.last());
            between(process, calls.len()).await;
        }
    }
    calls
}
