//! What became of the candidates meets the places that wait for them: both in order of their digests.

use std::path::Path;

use onefold_sort::{Batch, Merge, Ordered, OrderedWriter};

use super::PassError;
use super::again::{Again, Because};
use super::rows::{Candidate, Change, Promoted, Seen, Source, Step, Target};
use crate::format::entry::Place;

/// Where the join puts what follows.
pub(super) struct Sinks<'a, 't, 'e, 'c> {
    /// Places that share with slots.
    pub(super) targets: &'a mut Batch<'t>,
    /// Entries that the index gets.
    pub(super) changes: &'a mut Batch<'e>,
    /// Where a candidate was overwritten, or could not be cloned, the next place of its content is one.
    pub(super) candidates: &'a mut Batch<'c>,
    /// Where this was the last try: places that are read again next time instead.
    pub(super) given_up: Option<&'a mut Again>,
    /// For the list that is returned.
    pub(super) folder: &'a Path,
    pub(super) memory_bytes: usize,
}

/// Writes down which places share with which slots, and what is tried again. Returns the places that wait for the new
/// candidates, in order of their digests, and how many candidates there are.
pub(super) fn join(
    promoted: Merge,
    mut others: Ordered,
    mut sinks: Sinks<'_, '_, '_, '_>,
) -> Result<(Ordered, u64), PassError> {
    let mut waiting = OrderedWriter::new(sinks.folder, sinks.memory_bytes);
    let mut candidate_count = 0;
    let mut next = others.next().transpose()?.map(Seen::of);
    for row in promoted {
        let Promoted { digest, slot } = Promoted::of(row?);
        let mut take = || -> Result<Option<Seen>, PassError> {
            let Some(other) = next.filter(|other| other.digest == digest) else { return Ok(None) };
            next = others.next().transpose()?.map(Seen::of);
            Ok(Some(other))
        };
        if let Some(slot) = slot {
            sinks.changes.push(Change { digest, step: Step::Put(Place::Shared(slot)) }.row())?;
            while let Some(Seen { file, block, .. }) = take()? {
                sinks.targets.push(Target { file, block, source: Source::Slot(slot) }.row())?;
            }
            continue;
        }
        let Some(Seen { file, block, .. }) = take()? else { continue };
        let Some(second) = take()? else {
            sinks.changes.push(Change { digest, step: Step::Put(Place::Unique(file, block)) }.row())?;
            continue;
        };
        if let Some(again) = &mut sinks.given_up {
            sinks.changes.push(Change { digest, step: Step::Put(Place::Unique(file, block)) }.row())?;
            again.add(second.file, second.block, 1, Because::Changed);
            while let Some(other) = take()? {
                again.add(other.file, other.block, 1, Because::Changed);
            }
            continue;
        }
        candidate_count += 1;
        sinks.candidates.push(Candidate { file, block, digest }.row())?;
        waiting.push(second.row())?;
        while let Some(other) = take()? {
            waiting.push(other.row())?;
        }
    }
    Ok((waiting.finish()?, candidate_count))
}
