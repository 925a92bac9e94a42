//! The write monitor (DeDe, section 3.1): by this a door tells what is written to an image, so that no scan has to find out.
//!
//! The calls that tell ([`Monitor::wrote`] and those beside it) take a lock for a moment and do no I/O: a log that cannot be
//! written, or a reader that is late, never keeps a writer waiting. What was told is kept in memory, the last word about each
//! block, and becomes a write log now and then ([`Monitor::tick`], [`Monitor::work`], [`Monitor::flush`]). A block of which only
//! a part was written is noted as changed: what the index says of it is not believed then.
//!
//! All of this are notes. A monitor that dies loses its own, and the image, whose times have changed, is read by the next
//! scan. Where memory does not suffice, or something could not be read, what blocks hold is forgotten, and a scan reads
//! the image once it is closed. Only one that was told of everything since the image was last known as a whole says so when
//! it closes, and spares the scan the reading.
//!
//! As long as it is open it has the lock of the image: a door owns its image. [`Monitor::lend`] lets the owner's own pass
//! work on it.

mod notes;
mod policy;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64, Clock, FingerprintKey, Show};
use onefold_substrate::{Access, FileHandle, Substrate};
use parking_lot::{Condvar, Mutex};

use self::notes::Notes;
use self::policy::Budget;
use crate::digest::digest_blocks;
use crate::domain::{DomainRules, Membership};
use crate::format::log::LogKind;
use crate::format::mark::{MarkFlags, Stamp};
use crate::format::{FileBlock, FileNo, FingerprintPrefix};
use crate::scan::{Age, TICK};
use crate::state::files::{Marks, Noted};
use crate::state::locks::{Held, Subject};
use crate::state::logs::{LogOrder, Logged};
use crate::state::{State, StateError};

pub use self::policy::{Hashing, MonitorPolicy};

/// Read at once of what was told of without its content: a megabyte.
const PIECE_BLOCKS: u64 = 256;
/// Pieces that a tick reads at most, so that it comes to an end beside writers.
const TICK_PIECES: u32 = 16;
/// How often the end waits until a change that comes later would be seen.
const SETTLE_TRIES: u32 = 3;

/// Watches what is written to one image. Any number of threads may tell it.
pub struct Monitor<S: Substrate> {
    number: FileNo,
    handle: FileHandle,
    path: PathBuf,
    /// For reading what was told of without its content.
    file: S::File,
    key: FingerprintKey,
    clock: Arc<dyn Clock>,
    policy: MonitorPolicy,
    opened: Opened,
    // Lock order: `log`, then `told`; `lock` alone.
    told: Mutex<Told>,
    /// Wakes workers when there is something to be logged.
    due: Condvar,
    /// The order of the last log. Held while one is written: they come one after the other.
    log: Mutex<LogOrder>,
    lock: Mutex<ImageLock<S>>,
}

/// The image's lock.
struct ImageLock<S: Substrate> {
    /// None while it is lent, or when another host took it meanwhile.
    held: Option<Held<S>>,
    /// How often it is lent at the moment. As long as it is, nobody takes it back.
    lent: u32,
}

/// What was known of the image when it was opened.
#[derive(Clone, Copy, Debug)]
struct Opened {
    scanned: Option<Stamp>,
    /// Whether the image was then as it had been scanned.
    is_current: bool,
}

/// What was told and not logged.
struct Told {
    notes: Notes,
    budget: Budget,
    /// Length of the image, for all that was told, in bytes.
    length: u64,
    /// Since when there is something.
    since: Option<Duration>,
    /// The number of the last reading.
    reading: u64,
    /// Whether something is less known than a scan would know it.
    is_lossy: bool,
    is_ending: bool,
    counts: MonitorCounts,
}

