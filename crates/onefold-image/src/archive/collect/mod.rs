//! Collection: retires packs that no image needs, rewrites packs of which little is needed, and deletes what nothing
//! needs any more.
//!
//! **A pack may be deleted once an entry has retired or replaced it.** Such an entry is added only at a position of the
//! ledger where no image needs the pack. No later image can need it either: a capture reads all entries before its own,
//! and stores units of such packs again. The delay before a deletion serves readers. Clocks decide only about this
//! delay, and when a silent writer is given up.

mod gain;
mod listing;
mod merge;
mod need;
mod read;
mod retire;
mod rewrite;
mod rows;
mod watch;

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use onefold_block::{Clock, Random, Timestamp};

pub use self::gain::RemovalGain;
use self::listing::{Fate, Judge, StoredObjects, before};
use super::objects::random_bytes;
use super::{Archive, ArchiveError, Writer, snapshot};
use crate::WriterId;
use crate::format::ledger::Change;

/// Maximum number of packs that one entry retires, which bounds the memory for their tables.
const RETIRED_MAX: usize = 1000;

/// Parameters of a collection.
#[derive(Clone, Debug)]
pub struct CollectOptions<'o> {
    /// Time between the entry that drops an object and its deletion.
    pub delay: Duration,
    /// Time after which a writer that stores nothing is given up.
    pub silence: Duration,
    /// A pack is rewritten if less than this share of it is needed.
    pub needed_percent: u8,
    /// Level at which units of rewritten packs are compressed anew; otherwise they keep their form.
    pub level: Option<i32>,
    /// Approximate memory to use, in bytes. A smaller value than [`COLLECT_BYTES_MIN`] counts as that.
    pub memory_bytes: usize,
    /// The folder for unnamed temporary files.
    pub folder: &'o Path,
    /// The host. Unlike the label of a capture, it must not say which process this is: no capture may take a collection
    /// for one that has ended, and name its packs.
    pub host: &'o str,
    /// Change nothing.
    pub dry_run: bool,
}

impl<'o> CollectOptions<'o> {
    /// Returns the usual options, with temporary files in `folder`.
    #[must_use]
    pub fn new(folder: &'o Path) -> CollectOptions<'o> {
        CollectOptions {
            delay: Duration::from_secs(3600),
            silence: Duration::from_secs(24 * 3600),
            needed_percent: 80,
            level: None,
            memory_bytes: 512 << 20,
            folder,
            host: "",
            dry_run: false,
        }
    }
}

/// Minimum memory of a collection.
pub const COLLECT_BYTES_MIN: usize = 64 << 20;

/// Maximum time that a call of a store takes.
const CALL_MAX: Duration = Duration::from_secs(3600);

/// Objects and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Number of objects.
    pub objects: u64,
    /// Their length in bytes.
    pub bytes: u64,
}

/// Result of a collection. A dry run reports what a real one would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectReport {
    /// Packs that it retired, because no image needs them.
    pub retired: Amount,
    /// Packs that it rewrote into others, because little of them is needed.
    pub rewritten: Amount,
    /// Bytes of the packs into which it rewrote them.
    pub written_bytes: u64,
    /// Number of segments of the index that it merged into others.
    pub merged: u64,
    /// Objects that it deleted.
    pub deleted: Amount,
    /// Objects that nothing needs any more, and that a later collection deletes after the delay.
    pub waiting: Amount,
    /// Objects that no entry names, of writers that may be at work.
    pub running: Amount,
    /// Objects of writers that the ledger does not know, as an incomplete copy of an archive has them. They stay.
    pub foreign: Amount,
    /// Bytes that no image needs, in packs that stay because of other units.
    pub kept_bytes: u64,
    /// Number of writers that it gave up.
    pub given_up: u64,
    /// Number of packs that stay because their tables cannot be read, or because they may have units that an entry
    /// calls lost.
    pub unread: u64,
    /// Whether other hosts kept changing the packs, so that packs may be left that are not needed.
    pub is_partial: bool,
}

