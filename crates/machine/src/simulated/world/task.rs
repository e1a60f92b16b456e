//! Tasks: what takes time, and what is so when the time has come.

use jiff::Timestamp;

use super::{Answer, Key, Task, Work, World};
use crate::{BackendError, ErrorKind, Progress, simulated::faults};

/// The reason of everything that the simulated provider gets wrong by itself.
pub const SIMULATED_PROVIDER_ERROR: &str = "SimulatedProviderError";

impl World {
    /// Lets time pass: ends every task that is due, in the order in which they are.
    pub fn advance(&mut self, now: Timestamp) {
        self.time = self.time.max(now);
        while let Some((due, key)) = self.index.due.first().copied().filter(|(due, _)| *due <= self.time) {
            match key {
                Key::Machine(id) => self.finish_machine(id, due),
                Key::Volume(id) => self.finish_volume(id, due),
            }
        }
    }

    /// When the next task ends; none if none is running.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.index.due.first().map(|(due, _)| *due)
    }

    /// Whether the task that begins now will fail.
    pub(super) fn task_fails(&mut self) -> bool {
        faults::take(&mut self.faults.failed_tasks)
            || self.counters.dice.hit(self.settings.seed, self.settings.failed_tasks_percent)
    }

    /// When a task that begins now ends.
    pub(super) fn end_of_task(&self, now: Timestamp) -> Timestamp {
        // A time that does not fit ends at the end of time rather than never.
        now.saturating_add(self.settings.latency).unwrap_or(Timestamp::MAX)
    }

    /// Begins to work on a machine; without latency it ends at once.
    pub(super) fn begin(&mut self, now: Timestamp, id: u64, work: Work, fails: bool) -> Answer {
        let task = Task { work, due: self.end_of_task(now), fails };
        let words = self.machines.get(&id).map(|machine| format!("machine {:?}", machine.name));
        let words = words.unwrap_or_default();
        let answer = self.progress(&task, &words);
        self.count_change();
        self.unsaved.machines.insert(id);
        self.edit_machine(id, |machine| machine.task = Some(task));
        if self.settings.latency.is_zero() {
            self.finish_machine(id, now);
        }
        answer
    }

    /// Begins to delete a volume; without latency it ends at once.
    pub(super) fn begin_volume(&mut self, now: Timestamp, id: u64, fails: bool) -> Answer {
        let task = Task { work: Work::Destroy, due: self.end_of_task(now), fails };
        let words = self.volumes.get(&id).map(|volume| format!("volume {:?}", volume.name));
        let answer = self.progress(&task, &words.unwrap_or_default());
        self.count_change();
        self.unsaved.volumes.insert(id);
        self.edit_volume(id, |volume| volume.task = Some(task));
        if self.settings.latency.is_zero() {
            self.finish_volume(id, now);
        }
        answer
    }

    fn progress(&self, task: &Task, words: &str) -> Answer {
        if !self.settings.latency.is_zero() {
            return Ok(Progress::Working(format!("{} {words}", task.work.verb())));
        }
        match failure(task, words) {
            Some(message) => Err(BackendError::new(ErrorKind::Failed, SIMULATED_PROVIDER_ERROR, message)),
            None => Ok(Progress::Done),
        }
    }

    /// Ends the task of a machine. One that failed leaves the machine as it was before; one that was being made is gone,
    /// and its volumes stay for the next attempt.
    fn finish_machine(&mut self, id: u64, at: Timestamp) {
        let Some(machine) = self.machines.get(&id) else { return };
        let Some(task) = machine.task.clone() else { return };
        let failure = failure(&task, &format!("machine {:?}", machine.name));
        let tag = machine.tag.clone();
        self.end_work(id, at, task);
        if let Some(tag) = tag {
            self.note_end(&tag, at, failure);
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
            self.note_end(&tag, at, failure);
        }
    }
}

/// What is told of a task that fails.
fn failure(task: &Task, words: &str) -> Option<String> {
    task.fails.then(|| {
        format!(
            "the simulated provider failed to {} {words}, as it was told to fail now and then",
            task.work.infinitive()
        )
    })
}
