//! The index: maps the first bytes of a unit's name to places in packs. It is only a hint. This version keeps all of it
//! in memory.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use super::ArchiveError;
use super::objects::{Folder, damaged, read_whole};
use super::state::{Part, State};
use super::tables::{Tables, is_broken, is_unread};
use crate::format::FormatError;
use crate::format::pack::TableEntry;
use crate::format::segment::{IndexEntry, SEGMENT_BYTES_MAX, Segment};
use crate::store::Store;
use crate::{ArchiveId, ObjectId, UnitName};

/// Maximum number of units that a capture may bring an archive to: 384 MiB of memory, twice that while runs are merged.
pub(super) const UNITS_MAX: usize = 16 << 20;
/// Maximum number of units that are read. Copies that a collection makes come before it retires the old ones.
const UNITS_READ_MAX: usize = 4 * UNITS_MAX;

/// Maximum number of places where a unit is looked for. Writers that do not know of each other store a unit once each.
pub(super) const PLACES_MAX: usize = 64;

/// Where a unit may be: its name's beginning says so, and its pack has to confirm it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) pack: ObjectId,
    pub(super) offset: u32,
    pub(super) stored_bytes: u32,
}

/// Sorted runs of entries, longest first. Each run is at least twice as long as the next.
#[derive(Debug, Default)]
pub(super) struct Index {
    packs: Vec<ObjectId>,
    numbers: HashMap<ObjectId, u32>,
    runs: Vec<Vec<IndexEntry>>,
    /// Position of the ledger state whose parts the index contains.
    position: u64,
    /// Packs that it lacks, because neither their segment nor their table could be read.
    unread: Vec<ObjectId>,
}

impl Index {
    /// Returns whether the index is complete for `state`.
    pub(super) fn is_of(&self, state: &State) -> bool {
        self.position == state.position
    }

    /// Reads all parts that the index does not contain yet.
    pub(super) fn read_on(
        &mut self,
        store: &dyn Store,
        archive: ArchiveId,
        state: &State,
        tables: &Tables,
    ) -> Result<(), ArchiveError> {
        self.forget(state);
        for part in &state.live_parts() {
            if part.packs.iter().all(|pack| self.numbers.contains_key(pack) || !state.is_live(*pack)) {
                continue;
            }
            let segment = match read_segment(store, archive, part) {
                Ok(segment) => segment,
                Err(error) if is_broken(&error) || matches!(error, ArchiveError::Newer { .. }) => {
                    rebuild(store, archive, state, part, tables, &mut self.unread)?
                }
                Err(error) => return Err(error),
            };
            self.add(&segment, |pack| state.is_live(pack))?;
        }
        self.position = state.position;
        Ok(())
    }

    /// Drops the entries of packs that hold nothing any more.
    fn forget(&mut self, state: &State) {
        let gone = self.numbers.iter().filter(|(pack, _)| !state.is_live(**pack));
        let gone: HashSet<u32> = gone.map(|(_, number)| *number).collect();
        if gone.is_empty() {
            return;
        }
        self.numbers.retain(|pack, _| state.is_live(*pack));
        self.unread.retain(|pack| state.is_live(*pack));
        let mut runs = std::mem::take(&mut self.runs);
        for run in &mut runs {
            run.retain(|entry| !gone.contains(&entry.pack));
            run.shrink_to_fit();
        }
        runs.sort_by_key(|run| Reverse(run.len()));
        runs.into_iter().for_each(|run| self.add_run(run));
    }

    /// Reads the packs again that could not be read. Returns whether it knows more units now.
    pub(super) fn read_again(
        &mut self,
        store: &dyn Store,
        archive: ArchiveId,
        tables: &Tables,
    ) -> Result<bool, ArchiveError> {
        let mut knows_more = false;
        for pack in std::mem::take(&mut self.unread) {
            match tables.table(store, archive, pack) {
                Ok(table) => {
                    let mut entries: Vec<IndexEntry> = table.iter().map(|entry| indexed(entry, 0)).collect();
                    entries.sort_unstable_by_key(|entry| (entry.prefix, entry.offset));
                    self.add(&Segment { packs: vec![pack], entries }, |_| true)?;
                    knows_more = true;
                }
                Err(error) if is_unread(&error) => self.unread.push(pack),
                Err(_) => {}
            }
        }
        Ok(knows_more)
    }

    /// Returns the packs whose units it does not know, because they could not be read.
    pub(super) fn unread(&self) -> &[ObjectId] {
        &self.unread
    }

