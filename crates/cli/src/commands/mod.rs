//! The commands, one file each.

pub mod adopt;
pub mod apiserver;
pub mod crds;
pub mod describe;
pub mod doctor;
pub mod events;
pub mod export;
pub mod get;
pub mod manager;
pub mod pause;
pub mod plan;
pub mod power;
pub mod release;
pub mod render;
pub mod run;
pub mod samples;
pub mod shell;
mod sort;
mod summary;
mod targets;
pub mod up;
pub mod version;
pub mod watch;
pub mod why;

use std::{io, path::PathBuf};

use serde::Serialize;
use snafu::{ResultExt, Snafu};
use vitistack_apiserver::ServeError;
use vitistack_runtime::{shutdown::ShutdownError, telemetry::TelemetryError};

use self::{plan::PlanError, render::RenderError};
use crate::{
    args::Command,
    cluster::{ConnectError, RequestError, change::ChangeError, kinds::NameError},
    manifests::{self, Manifest},
    printing::{Console, OutputFormat},
};

/// How a command ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The command succeeded.
    Done,
    /// Changes are pending.
    Change,
    /// The result is partial; what is missing was reported.
    Partial,
}

/// Errors of commands.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
pub enum Error {
    /// The output is closed or full.
    #[snafu(display("failed to write the output: {source}"))]
    WriteOutput { source: io::Error },
    /// A manifest cannot be generated.
    #[snafu(display("{source}"))]
    GenerateManifest { source: manifests::Error },
    /// Signals cannot be handled.
    #[snafu(display("{source}"))]
    HandleSignals { source: ShutdownError },
    /// The log cannot be started.
    #[snafu(display("{source}"))]
    StartLog { source: TelemetryError },
    /// The API cannot be served.
    #[snafu(display("{source}"))]
    Serve { source: ServeError },
    /// The data directory cannot be backed up.
    #[snafu(display("{source}"), context(false))]
    Backup { source: apiserver::BackupError },
    /// The backup cannot be restored.
    #[snafu(display("{source}"), context(false))]
    Restore { source: apiserver::RestoreError },
    /// The cluster cannot be used.
    #[snafu(display("{source}"), context(false))]
    Connect { source: ConnectError },
    /// A request failed.
    #[snafu(display("{source}"), context(false))]
    Request { source: RequestError },
    /// A change was refused.
    #[snafu(display("{source}"), context(false))]
    Change { source: ChangeError },
    /// A file cannot be rendered.
    #[snafu(display("{source}"), context(false))]
    Render { source: RenderError },
    /// The changes cannot be previewed.
    #[snafu(display("{source}"), context(false))]
    Plan { source: PlanError },
    /// Checks of the cluster failed.
    #[snafu(display("{failed} of {all} checks failed"))]
    FailChecks { failed: usize, all: usize },
    /// The man pages cannot be written.
    #[snafu(display("failed to write man pages to {}: {source}: set --dir to a writable directory", dir.display()))]
    WriteMan { dir: PathBuf, source: io::Error },
    /// The kind or object is invalid.
    #[snafu(display("{source}"))]
    NameObject { source: NameError },
    /// No object has the field to sort by.
    #[snafu(display("no object has the field {path:?}: set --sort-by to a field such as .metadata.name"))]
    SortObjects { path: String },
    /// The path of a field is invalid.
    #[snafu(display(
        "invalid field path {path:?}: use .NAME.NAME, such as .metadata.creationTimestamp or {{.status.phase}}"
    ))]
    ReadPath { path: String },
    /// Objects of several kinds have different columns.
    #[snafu(display(
        "--watch requires objects of one kind, or one object: use \"vitistack watch\" for several kinds"
    ))]
    FollowKinds,
    /// The format has no rows to add.
    #[snafu(display("--watch requires the output format text or wide: remove -o"))]
    FollowFormat,
    /// An object cannot be written as YAML.
    #[snafu(display("failed to write the result as YAML: {source}"))]
    WriteObject { source: serde_saphyr::ser::Error },
    /// The operators failed.
    #[snafu(display("{source}"), context(false))]
    RunOperators { source: run::RunError },
    /// `vitistack up` failed.
    #[snafu(display("{source}"), context(false))]
    RunPlatform { source: up::UpError },
    /// The name does not exist.
    #[snafu(display("unknown {what} {name:?}: use one of {}", known.join(", ")))]
    FindName { what: &'static str, name: String, known: Vec<String> },
}

