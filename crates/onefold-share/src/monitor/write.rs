//! The work of a monitor besides listening: it reads blocks whose content was not reported, writes logs, and notes at
//! the end whether its image is known.

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};
use onefold_substrate::Substrate;

use super::report::TickReport;
use super::{Monitor, PIECE_BLOCKS};
use crate::digest::digest_blocks;
use crate::domain::Membership;
use crate::format::log::LogKind;
use crate::format::mark::MarkFlags;
use crate::format::stamp::Stamp;
use crate::scan::{Age, TICK};
use crate::state::files::{MarkUpdate, Marks};
use crate::state::logs::WrittenLog;
use crate::state::{State, StateError};

/// Maximum number of times that the end waits until a later change would show.
const SETTLE_TRIES: u32 = 3;

/// Whether the policy is asked before a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Haste {
    ByPolicy,
    Now,
}

impl<S: Substrate> Monitor<S> {
    /// Reads a piece of the unseen blocks. Returns its length in bytes; 0 if there is nothing to be read now.
    pub(super) fn read_piece(&self, state: &State<'_, S>, haste: Haste) -> u64 {
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

    pub(super) fn log_if_due(&self, state: &State<'_, S>, ticked: &mut TickReport) -> Result<(), StateError> {
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

    /// Logs all notes except those of blocks that have to be read first.
    pub(super) fn write_log(&self, state: &State<'_, S>) -> Result<WrittenLog, StateError> {
        let mut order = self.log.lock();
        let notes = {
            let mut told = self.told.lock();
            let notes = told.notes.take();
            // Blocks that still wait to be read get a new waiting time: they are looked at again by then.
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

    pub(super) fn note_scanned(&self, state: &State<'_, S>, files: &mut Marks) -> Result<bool, StateError> {
        let (is_lossy, all_told) = {
            let told = self.told.lock();
            (told.is_lossy, told.notes.len() == 0)
        };
        let Some(mark) = files.reload(state, self.number)?.cloned() else { return Ok(false) };
        // A host that scanned the image meanwhile began with its content at that time, and later changes were reported
        // here. If some work was left undone that may succeed another time, the mark says that the image is to be
        // scanned.
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
        // A write that a crash reverts must not look as if it were known.
        state.substrate().sync(&self.file).map_err(StateError::at(&self.path))?;
        let mut last = None;
        for _ in 0..SETTLE_TRIES {
            let stat = state.substrate().stat(&self.file).map_err(StateError::at(&self.path))?;
            let stamp = Stamp::of(&stat);
            // The next change may get the same time as the last one. A time that is ahead has stayed the same for a
            // tick of any clock.
            let age = Age::of(&stamp, state.now()?);
            if age == Age::Settled || (age == Age::Ahead && last == Some(stamp)) {
                let flags = MarkFlags { is_ahead: age == Age::Ahead, ..mark.flags };
                let membership = Membership { owner: stat.owner, ..mark.membership.clone() };
                let noted = MarkUpdate { scanned: Some(stamp), flags, membership: &membership };
                files.note_read(state, self.number, &mark.path, &noted)?;
                return Ok(true);
            }
            last = Some(stamp);
            self.clock.sleep(TICK * 2);
        }
        Ok(false)
    }
}
