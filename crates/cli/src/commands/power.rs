//! Powers machines on and off, and restarts them.

use clap::{Args, ValueEnum};
use k8s_openapi::jiff::{Timestamp, Unit};
use kube::api::DynamicObject;
use serde_json::{Value, json};
use snafu::ResultExt;
use vitistack_types::labels;

use super::{Ending, Error, NameObjectSnafu, WriteOutputSnafu};
use crate::{
    args::ClusterArgs,
    cluster::{
        Cluster,
        change::{
            ChangeDeletedSnafu, RestartStoppedSnafu, TargetsArgs, is_paused, patch, read, require_machine,
        },
        kinds::Target,
    },
    printing::{Console, write_line},
};

/// The arguments of `vitistack power`.
#[derive(Args, Debug)]
#[command(
    after_help = "The command changes the desired state; \"vitistack watch machines\" shows when the machine follows.

Examples:
  # Power off a machine
  vitistack power off web-1

  # Power on two machines
  vitistack power on machine web-1 web-2

  # Restart a machine in another namespace
  vitistack power restart machine/web-1 -n shop"
)]
pub struct PowerArgs {
    /// Action
    action: PowerAction,
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

/// Requests the action. All machines are checked before the first is changed.
pub async fn run(arguments: &PowerArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let targets = arguments.targets.read().context(NameObjectSnafu)?;
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let mut found = Vec::new();
    for target in targets {
        require_machine(&target)?;
        let object = read(&cluster, &target).await?;
        check(arguments.action, &target, &object)?;
        found.push((target, object));
    }

    for (target, object) in found {
        let title = target.title();
        let (change, result) = change(arguments.action, &object);
        if let Some(change) = change {
            patch(&cluster, &target, &object, change).await?;
        }
        write_line(console.output, format_args!("{title} {result}")).context(WriteOutputSnafu)?;
        if is_paused(&object) {
            write_line(
                console.errors,
                format_args!("{title} is paused; the change takes effect after \"vitistack resume {title}\""),
            )
            .context(WriteOutputSnafu)?;
        }
    }
    Ok(Ending::Done)
}

/// Returns an error if the action is not possible.
fn check(action: PowerAction, target: &Target, object: &DynamicObject) -> Result<(), Error> {
    if object.metadata.deletion_timestamp.is_some() {
        let fix = "its power state cannot be changed any more";
        return Ok(ChangeDeletedSnafu { target: target.title(), fix }.fail()?);
    }
    if action == PowerAction::Restart && power_state(object) == "Stopped" {
        return Ok(RestartStoppedSnafu { target: target.title() }.fail()?);
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
