//! Puts candidates into the arena, in the order of their places, so that neighbours stay neighbours.
//!
//! Clone first, then read the slot: if a host read the block first and cloned it afterwards, a write in between would
//! go unnoticed. Nobody writes to a slot, so the content that is read from it stays.
//!
//! The page cache of the images does not serve the slots. So many blocks are cloned first, and several threads read the
//! slots afterwards. Cloning and reading by turns would be slow: a clone locks the arena file, and would wait until the
//! disk has answered a reader. Consecutive slots are read at once, whichever images they are from.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::thread;

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};
use onefold_substrate::{Access, At, ShareError, Substrate};

use super::again::RereadCause;
use super::elsewhere::LockedPlaces;
use super::images::{Hold, Images};
use super::room::RecordsRoom;
use super::rows::Candidate;
use super::{PassError, PassOptions, Trouble};
use crate::digest::{Digester, PIECE_BYTES};
use crate::format::{FileNo, Slot};
use crate::pace::{CallKind, Pace};
use crate::state::State;
use crate::state::arena::ArenaWriter;

/// Blocks that are cloned by one call. Files stay locked for its duration.
const RUN_BLOCKS: usize = 256;
/// Maximum number of blocks that are cloned and not read yet, before the next run is cloned: 32 MiB.
const AHEAD_BLOCKS: usize = 8192;
/// Maximum number of slots that are read at once.
const LOOK_BLOCKS: usize = PIECE_BYTES / BLOCK_BYTES;

/// Records the results of candidates beside their slots.
pub(super) struct Notes<'a> {
    /// Files of which blocks were put into slots.
    pub(super) touched: &'a mut BTreeSet<FileNo>,
    /// Places that another host has.
    pub(super) elsewhere: &'a mut LockedPlaces,
    pub(super) trouble: &'a mut Trouble,
}

/// Results of candidates.
pub(super) struct Promotion {
    /// The slot of each that has one.
    pub(super) slots: Vec<Option<Slot>>,
    /// Whether the work was told to end before all had their turn. Then a candidate without a slot may not have had its
    /// turn.
    pub(super) is_cut: bool,
}

/// Puts candidates into the arena. They have to be in order of their places.
pub(super) fn promote<'b, S: Substrate>(
    state: &State<'b, S>,
    images: &mut Images<'_, 'b, S>,
    arena: &mut ArenaWriter<'_, 'b, S>,
    candidates: &[Candidate],
    notes: Notes<'_>,
    options: &PassOptions<'_>,
) -> Result<Promotion, PassError> {
    let Notes { touched, elsewhere, trouble } = notes;
    thread::scope(|scope| {
        let promoter = Promoter {
            state,
            images,
            arena,
            slots: vec![None; candidates.len()],
            elsewhere,
            trouble,
            pace: options.pace,
            file: None,
            hold: None,
            touched,
            room: RecordsRoom::new(state.substrate()),
            ahead: VecDeque::new(),
            ahead_blocks: 0,
            digester: Digester::new(options.threads, scope),
            asked: VecDeque::new(),
        };
        promote_all(promoter, candidates)
    })
}

fn promote_all<S: Substrate>(
    mut promoter: Promoter<'_, '_, '_, '_, S>,
    candidates: &[Candidate],
) -> Result<Promotion, PassError> {
    let mut first = 0;
    for run in candidates.chunk_by(|last, next| last.file == next.file && last.block.0 + 1 == next.block.0) {
        for part in run.chunks(RUN_BLOCKS) {
            match promoter.put(first, part) {
                // A slot that was not read is not returned; the pass empties it.
                Err(why) if why.is_interruption() => return Ok(Promotion { slots: promoter.slots, is_cut: true }),
                put => put?,
            }
            first += part.len();
        }
    }
    promoter.look()?;
    Ok(Promotion { slots: promoter.slots, is_cut: false })
}

/// Candidates that were cloned into consecutive slots.
struct ClonedCandidates {
    candidates: Vec<Candidate>,
    /// Their index in the list of all candidates, in which they are consecutive, too.
    at: usize,
    /// The slot of the first.
    first: Slot,
}

