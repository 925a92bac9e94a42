//! The turn of a file in a scan: its known changes are read, then a stretch from the file's cursor on.
//!
//! A *round* goes once round the file, from where the cursor was when it began. When a round is complete, all of the
//! file is known as it was when the round began. If a change may have gone unseen, another round begins. So the first
//! reading of a file is a round, and each later one takes as many turns as its share of the writes allows.
//!
//! A host may die after any of these steps:
//!
//! 1. Read the changes into a log. If ranges could not be read before the work had to end, the mark notes that they are
//!    to be read.
//! 2. Keep the present map. Before the log is there, the changes would look as if they were known.
//! 3. Read a stretch into a log, and note in the mark how far the file is read. Repeat as long as the turn lasts.

use std::cell::Cell;
use std::io;
use std::iter::Peekable;
use std::ops::Range;
use std::path::Path;
use std::thread;

use onefold_block::{BLOCK_BYTES_U64, FingerprintKey, Timestamp};
use onefold_substrate::{FileStat, Substrate};

use super::blocks::Blocks;
use super::changes::Changes;
use super::{Age, LookOutcome, PROGRESS_BYTES, REREAD_PERCENT, RetryTime, Scan, Turn};
use crate::digest::Digester;
use crate::domain::Domain;
use crate::format::log::{LogKind, Note, WrittenBlock};
use crate::format::reading::{AGAIN_MAX, ReadingState, Round};
use crate::format::stamp::Stamp;
use crate::format::{FileBlock, FileNo, FingerprintPrefix};
use crate::kept_map::Differences;
use crate::ranges::Ranges;
use crate::state::merged_logs::MergeOutcome;
use crate::state::{Notice, StateError};

/// Maximum amount that is read into one log, in bytes: 48 MiB of log. This reading is lost only if the host dies before
/// the log is published.
const PART_BYTES: u64 = 16 << 30;
/// Number of notes between two checks whether enough is known.
const NOTES_BETWEEN_LOOKS: u64 = 1024;
/// Approximate bytes of a note in a log.
const NOTE_BYTES: u64 = FingerprintPrefix::BYTES as u64;

/// A file that has its turn. The scan has its lock.
pub(super) struct Subject<'a, S: Substrate> {
    pub(super) number: FileNo,
    pub(super) path: &'a Path,
    /// The key with which blocks of its domain are digested.
    pub(super) key: &'a FingerprintKey,
    pub(super) file: &'a S::File,
    pub(super) stat: &'a FileStat,
    pub(super) age: Age,
    pub(super) now: Timestamp,
    /// Whether it has no hole, if this is its first reading and that is known.
    pub(super) is_reserved: Cell<Option<bool>>,
    /// Its domain, if its times are older than the scan. Places that it shares with other such files are read once.
    pub(super) older_domain: Option<&'a Domain>,
}

impl<S: Substrate> Subject<'_, S> {
    fn stamp(&self) -> Stamp {
        Stamp::of(self.stat)
    }

    /// Returns the end of its last whole block, in bytes. Blocks behind the highest number that a log can hold are
    /// never shared.
    fn end(&self) -> u64 {
        (self.stat.length / BLOCK_BYTES_U64).min(FileBlock::LIMIT) * BLOCK_BYTES_U64
    }
}

/// Ranges that are to be read into one log.
struct ReadRequest<'w> {
    ranges: &'w Ranges,
    /// Ranges that have become empty.
    emptied: &'w Ranges,
    /// Maximum number of bytes that are read.
    most: u64,
}

/// Result of reading into a log.
struct ReadResult {
    /// Ranges that were not reached.
    rest: Ranges,
    read_bytes: u64,
    /// Bytes at places that were read already.
    once_bytes: u64,
    /// Whether the map has shown a hole, or there is no map.
    has_hole: bool,
    failed: Ranges,
    why: Option<io::Error>,
    ended: Option<EndCause>,
}

/// Why a turn ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndCause {
    /// The work is to stop.
    Stopped,
    /// Enough is known for a pass.
    Enough,
}

