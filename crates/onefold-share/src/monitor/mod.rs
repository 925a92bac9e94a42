//! The write monitor (DeDe, section 3.1). A door reports the writes to an image to it, so that no scan has to find
//! them.
//!
//! The calls that report ([`Monitor::wrote`] and those beside it) take a lock for a moment and do no I/O. A log that
//! cannot be written, or a slow reader, never keeps a writer waiting. Reports are kept in memory, the last one for each
//! block, and become a write log from time to time ([`Monitor::tick`], [`Monitor::work`], [`Monitor::flush`]). A block
//! that was written in part is noted as changed: the index's entry for it no longer counts.
//!
//! All of these are notes. If a monitor dies, its notes are lost, and the next scan reads the image, whose times have
//! changed. If memory does not suffice, or a block could not be read, the contents of blocks are forgotten, and a scan
//! reads the image once it is closed. A monitor that received a report of every change since the image was last
//! completely known says so when it closes, and saves the scan the reading.
//!
//! As long as a monitor is open, it has the lock of the image: a door owns its image. [`Monitor::lend`] lets the
//! owner's own pass work on it.

mod notes;
mod pending_notes;
mod policy;
mod report;
#[cfg(test)]
mod tests;
mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_block::{BLOCK_BYTES_U64, Clock, FingerprintKey};
use onefold_substrate::{Access, FileHandle, Substrate};
use parking_lot::{Condvar, Mutex};

use self::notes::Notes;
use self::pending_notes::{ByteRange, PendingNotes};
use self::policy::Budget;
use self::write::Haste;
use crate::digest::digest_blocks;
use crate::domain::DomainRules;
use crate::format::stamp::Stamp;
use crate::format::{FileBlock, FileNo, FingerprintPrefix};
use crate::state::files::Marks;
use crate::state::locks::{LockGuard, Subject};
use crate::state::logs::LogOrder;
use crate::state::{State, StateError};

pub use self::policy::{HashPolicy, MonitorPolicy};
pub use self::report::{CloseReport, MonitorCounts, MonitorError, TickReport};

/// Blocks of one read of data whose content was not reported: a megabyte.
const PIECE_BLOCKS: u64 = 256;
/// Maximum number of pieces that a tick reads, so that it finishes beside writers.
const TICK_PIECES: u32 = 16;

/// Watches the writes to one image. Any number of threads may report to it.
pub struct Monitor<S: Substrate> {
    number: FileNo,
    handle: FileHandle,
    path: PathBuf,
    /// For reading data whose content was not reported.
    file: S::File,
    key: FingerprintKey,
    clock: Arc<dyn Clock>,
    policy: MonitorPolicy,
    opened: OpeningState,
    // Lock order: `log`, then `told`; `lock` alone.
    told: Mutex<PendingNotes>,
    /// Wakes workers when there are notes to be logged.
    due: Condvar,
    /// The order of the last log. Held while a log is written, so that logs are written one at a time.
    log: Mutex<LogOrder>,
    lock: Mutex<ImageLock<S>>,
}

/// The image's lock.
struct ImageLock<S: Substrate> {
    /// `None` while it is lent, or if another host took it meanwhile.
    held: Option<LockGuard<S>>,
    /// The number of current loans. As long as there are any, the lock is not taken back.
    lent: u32,
}

/// Knowledge about the image when it was opened.
#[derive(Clone, Copy, Debug)]
struct OpeningState {
    scanned: Option<Stamp>,
    /// Whether the image was then unchanged since its scan.
    is_current: bool,
}

