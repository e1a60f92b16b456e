//! Prints sample manifests.

use clap::Args;
use snafu::ResultExt;
use vitistack_types::samples;

use super::{Ending, Error, FindNameSnafu, WriteOutputSnafu, document};
use crate::output::Console;

/// Which samples.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vitistack samples --list\n  vitistack samples machine-basic | kubectl apply -f -"
)]
pub struct SamplesArgs {
    /// Samples to print, by name; all when none is given
    names: Vec<String>,
    /// Only list the names
    #[arg(long)]
    list: bool,
}

/// Prints them.
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