impl<S: Substrate> Scan<'_, '_, S> {
    /// Gives a file its turn. `scanned` is its stamp when all of it was known.
    pub(super) fn take_turn(
        &mut self,
        subject: &Subject<'_, S>,
        scanned: Option<Stamp>,
    ) -> Result<LookOutcome, StateError> {
        let (number, stat, age, end) = (subject.number, subject.stat, subject.age, subject.end());
        let mut reading = self.files.get(number).map(|mark| mark.reading.clone()).unwrap_or_default();
        reading.cut(end);
        reading.cursor = if reading.cursor < end { reading.cursor } else { 0 };
        let known_to = if reading.is_known { end } else { reading.cursor };
        // A change at the moment when the clock reached a time that was ahead would have had that time.
        let was_ahead = self.files.get(number).is_some_and(|mark| mark.flags.is_ahead);
        let is_as_scanned = scanned == Some(subject.stamp()) && (!was_ahead || age == Age::Ahead);
        let changes = if is_as_scanned || stat.length < self.options.rereading.map_bytes_min {
            Changes::default()
        } else {
            Changes::of(self.state, number, subject.file, &reading, known_to, self.options.pace)?
        };
        let is_first = scanned.is_none() && !reading.is_known && reading.cursor == 0;
        if is_first && let Some(map) = &changes.map {
            subject.is_reserved.set(Some(!map.has_gap(end)));
        }
        if !is_as_scanned {
            begin_round(&mut reading, subject, changes.are_all);
        }
        let turn = (self.options.rereading.turn)(stat);

        let (known, part) = self.read_changes(subject, &mut reading, &changes.differences)?;
        if !is_as_scanned {
            self.keep_map(subject, &mut reading, changes)?;
        }

        let allowed = allowance(turn, &reading, part.read_bytes);
        let ended = match part.ended {
            Some(ended) => Some(ended),
            None => self.go_round(subject, &mut reading, &known, allowed)?,
        };
        self.note(subject, reading)?;
        match ended {
            None => Ok(LookOutcome::Done),
            Some(EndCause::Enough) => Ok(LookOutcome::Enough),
            Some(EndCause::Stopped) => Err(StateError::Interrupted),
        }
    }

    /// Reads the changed ranges, and the ranges that are due to be read again. Returns the ranges whose content is
    /// known now.
    fn read_changes(
        &mut self,
        subject: &Subject<'_, S>,
        reading: &mut ReadingState,
        differences: &Differences,
    ) -> Result<(Ranges, ReadResult), StateError> {
        let due_by = self.due_by(subject.now).seconds;
        let due = reading.again.iter().filter(|again| !again.is_read && again.due <= due_by);
        let due = Ranges::of(due.map(|again| again.range())).split(subject.end()).0;
        let wanted = differences.changed.split(subject.end()).0.plus(&due);
        let emptied = differences.emptied.minus(&wanted);
        let part = self.read(subject, &ReadRequest { ranges: &wanted, emptied: &emptied, most: u64::MAX })?;
        let known = wanted.minus(&part.rest);
        self.take_in(subject, reading, &known, &part);
        // Ranges that were not reached are read next time, whether they change or not.
        for range in part.rest.clone().bounded(AGAIN_MAX / 2).iter() {
            reading.read_again(range.clone(), false, subject.now);
        }
        Ok((known, part))
    }

    /// Keeps the present map, with which the next turn finds changes.
    fn keep_map(
        &mut self,
        subject: &Subject<'_, S>,
        reading: &mut ReadingState,
        changes: Changes,
    ) -> Result<(), StateError> {
        // Data by which the file grew between the looks at its length and at its map is not read in this turn, and may
        // be older than the generation.
        if changes.generation.is_some() {
            let stat = self.state.substrate().stat(subject.file);
            let grown = stat.map_or(0, |stat| stat.length / BLOCK_BYTES_U64).min(FileBlock::LIMIT) * BLOCK_BYTES_U64;
            reading.read_again(subject.end()..grown, false, subject.now);
        }
        let map = changes.map.map(|mut map| {
            map.cut(subject.end());
            map
        });
        self.state.keep_map(subject.number, map.as_ref())?;
        reading.generation = changes.generation;
        Ok(())
    }

    /// Reads on from the cursor, as far as the turn allows.
    fn go_round(
        &mut self,
        subject: &Subject<'_, S>,
        reading: &mut ReadingState,
        known: &Ranges,
        mut allowed: u64,
    ) -> Result<Option<EndCause>, StateError> {
        while let Some(round) = reading.round.filter(|_| allowed > 0) {
            let stop = subject.end().min(reading.cursor + round.left);
            // Failed ranges have their own times.
            let failing = Ranges::of(reading.failed().map(|again| again.range()));
            let stretch = Ranges::of(std::iter::once(reading.cursor..stop)).minus(&failing).minus(known);
            let wanted = ReadRequest { ranges: &stretch, emptied: &Ranges::default(), most: allowed.min(PART_BYTES) };
            let part = self.read(subject, &wanted)?;
            self.take_in(subject, reading, &stretch.minus(&part.rest), &part);
            let reached = part.rest.iter().next().map_or(stop, |rest| rest.start);
            let left = round.left - (reached - reading.cursor);
            let has_moved = reached > reading.cursor;
            let was_all = (reading.cursor, reached) == (0, subject.end()) && known.is_empty();
            if was_all && !reading.is_known && subject.is_reserved.get().is_none() {
                subject.is_reserved.set(Some(!part.has_hole));
            }
            let was_whole = was_all && part.failed.is_empty();
            let is_at_end = reached >= subject.end();
            let was_known = reading.is_known;
            reading.cursor = if is_at_end { 0 } else { reached };
            reading.is_known |= is_at_end;
            reading.round = Some(Round { left, ..round }).filter(|round| round.left > 0);
            allowed -= part.read_bytes.min(allowed);
            if !was_known && reading.is_known && reading.round.is_some() {
                // From here on it is read within its share, as the others are.
                allowed = allowance((self.options.rereading.turn)(subject.stat), reading, 0);
            }
            self.tidy_logs(subject, reading, was_whole)?;
            if part.ended.is_some() || !has_moved {
                return Ok(part.ended);
            }
            if reading.round.is_some() {
                self.note(subject, reading.clone())?;
            }
        }
        Ok(None)
    }

