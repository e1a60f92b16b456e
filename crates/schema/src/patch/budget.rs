//! The limits of a JSON patch: what its operations may copy, shift and nest.
//!
//! A patch of a few bytes can double a document with every operation, or nest it one level deeper than the
//! last one did. Every operation is therefore measured before it is applied.

use std::io;

use json_patch::{PatchOperation, jsonptr::Pointer};
use serde_json::Value;

use super::{MAX_DEPTH, PatchError, fits, too_deep};

/// The maximum number of bytes that the `copy` operations of a patch may add, as in kube-apiserver.
const MAX_COPIED: usize = 3 * 1024 * 1024;

/// The maximum number of list items that a patch may shift or measure.
const MAX_ITEMS: usize = 32 * 1024 * 1024;

/// What the operations of a patch have used so far.
#[derive(Debug, Default)]
pub(super) struct Budget {
    copied: usize,
    items: usize,
}

impl Budget {
    /// Rejects an operation that would exceed a limit. An operation that does not fit the document passes:
    /// applying it fails without a change.
    pub(super) fn check(&mut self, operation: &PatchOperation, document: &Value) -> Result<(), PatchError> {
        match operation {
            PatchOperation::Add(add) => nests(&add.path, &add.value)?,
            PatchOperation::Replace(replace) => nests(&replace.path, &replace.value)?,
            PatchOperation::Copy(copy) => {
                if let Ok(source) = copy.from.resolve(document) {
                    self.copy(source)?;
                    nests(&copy.path, source)?;
                }
            }
            // A value that moves up or sideways cannot become too deep.
            PatchOperation::Move(moved) if moved.path.count() > moved.from.count() => {
                if let Ok(source) = moved.from.resolve(document) {
                    self.spend(size(source))?;
                    nests(&moved.path, source)?;
                }
            }
            PatchOperation::Move(_) | PatchOperation::Remove(_) | PatchOperation::Test(_) => {}
        }

        self.shift(operation.path(), document)?;
        match operation {
            PatchOperation::Move(moved) => self.shift(&moved.from, document),
            _ => Ok(()),
        }
    }

    fn copy(&mut self, source: &Value) -> Result<(), PatchError> {
        self.copied = self.copied.saturating_add(size(source));
        if self.copied <= MAX_COPIED {
            return Ok(());
        }
        let message = format!(
            "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit {MAX_COPIED}",
            self.copied
        );
        Err(PatchError::ApplyPatch { message })
    }

    /// Counts the items of the list that an operation changes: all of them may be shifted.
    fn shift(&mut self, path: &Pointer, document: &Value) -> Result<(), PatchError> {
        match path.parent().and_then(|parent| parent.resolve(document).ok()) {
            Some(Value::Array(items)) => self.spend(items.len()),
            _ => Ok(()),
        }
    }

    fn spend(&mut self, items: usize) -> Result<(), PatchError> {
        self.items = self.items.saturating_add(items);
        if self.items <= MAX_ITEMS {
            return Ok(());
        }
        let message = format!("the patch shifts more than {MAX_ITEMS} list items: split it into several");
        Err(PatchError::ApplyPatch { message })
    }
}

/// Rejects a value that would be too deep at a path.
fn nests(path: &Pointer, value: &Value) -> Result<(), PatchError> {
    let above = path.count();
    if above <= MAX_DEPTH && fits(value, MAX_DEPTH - above) { Ok(()) } else { Err(too_deep()) }
}

/// Returns the size of a value as JSON.
fn size(value: &Value) -> usize {
    let mut counter = Counter(0);
    // Counting cannot fail.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
