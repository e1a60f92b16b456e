//! The progress of starting the samples: a bar on a terminal, lines elsewhere.

use std::{
    collections::BTreeMap,
    io,
    time::{Duration, Instant},
};

use futures::StreamExt;
use kube::{
    Api, Client,
    runtime::watcher::{self, watcher},
};
use vitistack_types::{
    ObjectName,
    v1alpha1::{Machine, MachinePhase},
};

use crate::printing::{Console, write_line};

/// The width of the bar.
const WIDTH: usize = 30;

/// How long to wait for the machines. The status of those that are not running by then states the cause.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Shows the progress until every machine is running. If the samples existed before, it does not wait.
pub async fn show(client: &Client, is_new: bool, console: &mut Console<'_>) -> io::Result<()> {
    let started = Instant::now();
    let machines: Api<Machine> = Api::all(client.clone());
    let mut events = watcher(machines, watcher::Config::default()).boxed();
    let mut phases: BTreeMap<ObjectName, Option<MachinePhase>> = BTreeMap::new();
    let mut is_listed = false;

    while started.elapsed() < TIMEOUT {
        let remaining = TIMEOUT.saturating_sub(started.elapsed());
        let Ok(Some(Ok(event))) = tokio::time::timeout(remaining, events.next()).await else { break };
        match event {
            watcher::Event::Init => phases.clear(),
            watcher::Event::InitDone => is_listed = true,
            watcher::Event::InitApply(machine) | watcher::Event::Apply(machine) => {
                let phase = machine.status.as_ref().and_then(|status| status.phase);
                let before = phases.insert(ObjectName::of(&machine), phase);
                if !console.terminal.is_terminal && before != Some(phase) && phase.is_some() && is_listed {
                    let phase = phase.map(|phase| format!("{phase:?}")).unwrap_or_default();
                    let name = ObjectName::of(&machine).to_string();
                    write_line(console.output, format_args!("  {name:<24} {phase}"))?;
                }
            }
            watcher::Event::Delete(machine) => {
                phases.remove(&ObjectName::of(&machine));
            }
        }

        let running = running(&phases);
        if is_listed {
            draw(console, running, phases.len())?;
            if running == phases.len() || !is_new {
                break;
            }
        }
    }

    let running = running(&phases);
    if console.terminal.is_terminal {
        write!(console.output, "\r\x1b[K")?;
    }
    let after =
        if is_new { format!(" after {:.1} s", started.elapsed().as_secs_f64()) } else { String::new() };
    let count = match phases.len() {
        all if all == running => format!("All {all} machines"),
        all => format!("{running} of {all} machines"),
    };
    writeln!(console.output, "{count} running{after}.")?;
    console.output.flush()
}

/// Returns the number of running machines.
fn running(phases: &BTreeMap<ObjectName, Option<MachinePhase>>) -> usize {
    phases.values().filter(|phase| **phase == Some(MachinePhase::Running)).count()
}

/// Draws the bar, on a terminal.
fn draw(console: &mut Console<'_>, running: usize, all: usize) -> io::Result<()> {
    if console.terminal.is_terminal {
        let filled = WIDTH * running / all.max(1);
        let bar: String = (0..WIDTH).map(|index| if index < filled { '#' } else { '.' }).collect();
        write!(console.output, "\r\x1b[K  machines [{bar}] {running}/{all} Running")?;
    }
    console.output.flush()
}