struct Promoter<'a, 'b, 'c, 'i, S: Substrate> {
    state: &'a State<'b, S>,
    images: &'a mut Images<'i, 'b, S>,
    arena: &'a mut ArenaWriter<'c, 'b, S>,
    /// The slot of each candidate so far.
    slots: Vec<Option<Slot>>,
    elsewhere: &'a mut LockedPlaces,
    trouble: &'a mut Trouble,
    pace: &'a Pace<'a>,
    /// The file of the current candidates; `None` inside if it cannot be opened.
    file: Option<(FileNo, Option<S::File>)>,
    /// The lock of that file, as long as this host has it.
    hold: Option<Hold<S>>,
    /// Files of which blocks were put into slots.
    touched: &'a mut BTreeSet<FileNo>,
    room: RecordsRoom,
    /// Cloned runs whose slots are to be read.
    ahead: VecDeque<ClonedCandidates>,
    ahead_blocks: usize,
    digester: Digester<'a>,
    /// Cloned runs whose slots are being read and digested.
    asked: VecDeque<ClonedCandidates>,
}

impl<S: Substrate> Promoter<'_, '_, '_, '_, S> {
    /// Puts consecutive blocks of a file into slots; `at` is their index in the list of all candidates.
    fn put(&mut self, mut at: usize, run: &[Candidate]) -> Result<(), PassError> {
        let Some(first) = run.first() else { return Ok(()) };
        if self.file.as_ref().is_none_or(|(number, _)| *number != first.file) {
            self.hold = None;
            self.hold = Some(self.images.hold(first.file)?);
            let opened = self.images.open(first.file, Access::Read);
            let opened = opened.map_err(|why| self.trouble.note(self.images.path(first.file), ShareError::Io(why)));
            self.file = Some((first.file, opened.ok()));
        }
        if matches!(self.hold, Some(Hold::Others)) {
            return run.iter().try_for_each(|place| self.elsewhere.leave(*place));
        }
        let mut left = run;
        while let Some(next) = left.first() {
            self.pace.boundary()?;
            self.trouble.is_short_of_records(&mut self.room, self.state.substrate());
            let Some((_, Some(file))) = &self.file else {
                self.read_again(left, RereadCause::Failed);
                return Ok(());
            };
            if self.trouble.is_full {
                // It is read again, once there is space.
                self.trouble.note(self.images.path(next.file), ShareError::Full);
                self.read_again(left, RereadCause::Failed);
                return Ok(());
            }
            let source = At { file, offset: next.block.0 * BLOCK_BYTES_U64 };
            let at_once = self.pace.call_bytes(CallKind::Clone, left.len() as u64 * BLOCK_BYTES_U64);
            let (arena, blocks) = (&mut self.arena, at_once / BLOCK_BYTES_U64);
            match self.pace.call(CallKind::Clone, at_once, || arena.put(source, blocks))? {
                Ok(slots) => {
                    let (done, rest) = left.split_at(usize::try_from(slots.count).expect("at most a run"));
                    self.look_later(at, done, slots.first)?;
                    at += done.len();
                    left = rest;
                    self.touched.insert(first.file);
                }
                Err(why) => {
                    // A file that is busy, or cannot be read, is so in this range, and perhaps not in the next one.
                    let is_for_all = matches!(why, ShareError::Refused(_) | ShareError::Full);
                    let blocks = usize::try_from(blocks).expect("at most a run");
                    let (failed, rest) = left.split_at(if is_for_all { left.len() } else { blocks });
                    // A file that was cut short since it was read has changed, which is no failure.
                    if matches!(why, ShareError::Io(_)) && self.ends_within(file, failed) {
                        self.trouble.changed += failed.len() as u64;
                        self.read_again(failed, RereadCause::Changed);
                    } else {
                        if !matches!(why, ShareError::Refused(_)) {
                            self.read_again(failed, RereadCause::Failed);
                        }
                        self.trouble.note(self.images.path(next.file), why);
                    }
                    at += failed.len();
                    left = rest;
                }
            }
        }
        Ok(())
    }

