//! What the commands do, one file each. Each writes to the console it is given.

pub mod apiserver;
pub mod crds;
pub mod describe;
pub mod events;
pub mod get;
pub mod run;
pub mod samples;
mod summary;
pub mod up;
pub mod watch;
pub mod why;

use std::io;

use serde::Serialize;
use snafu::{ResultExt, Snafu};
use vitistack_apiserver::ServeError;
use vitistack_runtime::shutdown::ShutdownError;

use crate::{
    args::Command,
    cluster::{ConnectError, RequestError},
    kinds::NameError,
    manifests,
    output::Console,
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
            for manifest in manifests::rbac().context(MakeManifestSnafu)? {
                document(&manifest.yaml, console)?;
            }
            Ok(Ending::Done)
        }
        Command::Samples(arguments) => samples::run(arguments, console),
        Command::Summary => {
            summary::print(console.output).context(WriteOutputSnafu)?;
            Ok(Ending::Done)
        }
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

/// Writes one of several YAML documents.
fn document(yaml: &str, console: &mut Console<'_>) -> Result<(), Error> {
    write!(console.output, "---\n{yaml}").context(WriteOutputSnafu)
}

/// Writes one JSON document.
fn write_json(document: &impl Serialize, console: &mut Console<'_>) -> Result<(), Error> {
    serde_json::to_writer_pretty(&mut *console.output, document)
        .map_err(io::Error::from)
        .and_then(|()| writeln!(console.output))
        .context(WriteOutputSnafu)
}
