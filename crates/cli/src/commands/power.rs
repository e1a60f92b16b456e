//! Switches machines on and off, and restarts them.

use clap::{Args, ValueEnum};
use k8s_openapi::jiff::{Timestamp, Unit};
use kube::api::DynamicObject;
use serde_json::{Value, json};
use snafu::ResultExt;
use vitistack_types::labels;

use super::{Ending, Error, NameObjectSnafu, WriteOutputSnafu};
use crate::{
    change::{
        ChangeDeletedSnafu, RestartStoppedSnafu, TargetsArgs, is_paused, patch, read, refuse_other_kinds,
        title,
    },
    cluster::{Cluster, ClusterArgs},
    kinds::Target,
    output::Console,
};

/// Which machines, and what becomes of them.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vitistack power off web-1\n  vitistack power on machine web-1 web-2\n  vitistack power restart machine/web-1 -n shop"
)]
pub struct PowerArgs {
    /// What to do
    change: PowerChange,
    #[command(flatten)]
    targets: TargetsArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// What becomes of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PowerChange {
    /// Let it run: spec.powerState is Running
    On,
    /// Power it off and keep it: spec.powerState is Stopped
    Off,
    /// Restart it once: the annotation vitistack.io/restart-at is now
    Restart,
}

/// Asks for it. All machines are looked at before the first is changed.
pub async fn run(arguments: &PowerArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let targets = arguments.targets.read().context(NameObjectSnafu)?;
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let mut found = Vec::new();
    for target in targets {
        refuse_other_kinds(&target)?;
        let object = read(&cluster, &target).await?;
        refuse(arguments.change, &target, &object)?;
        found.push((target, object));
    }
    for (target, object) in found {
        let name = title(&target);
        let (change, told) = wanted(arguments.change, &object);
        if let Some(change) = change {
            patch(&cluster, &target, &object, change).await?;
        }
        writeln!(console.output, "{name} {told}").context(WriteOutputSnafu)?;
        if is_paused(&object) {
            writeln!(console.errors, "{name} is paused: nothing happens until `vitistack resume {name}`")
                .context(WriteOutputSnafu)?;
        }
    }
    Ok(Ending::Done)
}

fn refuse(change: PowerChange, target: &Target, object: &DynamicObject) -> Result<(), Error> {
    if object.metadata.deletion_timestamp.is_some() {
        return Ok(ChangeDeletedSnafu { target: title(target), fix: "nothing is left to switch" }.fail()?);
    }
    if change == PowerChange::Restart && power(object) == Some("Stopped") {
        return Ok(RestartStoppedSnafu { target: title(target) }.fail()?);
    }
    Ok(())
}

fn power(object: &DynamicObject) -> Option<&str> {
    object.data.pointer("/spec/powerState").and_then(Value::as_str)
}

/// The patch, unless there is nothing to change, and what is told.
fn wanted(change: PowerChange, object: &DynamicObject) -> (Option<Value>, String) {
    let (wanted, told) = match change {
        PowerChange::On => ("Running", "shall run"),
        PowerChange::Off => ("Stopped", "shall be off"),
        PowerChange::Restart => {
            let now = Timestamp::now();
            // Two requests within a second are two restarts.
            let time = now.round(Unit::Millisecond).unwrap_or(now).to_string();
            let annotations = json!({ labels::RESTART_AT: time });
            return (Some(json!({ "metadata": { "annotations": annotations } })), "shall restart".to_owned());
        }
    };
    // A machine that says nothing runs.
    if power(object).unwrap_or("Running") == wanted {
        return (None, format!("{told}, as before"));
    }
    (Some(json!({ "spec": { "powerState": wanted } })), told.to_owned())
}
