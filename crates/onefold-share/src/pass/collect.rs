//! Collection of blocks that only the arena refers to, on file systems whose maps do not show this. OCFS2 shows a block
//! that was shared once as shared, even if all other files have dropped it.
//!
//! So the maps of all known images are compared with those of the arena files. A slot is unneeded if no image has data
//! at its place on the device. No data is read, and lists that do not fit into memory are sorted in files. Like all
//! maps, the result is a hint: emptying a slot is safe, whichever file refers to its block. But if an entry is dropped
//! while a process shares with its slot, the block of that process's file is unknown to the index. So the order is:
//!
//! 1. Take `locks/maps`, so that one host at a time does this. Its file's time is that of the last collection.
//! 2. Take the locks of the arena files, and those for emptying their slots. A host that shares in two steps checks
//!    these locks after it has declared its shares, and leaves the shares for another time.
//! 3. Read all intents. A host that declared earlier may be sharing; the slots that it names are needed.
//! 4. Read the maps. They show all shares of hosts that were finished before, and whose intents are gone.
//! 5. Drop the entries that name unneeded slots.
//! 6. Empty the slots, as all slots that no entry names. The locks are held until then.
//!
//! A host that dies in between loses only its work. Unknown files (those outside of every scan) are not looked at: they
//! keep their blocks, but new files do not find these in the index.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::time::Duration;

use onefold_block::{BLOCK_BYTES_U64, Timestamp};
use onefold_sort::{Merge, SortWriter, Spool, SpoolWriter};
use onefold_substrate::{Access, MappedExtent, Substrate};

use super::arenas::Arenas;
use super::images::Images;
use super::lists::part_bytes;
use super::publish::{self, KnownShards, LOCK_PAUSE, News};
use super::rows::{Change, Step};
use super::slots::SlotSet;
use super::{PassError, PassOptions};
use crate::extents::each_extent;
use crate::format::entry::ContentPlace;
use crate::format::prefix::Prefix;
use crate::format::{FileNo, FormatError, Slot};
use crate::policy::UnneededSlots;
use crate::state::arena::KeptArenas;
use crate::state::locks::Subject;
use crate::state::{State, StateError};

/// Blocks that logs must report to make a collection worthwhile, in percent of the filled slots. Each of them may have
/// been a reference. Mostly it was also read; compared with that, the maps of all images cost little.
const TOLD_PERCENT: u64 = 5;
/// Interval of collections when the logs report fewer blocks.
const SETTLED: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum number of attempts to take an arena file's locks. A host that only checks whether they are free has them for
/// a moment.
const LOCK_TRIES: u32 = 10;

/// Reasons to collect.
pub(super) struct Occasion<'a> {
    /// When the pass began.
    pub(super) now: Timestamp,
    /// Files that are known and gone.
    pub(super) gone: &'a [FileNo],
    /// Number of blocks that logs reported.
    pub(super) told: u64,
}

/// Result of a collection.
pub(super) struct CollectionResult<'a, 'b, S: Substrate> {
    /// Whether it was worthwhile, but other hosts were in the way.
    pub(super) is_left: bool,
    /// How many entries were dropped.
    pub(super) dropped: u64,
    /// Until this is dropped, no host shares with the slots that may be emptied now.
    pub(super) _kept: Option<KeptArenas<'a, 'b, S>>,
}

