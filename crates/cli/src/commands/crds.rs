//! Prints definitions.

use clap::Args;
use snafu::ResultExt;
use vitistack_types::definitions;

use super::{Ending, Error, MakeManifestSnafu, NameObjectSnafu, document};
use crate::{kinds::KnownKind, manifests, output::Console};

/// Which definitions.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vitistack crds | kubectl apply --server-side -f -\n  vitistack crds machine machineclass"
)]
pub struct CrdsArgs {
    /// Kinds to print, by kind, plural or short name; all when none is given
    kinds: Vec<String>,
}

/// Prints them.
pub fn run(arguments: &CrdsArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let wanted = arguments
        .kinds
        .iter()
        .map(|word| KnownKind::find(word))
        .collect::<Result<Vec<_>, _>>()
        .context(NameObjectSnafu)?;
    for definition in definitions() {
        let is_wanted = wanted.iter().any(|kind| kind.resource.kind == definition.spec.names.kind);
        if wanted.is_empty() || is_wanted {
            document(&manifests::crd(&definition).context(MakeManifestSnafu)?.yaml, console)?;
        }
    }
    Ok(Ending::Done)
}
