//! Prints sample manifests.

use clap::Args;
use snafu::ResultExt;
use vitistack_types::samples;

use super::{Ending, Error, FindNameSnafu, WriteOutputSnafu, document};
use crate::printing::Console;

/// The arguments of `vitistack samples`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  # List the samples
  vitistack samples --list

  # Apply a sample
  vitistack samples machine-basic | kubectl apply -f -")]
pub struct SamplesArgs {
    /// Samples to print (default: all)
    names: Vec<String>,
    /// List the names only
    #[arg(long)]
    list: bool,
}

/// Prints or lists the samples.
pub fn run(arguments: &SamplesArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let SamplesArgs { names, list } = arguments;
    for name in names {
        if !samples().iter().any(|sample| sample.name == *name) {
            let known: Vec<String> = samples().iter().map(|sample| sample.name.to_owned()).collect();
            return FindNameSnafu { what: "sample", name, known }.fail();
        }
    }

    for sample in
        samples().iter().filter(|sample| names.is_empty() || names.iter().any(|name| name == sample.name))
    {
        if *list {
            writeln!(console.output, "{}", sample.name).context(WriteOutputSnafu)?;
        } else {
            document(sample.manifest, console)?;
        }
    }
    Ok(Ending::Done)
}