impl Error {
    /// Returns whether the reader of the output closed the pipe.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::WriteOutput { source } if source.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Runs one command.
pub async fn run(command: &Command, console: &mut Console<'_>) -> Result<Ending, Error> {
    match command {
        Command::Crds(arguments) => crds::run(arguments, console),
        Command::Rbac => {
            documents(manifests::rbac(), console)?;
            documents(manifests::policies(), console)
        }
        Command::Manager(arguments) => manager::run(arguments, console),
        Command::Samples(arguments) => samples::run(arguments, console),
        Command::Summary => {
            summary::print(console.output).context(WriteOutputSnafu)?;
            Ok(Ending::Done)
        }
        Command::Power(arguments) => power::run(arguments, console).await,
        Command::Pause(arguments) => pause::pause(arguments, console).await,
        Command::Resume(arguments) => pause::resume(arguments, console).await,
        Command::Adopt(arguments) => adopt::run(arguments, console).await,
        Command::Release(arguments) => release::run(arguments, console).await,
        Command::Plan(arguments) => plan::run(arguments, console).await,
        Command::Render(arguments) => render::run(arguments, console).await,
        Command::Export(arguments) => export::run(arguments, console).await,
        Command::Doctor(arguments) => doctor::run(arguments, console).await,
        Command::Completion(arguments) => shell::completion(arguments, console),
        Command::Man(arguments) => shell::man(arguments, console),
        Command::Up(arguments) => Ok(up::run(arguments, console).await?),
        Command::Run(arguments) => Ok(run::run(arguments).await?),
        Command::Get(arguments) => get::run(arguments, console).await,
        Command::Describe(arguments) => describe::run(arguments, console).await,
        Command::Why(arguments) => why::run(arguments, console).await,
        Command::Events(arguments) => events::run(arguments, console).await,
        Command::Watch(arguments) => watch::run(arguments, console).await,
        Command::Version(arguments) => version::run(arguments, console).await,
        Command::Apiserver(arguments) => apiserver::run(arguments, console).await,
    }
}

/// Writes generated manifests.
fn documents(
    manifests: Result<Vec<Manifest>, manifests::Error>,
    console: &mut Console<'_>,
) -> Result<Ending, Error> {
    for manifest in manifests.context(GenerateManifestSnafu)? {
        document(&manifest.yaml, console)?;
    }
    Ok(Ending::Done)
}

/// Writes one document of a YAML stream.
fn document(yaml: &str, console: &mut Console<'_>) -> Result<(), Error> {
    write!(console.output, "---\n{yaml}").context(WriteOutputSnafu)
}

/// Writes a result as JSON or YAML, with what could not be read. Returns false for text, which the command writes itself.
fn write_answer(
    answer: &impl Serialize,
    missing: &[String],
    format: OutputFormat,
    console: &mut Console<'_>,
) -> Result<bool, Error> {
    write_document(&Answer { answer, not_checked: missing }, format, console)
}

/// A result and what could not be read.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a, T> {
    #[serde(flatten)]
    answer: &'a T,
    /// Marks a partial result.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    not_checked: &'a [String],
}

/// Writes a document as JSON or YAML. Returns false for the other formats, which the command writes itself.
fn write_document(
    document: &impl Serialize,
    format: OutputFormat,
    console: &mut Console<'_>,
) -> Result<bool, Error> {
    match format {
        OutputFormat::Json => write_json(document, console)?,
        OutputFormat::Yaml => {
            let yaml = serde_saphyr::to_string(document).context(WriteObjectSnafu)?;
            console.output.write_all(yaml.as_bytes()).context(WriteOutputSnafu)?;
        }
        OutputFormat::Text | OutputFormat::Wide | OutputFormat::Name => return Ok(false),
    }
    Ok(true)
}

/// Writes a JSON document.
fn write_json(document: &impl Serialize, console: &mut Console<'_>) -> Result<(), Error> {
    serde_json::to_writer_pretty(&mut *console.output, document)
        .map_err(io::Error::from)
        .and_then(|()| writeln!(console.output))
        .context(WriteOutputSnafu)
}