/// What a monitor did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MonitorCounts {
    /// Whole blocks hashed as they were told of, or told of with their digest.
    pub in_band_blocks: u64,
    /// Blocks read and hashed later.
    pub deferred_blocks: u64,
    /// Blocks that were written in part.
    pub parts: u64,
    /// Blocks of which was forgotten what they hold, or that they had not changed, for want of memory.
    pub shed_blocks: u64,
    /// Reads that failed.
    pub failed_reads: u64,
    /// Logs that were written.
    pub logs: u64,
    /// Blocks that they tell of.
    pub logged_blocks: u64,
    /// Their length, in bytes.
    pub log_bytes: u64,
}

/// What a tick did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ticked {
    /// Bytes that were read to be hashed.
    pub read_bytes: u64,
    /// The log, if one was written.
    pub logged: Option<Logged>,
    /// Whether there is more to be done at once.
    pub is_behind: bool,
}

/// How a monitor came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Whether the image is known as a whole: the next scan does not read it. Otherwise it does.
    pub is_known: bool,
    /// What was done.
    pub counts: MonitorCounts,
}

/// Why an image is not watched.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// It cannot be opened.
    #[error("`{}` cannot be watched: {source}", path.shown())]
    File {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its lock is taken.
    #[error("`{}` belongs to another door, host or pass: try again later, or use it unwatched", path.shown())]
    Elsewhere {
        /// Its path.
        path: PathBuf,
    },
    /// The state folder.
    #[error(transparent)]
    State(#[from] StateError),
}

impl<S: Substrate> Monitor<S> {
    /// Begins to watch an image: takes its lock, and gives it a number if it has none. To be called before the first write.
    ///
    /// # Errors
    /// As [`MonitorError`] says. The image can be written to nevertheless, without being watched.
    pub fn open(
        state: &State<'_, S>,
        files: &mut Marks,
        path: &Path,
        policy: MonitorPolicy,
        clock: Arc<dyn Clock>,
    ) -> Result<Monitor<S>, MonitorError> {
        let failed = |source| MonitorError::File { path: path.to_owned(), source };
        let file = state.substrate().open(path, Access::Read).map_err(failed)?;
        let handle = state.substrate().stat(&file).map_err(failed)?.handle;
        let Some(lock) = state.try_lock(&Subject::File(handle.clone()))? else {
            return Err(MonitorError::Elsewhere { path: path.to_owned() });
        };
        // As it is now that nobody else works on it.
        let stat = state.substrate().stat(&file).map_err(failed)?;
        let before = files.of(&handle).map(|mark| mark.membership.clone());
        let membership = DomainRules::of(state)?.membership(path, &file, &stat, before.as_ref()).map_err(failed)?;
        let number = files.latest_number(state, &handle, path, &membership)?;
        let scanned = files.get(number).and_then(|mark| mark.scanned);
        let opened = Opened { scanned, is_current: scanned == Some(Stamp::of(&stat)) };
        let now = clock.monotonic();
        let told = Told {
            notes: Notes::default(),
            budget: Budget::new(policy.hashing, now),
            length: stat.length,
            since: None,
            reading: 0,
            is_lossy: false,
            is_ending: false,
            counts: MonitorCounts::default(),
        };
        Ok(Monitor {
            number,
            handle,
            path: path.to_owned(),
            file,
            key: state.key(&membership.domain),
            clock,
            policy,
            opened,
            told: Mutex::new(told),
            due: Condvar::new(),
            log: Mutex::new(state.last_log_of(number)?),
            lock: Mutex::new(ImageLock { held: Some(lock), lent: 0 }),
        })
    }

    /// Returns the image.
    #[must_use]
    pub fn handle(&self) -> &FileHandle {
        &self.handle
    }

    /// Returns its path when it was opened. Who scans leaves it out as long as it is watched: all of it would be read for
    /// what is told here anyway.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the key of [`Monitor::wrote_digests`]: that of the domain that the image had when it was opened.
    #[must_use]
    pub fn key(&self) -> &FingerprintKey {
        &self.key
    }

    /// Tells whether the image was known as a whole when it was opened, and nothing was lost track of since. Where not, a scan
    /// that has it lent once ([`Monitor::lend`]) makes it known.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.opened.is_current && !self.told.lock().is_lossy
    }

    /// Returns what was done so far.
    #[must_use]
    pub fn counts(&self) -> MonitorCounts {
        self.told.lock().counts
    }

    /// Tells that `bytes` were written at an offset. By policy, the caller's thread hashes them: a microsecond a block.
    pub fn wrote(&self, offset: u64, bytes: &[u8]) {
        let range = ByteRange::new(offset, bytes.len() as u64);
        let whole = range.whole_blocks();
        let now = self.clock.monotonic();
        let length = (whole.end - whole.start) * BLOCK_BYTES_U64;
        if length == 0 || !self.told.lock().budget.takes_in_band(length, now) {
            return self.wrote_unseen(offset, bytes.len() as u64);
        }
        let skipped = usize::try_from(whole.start * BLOCK_BYTES_U64 - offset).expect("less than a block");
        let mut digests = Vec::new();
        digest_blocks(&self.key, &bytes[skipped..][..usize::try_from(length).expect("a part of them")], &mut digests);
        self.tell(range, |told| told.written(whole.start, &digests));
    }

    /// Tells with what whole blocks were written: digests made with [`Monitor::key`], none where a block is zero.
    pub fn wrote_digests(&self, first: FileBlock, digests: &[Option<FingerprintPrefix>]) {
        let length = (digests.len() as u64).saturating_mul(BLOCK_BYTES_U64);
        let range = ByteRange::new(first.0.saturating_mul(BLOCK_BYTES_U64), length);
        self.tell(range, |told| told.written(first.0, digests));
    }

    /// Tells that something was written and the bytes are not at hand. They are read later.
    pub fn wrote_unseen(&self, offset: u64, length: u64) {
        let range = ByteRange::new(offset, length);
        let whole = range.whole_blocks();
        self.tell(range, |told| {
            if !whole.is_empty() {
                told.notes.unseen(whole.start, whole.end - whole.start);
            }
        });
    }

    /// Tells that a range reads as zeros now and takes no room: it was punched out, or only set aside. Zeros that were written
    /// as data are told of by [`Monitor::wrote`], an image that became longer by [`Monitor::truncated`].
    pub fn zeroed(&self, offset: u64, length: u64) {
        let within = self.told.lock().length.saturating_sub(offset);
        let range = ByteRange::new(offset, length.min(within));
        let whole = range.whole_blocks();
        self.tell(range, |told| {
            if !whole.is_empty() {
                told.notes.changed(whole.start, whole.end - whole.start);
            }
        });
    }

    /// Tells that the image has another length.
    pub fn truncated(&self, length: u64) {
        let mut told = self.told.lock();
        let (from, to) = (told.length.min(length), told.length.max(length));
        if to > from && !from.is_multiple_of(BLOCK_BYTES_U64) {
            told.part(from / BLOCK_BYTES_U64);
        }
        if length < told.length {
            // What is gone; also where the image grows again, with zeros.
            let gone = ByteRange::new(from, to - from);
            let first = gone.whole_blocks().start;
            let end = to.div_ceil(BLOCK_BYTES_U64).min(FileBlock::LIMIT);
            if first < end {
                told.notes.changed(first, end - first);
            }
        }
        told.length = length;
        self.noted(told);
    }

    /// Tells that the image may have been changed anywhere, and how is not known: nothing that is known of it is believed, and
    /// it will be scanned.
    pub fn lost_track(&self) {
        let mut told = self.told.lock();
        told.is_lossy = true;
        let blocks = told.length.div_ceil(BLOCK_BYTES_U64).clamp(1, FileBlock::LIMIT);
        told.counts.shed_blocks += blocks;
        told.notes.changed(0, blocks);
        self.noted(told);
    }

    /// Does some of what is to be done: reads and hashes up to 16 MiB of what is unseen, by policy, and writes a log when there
    /// is enough for one. May be called by any thread, and by several.
    ///
    /// # Errors
    /// Those of the state folder. What could not be logged is kept, as far as there is memory.
    pub fn tick(&self, state: &State<'_, S>) -> Result<Ticked, StateError> {
        self.take_back(state)?;
        let mut ticked = Ticked::default();
        for _ in 0..TICK_PIECES {
            self.log_if_due(state, &mut ticked)?;
            match self.read_piece(state, Haste::ByPolicy) {
                0 => break,
                bytes => ticked.read_bytes += bytes,
            }
        }
        self.log_if_due(state, &mut ticked)?;
        let told = self.told.lock();
        ticked.is_behind = told.notes.unseen_blocks() > 0 && ticked.read_bytes > 0;
        Ok(ticked)
    }

    /// Logs all that was told until now, once it is read.
    ///
    /// # Errors
    /// As [`Monitor::tick`].
    pub fn flush(&self, state: &State<'_, S>) -> Result<(), StateError> {
        // What is told meanwhile is not waited for.
        let unseen_bytes = self.told.lock().notes.unseen_blocks().saturating_mul(BLOCK_BYTES_U64);
        let mut read_bytes = 0;
        while read_bytes < unseen_bytes {
            self.log_if_due(state, &mut Ticked::default())?;
            match self.read_piece(state, Haste::Now) {
                0 => break,
                bytes => read_bytes += bytes,
            }
        }
        self.write_log(state)?;
        Ok(())
    }

    /// Does what is to be done, until [`Monitor::end`]. For threads of the caller's own, each with the state folder opened for
    /// itself; as many as are to hash, or none. `failed` is told of errors; what failed is tried again.
    pub fn work(&self, state: &State<'_, S>, failed: &mut dyn FnMut(StateError)) {
        loop {
            let mut told = self.told.lock();
            if !told.is_ending && told.notes.len() < self.policy.log_runs() {
                self.due.wait_for(&mut told, self.policy.interval);
            }
            if told.is_ending {
                return;
            }
            drop(told);
            loop {
                match self.tick(state) {
                    Ok(ticked) if ticked.is_behind && !self.told.lock().is_ending => {}
                    Ok(_) => break,
                    Err(error) => {
                        failed(error);
                        // A full file system is not asked again and again.
                        let mut told = self.told.lock();
                        if !told.is_ending {
                            self.due.wait_for(&mut told, self.policy.interval);
                        }
                        break;
                    }
                }
            }
        }
    }

    /// Has all who [`Monitor::work`] return.
    pub fn end(&self) {
        self.told.lock().is_ending = true;
        self.due.notify_all();
    }

    /// Lets go of the image's lock while `work` is done, so that a scan or a pass of this host has the file. Another host may
    /// have it first; then its pass does the work, which harms nobody, and the lock is taken back later.
    ///
    /// # Errors
    /// Those of the state folder, when the lock is taken back.
    pub fn lend<T>(&self, state: &State<'_, S>, work: impl FnOnce() -> T) -> Result<T, StateError> {
        {
            let mut lock = self.lock.lock();
            (lock.held, lock.lent) = (None, lock.lent + 1);
        }
        let result = work();
        self.lock.lock().lent -= 1;
        self.take_back(state)?;
        Ok(result)
    }

    /// Logs all that was told, and lets go of the image. Where all changes since it was last scanned were told of, the image
    /// counts as scanned as it is now.
    ///
    /// # Errors
    /// Those of the state folder: the image will be scanned then.
    pub fn close(self, state: &State<'_, S>, files: &mut Marks) -> Result<Closed, StateError> {
        self.flush(state)?;
        let is_known = self.note_scanned(state, files)?;
        Ok(Closed { is_known, counts: self.counts() })
    }

    fn note_scanned(&self, state: &State<'_, S>, files: &mut Marks) -> Result<bool, StateError> {
        let (is_lossy, all_told) = {
            let told = self.told.lock();
            (told.is_lossy, told.notes.len() == 0)
        };
        let Some(mark) = files.reload(state, self.number)?.cloned() else { return Ok(false) };
        // Who scanned it meanwhile began with what was there then, and what came later was told of here. Where something
        // was left undone that may succeed another time, the mark says that it is to be scanned.
        let is_base_known = match mark.scanned {
            None => false,
            scanned if scanned == self.opened.scanned => self.opened.is_current,
            Some(_) => true,
        };
        if is_lossy {
            files.forget_scan(state, self.number)?;
        }
        if is_lossy || !is_base_known || !all_told {
            return Ok(false);
        }
        // What a crash takes back must not look as if it were known.
        state.substrate().sync(&self.file).map_err(StateError::at(&self.path))?;
        let mut last = None;
        for _ in 0..SETTLE_TRIES {
            let stat = state.substrate().stat(&self.file).map_err(StateError::at(&self.path))?;
            let stamp = Stamp::of(&stat);
            // The next change may get the same time as the last one. One that is ahead has stayed for a tick of whatever clock.
            let age = Age::of(&stamp, state.now()?);
            if age == Age::Settled || (age == Age::Ahead && last == Some(stamp)) {
                let flags = MarkFlags { is_ahead: age == Age::Ahead, ..mark.flags };
                let membership = Membership { owner: stat.owner, ..mark.membership.clone() };
                let noted = Noted { scanned: Some(stamp), flags, membership: &membership };
                files.note_read(state, self.number, &mark.path, &noted)?;
                return Ok(true);
            }
            last = Some(stamp);
            self.clock.sleep(TICK * 2);
        }
        Ok(false)
    }

    /// Takes the image's lock again, if it was lent and nobody has it.
    fn take_back(&self, state: &State<'_, S>) -> Result<(), StateError> {
        let mut lock = self.lock.lock();
        if lock.held.is_none() && lock.lent == 0 {
            lock.held = state.try_lock(&Subject::File(self.handle.clone()))?;
        }
        Ok(())
    }

    /// Notes what changed of a range: its whole blocks by `note`, its ends as blocks of which a part was written.
    fn tell(&self, range: ByteRange, note: impl FnOnce(&mut Told)) {
        if range.is_empty() {
            return;
        }
        let mut told = self.told.lock();
        // What was behind the end of the image is zeros now, up to where it goes on.
        if range.offset > told.length && !told.length.is_multiple_of(BLOCK_BYTES_U64) {
            let last = told.length / BLOCK_BYTES_U64;
            told.part(last);
        }
        told.length = told.length.max(range.end);
        range.parts().into_iter().flatten().for_each(|block| told.part(block));
        note(&mut told);
        self.noted(told);
    }

    /// Looks after the bounds once something was noted.
    fn noted(&self, mut told: parking_lot::MutexGuard<'_, Told>) {
        if told.since.is_none() {
            told.since = Some(self.clock.monotonic());
        }
        told.keep_within(self.policy.runs_max());
        let is_due = told.notes.len() >= self.policy.log_runs();
        drop(told);
        if is_due {
            self.due.notify_one();
        }
    }

    /// Reads a piece of what is unseen. Returns how much that was, in bytes; none where there is nothing to be read now.
    fn read_piece(&self, state: &State<'_, S>, haste: Haste) -> u64 {
        let unseen = {
            let mut told = self.told.lock();
            told.reading += 1;
            let number = told.reading;
            let Some(unseen) = told.notes.take_unseen(PIECE_BLOCKS, number) else { return 0 };
            let now = self.clock.monotonic();
            let may = told.budget.takes_deferred(unseen.count * BLOCK_BYTES_U64, now);
            if !may && haste == Haste::ByPolicy {
                told.notes.unseen(unseen.first, unseen.count);
                return 0;
            }
            unseen
        };
        let length = unseen.count * BLOCK_BYTES_U64;
        let mut bytes = vec![0; usize::try_from(length).expect("at most a piece")];
        let read = state.substrate().read_at(&self.file, unseen.first * BLOCK_BYTES_U64, &mut bytes);
        bytes.truncate(read.as_ref().map_or(0, |count| count / BLOCK_BYTES * BLOCK_BYTES));
        let mut digests = Vec::new();
        digest_blocks(&self.key, &bytes, &mut digests);
        let mut told = self.told.lock();
        told.counts.deferred_blocks += digests.len() as u64;
        if read.is_err() {
            told.counts.failed_reads += 1;
            told.is_lossy = true;
        }
        told.notes.read(unseen, &digests);
        told.keep_within(self.policy.runs_max());
        length
    }

    fn log_if_due(&self, state: &State<'_, S>, ticked: &mut Ticked) -> Result<(), StateError> {
        let is_due = {
            let told = self.told.lock();
            let is_old =
                told.since.is_some_and(|since| self.clock.monotonic().saturating_sub(since) >= self.policy.flush_after);
            is_old || told.notes.len() >= self.policy.log_runs()
        };
        if is_due {
            let logged = self.write_log(state)?;
            ticked.logged = Some(logged).filter(|logged| logged.blocks > 0).or(ticked.logged.take());
        }
        Ok(())
    }

    /// Logs all that is not to be read first.
    fn write_log(&self, state: &State<'_, S>) -> Result<Logged, StateError> {
        let mut order = self.log.lock();
        let notes = {
            let mut told = self.told.lock();
            let notes = told.notes.take();
            // What waits to be read is as old as it is: it is looked at again by then.
            told.since = (told.notes.len() > 0).then(|| self.clock.monotonic());
            notes
        };
        let mut left = notes.iter().copied();
        let logged = state.write_log(LogKind::Log, self.number, *order, &mut || Ok(left.next()));
        match logged {
            Ok(logged) => {
                *order = logged.order;
                let counts = &mut self.told.lock().counts;
                counts.logs += u64::from(logged.blocks > 0);
                counts.logged_blocks += logged.blocks;
                counts.log_bytes += logged.bytes;
                Ok(logged)
            }
            Err(error) => {
                let mut told = self.told.lock();
                told.notes.put_back(notes);
                told.since = Some(self.clock.monotonic());
                told.keep_within(self.policy.runs_max());
                Err(error)
            }
        }
    }
}

