//! `vitistack up` as a user starts it, and what it costs to leave it running.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use futures::StreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use snafu::{OptionExt, ResultExt, Whatever, whatever};
use tempfile::TempDir;
use vitistack_testkit::Guarded;
use vitistack_types::{
    definitions,
    v1alpha1::{Machine, MachinePhase},
};

use super::{
    Figures, as_float,
    crowd::Crowd,
    load::{CLIENTS, resident},
    program,
};

/// The maximum time for a start.
const LIMIT: Duration = Duration::from_mins(2);
/// A machine whose phase has not changed for this long will not run: something it waits for does not exist.
const STILL: Duration = Duration::from_secs(10);
/// How long CPU time is measured.
const IDLE: Duration = Duration::from_secs(30);
/// The unit of CPU time in /proc, on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;
/// How many times the list is read; the median is reported.
const READS: usize = 7;

/// Measures everything.
pub async fn measure(count: usize) -> Result<Figures, Whatever> {
    let mut figures = Figures::default();
    let size = fs::metadata(program()?).whatever_context("failed to read the size of the program")?.len();
    figures.add("binary_size", as_float(usize::try_from(size).unwrap_or(usize::MAX)) / 1_048_576.0, "MiB");
    let directory = TempDir::new().whatever_context("failed to create a directory")?;
    let (mut platform, started) = start("up", directory.path())?;
    let client = connected(directory.path(), started).await?;
    let samples = settled(&client, started).await?;
    figures.add("all_running", samples.after.as_secs_f64(), "s");
    figures.add("samples_running", as_float(samples.running), "machines");
    figures.add("samples", as_float(samples.all), "machines");
    tokio::time::sleep(STILL).await;
    figures.add("idle_rss", resident(platform.pid())?, "MiB");
    let before = processor_time(platform.pid())?;
    tokio::time::sleep(IDLE).await;
    let used = processor_time(platform.pid())? - before;
    figures.add("idle_cpu", used / IDLE.as_secs_f64() * 100.0, "percent");
    platform.stop();

    let (platform, started) = start("up", directory.path())?;
    let client = connected(directory.path(), started).await?;
    let again = settled(&client, started).await?;
    figures.add("second_start", again.after.as_secs_f64(), "s");
    drop(platform);
    listing(&mut figures, count).await?;
    Ok(figures)
}

/// Starts `vitistack` with its data in a directory.
fn start(command: &str, directory: &Path) -> Result<(Guarded, Instant), Whatever> {
    let log = fs::File::create(directory.join("output")).whatever_context("failed to create a log file")?;
    // The kubeconfig of an earlier run must not be used.
    let _ = fs::remove_file(directory.join("kubeconfig"));
    let data = directory.display().to_string();
    let started = Instant::now();
    let process = Guarded::start(&program()?, [command, "--data-dir", &data], log, None);
    Ok((process.whatever_context("failed to start vitistack")?, started))
}

/// Returns a client as soon as the API responds.
async fn connected(directory: &Path, started: Instant) -> Result<Client, Whatever> {
    while started.elapsed() < LIMIT {
        if let Some(client) = client(&directory.join("kubeconfig")).await
            && client.list_core_api_versions().await.is_ok()
        {
            return Ok(client);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let output = fs::read_to_string(directory.join("output")).unwrap_or_default();
    whatever!("vitistack did not become ready:\n{output}");
}

async fn client(kubeconfig: &Path) -> Option<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).ok()?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.ok()?;
    Client::try_from(config).ok()
}

/// The progress of the samples.
struct Samples {
    running: usize,
    all: usize,
    /// When the last machine was first seen running.
    after: Duration,
}

/// Waits until all machines are running, or until nothing has changed for a while.
async fn settled(client: &Client, started: Instant) -> Result<Samples, Whatever> {
    let machines: Api<Machine> = Api::all(client.clone());
    let mut seen = BTreeMap::new();
    let (mut running, mut after, mut changed) = (0, Duration::ZERO, Instant::now());
    while changed.elapsed() < STILL {
        // The CRDs may not be established yet.
        if let Ok(list) = machines.list(&ListParams::default()).await {
            let phase = |machine: &Machine| machine.status.as_ref().and_then(|status| status.phase);
            let phases: BTreeMap<_, _> =
                list.iter().map(|each| ((each.namespace(), each.name_any()), phase(each))).collect();
            let now_running = phases.values().filter(|phase| **phase == Some(MachinePhase::Running)).count();
            if now_running > running {
                after = started.elapsed();
            }
            running = now_running;
            if !phases.is_empty() && running == phases.len() {
                seen = phases;
                break;
            }
            if phases != seen {
                (seen, changed) = (phases, Instant::now());
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(Samples { running, all: seen.len(), after })
}

/// Returns the CPU time of a process in seconds.
fn processor_time(pid: i32) -> Result<f64, Whatever> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).whatever_context("failed to read /proc")?;
    // The name in parentheses may contain anything; user and system time are the 12th and 13th field after it.
    let (_, fields) = stat.rsplit_once(')').whatever_context("no fields in /proc")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    let ticks: f64 = ticks.sum::<Result<f64, _>>().whatever_context("failed to read /proc")?;
    Ok(ticks / TICKS_PER_SECOND)
}

/// Lists many Machines with the CLI, like a user would.
async fn listing(figures: &mut Figures, count: usize) -> Result<(), Whatever> {
    let directory = TempDir::new().whatever_context("failed to create a directory")?;
    let (_server, started) = start("apiserver", directory.path())?;
    let client = connected(directory.path(), started).await?;
    plant(&client, count).await?;
    let mut took = Vec::new();
    for _ in 0..READS {
        let started = Instant::now();
        let status = Command::new(program()?)
            .args(["get", "machines", "-A", "--kubeconfig"])
            .arg(directory.path().join("kubeconfig"))
            .stdout(Stdio::null())
            .status()
            .whatever_context("failed to run vitistack get")?;
        if !status.success() {
            whatever!("vitistack get failed");
        }
        took.push(started.elapsed());
    }
    took.sort();
    let median = took.get(READS / 2).copied().unwrap_or_default();
    figures.add("get_machines", median.as_secs_f64() * 1e3, "ms");
    Ok(())
}

/// Creates Machines with the status of running machines; no operator is running.
async fn plant(client: &Client, count: usize) -> Result<(), Whatever> {
    let kinds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions() {
        kinds
            .create(&PostParams::default(), &definition)
            .await
            .whatever_context("failed to install a CRD")?;
    }
    Crowd::new(client, Some("simulated")).create(count).await?;
    let machines: Api<Machine> = Api::default_namespaced(client.clone());
    let condition = json!({ "type": "Ready", "status": "True", "reason": "Running", "message": "The machine is running",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1 });
    let status = json!({ "status": { "phase": "Running", "observedGeneration": 1, "conditions": [condition],
        "ipAddresses": ["10.0.0.2"], "nodeName": "node-1" } });
    let mut planted = futures::stream::iter(0..count)
        .map(|number| {
            let (machines, status) = (machines.clone(), status.clone());
            async move {
                let name = format!("vm-{number}");
                machines.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await
            }
        })
        .buffer_unordered(CLIENTS);
    while let Some(planted) = planted.next().await {
        planted.whatever_context("failed to write the status of a machine")?;
    }
    Ok(())
}
