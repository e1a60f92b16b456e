//! Powers machines on and off, and restarts them.

mod wait;

use clap::{Args, ValueEnum};
use k8s_openapi::jiff::{Timestamp, Unit};
use kube::api::DynamicObject;
use serde_json::{Value, json};
use snafu::ResultExt;
use vitistack_types::{Duration, labels};

use super::{Ending, Error, WriteOutputSnafu, targets::TargetsArgs};
use crate::{
    args::ClusterArgs,
    cluster::{
        Cluster,
        change::{AwaitRestartSnafu, ChangeDeletedSnafu, ChangeError, RestartStoppedSnafu, is_paused, patch},
        in_namespace,
        kinds::Target,
    },
    printing::{Console, write_line},
};

/// The arguments of `vitistack power`.
#[derive(Args, Debug)]
#[command(after_help = "The command changes the desired state; --wait waits until the machines follow.
With --all or --selector, machines that cannot be changed are skipped and reported.

Examples:
  # Power off a machine
  vitistack power off web-1

  # Power on two machines
  vitistack power on machine web-1 web-2

  # Restart a machine in another namespace
  vitistack power restart machine/web-1 -n shop

  # Power off machines by label, and wait until they are stopped
  vitistack power off -l app=web --wait --timeout 2m

  # Show which machines would be powered off
  vitistack power off --all -A --dry-run

Exit status: 0 success, 1 failure (also --timeout), 2 changes pending (--dry-run)")]
pub struct PowerArgs {
    /// Action
    action: PowerAction,
    /// Wait until the machines have reached the phase Running (on) or Stopped (off)
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
    /// How long to wait, such as 30s or 5m
    #[arg(long, value_name = "DURATION", default_value = "5m", requires = "wait")]
    timeout: Duration,
    #[command(flatten)]
    targets: TargetsArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// What to do with a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PowerAction {
    /// Start the machine: set spec.powerState to Running
    On,
    /// Stop the machine and keep it: set spec.powerState to Stopped
    Off,
    /// Restart the machine once: set the annotation vitistack.io/restart-at
    Restart,
}

impl PowerAction {
    /// Returns the phase of a machine that has followed; none for a restart, after which the phase is as before.
    fn phase(self) -> Option<&'static str> {
        match self {
            Self::On => Some("Running"),
            Self::Off => Some("Stopped"),
            Self::Restart => None,
        }
    }
}

/// Requests the action. All machines are checked before the first is changed.
pub async fn run(arguments: &PowerArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let PowerArgs { action, targets, .. } = arguments;
    let named = targets.read_machines()?;
    let phase = action.phase().filter(|_| arguments.wait);
    if arguments.wait && phase.is_none() {
        return Ok(AwaitRestartSnafu.fail()?);
    }

    let cluster = Cluster::connect(&arguments.cluster).await?;
    let found = targets.find(&cluster, named).await?;
    if found.is_empty() {
        targets.report_none(&cluster, console)?;
    }
    let mut accepted = Vec::new();
    for (target, object) in found {
        if targets.accepts(check(*action, &target, &object), console)? {
            accepted.push((target, object));
        }
    }

    let mut changed = Vec::new();
    let mut is_pending = false;
    for (target, object) in accepted {
        let (after, is_change) = request(&cluster, arguments, &target, object, console).await?;
        is_pending |= is_change && targets.dry_run;
        changed.push((target, after));
    }
    match phase {
        Some(phase) => {
            // The requests were accepted; say so before waiting.
            console.output.flush().context(WriteOutputSnafu)?;
            wait::wait(&cluster, changed, phase, arguments.timeout, console).await
        }
        None if is_pending => Ok(Ending::Change),
        None => Ok(Ending::Done),
    }
}

/// Requests the action for one machine. Returns the machine as it is then, and whether it was changed.
async fn request(
    cluster: &Cluster,
    arguments: &PowerArgs,
    target: &Target,
    object: DynamicObject,
    console: &mut Console<'_>,
) -> Result<(DynamicObject, bool), Error> {
    let (title, namespace) = (target.title(), in_namespace(target.found_in.as_deref()));
    let was_paused = is_paused(&object);
    let (change, result) = change(arguments.action, &object);
    let is_change = change.is_some();
    let after = match change {
        Some(change) => patch(cluster, target, &object, change, arguments.targets.dry_run).await?,
        None => object,
    };

    let suffix = if is_change { arguments.targets.suffix() } else { "" };
    write_line(console.output, format_args!("{title} {result}{namespace}{suffix}"))
        .context(WriteOutputSnafu)?;
    if was_paused {
        let resume = target.arguments();
        write_line(
            console.errors,
            format_args!("{title} is paused; the change takes effect after \"vitistack resume {resume}\""),
        )
        .context(WriteOutputSnafu)?;
    }
    Ok((after, is_change))
}

/// Returns an error if the action is not possible.
fn check(action: PowerAction, target: &Target, object: &DynamicObject) -> Result<(), ChangeError> {
    if object.metadata.deletion_timestamp.is_some() {
        let fix = "its power state cannot be changed any more";
        return ChangeDeletedSnafu { target: target.title(), fix }.fail();
    }
    if action == PowerAction::Restart && power_state(object) == "Stopped" {
        return RestartStoppedSnafu { target: target.title() }.fail();
    }
    Ok(())
}

/// Returns the desired power state.
fn power_state(object: &DynamicObject) -> &str {
    object.data.pointer("/spec/powerState").and_then(Value::as_str).unwrap_or("Running")
}

/// Returns the patch, unless nothing changes, and the result to print.
fn change(action: PowerAction, object: &DynamicObject) -> (Option<Value>, &'static str) {
    let (state, result, unchanged) = match action {
        PowerAction::On => ("Running", "powered on", "already running"),
        PowerAction::Off => ("Stopped", "powered off", "already stopped"),
        PowerAction::Restart => {
            let now = Timestamp::now();
            // In milliseconds, so that two requests within a second are two restarts.
            let time = now.round(Unit::Millisecond).unwrap_or(now).to_string();
            let annotations = json!({ labels::RESTART_AT: time });
            return (Some(json!({ "metadata": { "annotations": annotations } })), "restarted");
        }
    };
    if power_state(object) == state {
        return (None, unchanged);
    }
    (Some(json!({ "spec": { "powerState": state } })), result)
}