/// Whether the policy is asked before something is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Haste {
    ByPolicy,
    Now,
}

impl Told {
    /// Notes with what whole blocks were written.
    fn written(&mut self, first: u64, digests: &[Option<FingerprintPrefix>]) {
        let blocks = (first..FileBlock::LIMIT).zip(digests);
        blocks.for_each(|(block, digest)| self.notes.written(block, *digest));
        self.counts.in_band_blocks += digests.len() as u64;
    }

    /// Notes that a part of a block was written.
    fn part(&mut self, block: u64) {
        if block >= FileBlock::LIMIT {
            return;
        }
        self.counts.parts += 1;
        if self.budget.reads_parts() {
            self.notes.unseen(block, 1);
        } else {
            self.notes.changed(block, 1);
        }
    }

    /// Forgets something where there is too much.
    fn keep_within(&mut self, runs_max: usize) {
        if self.notes.len() > runs_max {
            self.counts.shed_blocks += self.notes.shed(runs_max / 4);
            self.is_lossy = true;
        }
    }
}

/// A range of an image, as far as there can be blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ByteRange {
    offset: u64,
    end: u64,
}

impl ByteRange {
    fn new(offset: u64, length: u64) -> ByteRange {
        const END: u64 = FileBlock::LIMIT * BLOCK_BYTES_U64;
        ByteRange { offset: offset.min(END), end: offset.saturating_add(length).min(END) }
    }

    fn is_empty(&self) -> bool {
        self.offset == self.end
    }

    /// Returns the blocks that lie in it as a whole; an empty range where none does.
    fn whole_blocks(&self) -> std::ops::Range<u64> {
        let (first, end) = (self.offset.div_ceil(BLOCK_BYTES_U64), self.end / BLOCK_BYTES_U64);
        first..end.max(first)
    }

    /// Returns the blocks of which a part lies in it.
    fn parts(&self) -> [Option<u64>; 2] {
        let cut = |at: u64| (!at.is_multiple_of(BLOCK_BYTES_U64)).then_some(at / BLOCK_BYTES_U64);
        let (first, last) = (cut(self.offset), cut(self.end));
        [first, last.filter(|_| last != first)]
    }
}
