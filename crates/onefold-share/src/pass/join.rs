//! What became of the candidates meets the places that wait for them: both in order of their digests.

use std::path::Path;

use onefold_sort::{Batch, Merge, Ordered, OrderedWriter};

use super::PassError;
use super::rows::{Promoted, Seen, Source, Target, entry_row};
use crate::format::entry::{Entry, Place};

/// Writes down which places share with which slots; returns the entries that the index gets for the candidates, in order.
pub(super) fn join(
    promoted: Merge,
    mut others: Ordered,
    targets: &mut Batch<'_>,
    folder: &Path,
    memory_bytes: usize,
) -> Result<Ordered, PassError> {
    let mut entries = OrderedWriter::new(folder, memory_bytes);
    let mut next = others.next().transpose()?.map(Seen::of);
    for row in promoted {
        let Promoted { digest, slot } = Promoted::of(row?);
        if let Some(slot) = slot {
            entries.push(entry_row(Entry { digest, place: Place::Shared(slot) }))?;
        }
        let mut is_entered = slot.is_some();
        while let Some(other) = next.filter(|other| other.digest <= digest) {
            let (file, block) = (other.file, other.block);
            match slot.filter(|_| other.digest == digest) {
                Some(slot) => targets.push(Target { file, block, source: Source::Slot(slot) }.row())?,
                // The candidate was overwritten: one of the others takes its place, to be found next time.
                None if !is_entered && other.digest == digest => {
                    entries.push(entry_row(Entry { digest, place: Place::Unique(file, block) }))?;
                    is_entered = true;
                }
                None => {}
            }
            next = others.next().transpose()?.map(Seen::of);
        }
    }
    Ok(entries.finish()?)
}
