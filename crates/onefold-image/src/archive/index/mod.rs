//! The index: maps the first bytes of a unit's name to places in packs. It is only a hint.
//!
//! The last units are in memory. All others are in runs: sorted files, each with a filter in memory, so that a unit
//! that the archive does not have costs no read. Runs lie in a cache, and are merged so that each is at least twice as
//! long as all shorter ones together. A run that turns out to be damaged goes, and its part of the index is read again
//! from the store.

mod cache;
mod filter;
mod memory;
mod merge;
mod parts;
mod place;
mod room;
mod run;
mod run_writer;
#[cfg(test)]
mod tests;
mod unread;

use std::cmp::Reverse;
use std::collections::HashSet;
use std::io;
use std::path::Path;

use self::cache::Cache;
use self::filter::{HALVINGS_MAX, LINE_BYTES};
use self::memory::MemoryRuns;
use self::merge::MergeError;
pub(super) use self::parts::{read_segment, rebuild};
pub(super) use self::place::{ClaimedPlace, ClaimedPlaces, PLACES_MAX};
pub use self::room::IndexRoom;
use self::run::{IndexRun, LookupScope};
use self::unread::{UnreadPacks, VainReading};
use super::ArchiveError;
use super::state::State;
use super::tables::Tables;
use crate::format::segment::IndexEntry;
use crate::store::Store;
use crate::{ArchiveId, ObjectId, UnitName};

/// Maximum number of units that a capture may bring an archive to.
pub(super) const UNITS_MAX: usize = 128 << 20;
/// Maximum number of units that are read. Copies that a collection makes come before it retires the old ones.
const UNITS_READ_MAX: usize = 4 * UNITS_MAX;

/// Maximum number of runs between two merges.
const RUNS_MAX: usize = 16;
/// Maximum number of runs if there is no room to merge them.
const RUNS_UNMERGED_MAX: usize = 4 * RUNS_MAX;
/// How often the index is read anew because a run in its cache is damaged.
const READS_MAX: u32 = 4;
/// The units in memory may take this share of the memory of the index. Filters get the rest.
const RECENT_SHARE: usize = 8;

/// A run that is damaged or cannot be read, by its serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BrokenRun(u64);

/// From where the index is read.
pub(super) struct IndexSource<'r> {
    pub(super) store: &'r dyn Store,
    pub(super) archive: ArchiveId,
    pub(super) state: &'r State,
    pub(super) tables: &'r Tables,
}

/// The index of an archive.
#[derive(Debug, Default)]
pub(super) struct Index {
    room: IndexRoom,
    /// The cache, once it was read, if there is one.
    cache: Option<Option<Cache>>,
    /// Whether it contains runs from the cache, or what was merged from them.
    has_cached: bool,
    /// Packs whose units it has, and those in `unread`.
    seen: HashSet<ObjectId>,
    memory: MemoryRuns,
    /// The longest first, each with its serial number.
    runs: Vec<(u64, IndexRun)>,
    serial: u64,
    /// Whether files could not be written. Only files that the index cannot do without are tried from then on.
    is_full: bool,
    /// Number of units.
    units: usize,
    /// Position of the ledger state whose parts the index contains.
    position: Option<u64>,
    unread: UnreadPacks,
    /// The last reading of these packs that told nothing new.
    vain: Option<VainReading>,
}

impl Index {
    /// Returns an empty index with this room.
    pub(super) fn with_room(room: IndexRoom) -> Index {
        Index { room, ..Index::default() }
    }

    /// Forgets everything, so that it is read anew.
    pub(super) fn clear(&mut self) {
        *self = Index::with_room(self.room.clone());
    }