impl<S: Substrate> Monitor<S> {
    /// Begins to watch an image: takes its lock, and gives it a number if it has none. To be called before the first
    /// write.
    ///
    /// # Errors
    /// See [`MonitorError`]. The image can be written to nevertheless, without being watched.
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
        // Its state now that no other host works on it.
        let stat = state.substrate().stat(&file).map_err(failed)?;
        let before = files.of(&handle).map(|mark| mark.membership.clone());
        let membership = DomainRules::of(state)?.membership(path, &file, &stat, before.as_ref()).map_err(failed)?;
        let number = files.latest_number(state, &handle, path, &membership)?;
        let scanned = files.get(number).and_then(|mark| mark.scanned);
        let opened = OpeningState { scanned, is_current: scanned == Some(Stamp::of(&stat)) };
        let now = clock.monotonic();
        let told = PendingNotes {
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

    /// Returns its path when it was opened. A scan leaves the image out as long as it is watched: it would read
    /// everything that is reported here anyway.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the key of [`Monitor::wrote_digests`]: that of the domain that the image had when it was opened.
    #[must_use]
    pub fn key(&self) -> &FingerprintKey {
        &self.key
    }

    /// Returns whether the image was completely known when it was opened, and nothing was lost track of since. If not,
    /// a scan to which it is lent once ([`Monitor::lend`]) makes it known.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.opened.is_current && !self.told.lock().is_lossy
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> MonitorCounts {
        self.told.lock().counts
    }

    /// Reports that `bytes` were written at an offset. Depending on the policy, the caller's thread hashes them: a
    /// microsecond a block.
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

    /// Reports the content of written whole blocks: digests made with [`Monitor::key`], `None` for zero blocks.
    pub fn wrote_digests(&self, first: FileBlock, digests: &[Option<FingerprintPrefix>]) {
        let length = (digests.len() as u64).saturating_mul(BLOCK_BYTES_U64);
        let range = ByteRange::new(first.0.saturating_mul(BLOCK_BYTES_U64), length);
        self.tell(range, |told| told.written(first.0, digests));
    }

    /// Reports a write whose bytes are not at hand. They are read later.
    pub fn wrote_unseen(&self, offset: u64, length: u64) {
        let range = ByteRange::new(offset, length);
        let whole = range.whole_blocks();
        self.tell(range, |told| {
            if !whole.is_empty() {
                told.notes.unseen(whole.start, whole.end - whole.start);
            }
        });
    }

    /// Reports that a range now reads as zeros and takes no space: it was punched out, or is only allocated.
    /// [`Monitor::wrote`] reports zeros that were written as data, and [`Monitor::truncated`] an image that became
    /// longer.
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

    /// Reports a new length of the image.
    pub fn truncated(&self, length: u64) {
        let mut told = self.told.lock();
        let (from, to) = (told.length.min(length), told.length.max(length));
        if to > from && !from.is_multiple_of(BLOCK_BYTES_U64) {
            told.part(from / BLOCK_BYTES_U64);
        }
        if length < told.length {
            // The range that is gone, even if the image grows again, with zeros.
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

    /// Reports that the image may have been changed anywhere. Knowledge about it no longer counts, and it will be
    /// scanned.
    pub fn lost_track(&self) {
        let mut told = self.told.lock();
        told.is_lossy = true;
        let blocks = told.length.div_ceil(BLOCK_BYTES_U64).clamp(1, FileBlock::LIMIT);
        told.counts.shed_blocks += blocks;
        told.notes.changed(0, blocks);
        self.noted(told);
    }

    /// Does some of the pending work: reads and hashes up to 16 MiB of unseen data, as the policy allows, and writes a
    /// log when there is enough for one. May be called by any thread, and by several.
    ///
    /// # Errors
    /// Errors of the state folder. Notes that could not be logged are kept, as far as there is memory.
    pub fn tick(&self, state: &State<'_, S>) -> Result<TickReport, StateError> {
        self.take_back(state)?;
        let mut ticked = TickReport::default();
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

    /// Logs all reports up to now, once their data is read.
    ///
    /// # Errors
    /// As [`Monitor::tick`].
    pub fn flush(&self, state: &State<'_, S>) -> Result<(), StateError> {
        // Later reports are not waited for.
        let unseen_bytes = self.told.lock().notes.unseen_blocks().saturating_mul(BLOCK_BYTES_U64);
        let mut read_bytes = 0;
        while read_bytes < unseen_bytes {
            self.log_if_due(state, &mut TickReport::default())?;
            match self.read_piece(state, Haste::Now) {
                0 => break,
                bytes => read_bytes += bytes,
            }
        }
        self.write_log(state)?;
        Ok(())
    }

    /// Does pending work until [`Monitor::end`]. For threads of the caller, each with its own open state folder; as
    /// many as are to hash, or none. `failed` gets errors; failed work is tried again.
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
                        // A full file system is not tried again and again.
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

    /// Ends all calls of [`Monitor::work`].
    pub fn end(&self) {
        self.told.lock().is_ending = true;
        self.due.notify_all();
    }

    /// Releases the image's lock during `work`, so that a scan or a pass of this host has the file. If another host
    /// takes the lock first, its pass does the work, which is harmless, and the lock is taken back later.
    ///
    /// # Errors
    /// Errors of the state folder, when the lock is taken back.
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

    /// Logs all reports, and releases the image. If all changes since its last scan were reported, the image counts as
    /// scanned in its present state.
    ///
    /// # Errors
    /// Errors of the state folder: the image will be scanned then.
    pub fn close(self, state: &State<'_, S>, files: &mut Marks) -> Result<CloseReport, StateError> {
        self.flush(state)?;
        let is_known = self.note_scanned(state, files)?;
        Ok(CloseReport { is_known, counts: self.counts() })
    }

    /// Takes the image's lock again, if it was lent and no other host has it.
    fn take_back(&self, state: &State<'_, S>) -> Result<(), StateError> {
        let mut lock = self.lock.lock();
        if lock.held.is_none() && lock.lent == 0 {
            lock.held = state.try_lock(&Subject::File(self.handle.clone()))?;
        }
        Ok(())
    }

    /// Notes a change of a range: its whole blocks by `note`, its ends as blocks that were written in part.
    fn tell(&self, range: ByteRange, note: impl FnOnce(&mut PendingNotes)) {
        if range.is_empty() {
            return;
        }
        let mut told = self.told.lock();
        // The range behind the end of the image reads as zeros now, up to the new data.
        if range.offset > told.length && !told.length.is_multiple_of(BLOCK_BYTES_U64) {
            let last = told.length / BLOCK_BYTES_U64;
            told.part(last);
        }
        told.length = told.length.max(range.end);
        range.parts().into_iter().flatten().for_each(|block| told.part(block));
        note(&mut told);
        self.noted(told);
    }

    /// Enforces the bounds after a note.
    fn noted(&self, mut told: parking_lot::MutexGuard<'_, PendingNotes>) {
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
}