    fn look_later(&mut self, at: usize, run: &[Candidate], first: Slot) -> Result<(), PassError> {
        self.ahead_blocks += run.len();
        let goes_on = |before: &ClonedCandidates| {
            let count = before.candidates.len();
            count + run.len() <= LOOK_BLOCKS
                && before.at + count == at
                && follows(before.first, count, first)
                && self.images.are_of_one_domain(before.candidates[0].file, run[0].file)
        };
        match self.ahead.back_mut().filter(|before| goes_on(before)) {
            Some(before) => before.candidates.extend_from_slice(run),
            None => self.ahead.push_back(ClonedCandidates { candidates: run.to_vec(), at, first }),
        }
        if self.ahead_blocks >= AHEAD_BLOCKS { self.look() } else { Ok(()) }
    }

    /// Returns whether a file ends before the last of these blocks does.
    fn ends_within(&self, file: &S::File, run: &[Candidate]) -> bool {
        let end = run.last().map_or(0, |last| (last.block.0 + 1) * BLOCK_BYTES_U64);
        self.state.substrate().stat(file).is_ok_and(|stat| stat.length < end)
    }

    /// Reads all slots that were filled and not read yet.
    fn look(&mut self) -> Result<(), PassError> {
        self.ahead_blocks = 0;
        // The reader of the current arena file.
        let mut reader = None;
        while let Some(cloned) = self.ahead.pop_front() {
            let first = cloned.first;
            while !self.digester.has_room() && self.settle()? {}
            let (substrate, file) = (self.state.substrate(), self.arena.file(first.arena()));
            if reader.as_ref().is_none_or(|(number, _)| *number != first.arena()) {
                reader = Some((first.arena(), file.and_then(|file| substrate.reader(file))));
            }
            let reader = reader.as_ref().and_then(|(_, reader)| reader.as_ref());
            let key = self.images.key(cloned.candidates[0].file);
            let length = cloned.candidates.len() * BLOCK_BYTES;
            self.pace.read(length as u64);
            self.digester.ask(&key, first.index() * BLOCK_BYTES_U64, length, reader, |offset, into| match file {
                Some(file) => substrate.read_at(file, offset, into),
                None => Err(io::ErrorKind::NotFound.into()),
            });
            self.asked.push_back(cloned);
        }
        while self.settle()? {}
        Ok(())
    }

    /// Takes the result of the oldest run that is being read, and records which of its slots hold the right content.
    /// Returns false if there is no such run.
    fn settle(&mut self) -> Result<bool, PassError> {
        let Some((mut piece, cloned)) = self.digester.take().zip(self.asked.pop_front()) else {
            return Ok(false);
        };
        if let Some(why) = piece.why.take() {
            // The content of no slot of the run is known.
            for part in cloned.candidates.chunk_by(|one, other| one.file == other.file) {
                let why = io::Error::new(why.kind(), why.to_string());
                self.trouble.note(self.images.path(part[0].file), ShareError::Io(why));
            }
        }
        for (at, candidate) in cloned.candidates.iter().enumerate() {
            // A zero block has no digest, and no candidate was zero.
            let is_it = piece.digests.get(at).is_some_and(|found| *found == Some(candidate.digest));
            let slot = Slot::from_number(cloned.first.number() + at as u64).filter(|_| is_it);
            if !is_it {
                self.trouble.changed += 1;
                self.trouble.again.add(candidate.file, candidate.block, 1, RereadCause::Changed);
            }
            self.slots[cloned.at + at] = slot;
        }
        self.digester.give_back(piece);
        Ok(true)
    }

    /// Schedules another reading of blocks.
    fn read_again(&mut self, run: &[Candidate], because: RereadCause) {
        run.iter().for_each(|candidate| self.trouble.again.add(candidate.file, candidate.block, 1, because));
    }
}

/// Returns whether a slot is the one at distance `count` from the first, in the same arena file.
fn follows(first: Slot, count: usize, next: Slot) -> bool {
    first.arena() == next.arena() && first.number() + count as u64 == next.number()
}
