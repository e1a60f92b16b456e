//! Tasks: work of the provider that takes time, and its effect when it ends.

use jiff::Timestamp;

use super::{Answer, Key, Task, Work, World};
use crate::{BackendError, ErrorKind, Progress, simulated::faults};

/// The reason for all errors of the simulated provider itself.
pub const SIMULATED_PROVIDER_ERROR: &str = "SimulatedProviderError";

impl World {
    /// Advances time: ends every task that is due, in the order of their due times.
    pub fn advance(&mut self, now: Timestamp) {
        self.time = self.time.max(now);
        while let Some((due, key)) = self.index.due.first().copied().filter(|(due, _)| *due <= self.time) {
            match key {
                Key::Machine(id) => self.finish_machine(id, due),
                Key::Volume(id) => self.finish_volume(id, due),
            }
        }
    }

    /// Returns when the next task ends; none if no task is running.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.index.due.first().map(|(due, _)| *due)
    }

    /// Decides whether the task that starts now will fail.
    pub(super) fn task_fails(&mut self) -> bool {
        faults::take(&mut self.faults.failed_tasks)
            || self.counters.dice.hit(self.settings.seed, self.settings.failed_tasks_percent)
    }

    /// Returns when a task that starts now ends.
    pub(super) fn end_of_task(&self, now: Timestamp) -> Timestamp {
        // A time out of range becomes the largest one, so that the task still ends.
        now.saturating_add(self.settings.latency).unwrap_or(Timestamp::MAX)
    }

    /// Starts a task of a machine; without latency it ends immediately.
    pub(super) fn begin(&mut self, now: Timestamp, id: u64, work: Work, fails: bool) -> Answer {
        let task = Task { work, due: self.end_of_task(now), fails };
        let name = self.machines.get(&id).map(|machine| machine.name.as_str()).unwrap_or_default();
        let answer = self.progress(&task, task.work.awaited(), &format!("machine {name:?}"));

        self.count_change();
        self.unsaved.machines.insert(id);
        self.edit_machine(id, |machine| machine.task = Some(task));
        if self.settings.latency.is_zero() {
            self.finish_machine(id, now);
        }
        answer
    }

    /// Starts the deletion of a volume; without latency it ends immediately.
    pub(super) fn begin_volume(&mut self, now: Timestamp, id: u64, fails: bool) -> Answer {
        let task = Task { work: Work::Destroy, due: self.end_of_task(now), fails };
        let answer = match self.volumes.get(&id) {
            Some(volume) => {
                self.progress(&task, &volume.awaited_deletion(), &format!("volume {:?}", volume.name))
            }
            None => Ok(Progress::Done),
        };

        self.count_change();
        self.unsaved.volumes.insert(id);
        self.edit_volume(id, |volume| volume.task = Some(task));
        if self.settings.latency.is_zero() {
            self.finish_volume(id, now);
        }
        answer
    }

    fn progress(&self, task: &Task, awaited: &str, subject: &str) -> Answer {
        if !self.settings.latency.is_zero() {
            return Ok(Progress::Working(awaited.to_owned()));
        }
        match failure(task, subject) {
            Some(message) => Err(BackendError::new(ErrorKind::Failed, SIMULATED_PROVIDER_ERROR, message)),
            None => Ok(Progress::Done),
        }
    }

    /// Ends the task of a machine. A failed task leaves the machine as it was before. A failed creation removes the
    /// machine and leaves its volumes for the next attempt.
    fn finish_machine(&mut self, id: u64, at: Timestamp) {
        let Some(machine) = self.machines.get(&id) else { return };
        let Some(task) = machine.task.clone() else { return };
        let failure = failure(&task, &format!("machine {:?}", machine.name));
        let tag = machine.tag.clone();

        self.end_work(id, at, task);
        if let Some(tag) = tag {
            self.record_result(&tag, at, failure);
        }
    }

    fn end_work(&mut self, id: u64, at: Timestamp, Task { work, fails, .. }: Task) {
        match work {
            Work::Create { .. } if fails => return self.remove_machine(id),
            Work::Destroy if !fails => return self.remove_machine(id),
            _ => {}
        }
        self.edit_machine(id, |machine| {
            machine.task = None;
            let starts = match &work {
                Work::Create { is_on } => *is_on,
                Work::Start | Work::Restart { .. } => !fails,
                Work::Change | Work::Stop | Work::Destroy => false,
            };
            if starts {
                machine.running = Some(machine.given.clone());
                machine.started = Some(at);
                machine.starts = machine.starts.saturating_add(1);
            }
            match work {
                Work::Restart { request } if !fails => machine.restarted_for = Some(request),
                Work::Stop if !fails => machine.running = None,
                _ => {}
            }
        });
    }

    fn finish_volume(&mut self, id: u64, at: Timestamp) {
        let Some(volume) = self.volumes.get(&id) else { return };
        let Some(task) = &volume.task else { return };
        let failure = failure(task, &format!("volume {:?}", volume.name));
        let tag = volume.tag.clone();

        if task.fails {
            self.edit_volume(id, |volume| volume.task = None);
        } else {
            self.remove_volume(id);
        }
        if let Some(tag) = tag {
            self.record_result(&tag, at, failure);
        }
    }
}

/// Returns the message of a task that fails.
fn failure(task: &Task, subject: &str) -> Option<String> {
    task.fails.then(|| {
        format!(
            "the simulated provider failed to {} {subject}: set spec.simulated.failedTasksPercent of the provider to 0 to stop simulated failures",
            task.work.verb()
        )
    })
}