    /// Replaces the older logs of a file by the newest if that covers all of it; otherwise merges many logs into one.
    fn tidy_logs(
        &mut self,
        subject: &Subject<'_, S>,
        reading: &mut ReadingState,
        was_whole: bool,
    ) -> Result<(), StateError> {
        if was_whole {
            let mut logs = self.logs.take(subject.number);
            let last = logs.iter().map(|log| log.order()).max();
            for log in logs.drain(..) {
                if Some(log.order()) == last {
                    self.logs.add(log);
                } else {
                    self.state.remove_log(&log)?;
                }
            }
        } else if self.state.merge_logs(subject.number, &mut self.logs)? == MergeOutcome::Damaged {
            // Its content is found by reading the file.
            *reading = ReadingState::default();
        }
        Ok(())
    }

    /// Reads ranges into a log, and publishes it. If the work is told to end, the part that was read is kept.
    fn read(&mut self, subject: &Subject<'_, S>, wanted: &ReadRequest<'_>) -> Result<ReadResult, StateError> {
        if wanted.ranges.is_empty() && wanted.emptied.is_empty() {
            let (rest, failed) = (Ranges::default(), Ranges::default());
            return Ok(ReadResult {
                rest,
                read_bytes: 0,
                once_bytes: 0,
                has_hole: true,
                failed,
                why: None,
                ended: None,
            });
        }
        let (state, options, number) = (self.state, self.options, subject.number);
        let (log_bytes, progress, places) = (self.log_bytes, &mut self.progress, &mut self.places);
        let after = self.files.numbers(number).map(|number| self.logs.last_of(number)).max().unwrap_or_default();
        let (part, logged) = thread::scope(|scope| {
            let digester = Digester::new(options.threads, scope);
            let mut blocks = Blocks::new(
                state.substrate(),
                options.pace,
                subject.file,
                wanted.ranges,
                wanted.most,
                digester,
                subject.key,
            )
            .with_places(subject.older_domain.map(|domain| places.of_domain(domain)), subject.stamp());
            let mut notes = Notes { emptied: wanted.emptied.iter().peekable(), ahead: None };
            let (done_before, read_before) = (progress.done_bytes, progress.read_bytes);
            let (mut told, mut noted, mut ended) = (0, 0_u64, None);
            let logged = state.write_log(LogKind::Log, number, after, &mut || {
                if ended.is_none() {
                    if options.pace.boundary().is_err() {
                        ended = Some(EndCause::Stopped);
                    } else if noted.is_multiple_of(NOTES_BETWEEN_LOOKS)
                        && (options.rereading.enough)(log_bytes + noted * NOTE_BYTES)
                    {
                        ended = Some(EndCause::Enough);
                    }
                    noted += 1;
                    if blocks.read_bytes >= told + PROGRESS_BYTES {
                        told = blocks.read_bytes;
                        progress.read_bytes = read_before + told;
                        progress.done_bytes = done_before + blocks.position().unwrap_or(0);
                        if (options.progress)(*progress).is_break() {
                            ended = Some(EndCause::Stopped);
                        }
                    }
                    if ended.is_some() {
                        blocks.end_soon();
                    }
                }
                Ok(notes.next(&mut blocks))
            });
            progress.done_bytes = done_before;
            progress.read_bytes = read_before + blocks.read_bytes;
            let part = ReadResult {
                rest: blocks.rest(),
                read_bytes: blocks.read_bytes,
                once_bytes: blocks.once_bytes,
                has_hole: blocks.has_hole(),
                failed: Ranges::of(std::mem::take(&mut blocks.failed)),
                why: blocks.why.take(),
                ended,
            };
            (part, logged)
        });
        let logged = logged?;
        self.scanned.logged_blocks += logged.blocks;
        self.scanned.read_bytes += part.read_bytes;
        self.scanned.once_bytes += part.once_bytes;
        self.log_bytes += logged.bytes;
        logged.log.into_iter().for_each(|log| self.logs.add(log));
        Ok(part)
    }