    /// Returns the number of units.
    fn units(&self) -> usize {
        self.runs.iter().map(Vec::len).sum()
    }

    /// Fails if a capture that has added `added` units may not add another to an archive of at most `units_max`.
    pub(super) fn check_room(&self, added: usize, units_max: usize) -> Result<(), ArchiveError> {
        check_room(self.units(), added, units_max)
    }

    /// Adds the entries of a segment whose packs are live.
    fn add(&mut self, segment: &Segment, is_live: impl Fn(ObjectId) -> bool) -> Result<(), ArchiveError> {
        if self.units() + segment.entries.len() > UNITS_READ_MAX {
            return Err(ArchiveError::TooLarge { units_max: UNITS_READ_MAX });
        }
        let number = |pack: &ObjectId| is_live(*pack).then(|| self.number(*pack));
        let numbers: Vec<Option<u32>> = segment.packs.iter().map(number).collect();
        let renumbered = |entry: &IndexEntry| numbers[entry.pack as usize].map(|pack| IndexEntry { pack, ..*entry });
        self.add_run(segment.entries.iter().filter_map(renumbered).collect());
        Ok(())
    }

    fn add_run(&mut self, run: Vec<IndexEntry>) {
        self.runs.push(run);
        while let [.., longer, shorter] = &self.runs[..]
            && longer.len() < 2 * shorter.len()
        {
            let (shorter, longer) = (self.runs.pop().unwrap_or_default(), self.runs.pop().unwrap_or_default());
            self.runs.push(merge(&longer, &shorter));
        }
    }

    fn number(&mut self, pack: ObjectId) -> u32 {
        *self.numbers.entry(pack).or_insert_with(|| {
            self.packs.push(pack);
            u32::try_from(self.packs.len() - 1).expect("fewer packs than units")
        })
    }

    /// Returns where a unit may be, the shortest form first: at most [`PLACES_MAX`] of those whose packs `holds` lets
    /// in.
    pub(super) fn places(&self, name: UnitName, holds: impl Fn(ObjectId) -> bool) -> Vec<Place> {
        let prefix = name.prefix();
        let mut places = Vec::new();
        for run in &self.runs {
            let start = run.partition_point(|entry| entry.prefix < prefix);
            let equal = run[start..].iter().take_while(|entry| entry.prefix == prefix);
            let found = equal.map(|entry| Place {
                pack: self.packs[entry.pack as usize],
                offset: entry.offset,
                stored_bytes: entry.stored_bytes,
            });
            places.extend(found.filter(|place| holds(place.pack)).take(PLACES_MAX - places.len()));
        }
        places.sort_by_key(|place| place.stored_bytes);
        places
    }
}

fn check_room(known: usize, added: usize, units_max: usize) -> Result<(), ArchiveError> {
    if known + added < units_max { Ok(()) } else { Err(ArchiveError::TooLarge { units_max }) }
}

/// Merges two sorted runs.
fn merge(one: &[IndexEntry], other: &[IndexEntry]) -> Vec<IndexEntry> {
    let mut merged = Vec::with_capacity(one.len() + other.len());
    let (mut one, mut other) = (one, other);
    while let ([first, rest @ ..], [second, others @ ..]) = (one, other) {
        if first.prefix <= second.prefix {
            merged.push(*first);
            one = rest;
        } else {
            merged.push(*second);
            other = others;
        }
    }
    merged.extend_from_slice(one);
    merged.extend_from_slice(other);
    merged
}

/// Returns the segment of a part. It has exactly the packs of the part: one that lists another's would pass for that
/// part, too.
pub(super) fn read_segment(store: &dyn Store, archive: ArchiveId, part: &Part) -> Result<Segment, ArchiveError> {
    let name = Folder::Segments.object(part.segment);
    let object = read_whole(store, &name, SEGMENT_BYTES_MAX)?;
    let segment = Segment::decode(archive, part.segment, &object).map_err(damaged(&name))?;
    let listed: HashSet<&ObjectId> = segment.packs.iter().collect();
    if segment.packs.len() == part.packs.len() && part.packs.iter().all(|pack| listed.contains(pack)) {
        return Ok(segment);
    }
    Err(damaged(&name)(FormatError::Other { structure: "segment of the index", what: "its packs" }))
}