impl CollectReport {
    /// Returns how many bytes nothing needs, according to a dry run.
    #[must_use]
    pub fn unneeded_bytes(&self) -> u64 {
        let old = self.deleted.bytes.saturating_add(self.waiting.bytes);
        old.saturating_sub(self.written_bytes).saturating_add(self.kept_bytes)
    }
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl Archive {
    /// Retires packs that no image needs, rewrites those of which little is needed, gives silent writers up, and
    /// deletes what nothing needs any more and whose delay is over. Captures, installations, removals and other
    /// collections may run at the same time. If it is killed at any moment, the next one continues. Calls `on_progress`
    /// with the number of packs and images that were read, and that of all.
    ///
    /// # Errors
    /// [`ArchiveError::Unknown`] when an image is damaged so that nobody can tell what it needs: no pack is retired
    /// then. Other errors when the store or temporary files fail.
    pub fn collect(
        &self,
        options: &CollectOptions<'_>,
        clock: &dyn Clock,
        random: &dyn Random,
        on_progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CollectReport, ArchiveError> {
        let listing = StoredObjects::read(self.store())?;
        // A wrong snapshot of the state must not decide what is deleted.
        let hole = self.read_whole_ledger()?;
        // Entries behind a hole may name any object.
        if let Some(hole) = hole {
            return Err(hole.into());
        }
        // An entry here would take the place of one that the copy still gets.
        self.fail_if_cut()?;
        let id = WriterId(random_bytes(random)?);
        let (given_up, report) = (HashSet::new(), CollectReport::default());
        let mut run = Collection { archive: self, options, clock, random, id, writer: None, given_up, report };
        // What is due already comes free even if the needs of an image are unknown, or if no entry can be added because
        // the disk is full.
        let outcome = run.change(&listing, on_progress);
        // The first failure is the one that is reported.
        let deleted = run.delete(&listing);
        outcome.and(deleted)?;
        if !options.dry_run {
            let entries = self.state.read().position;
            snapshot::prune(self.store(), entries)?;
        }
        Ok(run.report)
    }
}

/// A running collection.
struct Collection<'r> {
    archive: &'r Archive,
    options: &'r CollectOptions<'r>,
    clock: &'r dyn Clock,
    random: &'r dyn Random,
    /// Name under which it makes entries that name no object of its own.
    id: WriterId,
    /// Writes packs and segments. Begins when there is something to write.
    writer: Option<Writer<'r>>,
    /// Writers that it gave up, or would give up.
    given_up: HashSet<WriterId>,
    report: CollectReport,
}

impl<'r> Collection<'r> {
    /// Makes all entries of the collection.
    fn change(&mut self, listing: &StoredObjects, on_progress: &mut dyn FnMut(u64, u64)) -> Result<(), ArchiveError> {
        self.give_up(listing)?;
        self.retire_all(on_progress)?;
        self.merge_segments(listing)
    }

    /// Adds an entry if the ledger ends at `position`.
    fn append(&self, position: u64, change: Change) -> Result<bool, ArchiveError> {
        self.archive.append(position, self.id, self.clock, self.random, change)
    }

    /// Returns the writer, which begins now if it has not.
    fn writer(&mut self) -> Result<&mut Writer<'r>, ArchiveError> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => {
                let mut writer = Writer::begin(self.archive, self.clock, self.random, self.options.host)?;
                writer.limit_packs(self.memory_bytes() as u64 / 8);
                writer.exceed_bound();
                writer
            }
        };
        Ok(self.writer.insert(writer))
    }

    fn memory_bytes(&self) -> usize {
        self.options.memory_bytes.max(COLLECT_BYTES_MIN)
    }

    /// Gives up writers that left objects behind and were silent for long.
    fn give_up(&mut self, listing: &StoredObjects) -> Result<(), ArchiveError> {
        let now = self.clock.now();
        let before = before(now, self.options.silence);
        let silent = {
            let state = self.archive.state.read();
            listing.silent_writers(&Judge::new(&state, now, self.options.delay), before)
        };
        for writer in silent {
            if self.options.dry_run || self.give_up_one(writer, before)? {
                self.report.given_up += 1;
                self.given_up.insert(writer);
            }
        }
        Ok(())
    }

    /// Gives a writer up, unless the ledger says meanwhile that it is at work or was given up.
    fn give_up_one(&self, writer: WriterId, before: Timestamp) -> Result<bool, ArchiveError> {
        loop {
            let (position, is_silent) = {
                let state = self.archive.state.read();
                (state.position, state.is_silent(writer, before))
            };
            if !is_silent {
                return Ok(false);
            }
            if self.append(position, Change::WriterGivenUp { writer })? {
                return Ok(true);
            }
            self.archive.refresh()?;
        }
    }

    /// Deletes all objects that are due, and counts the others.
    fn delete(&mut self, listing: &StoredObjects) -> Result<(), ArchiveError> {
        self.archive.refresh()?;
        let now = self.clock.now();
        let state = self.archive.state.read().clone();
        let judge = Judge::new(&state, now, self.options.delay);
        for object in listing.objects() {
            match judge.fate(object) {
                Fate::Needed => {}
                // In a dry run, no entry gives the writer up.
                Fate::Running if self.given_up.contains(&object.id.writer) => {
                    self.report.deleted.add(object.length_bytes);
                }
                Fate::Due => {
                    if !self.options.dry_run {
                        self.archive.store().delete(&object.name())?;
                    }
                    self.report.deleted.add(object.length_bytes);
                }
                Fate::Waiting => self.report.waiting.add(object.length_bytes),
                Fate::Running => self.report.running.add(object.length_bytes),
                Fate::Foreign => self.report.foreign.add(object.length_bytes),
            }
        }
        // Probes and temporary files belong to a call that runs, and no call of a store takes that long.
        let before = before(now, self.options.silence.max(CALL_MAX));
        for probe in listing.probes_before(before) {
            if !self.options.dry_run {
                self.archive.store().delete(&probe.name)?;
            }
            self.report.deleted.add(probe.length_bytes);
        }
        if !self.options.dry_run {
            let bytes = self.archive.store().remove_leftovers(before)?;
            self.report.deleted.bytes = self.report.deleted.bytes.saturating_add(bytes);
        }
        Ok(())
    }
}
