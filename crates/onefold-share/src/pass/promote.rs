//! Candidates go into the arena, in the order of their places, so that neighbours stay neighbours.
//!
//! First the clone, then the look: whoever read the block first and cloned it afterwards could put in what was written in
//! between. A slot is written to by nobody, so what is read from it stays.
//!
//! What the images have in memory, the slots have not. So the looks come some clones later, and the disk reads many slots at
//! once meanwhile. What was read is digested by other threads while the next slots are cloned and read.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::thread;

use onefold_block::substrate::{Access, At, ShareError};
use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64, Substrate};
use onefold_sort::{Batch, Merge};

use super::images::Images;
use super::room::RecordsRoom;
use super::rows::{Candidate, Promoted};
use super::{PassError, Trouble};
use crate::digest::Digester;
use crate::format::{FileNo, Slot};
use crate::pace::{CallKind, Pace};
use crate::state::State;
use crate::state::arena::ArenaWriter;

/// Blocks that are cloned at once: files stay locked for the time of a call.
const RUN_BLOCKS: u64 = 256;
/// Blocks that are cloned and not looked at yet, at most, but for the last run.
const AHEAD_BLOCKS: usize = 2048;

/// Puts all candidates into the arena and writes down what became of each.
pub(super) fn promote<'b, S: Substrate>(
    state: &State<'b, S>,
    images: &Images<'_, 'b, S>,
    arena: &mut ArenaWriter<'_, 'b, S>,
    candidates: Merge,
    promoted: &mut Batch<'_>,
    (touched, trouble): (&mut BTreeSet<FileNo>, &mut Trouble),
    (pace, threads): (&Pace<'_>, usize),
) -> Result<(), PassError> {
    let key = state.key();
    thread::scope(|scope| {
        let promoter = Promoter {
            state,
            images,
            arena,
            promoted,
            trouble,
            pace,
            file: None,
            touched,
            room: RecordsRoom::new(state.substrate()),
            ahead: VecDeque::new(),
            ahead_blocks: 0,
            digester: Digester::new(&key, threads, scope),
            digested: VecDeque::new(),
        };
        promote_all(promoter, candidates)
    })
}

fn promote_all<S: Substrate>(mut promoter: Promoter<'_, '_, '_, '_, S>, candidates: Merge) -> Result<(), PassError> {
    let mut run: Vec<Candidate> = Vec::new();
    for row in candidates {
        let candidate = Candidate::of(row?);
        let goes_on = run.last().is_some_and(|last| {
            last.file == candidate.file && last.block.0 + 1 == candidate.block.0 && (run.len() as u64) < RUN_BLOCKS
        });
        if !goes_on {
            promoter.put(&run)?;
            run.clear();
        }
        run.push(candidate);
    }
    promoter.put(&run)?;
    promoter.look_until(0)?;
    while promoter.settle()? {}
    Ok(())
}

struct Promoter<'a, 'b, 'c, 'd, S: Substrate> {
    state: &'a State<'b, S>,
    images: &'a Images<'a, 'b, S>,
    arena: &'a mut ArenaWriter<'c, 'b, S>,
    promoted: &'a mut Batch<'d>,
    trouble: &'a mut Trouble,
    pace: &'a Pace<'a>,
    /// The file whose candidates are on; none where it cannot be opened.
    file: Option<(FileNo, Option<S::File>)>,
    /// Files of which blocks were put into slots.
    touched: &'a mut BTreeSet<FileNo>,
    room: RecordsRoom,
    /// What was cloned and is to be looked at, with the first slot of each run.
    ahead: VecDeque<(Vec<Candidate>, Slot)>,
    ahead_blocks: usize,
    digester: Digester<'a>,
    /// What was read and is being digested, with the first slot of each run.
    digested: VecDeque<(Vec<Candidate>, Slot)>,
}

