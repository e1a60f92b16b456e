//! How far the samples are, while it starts: a bar on a terminal, plain lines elsewhere.

use std::{
    collections::BTreeMap,
    io,
    time::{Duration, Instant},
};

use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    runtime::watcher::{self, watcher},
};
use vitistack_types::v1alpha1::{Machine, MachinePhase};

use crate::output::Console;

/// Width of the bar.
const WIDTH: usize = 30;

/// Beyond this nobody waits any more: what is not Running by then says why itself.
const PATIENCE: Duration = Duration::from_mins(1);

/// Tells until every machine runs. Where the samples were there before, nobody waits for what was not running then.
pub async fn tell(client: &Client, is_new: bool, console: &mut Console<'_>) -> io::Result<()> {
    let began = Instant::now();
    let machines: Api<Machine> = Api::all(client.clone());
    let mut events = watcher(machines, watcher::Config::default()).boxed();
    let mut phases: BTreeMap<String, Option<MachinePhase>> = BTreeMap::new();
    let mut is_listed = false;
    while began.elapsed() < PATIENCE {
        let patience = PATIENCE.saturating_sub(began.elapsed());
        let Ok(Some(Ok(event))) = tokio::time::timeout(patience, events.next()).await else { break };
        let name =
            |machine: &Machine| format!("{}/{}", machine.namespace().unwrap_or_default(), machine.name_any());
        match event {
            watcher::Event::Init => phases.clear(),
            watcher::Event::InitDone => is_listed = true,
            watcher::Event::InitApply(machine) | watcher::Event::Apply(machine) => {
                let phase = machine.status.as_ref().and_then(|status| status.phase);
                let before = phases.insert(name(&machine), phase);
                if !console.terminal.is_terminal && before != Some(phase) && phase.is_some() && is_listed {
                    let phase = phase.map(|phase| format!("{phase:?}")).unwrap_or_default();
                    writeln!(console.output, "  {:<24} {phase}", name(&machine))?;
                }
            }
            watcher::Event::Delete(machine) => {
                phases.remove(&name(&machine));
            }
        }
        let running = phases.values().filter(|phase| **phase == Some(MachinePhase::Running)).count();
        if is_listed {
            draw(console, running, phases.len())?;
            if running == phases.len() || !is_new {
                break;
            }
        }
    }
    let running = phases.values().filter(|phase| **phase == Some(MachinePhase::Running)).count();
    if console.terminal.is_terminal {
        write!(console.output, "\r\x1b[K")?;
    }
    let after = if is_new { format!(" after {:.1} s", began.elapsed().as_secs_f64()) } else { String::new() };
    writeln!(console.output, "{running} of {} machines run{after}.", phases.len())?;
    console.output.flush()
}

fn draw(console: &mut Console<'_>, running: usize, all: usize) -> io::Result<()> {
    if console.terminal.is_terminal {
        let filled = WIDTH * running / all.max(1);
        let bar: String = (0..WIDTH).map(|place| if place < filled { '#' } else { '.' }).collect();
        write!(console.output, "\r\x1b[K  machines [{bar}] {running}/{all} Running")?;
    }
    console.output.flush()
}
