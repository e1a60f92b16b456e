//! What the commands do, one file each. Each writes to the console it is given.

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
mod summary;
pub mod up;
pub mod watch;
pub mod why;

use std::{io, path::PathBuf};

use serde::Serialize;
use snafu::{ResultExt, Snafu};
use vitistack_apiserver::ServeError;
use vitistack_runtime::shutdown::ShutdownError;

use self::{plan::PlanError, render::RenderError};
use crate::{
    args::Command,
    change::ChangeError,
    cluster::{ConnectError, RequestError},
    kinds::NameError,
    manifests::{self, Manifest},
    output::{AnswerFormat, Console},
};

/// How a command ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It did what was asked.
    Done,
    /// There is a change to be made.
    Change,
    /// Only a part of the answer could be had; what is missing was told.
    Partial,
}

/// Indicates that a command failed.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
pub enum Error {
    /// Indicates that the output is closed or full.
    #[snafu(display("failed to write the output: {source}"))]
    WriteOutput { source: io::Error },
    /// Indicates that a manifest could not be made.
    #[snafu(display("{source}"))]
    MakeManifest { source: manifests::Error },
    /// Indicates that the end of the process could not be listened for.
    #[snafu(display("{source}"))]
    ListenForEnd { source: ShutdownError },
    /// Indicates that the API could not be served.
    #[snafu(display("{source}"))]
    Serve { source: ServeError },
    /// Indicates that there is no cluster to ask.
    #[snafu(display("{source}"), context(false))]
    Connect { source: ConnectError },
    /// Indicates that the cluster did not answer as wanted.
    #[snafu(display("{source}"), context(false))]
    Request { source: RequestError },
    /// Indicates that a change was refused.
    #[snafu(display("{source}"), context(false))]
    Change { source: ChangeError },
    /// Indicates that a file could not be rendered.
    #[snafu(display("{source}"), context(false))]
    Render { source: RenderError },
    /// Indicates that it cannot be said what files would change.
    #[snafu(display("{source}"), context(false))]
    Plan { source: PlanError },
    /// Indicates that a cluster lacks something that the operators need.
    #[snafu(display("{failed} of {all} checks failed"))]
    FailChecks { failed: usize, all: usize },
    /// Indicates that the pages of `man` could not be written.
    #[snafu(display("failed to write pages to {}: {source}: give --dir a directory that you may write to", dir.display()))]
    WriteMan { dir: PathBuf, source: io::Error },
    /// Indicates that the words of the user name nothing.
    #[snafu(display("{source}"))]
    NameObject { source: NameError },
    /// Indicates that an object has no YAML form.
    #[snafu(display("failed to write the answer as YAML: {source}"))]
    WriteObject { source: serde_saphyr::ser::Error },
    /// Indicates that operators do not run.
    #[snafu(display("{source}"), context(false))]
    RunOperators { source: run::RunError },
    /// Indicates that the platform does not run.
    #[snafu(display("{source}"), context(false))]
    RunPlatform { source: up::UpError },
    /// Indicates that there is nothing of that name.
    #[snafu(display("there is no {what} {name:?}: choose from {}", known.join(", ")))]
    FindName { what: &'static str, name: String, known: Vec<String> },
}

impl Error {
    /// Whether the reader of the output went away.
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
        Command::Apiserver(arguments) => apiserver::run(arguments, console).await,
    }
}

/// Writes what was generated.
fn documents(
    manifests: Result<Vec<Manifest>, manifests::Error>,
    console: &mut Console<'_>,
) -> Result<Ending, Error> {
    for manifest in manifests.context(MakeManifestSnafu)? {
        document(&manifest.yaml, console)?;
    }
    Ok(Ending::Done)
}

/// Writes one of several YAML documents.
fn document(yaml: &str, console: &mut Console<'_>) -> Result<(), Error> {
    write!(console.output, "---\n{yaml}").context(WriteOutputSnafu)
}

/// Writes what is told as a document, with what could not be read beside it; false for text, which each command writes
/// by itself.
fn write_answer(
    answer: &impl Serialize,
    missing: &[String],
    format: AnswerFormat,
    console: &mut Console<'_>,
) -> Result<bool, Error> {
    let whole = Answer { answer, not_known: missing };
    match format {
        AnswerFormat::Text => return Ok(false),
        AnswerFormat::Json => write_json(&whole, console)?,
        AnswerFormat::Yaml => {
            let yaml = serde_saphyr::to_string(&whole).context(WriteObjectSnafu)?;
            console.output.write_all(yaml.as_bytes()).context(WriteOutputSnafu)?;
        }
    }
    Ok(true)
}

/// What is told, and what is not known.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a, T> {
    #[serde(flatten)]
    answer: &'a T,
    /// A partial answer is never shown as whole.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    not_known: &'a [String],
}

/// Writes one JSON document.
fn write_json(document: &impl Serialize, console: &mut Console<'_>) -> Result<(), Error> {
    serde_json::to_writer_pretty(&mut *console.output, document)
        .map_err(io::Error::from)
        .and_then(|()| writeln!(console.output))
        .context(WriteOutputSnafu)
}
