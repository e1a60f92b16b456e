//! What the commands do. Each writes to the output it is given.

mod apiserver;
mod summary;

use std::io::{self, Write};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use snafu::{ResultExt, Snafu};
use vitistack_apiserver::{ServeError, ServeOptions};
use vitistack_runtime::shutdown::ShutdownError;
use vitistack_types::{definitions, samples};

use crate::{
    args::Command,
    deployment::Deployment,
    manifests::{self, Manifest},
};

/// Indicates that a command failed.
#[derive(Debug, Snafu)]
pub enum Error {
    /// Indicates that the output is closed or full.
    #[snafu(display("failed to write the output: {source}"))]
    WriteOutput { source: io::Error },
    /// Indicates that a manifest could not be made.
    #[snafu(display("{source}"))]
    MakeManifest { source: manifests::Error },
    /// Indicates that the process could not be prepared for serving.
    #[snafu(display("failed to prepare for serving: {source}"))]
    Prepare { source: io::Error },
    /// Indicates that the end of the process could not be listened for.
    #[snafu(display("{source}"))]
    ListenForEnd { source: ShutdownError },
    /// Indicates that the API could not be served.
    #[snafu(display("{source}"))]
    Serve { source: ServeError },
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
pub fn run(command: &Command, output: &mut dyn Write) -> Result<(), Error> {
    match command {
        Command::Crds { kinds } => crds(kinds, output),
        Command::Rbac => documents(manifests::rbac(), output),
        Command::Manager { image, replicas } => {
            documents(manifests::manager(&Deployment { image, replicas: *replicas }), output)
        }
        Command::Samples { names, list } => print_samples(names, *list, output),
        Command::Summary => summary::print(output).context(WriteOutputSnafu),
        Command::Apiserver { listen, data_dir, kubeconfig } => {
            let options =
                ServeOptions { listen: *listen, data_dir: data_dir.clone(), kubeconfig: kubeconfig.clone() };
            apiserver::run(options, output)
        }
    }
}

fn documents(
    manifests: Result<Vec<Manifest>, manifests::Error>,
    output: &mut dyn Write,
) -> Result<(), Error> {
    manifests.context(MakeManifestSnafu)?.iter().try_for_each(|manifest| document(&manifest.yaml, output))
}

fn document(yaml: &str, output: &mut dyn Write) -> Result<(), Error> {
    write!(output, "---\n{yaml}").context(WriteOutputSnafu)
}

fn crds(kinds: &[String], output: &mut dyn Write) -> Result<(), Error> {
    let definitions = definitions();
    for kind in kinds {
        if !definitions.iter().any(|definition| goes_by(definition, kind)) {
            let known: Vec<String> =
                definitions.iter().map(|definition| definition.spec.names.kind.clone()).collect();
            return FindNameSnafu { what: "kind", name: kind, known }.fail();
        }
    }
    let wanted = |definition: &&CustomResourceDefinition| {
        kinds.is_empty() || kinds.iter().any(|kind| goes_by(definition, kind))
    };
    for definition in definitions.iter().filter(wanted) {
        document(&manifests::crd(definition).context(MakeManifestSnafu)?.yaml, output)?;
    }
    Ok(())
}

/// Whether a user may mean this kind by that word.
fn goes_by(definition: &CustomResourceDefinition, word: &str) -> bool {
    let names = &definition.spec.names;
    [&names.kind, &names.plural]
        .into_iter()
        .chain(names.short_names.iter().flatten())
        .any(|name| name.eq_ignore_ascii_case(word))
}

fn print_samples(names: &[String], list: bool, output: &mut dyn Write) -> Result<(), Error> {
    for name in names {
        if !samples().iter().any(|sample| sample.name == *name) {
            let known: Vec<String> = samples().iter().map(|sample| sample.name.to_owned()).collect();
            return FindNameSnafu { what: "sample", name, known }.fail();
        }
    }
    for sample in
        samples().iter().filter(|sample| names.is_empty() || names.iter().any(|name| name == sample.name))
    {
        if list {
            writeln!(output, "{}", sample.name).context(WriteOutputSnafu)?;
        } else {
            document(sample.manifest, output)?;
        }
    }
    Ok(())
}