    /// Notes the ranges that were read, and those that could not be.
    fn take_in(&mut self, subject: &Subject<'_, S>, reading: &mut ReadingState, known: &Ranges, part: &ReadResult) {
        known.minus(&part.failed).iter().for_each(|range| reading.was_read(range, subject.now));
        let mut news: Option<Range<u64>> = None;
        for range in part.failed.iter() {
            let is_new = reading.read_again(range.clone(), true, subject.now);
            // A user who asked for the attempt gets a report each time.
            if is_new || self.options.rereading.failed == RetryTime::AtOnce {
                news.get_or_insert(range.clone());
            }
        }
        if let Some((first, why)) = news.zip(part.why.as_ref()) {
            self.scanned.failing += 1;
            let (path, bytes) = (subject.path.to_owned(), part.failed.bytes());
            let why = io::Error::new(why.kind(), why.to_string());
            self.state.notice(Notice::Failing { path, first, bytes, why });
        }
    }

    /// Notes how far a file is read. If no round is left, all of it is known, unless it changed a moment ago: the next
    /// change may get the same time.
    fn note(&mut self, subject: &Subject<'_, S>, reading: ReadingState) -> Result<(), StateError> {
        let is_whole = reading.is_known && reading.round.is_none();
        let scanned = (is_whole && subject.age != Age::Recent).then_some(subject.stamp());
        let mut flags = self.files.get(subject.number).map(|mark| mark.flags).unwrap_or_default();
        flags.is_reserved |= subject.is_reserved.get() == Some(true);
        flags.is_ahead = scanned.is_some() && subject.age == Age::Ahead;
        let last_log = self.logs.last_of(subject.number);
        self.files.note_reading(self.state, subject.number, scanned, reading, flags, last_log)
    }
}

/// Begins a round if one is needed, or continues the current one.
fn begin_round(reading: &mut ReadingState, subject: &Subject<'_, impl Substrate>, are_all: bool) {
    let (stamp, end, age) = (subject.stamp(), subject.end(), subject.age);
    // The next change may get the same times. Then nothing shows that the content read in this turn is out of date.
    let is_settled = age != Age::Recent;
    let begun = if is_settled { stamp } else { Stamp { length: u64::MAX, ..stamp } };
    reading.round = match reading.round {
        None if reading.is_known && are_all => None,
        Some(round) if are_all => {
            // All changes since it began were seen, and added data is before the file's end.
            let added = stamp.length.saturating_sub(round.stamp.length);
            Some(Round { stamp, left: round.left.saturating_add(added).min(end) })
        }
        Some(round) if round.stamp == begun && is_settled => Some(Round { left: round.left.min(end), ..round }),
        _ => Some(Round { stamp: begun, left: end }),
    };
}

/// Returns how many bytes a turn may read on from the cursor, after it has read `read_bytes` already.
fn allowance(turn: Turn, reading: &ReadingState, read_bytes: u64) -> u64 {
    match turn {
        _ if reading.round.is_none() => 0,
        _ if !reading.is_known => u64::MAX,
        Turn::Whole => u64::MAX,
        Turn::Within(written) => {
            // Known changes were written. Changed times show at least one write.
            let written = written.max(read_bytes).max(BLOCK_BYTES_U64);
            (written.saturating_mul(REREAD_PERCENT) / 100).saturating_sub(read_bytes)
        }
    }
}

/// The notes of a file, in order of its blocks: blocks that were read, and ranges that have become empty.
struct Notes<'n, I: Iterator<Item = &'n Range<u64>>> {
    emptied: Peekable<I>,
    /// A note that was read and not returned.
    ahead: Option<WrittenBlock>,
}

impl<'n, I: Iterator<Item = &'n Range<u64>>> Notes<'n, I> {
    fn next<S: Substrate>(&mut self, blocks: &mut Blocks<'_, S>) -> Option<Note> {
        self.ahead = self.ahead.take().or_else(|| blocks.next());
        let next = self.ahead.map_or(u64::MAX, |written| written.block.0 * BLOCK_BYTES_U64);
        match self.emptied.next_if(|range| range.start < next) {
            Some(range) => {
                let first = FileBlock(range.start / BLOCK_BYTES_U64);
                Some(Note::Changed { first, count: (range.end - range.start) / BLOCK_BYTES_U64 })
            }
            None => self.ahead.take().map(Note::Written),
        }
    }
}
