//! The known digests of a file's blocks, in order of the blocks: from its logs, and from the index in reverse.
//!
//! Entries of unique blocks name the file. Entries of shared blocks name slots; the map of the arena shows which blocks
//! of the file are there. Blocks that neither knows are left out; their digests are not known for the source either.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use onefold_block::BLOCK_BYTES_U64;
use onefold_sort::{Merge, Row, SortBatch, Sorter};
use onefold_substrate::{Access, FileStat, Substrate};

use super::CloneOptions;
use crate::extents::Extents;
use crate::format::entry::{ContentEntry, ContentPlace};
use crate::format::log::WrittenBlock;
use crate::format::{FileBlock, FileNo, FingerprintPrefix, Slot};
use crate::pass::slots::SlotSet;
use crate::places::Places;
use crate::state::ask::LogCompleteness;
use crate::state::{State, StateError};

/// Blocks and their digests.
pub(super) struct Digests {
    rows: Merge,
    last: Option<u64>,
    /// Blocks behind the end are left out.
    end: u64,
}

impl Digests {
    /// Returns the next block.
    pub(super) fn next(&mut self) -> io::Result<Option<WrittenBlock>> {
        for row in &mut self.rows {
            let [block, high, low] = row?;
            // A block may be reported twice.
            if self.last == Some(block) || block >= self.end {
                continue;
            }
            self.last = Some(block);
            let digest = (low & ZERO == 0).then(|| digest_of(high, low));
            return Ok(Some(WrittenBlock { block: FileBlock(block), digest }));
        }
        Ok(None)
    }
}

/// Flag in the last word of a row: the block is zero.
const ZERO: u64 = 1 << 63;

fn digest_words(digest: FingerprintPrefix) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = digest.0;
    [u64::from_be_bytes([a, b, c, d, e, f, g, h]), u64::from(u32::from_be_bytes(rest))]
}

fn digest_of(high: u64, low: u64) -> FingerprintPrefix {
    let mut bytes = [0; FingerprintPrefix::BYTES];
    bytes[..8].copy_from_slice(&high.to_be_bytes());
    bytes[8..].copy_from_slice(&low.to_be_bytes()[4..]);
    FingerprintPrefix(bytes)
}

/// Returns the known digests of a file's blocks. `None` if they are damaged, or if reading the file is less work.
pub(super) fn of_file<S: Substrate>(
    state: &State<'_, S>,
    file: &S::File,
    number: FileNo,
    stat: &FileStat,
    options: &CloneOptions<'_>,
) -> Result<Option<Digests>, StateError> {
    if state.index_stored()?.bytes > stat.allocated {
        return Ok(None);
    }
    let in_temporary = |source| StateError::Io { path: options.temporary_folder.to_owned(), source };
    let (blocks, slots) = (Sorter::new(options.temporary_folder), Sorter::new(options.temporary_folder));
    let part = options.memory_bytes / 2;
    let (mut blocks_batch, mut slots_batch) = (blocks.batch(part), slots.batch(part));

    // Logs before the index: the contents of a log that a pass takes in meanwhile are then there twice, and not
    // missing.
    let told = state.each_logged(number, |block, digest| -> Result<(), StateError> {
        let [high, low] = digest.map_or([0, ZERO], digest_words);
        blocks_batch.push([block.0, high, low]).map_err(in_temporary)
    })?;
    if told == LogCompleteness::InPart {
        return Ok(None);
    }
    let Some(wanted) = slots_of(state, file, &mut slots_batch, options.temporary_folder)? else { return Ok(None) };
    let mut failed = None;
    let each = |ContentEntry { digest, place }| {
        let [high, low] = digest_words(digest);
        let pushed = match place {
            ContentPlace::Unique(file, block) if file == number => blocks_batch.push([block.0, high, low]),
            ContentPlace::Shared(slot) if wanted.contains(slot) => slots_batch.push([slot.number() << 1, high, low]),
            _ => Ok(()),
        };
        pushed.map_or_else(
            |error| {
                failed = Some(error);
                ControlFlow::Break(())
            },
            ControlFlow::Continue,
        )
    };
    match state.each_entry(each) {
        Err(StateError::Damaged { .. }) => return Ok(None),
        read => read?,
    }
    if let Some(error) = failed {
        return Err(in_temporary(error));
    }
    let slots = slots.merged(vec![slots_batch.finish()]).map_err(in_temporary)?;
    join(slots, &mut blocks_batch).map_err(in_temporary)?;
    let rows = blocks.merged(vec![blocks_batch.finish()]).map_err(in_temporary)?;
    Ok(Some(Digests { rows, last: None, end: stat.length / BLOCK_BYTES_U64 }))
}

/// Joins blocks in slots with digests of slots. By the first word of the rows, a slot's digest comes before its blocks.
fn join(slots: Merge, blocks: &mut SortBatch<'_>) -> io::Result<()> {
    let mut known: Option<Row> = None;
    for row in slots {
        let row = row?;
        if row[0] & 1 == 0 {
            known = Some(row);
        } else if let Some([slot, high, low]) = known
            && slot | 1 == row[0]
        {
            blocks.push([row[1], high, low])?;
        }
    }
    Ok(())
}

/// Records which blocks of a file are in which slots, and returns the slots. `None` if the file is in too many pieces.
fn slots_of<S: Substrate>(
    state: &State<'_, S>,
    file: &S::File,
    rows: &mut SortBatch<'_>,
    temporary_folder: &Path,
) -> Result<Option<SlotSet>, StateError> {
    let substrate = state.substrate();
    let mut wanted = SlotSet::default();
    let in_file = |source| StateError::Io { path: temporary_folder.to_owned(), source };
    let Some(places) = Places::of(substrate, file).map_err(in_file)? else { return Ok(None) };
    for number in state.arenas()? {
        let Some(arena) = state.open_arena(number, Access::Read)? else { continue };
        for extent in Extents::load(substrate, &arena).map_err(in_file)?.iter() {
            for (offset, at) in places.within(extent) {
                let (Some(slot), block) = (Slot::new(number, offset / BLOCK_BYTES_U64), at / BLOCK_BYTES_U64) else {
                    continue;
                };
                wanted.insert(slot);
                rows.push([slot.number() << 1 | 1, block, 0]).map_err(in_file)?;
            }
        }
    }
    Ok(Some(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_hold_digests() {
        let digest = FingerprintPrefix([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255]);
        let [high, low] = digest_words(digest);
        assert_eq!(digest_of(high, low), digest);
        assert!(low & ZERO == 0);
    }
}