    /// Returns the memory that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        let runs: usize = self.runs.iter().map(|(_, run)| run.memory_bytes()).sum();
        runs + self.memory.memory_bytes() + self.seen.len() * 2 * size_of::<ObjectId>()
    }

    /// Returns whether the index is complete for `state`.
    pub(super) fn is_of(&self, state: &State) -> bool {
        self.position == Some(state.position)
    }

    /// Reads all parts that the index does not contain yet.
    pub(super) fn read_on(&mut self, reading: &IndexSource<'_>) -> Result<(), ArchiveError> {
        for _ in 0..READS_MAX {
            self.position = None;
            self.load(reading);
            self.forget(reading.state);
            for part in &reading.state.live_parts() {
                if part.packs.iter().any(|pack| self.lacks(reading, *pack)) {
                    self.read_part(reading, part)?;
                    self.spill_if_full(reading)?;
                    self.count_units();
                    if self.units > UNITS_READ_MAX {
                        return Err(ArchiveError::TooLarge { units_max: UNITS_READ_MAX });
                    }
                }
            }
            if self.settle(reading) && self.load_filters() {
                self.count_units();
                self.position = Some(reading.state.position);
                return Ok(());
            }
        }
        Err(no_room(io::Error::other("the cache of the index is damaged again and again")))
    }

    fn count_units(&mut self) {
        self.units = self.memory.units() + self.runs.iter().map(|(_, run)| run.used()).sum::<usize>();
    }

    /// Takes from the cache what is of use, the first time.
    fn load(&mut self, reading: &IndexSource<'_>) {
        if self.cache.is_some() {
            return;
        }
        let cache =
            self.room.cache.as_deref().map(|folder| Cache::new(folder, reading.archive, &reading.store.place()));
        for mut run in cache.as_ref().map(Cache::runs).unwrap_or_default() {
            for pack in run.packs_mut() {
                // A segment that replaced this one may say more: the old one may have been damaged.
                let is_same = pack.segment.is_some() && reading.state.segment_of(pack.id) == pack.segment;
                pack.is_used = is_same && self.lacks(reading, pack.id) && self.seen.insert(pack.id);
            }
            if run.used() > 0 {
                self.has_cached = true;
                self.push(run);
            } else if !is_of_newer_ledger(&run, reading.state) || cache::is_old(&run) {
                discard(&run);
            }
        }
        self.cache = Some(cache);
    }

    /// Drops the entries of packs that hold nothing any more.
    fn forget(&mut self, state: &State) {
        self.seen.retain(|pack| state.is_live(*pack));
        self.unread.retain(|pack, _| state.is_live(*pack));
        self.memory.forget(|pack| state.is_live(pack));
        for (_, run) in &mut self.runs {
            run.packs_mut().iter_mut().for_each(|pack| pack.is_used &= state.is_live(pack.id));
        }
        for (_, run) in self.runs.extract_if(.., |(_, run)| run.used() == 0) {
            discard(&run);
        }
    }

    fn push(&mut self, run: IndexRun) {
        self.serial += 1;
        self.runs.push((self.serial, run));
        self.runs.sort_by_key(|(_, run)| Reverse(run.used()));
    }

    /// Returns the folder of the cache for new files, if there is one.
    fn cache_folder(&self) -> Option<&Path> {
        self.cache.as_ref().and_then(Option::as_ref).and_then(Cache::folder)
    }

    /// Returns whether memory has room for so many units more than it has.
    fn has_memory_for(&self, units: usize) -> bool {
        self.memory_bytes().saturating_add(units.saturating_mul(size_of::<IndexEntry>())) <= self.room.memory_bytes
    }

    /// Returns how many units memory may have.
    fn recent_max(&self) -> usize {
        self.room.memory_bytes / RECENT_SHARE / size_of::<IndexEntry>()
    }

    /// Merges units into a run if memory has its number of them, and runs if there are many.
    fn spill_if_full(&mut self, reading: &IndexSource<'_>) -> Result<(), ArchiveError> {
        let may_stay = self.is_full && self.has_memory_for(0);
        if self.memory.units() > self.recent_max() && !may_stay {
            let from = self.short_runs(self.memory.units());
            let merged = self.merge(reading, from, true);
            if !self.has_memory_for(0) {
                merged?;
            }
        }
        if self.runs.len() > RUNS_MAX && !(self.is_full && self.runs.len() <= RUNS_UNMERGED_MAX) {
            let from = self.short_runs(0).min(RUNS_MAX / 2);
            let merged = self.merge(reading, from, false);
            if self.runs.len() > RUNS_UNMERGED_MAX {
                merged?;
            }
        }
        Ok(())
    }

    /// Returns the number of runs that are at least twice as long as all shorter ones and `units` more together.
    fn short_runs(&self, units: usize) -> usize {
        let mut shorter = units;
        let mut from = self.runs.len();
        for (number, (_, run)) in self.runs.iter().enumerate().rev() {
            if run.used() < 2 * shorter {
                from = number;
            }
            shorter += run.used();
        }
        from
    }

    /// Merges runs until none is too short, and keeps them in the cache. Returns false if runs were lost.
    fn settle(&mut self, reading: &IndexSource<'_>) -> bool {
        // Other processes need not read them from the store.
        let is_worth_keeping = self.memory.units() > self.recent_max() / 4 && self.cache_folder().is_some();
        if is_worth_keeping {
            self.tidy(reading, self.short_runs(self.memory.units()), true);
        }
        let from = self.short_runs(0);
        if from < self.runs.len() {
            self.tidy(reading, from, false);
        }
        if let Some(from) = self.runs.iter().position(|(_, run)| run.entries() > 2 * run.used() as u64) {
            self.tidy(reading, from, false);
        }
        if let Some(Some(cache)) = &self.cache {
            self.runs.iter_mut().for_each(|(_, run)| cache.keep(run));
        }
        !reading.state.live.keys().any(|pack| self.lacks(reading, *pack))
    }

    /// As [`Index::merge`], where that only saves time: without room for it, everything stays as it is.
    fn tidy(&mut self, reading: &IndexSource<'_>, from: usize, with_memory: bool) {
        if !self.is_full {
            let _ = self.merge(reading, from, with_memory);
        }
    }

    /// Merges all runs from number `from` on into one, with the units in memory or without. Runs that cannot be read
    /// are lost, and the index lacks their packs. Without room for the new run, all others stay.
    fn merge(&mut self, reading: &IndexSource<'_>, from: usize, with_memory: bool) -> Result<(), ArchiveError> {
        let (_, mut old): (Vec<u64>, Vec<IndexRun>) = self.runs.drain(from..).unzip();
        old.iter_mut().for_each(IndexRun::drop_filter);
        let none = MemoryRuns::default();
        let memory = if with_memory { &self.memory } else { &none };
        let merge_in = |folder: &Path| {
            let file = tempfile::tempfile_in(folder).map_err(MergeError::Target)?;
            merge::merge(file, reading.archive, &old, memory)
        };
        // The cache may be full or read-only where the folder for temporary files is not.
        let merged = match self.cache_folder().map(merge_in) {
            Some(Err(MergeError::Target(_))) | None => merge_in(&self.room.temporary),
            Some(merged) => merged,
        };
        match merged {
            Ok(mut run) => {
                self.is_full = false;
                if with_memory {
                    self.memory = MemoryRuns::default();
                }
                // The new one has a name before the old ones have none.
                if let Some(Some(cache)) = &self.cache
                    && old.iter().any(|run| run.path.is_some())
                {
                    cache.keep(&mut run);
                }
                self.push(run);
                old.iter().for_each(discard);
                Ok(())
            }
            Err(MergeError::Source) => {
                old.iter().for_each(|run| self.lose(run));
                Ok(())
            }
            Err(MergeError::Target(error)) => {
                self.is_full = true;
                old.into_iter().for_each(|run| self.push(run));
                Err(no_room(error))
            }
        }
    }

    /// Forgets the packs of a run that cannot be read.
    fn lose(&mut self, run: &IndexRun) {
        discard(run);
        for pack in run.packs().iter().filter(|pack| pack.is_used) {
            self.seen.remove(&pack.id);
        }
    }

    /// Drops a run in which a unit could not be looked up. The index has to be read on then.
    pub(super) fn drop_broken(&mut self, broken: BrokenRun) {
        if let Some(at) = self.runs.iter().position(|(serial, _)| *serial == broken.0) {
            let (_, run) = self.runs.remove(at);
            self.lose(&run);
            self.position = None;
        }
    }

    /// Removes the runs that came from the cache, so that the index is read from the store once. They may hide units: a
    /// segment of the same name that another store has may say less. Returns whether there were any.
    pub(super) fn drop_cached(&mut self) -> bool {
        if !self.has_cached {
            return false;
        }
        self.runs.iter().for_each(|(_, run)| discard(run));
        let cache = self.cache.take();
        self.clear();
        // What lies there now is not read again.
        self.cache = cache;
        true
    }

    /// Reads the filters of all runs, all halved as often as memory demands. Returns false if runs were lost.
    fn load_filters(&mut self) -> bool {
        let lines: u64 = self.runs.iter().map(|(_, run)| run.lines()).sum();
        let room = (self.room.memory_bytes - self.room.memory_bytes / RECENT_SHARE) as u64 / LINE_BYTES as u64;
        let halvings = (0..HALVINGS_MAX).find(|halvings| lines >> halvings <= room).unwrap_or(HALVINGS_MAX);
        let broken = self.runs.extract_if(.., |(_, run)| run.load_filter(halvings).is_err());
        let broken: Vec<(u64, IndexRun)> = broken.collect();
        broken.iter().for_each(|(_, run)| self.lose(run));
        broken.is_empty()
    }

    /// Fails if a capture that has added `added` units may not add another to an archive of at most `units_max`.
    pub(super) fn check_room(&self, added: usize, units_max: usize) -> Result<(), ArchiveError> {
        if self.units + added < units_max { Ok(()) } else { Err(ArchiveError::TooLarge { units_max }) }
    }

    /// Returns where a unit may be, the shortest form first, in packs that `holds` lets in.
    pub(super) fn places(&self, name: UnitName, holds: impl Fn(ObjectId) -> bool) -> Result<ClaimedPlaces, BrokenRun> {
        let prefix = name.prefix();
        let mut places = Vec::new();
        let mut is_crowded = false;
        let mut add = |IndexEntry { offset, stored_bytes, .. }, pack| {
            if holds(pack) && places.len() < PLACES_MAX {
                places.push(ClaimedPlace { pack, offset, stored_bytes });
            }
            places.len() < PLACES_MAX
        };
        self.memory.find(prefix, &mut add);
        for (serial, run) in &self.runs {
            let packs = run.packs();
            let of_run = |entry: IndexEntry| {
                let pack = &packs[entry.pack as usize];
                !pack.is_used || add(entry, pack.id)
            };
            let looked = run.find(prefix, of_run).map_err(|_| BrokenRun(*serial))?;
            is_crowded |= matches!(looked, LookupScope::Part);
        }
        is_crowded |= places.len() == PLACES_MAX;
        places.sort_by_key(|place| place.stored_bytes);
        Ok(ClaimedPlaces { places, is_crowded })
    }
}

/// Returns whether a run knows a pack or a segment that no entry of the ledger has named: this ledger may be behind.
fn is_of_newer_ledger(run: &IndexRun, state: &State) -> bool {
    let is_named = |segment: ObjectId| state.is_segment_named(segment);
    run.packs().iter().any(|pack| !state.is_named(pack.id) || !pack.segment.is_none_or(is_named))
}

/// Removes a run from the cache.
fn discard(run: &IndexRun) {
    if let Some(path) = &run.path {
        cache::remove(path);
    }
}

/// Returns the error of an index for which there is no room.
fn no_room(source: io::Error) -> ArchiveError {
    ArchiveError::System { what: "room for the index of units", source }
}