/// Drops the entries whose slots no image refers to, if that is worthwhile. No entry names their slots then.
pub(super) fn collect<'a, 'b, S: Substrate>(
    state: &'a State<'b, S>,
    images: &mut Images<'_, 'b, S>,
    options: &PassOptions<'_>,
    occasion: &Occasion<'_>,
    arenas: &Arenas,
    known: &mut KnownShards,
    named: &mut SlotSet,
) -> Result<CollectionResult<'a, 'b, S>, PassError> {
    let mut collected = CollectionResult { is_left: false, dropped: 0, _kept: None };
    let filled = arenas.filled.count();
    if state.policy().unneeded != UnneededSlots::Compared || filled == 0 {
        return Ok(collected);
    }
    let Some(maps) = state.try_lock(&Subject::Maps)? else {
        collected.is_left = true;
        return Ok(collected);
    };
    let last = state.substrate().stat(maps.file()).map_err(StateError::at(state.folder().path()))?.modified;
    if !is_due(occasion, last, filled, |number| images.gone_since(number)) {
        return Ok(collected);
    }
    let (kept, is_all) = keep_arenas(state, options)?;
    let mut collector = Collector { state, images, options, kept: kept.numbers(), unneeded: SlotSet::default() };
    collected.is_left = !is_all;
    if !collector.compare()? {
        return Ok(collected);
    }
    let changes = collector.changes()?;
    let unneeded = collector.unneeded;
    if !changes.is_empty() && !drop_entries(state, options, &changes, &unneeded, known, named)? {
        collected.is_left = true;
        return Ok(collected);
    }
    collected.dropped = changes.len();
    if !collected.is_left {
        // If this fails, the next pass collects again.
        let _ = state.substrate().set_modified(maps.file(), occasion.now);
    }
    collected._kept = Some(kept);
    Ok(collected)
}

/// Returns whether images may have dropped enough blocks since the last time.
fn is_due(
    occasion: &Occasion<'_>,
    last: Timestamp,
    filled: u64,
    gone_since: impl Fn(FileNo) -> Option<Timestamp>,
) -> bool {
    let is_new = |number: &FileNo| gone_since(*number).is_none_or(|since| since > last);
    occasion.gone.iter().any(is_new)
        || occasion.told.saturating_mul(100) >= filled.saturating_mul(TOLD_PERCENT)
        || occasion.now.seconds.abs_diff(last.seconds) >= SETTLED.as_secs()
}

/// Takes the locks of all arena files that no host fills. Returns whether these are all.
fn keep_arenas<'a, 'b, S: Substrate>(
    state: &'a State<'b, S>,
    options: &PassOptions<'_>,
) -> Result<(KeptArenas<'a, 'b, S>, bool), PassError> {
    let mut kept = KeptArenas::new(state);
    let mut left = state.arenas()?;
    for round in 0..LOCK_TRIES {
        if round > 0 {
            options.clock.sleep(LOCK_PAUSE);
            options.pace.waited();
        }
        let mut busy = Vec::new();
        for number in left {
            options.pace.boundary()?;
            if !kept.keep(number)? {
                busy.push(number);
            }
        }
        left = busy;
        if left.is_empty() {
            break;
        }
    }
    Ok((kept, left.is_empty()))
}

/// Publishes the changes. Returns false if other hosts published first each time.
fn drop_entries<S: Substrate>(
    state: &State<'_, S>,
    options: &PassOptions<'_>,
    changes: &Spool,
    unneeded: &SlotSet,
    known: &mut KnownShards,
    named: &mut SlotSet,
) -> Result<bool, PassError> {
    let folder = options.temporary_folder;
    let (seen, suspects) = (SpoolWriter::new(folder, 0).finish()?, SlotSet::default());
    let mut again = SortWriter::new(folder, 0);
    let entries_max = options.shard_entries_max;
    let news = News {
        changes,
        planned: changes,
        seen: &seen,
        suspects: &suspects,
        unneeded,
        keys: &[],
        merges: false,
        entries_max,
        folder,
        pace: options.pace,
    };
    if !publish::publish(state, options.clock, &news, known, named, &mut again)? {
        return Ok(false);
    }
    for row in changes.read(0, changes.len()) {
        if let Step::Drop(ContentPlace::Shared(slot)) = Change::of(row?).step {
            named.remove(slot);
        }
    }
    Ok(true)
}

struct Collector<'a, 'i, 'f, 'b, S: Substrate> {
    state: &'a State<'b, S>,
    images: &'i mut Images<'f, 'b, S>,
    options: &'a PassOptions<'a>,
    /// Arena files whose locks are held.
    kept: &'a BTreeSet<u32>,
    /// Slots that no image and no intent refers to.
    unneeded: SlotSet,
}