/// Returns what the segment of a part would say, from the tables of its packs. Packs that are gone or damaged are left
/// out, and so are those that cannot be read, which `unread` gets.
pub(super) fn rebuild(
    store: &dyn Store,
    archive: ArchiveId,
    state: &State,
    part: &Part,
    tables: &Tables,
    unread: &mut Vec<ObjectId>,
) -> Result<Segment, ArchiveError> {
    let mut segment = Segment { packs: part.packs.clone(), entries: Vec::new() };
    for (number, pack) in (0u32..).zip(&part.packs).filter(|(_, pack)| state.is_live(**pack)) {
        let table = match tables.table(store, archive, *pack) {
            Ok(table) => table,
            Err(error) if is_broken(&error) => {
                unread.extend(is_unread(&error).then_some(*pack));
                continue;
            }
            Err(error) => return Err(error),
        };
        segment.entries.extend(table.iter().map(|entry| indexed(entry, number)));
    }
    segment.entries.sort_unstable_by_key(|entry| (entry.prefix, entry.pack, entry.offset));
    Ok(segment)
}

/// Returns what an index says of a unit in the pack with this number.
fn indexed(entry: &TableEntry, pack: u32) -> IndexEntry {
    let TableEntry { name, offset, stored_bytes, .. } = *entry;
    IndexEntry { prefix: name.prefix(), pack, offset, stored_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WriterId;

    fn id(number: u8) -> ObjectId {
        ObjectId { writer: WriterId([1; 16]), random: [number; 8] }
    }

    fn segment(pack: u8, prefixes: &[u64]) -> Segment {
        let entry = |(number, prefix): (u32, &u64)| IndexEntry {
            prefix: *prefix,
            pack: 0,
            offset: 64 + number,
            stored_bytes: 100 - u32::from(pack),
        };
        let mut entries: Vec<IndexEntry> = (0u32..).zip(prefixes).map(entry).collect();
        entries.sort_by_key(|entry| entry.prefix);
        Segment { packs: vec![id(pack)], entries }
    }

    fn name(prefix: u64) -> UnitName {
        let mut name = [0; 32];
        name[..8].copy_from_slice(&prefix.to_be_bytes());
        UnitName(name)
    }

    #[test]
    fn units_are_found_in_all_parts_the_shortest_form_first() {
        let mut index = Index::default();
        for pack in 0..50u8 {
            index.add(&segment(pack, &[u64::from(pack), 1000, 2000 + u64::from(pack % 5)]), |_| true).unwrap();
            let lengths: Vec<usize> = index.runs.iter().map(Vec::len).collect();
            assert!(lengths.windows(2).all(|two| two[0] >= 2 * two[1]), "{lengths:?}");
            assert!(index.runs.iter().all(|run| run.is_sorted_by_key(|entry| entry.prefix)));
        }
        assert_eq!(index.units(), 150);
        for pack in 0..50u8 {
            let [place] = index.places(name(u64::from(pack)), |_| true)[..] else { panic!("each has one place") };
            assert_eq!(place, Place { pack: id(pack), offset: 64, stored_bytes: 100 - u32::from(pack) });
        }
        let everywhere = index.places(name(1000), |_| true);
        let packs: Vec<ObjectId> = everywhere.iter().map(|place| place.pack).collect();
        assert_eq!(packs, (0..50).rev().map(id).collect::<Vec<_>>());
        assert_eq!(index.places(name(2003), |_| true).len(), 10);
        assert_eq!(index.places(name(500), |_| true), []);
    }

    #[test]
    fn captures_stop_before_an_archive_has_more_units_than_are_read() {
        assert!(check_room(UNITS_MAX - 2, 1, UNITS_MAX).is_ok());
        for (known, added) in [(UNITS_MAX - 1, 1), (UNITS_MAX, 0), (0, UNITS_MAX), (UNITS_READ_MAX, 0)] {
            assert!(matches!(check_room(known, added, UNITS_MAX), Err(ArchiveError::TooLarge { .. })));
        }
    }

    #[test]
    fn a_unit_with_places_without_end_is_looked_for_in_some_of_them_that_are_live() {
        let mut index = Index::default();
        index.add(&segment(1, &[7; 5000]), |_| true).unwrap();
        index.add(&segment(2, &[7; 3]), |_| true).unwrap();
        assert_eq!(index.places(name(7), |_| true).len(), PLACES_MAX);
        let live = index.places(name(7), |pack| pack == id(2));
        assert_eq!(live.len(), 3, "those of packs that are gone take no room");
    }
}
