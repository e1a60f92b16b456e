//! Prints the CRDs.

use clap::Args;
use snafu::ResultExt;
use vitistack_types::definitions;

use super::{Ending, Error, GenerateManifestSnafu, NameObjectSnafu, document};
use crate::{cluster::kinds::KnownKind, manifests, printing::Console};

/// The arguments of `vitistack crds`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  # Install the CRDs
  vitistack crds | kubectl apply --server-side -f -

  # Print the CRDs of two kinds
  vitistack crds machine machineclass")]
pub struct CrdsArgs {
    /// Kinds, plurals or short names (default: all kinds)
    kinds: Vec<String>,
}

/// Prints the CRDs.
pub fn run(arguments: &CrdsArgs, console: &mut Console<'_>) -> Result<Ending, Error> {
    let wanted = arguments
        .kinds
        .iter()
        .map(|name| KnownKind::find(name))
        .collect::<Result<Vec<_>, _>>()
        .context(NameObjectSnafu)?;
    for definition in definitions() {
        let is_wanted = wanted.iter().any(|kind| kind.resource.kind == definition.spec.names.kind);
        if wanted.is_empty() || is_wanted {
            document(&manifests::crd(&definition).context(GenerateManifestSnafu)?.yaml, console)?;
        }
    }
    Ok(Ending::Done)
}