impl<S: Substrate> Promoter<'_, '_, '_, '_, S> {
    /// Puts consecutive blocks of a file into slots.
    fn put(&mut self, run: &[Candidate]) -> Result<(), PassError> {
        let Some(first) = run.first() else { return Ok(()) };
        if self.file.as_ref().is_none_or(|(number, _)| *number != first.file) {
            let opened = self.images.open(first.file, Access::Read);
            let opened =
                opened.map_err(|why| self.trouble.note(first.file, self.images.path(first.file), ShareError::Io(why)));
            self.file = Some((first.file, opened.ok()));
        }
        let mut left = run;
        while let Some(next) = left.first() {
            self.pace.boundary()?;
            self.trouble.is_short_of_records(&mut self.room, self.state.substrate());
            let Some((_, Some(file))) = &self.file else { return self.give_up(left) };
            if self.trouble.is_full {
                // It is read again, once there is room.
                self.trouble.note(next.file, self.images.path(next.file), ShareError::Full);
                return self.give_up(left);
            }
            let source = At { file, offset: next.block.0 * BLOCK_BYTES_U64 };
            let at_once = self.pace.call_bytes(CallKind::Clone, left.len() as u64 * BLOCK_BYTES_U64);
            let (arena, blocks) = (&mut self.arena, at_once / BLOCK_BYTES_U64);
            match self.pace.call(CallKind::Clone, at_once, || arena.put(source, blocks))? {
                Ok(slots) => {
                    let (done, rest) = left.split_at(usize::try_from(slots.count).expect("at most a run"));
                    self.look_later(done, slots.first)?;
                    left = rest;
                    self.touched.insert(first.file);
                }
                Err(why) => {
                    // Who is busy, or cannot be read, is so in this range, and perhaps not in the next one.
                    let is_for_all = matches!(why, ShareError::Refused(_) | ShareError::Full);
                    let blocks = usize::try_from(blocks).expect("at most a run");
                    let (failed, rest) = left.split_at(if is_for_all { left.len() } else { blocks });
                    // Who was cut short since it was read has changed, which is no failure.
                    if matches!(why, ShareError::Io(_)) && self.ends_within(file, failed) {
                        self.trouble.changed += failed.len() as u64;
                        self.trouble.again.insert(next.file);
                    } else {
                        self.trouble.note(next.file, self.images.path(next.file), why);
                    }
                    self.give_up(failed)?;
                    left = rest;
                }
            }
        }
        Ok(())
    }

    fn look_later(&mut self, run: &[Candidate], first: Slot) -> Result<(), PassError> {
        if let Some(file) = self.arena.file(first.arena()) {
            let length = run.len() as u64 * BLOCK_BYTES_U64;
            self.state.substrate().prefetch(file, first.index() * BLOCK_BYTES_U64, length);
        }
        self.ahead_blocks += run.len();
        self.ahead.push_back((run.to_vec(), first));
        self.look_until(AHEAD_BLOCKS)
    }

    /// Looks at slots until no more than so many are left.
    fn look_until(&mut self, blocks: usize) -> Result<(), PassError> {
        while self.ahead_blocks > blocks
            && let Some((run, first)) = self.ahead.pop_front()
        {
            self.ahead_blocks -= run.len();
            self.look(run, first)?;
        }
        Ok(())
    }

    /// Tells whether a file ends before the last of these blocks does.
    fn ends_within(&self, file: &S::File, run: &[Candidate]) -> bool {
        let end = run.last().map_or(0, |last| (last.block.0 + 1) * BLOCK_BYTES_U64);
        self.state.substrate().stat(file).is_ok_and(|stat| stat.length < end)
    }

    /// Reads slots and has them digested.
    fn look(&mut self, run: Vec<Candidate>, first: Slot) -> Result<(), PassError> {
        while !self.digester.has_room() && self.settle()? {}
        let mut bytes = self.digester.buffer();
        bytes.resize(run.len() * BLOCK_BYTES, 0);
        self.pace.read(bytes.len() as u64);
        let count = match self.arena.file(first.arena()) {
            Some(file) => self.state.substrate().read_at(file, first.index() * BLOCK_BYTES_U64, &mut bytes),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        let count = count.unwrap_or_else(|why| {
            self.trouble.note(run[0].file, self.images.path(run[0].file), ShareError::Io(why));
            0
        });
        bytes.truncate(count / BLOCK_BYTES * BLOCK_BYTES);
        self.digester.give(first.index() * BLOCK_BYTES_U64, bytes);
        self.digested.push_back((run, first));
        Ok(())
    }

    /// Writes down which slots of the run that was read first hold what they should. Returns false where there is none.
    fn settle(&mut self) -> Result<bool, PassError> {
        let Some((piece, (run, first))) = self.digester.take().zip(self.digested.pop_front()) else { return Ok(false) };
        for (at, candidate) in run.iter().enumerate() {
            // What is zero has no digest, and is not what any candidate was.
            let is_it = piece.digests.get(at).is_some_and(|found| *found == Some(candidate.digest));
            let slot = Slot::from_number(first.number() + at as u64).filter(|_| is_it);
            if !is_it {
                self.trouble.changed += 1;
                self.trouble.again.insert(candidate.file);
            }
            self.promoted.push(Promoted { digest: candidate.digest, slot }.row())?;
        }
        self.digester.give_back(piece.bytes);
        Ok(true)
    }

    fn give_up(&mut self, run: &[Candidate]) -> Result<(), PassError> {
        for candidate in run {
            self.promoted.push(Promoted { digest: candidate.digest, slot: None }.row())?;
        }
        Ok(())
    }
}