impl<S: Substrate> Collector<'_, '_, '_, '_, S> {
    /// Finds the slots of the kept arena files that no image refers to. Returns false if that cannot be determined.
    fn compare(&mut self) -> Result<bool, PassError> {
        let mut declared = SlotSet::default();
        match self.state.each_declared_slot(|slot| declared.insert(slot)) {
            Err(StateError::Damaged { .. } | StateError::Newer { .. }) => return Ok(false),
            read => read?,
        }
        let part = part_bytes(self.options);
        let [mut images, mut slots] = [(); 2].map(|()| SortWriter::new(self.options.temporary_folder, part));
        if !self.map_images(&mut images)? {
            return Ok(false);
        }
        for number in self.kept {
            self.map_arena(*number, &mut slots)?;
        }
        let (pace, unneeded) = (self.options.pace, &mut self.unneeded);
        apart(slots.finish()?, images.finish()?, |first, count| {
            pace.boundary()?;
            let slots = (first..first + count).filter_map(Slot::from_number);
            slots.filter(|slot| !declared.contains(*slot)).for_each(|slot| unneeded.insert(slot));
            Ok(())
        })?;
        Ok(true)
    }

    /// Records the places of all shared extents of known images. Returns false if an image cannot be mapped.
    fn map_images(&mut self, rows: &mut SortWriter) -> Result<bool, PassError> {
        for number in self.images.in_use()? {
            self.options.pace.boundary()?;
            let Ok(opened) = self.images.open_anywhere(number) else { return Ok(false) };
            let Some(file) = opened else { continue };
            let mut failure = None;
            let mapped: io::Result<()> = each_extent(self.state.substrate(), &file, |extent| {
                // Maps may show too much as shared, never too little. An extent that is not shared is in no slot.
                let Some(row) = row(extent, 0).filter(|_| extent.is_shared) else { return Ok(()) };
                rows.push(row).map_err(|error| {
                    let kind = error.kind();
                    failure = Some(error);
                    kind.into()
                })
            });
            if let Some(error) = failure {
                return Err(error.into());
            }
            if mapped.is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Records the places of an arena file's slots.
    fn map_arena(&self, number: u32, rows: &mut SortWriter) -> Result<(), PassError> {
        let Some(file) = self.state.open_arena(number, Access::Read)? else { return Ok(()) };
        each_extent(self.state.substrate(), &file, |extent| {
            let first = Slot::new(number, extent.offset / BLOCK_BYTES_U64);
            let row = first.and_then(|first| row(extent, first.number()));
            row.map_or(Ok(()), |row| rows.push(row))
        })?;
        Ok(())
    }

    /// Returns the changes of the index: entries that name unneeded slots go.
    fn changes(&self) -> Result<Spool, PassError> {
        let mut changes = SpoolWriter::new(self.options.temporary_folder, self.options.memory_bytes / 8);
        for mut shard in self.state.open_shards(Prefix::WHOLE)? {
            loop {
                self.options.pace.boundary()?;
                match shard.next_entry() {
                    Ok(Some(entry)) => match entry.place {
                        ContentPlace::Shared(slot) if self.unneeded.contains(slot) => {
                            changes.push(Change { digest: entry.digest, step: Step::Drop(entry.place) }.row())?;
                        }
                        _ => {}
                    },
                    Ok(None) => break,
                    Err(FormatError::Io(error)) => return Err(error.into()),
                    Err(why) => return Err(PassError::damaged(self.state, &shard, why)?),
                }
            }
        }
        Ok(changes.finish()?)
    }
}

/// Returns the place of an extent, its length, and `what` it is; `None` if nothing was written there, or its place is
/// not known.
fn row(extent: &MappedExtent, what: u64) -> Option<onefold_sort::Row> {
    let place = extent.place.filter(|_| !extent.is_unwritten)?;
    Some([place, extent.length, what])
}

/// Calls `each` with the blocks of `ours` at places where `theirs` has nothing: runs of slots that rows of `ours` name.
/// Both lists have places and lengths in bytes, in order of the places; ranges of one list may overlap.
fn apart(
    ours: impl Iterator<Item = io::Result<onefold_sort::Row>>,
    theirs: Merge,
    mut each: impl FnMut(u64, u64) -> Result<(), PassError>,
) -> Result<(), PassError> {
    let mut theirs = theirs.peekable();
    // Ranges of `theirs` that a later row of `ours` may still meet: disjoint, and in order.
    let mut taken: VecDeque<(u64, u64)> = VecDeque::new();
    for row in ours {
        let [place, length, first] = row?;
        let end = place.saturating_add(length);
        while taken.front().is_some_and(|(_, to)| *to <= place) {
            taken.pop_front();
        }
        while let Some(row) = theirs.next_if(|row| row.as_ref().map_or(true, |[from, ..]| *from < end)) {
            let [from, length, _] = row?;
            let to = from.saturating_add(length);
            match taken.back_mut() {
                Some((_, last)) if *last >= from => *last = to.max(*last),
                _ if to > place => taken.push_back((from, to)),
                _ => {}
            }
        }
        let mut at = place;
        for (from, to) in taken.iter().copied().take_while(|(from, _)| *from < end).chain([(end, end)]) {
            if from > at {
                let (skipped, until) = ((at - place).div_ceil(BLOCK_BYTES_U64), (from - place) / BLOCK_BYTES_U64);
                if until > skipped {
                    each(first + skipped, until - skipped)?;
                }
            }
            at = at.max(to);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use onefold_block::random::SeededRandom;
    use onefold_sort::Row;

    const K: u64 = BLOCK_BYTES_U64;

    fn sorted(rows: &[Row]) -> Merge {
        let mut writer = SortWriter::new(Path::new("/var/tmp"), 7 * size_of::<Row>());
        rows.iter().for_each(|row| writer.push(*row).unwrap());
        writer.finish().unwrap()
    }

    /// Random extents, overlapping ones included, are compared with a check of each block.
    #[test]
    fn blocks_are_handed_on_that_lie_where_nobody_else_has_any() {
        for seed in 0..200 {
            let random = SeededRandom::new(seed);
            let mut next = 0;
            let mut rows = |count: u64| -> Vec<Row> {
                let row = |_| {
                    let length = 1 + random.below(9);
                    next += length;
                    [random.below(120) * K, length * K, next - length]
                };
                (0..count).map(row).collect()
            };
            let (ours, theirs) = (rows(12), rows(seed % 25));
            let is_taken = |place| theirs.iter().any(|[from, length, _]| *from <= place && place < from + length);
            let blocks = |row: &Row| {
                let [place, length, first] = *row;
                (0..length / K).map(move |at| (place + at * K, first + at))
            };
            let expected: BTreeSet<u64> =
                ours.iter().flat_map(blocks).filter(|(place, _)| !is_taken(*place)).map(|(_, what)| what).collect();
            let mut found = Vec::new();
            apart(sorted(&ours), sorted(&theirs), |first, count| {
                found.extend(first..first + count);
                Ok(())
            })
            .unwrap();
            assert_eq!(found.len(), expected.len(), "seed {seed}: each once");
            assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected, "seed {seed}");
        }
    }

    #[test]
    fn it_is_worth_while_after_removals_many_changes_or_a_day() {
        let at = |seconds| Timestamp { seconds, nanoseconds: 0 };
        let is_due = |now, gone: &[(u32, Option<i64>)], told| {
            let numbers: Vec<FileNo> = gone.iter().map(|(number, _)| FileNo(*number)).collect();
            let since =
                |number: FileNo| gone.iter().find(|(gone, _)| *gone == number.0).and_then(|(_, since)| since.map(at));
            is_due(&Occasion { now: at(now), gone: &numbers, told }, at(1_000_000), 1000, since)
        };
        assert!(!is_due(1_000_001, &[], 0) && !is_due(1_000_001, &[], 49) && is_due(1_000_001, &[], 50));
        assert!(is_due(1_000_001, &[(3, None)], 0), "nobody has looked since");
        assert!(!is_due(1_000_001, &[(3, Some(1_000_000))], 0), "the last one saw it gone");
        assert!(is_due(1_000_001, &[(3, Some(1_000_000)), (4, Some(1_000_001))], 0));
        assert!(!is_due(1_086_399, &[], 0) && is_due(1_086_400, &[], 0));
        assert!(is_due(900_000, &[], 0), "a clock was wrong");
    }
}
