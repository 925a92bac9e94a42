//! Shares equal blocks without writing anything: for a file system without room for a state folder, its logs or its
//! index.
//!
//! The files of a selection are read in order of their paths. A table in memory names the place at which a content
//! first occurred; equal blocks are shared with that place by the call that compares them. The table is bounded:
//! once it is full, blocks are still compared with the contents that it knows. The work ends as soon as there is
//! room for the records of a usual run, which finds the rest.
//!
//! Opt-outs and domains count as in a run, also those that change meanwhile. The keys of fingerprints are drawn anew
//! each time and forgotten. File systems on which a share takes two steps are left alone, because a host that dies
//! between them has to have declared it.

mod members;
mod need;

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use onefold_block::zero::is_zero;
use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64, FingerprintKey};
use onefold_substrate::{At, ComparisonResult, MappedExtent, ShareError, Substrate};

use self::members::Members;
use self::need::{Need, RoomState};
use crate::domain::Domain;
use crate::extents::{Extents, ScatteredExtents, each_extent};
use crate::format::FingerprintPrefix;
use crate::pace::{CallKind, Pace};
use crate::policy::SharePolicy;
use crate::run::Seams;
use crate::scan::ScanProgress;
use crate::scan::find::{SelectedFiles, find};
use crate::selection::Selection;
use crate::state::files::Marks;
use crate::state::{State, StateError};

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;
/// Memory of an entry of the table: key and value, with the spare room of a hash table.
const ENTRY_BYTES: usize = 64;
/// Blocks that are shared at once, so that the room is looked at while a long run goes on: 16 MiB.
const RUN_BLOCKS_MAX: u64 = 1 << 12;

/// Options for sharing without an index.
pub struct WithoutIndexOptions<'a> {
    /// The files.
    pub selection: Selection<'a>,
    /// Memory for the table, in bytes.
    pub memory_bytes: usize,
    /// The shortest run of equal blocks that is shared, in bytes.
    pub min_run_bytes: u64,
    /// Limits.
    pub pace: &'a Pace<'a>,
    /// Called with the progress. The work ends where it returns `Break`.
    pub progress: &'a dyn Fn(ScanProgress) -> ControlFlow<()>,
}

/// The result of sharing without an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WithoutIndexReport {
    /// Bytes that were read.
    pub read: u64,
    /// Bytes that were shared.
    pub shared: u64,
    /// Room that a usual run needs for its records, in bytes. On a file system that has room for its own records apart,
    /// the room for those if they are what is lacking.
    pub needed: u64,
    /// Free room of that kind at the end, in bytes.
    pub free: u64,
    /// Whether the file system had no room even for its own records of a share, or the free room shrank to half.
    pub is_full: bool,
}

impl WithoutIndexReport {
    /// Returns whether a usual run has the room that it needs.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.free >= self.needed
    }
}

/// Shares equal blocks until there is room for the records of a usual run. Returns `None` if this cannot help: the file
/// system has that room already, so that a quota or the number of files is the limit; or it shares in two steps.
///
/// # Errors
/// Errors of an existing state folder, as it may keep files apart; `Interrupted`; errors of the device other than those
/// of single files.
pub fn share_without_index<S: Substrate>(
    seams: &Seams<'_, S>,
    options: &WithoutIndexOptions<'_>,
) -> Result<Option<WithoutIndexReport>, StateError> {
    let substrate = seams.substrate;
    if SharePolicy::of(substrate.abilities()).is_declared() {
        return Ok(None);
    }
    let state = State::look(substrate, seams.clock, seams.notices)?;
    let marks = state.as_ref().map(Marks::load).transpose()?.unwrap_or_default();
    let domains = members::rules(substrate, state.as_ref())?;
    let SelectedFiles { found, .. } =
        find(substrate, seams.clock, seams.notices, &marks, &domains, &options.selection)?;
    let blocks = found.iter().map(|found| found.stat.length / BLOCK_BYTES_U64).fold(0, u64::saturating_add);
    let need = Need::of_blocks(blocks);
    let room = need.look(substrate).map_err(StateError::at(Path::new("")))?;
    if room.is_enough() {
        return Ok(None);
    }
    let mut secret = [0; FingerprintKey::BYTES];
    seams.random.fill(&mut secret).map_err(StateError::at(Path::new("")))?;
    let mut sharer = Sharer {
        substrate,
        pace: options.pace,
        members: Members::new(substrate, state.as_ref(), &found)?,
        known: HashMap::new(),
        known_max: (options.memory_bytes / ENTRY_BYTES).max(1),
        run: None,
        source: None,
        need,
        floor: room.free / 2,
        unlooked: 0,
        min_run_blocks: options.min_run_bytes / BLOCK_BYTES_U64,
        show: options.progress,
        progress: ScanProgress { all_bytes: blocks.saturating_mul(BLOCK_BYTES_U64), ..ScanProgress::default() },
        done: WithoutIndexReport { needed: room.needed, free: room.free, ..WithoutIndexReport::default() },
    };
    for (at, image) in found.iter().enumerate() {
        options.pace.go_on()?;
        sharer.begin_target()?;
        let key = key_of(&image.membership.domain, &secret);
        match sharer.file(at, &key) {
            Ok(()) => {}
            Err(FileError::Stopped) => return Err(StateError::Interrupted),
            // The file is left to a usual run, which reports it.
            Err(FileError::Io(_)) => sharer.run = None,
        }
        sharer.look_after(at);
        if sharer.is_over() {
            break;
        }
        sharer.progress.done_bytes += image.stat.length;
    }
    Ok(Some(sharer.done))
}

fn key_of(domain: &Domain, secret: &[u8; FingerprintKey::BYTES]) -> FingerprintKey {
    domain.key(secret)
}

/// Why a file was not read to its end.
enum FileError {
    Io(#[allow(dead_code, reason = "a usual run reports it")] io::Error),
    Stopped,
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> FileError {
        FileError::Io(error)
    }
}

/// A block of a file: the file by its index, and the block's number.
type Location = (usize, u64);

/// Consecutive blocks that equal consecutive blocks of an earlier place.
#[derive(Clone, Copy)]
struct EqualBlocks {
    source: Location,
    /// The first block in the file that is being read.
    first: u64,
    count: u64,
    /// Whether its beginning was shared already.
    is_rest: bool,
}

/// A file from which blocks are shared.
struct Source<F> {
    at: usize,
    file: F,
    map: ScatteredExtents,
}

/// A file that is being read, and whose blocks are shared.
struct Target<'a, F> {
    at: usize,
    file: &'a F,
    /// Its map, of which offsets are asked in order.
    map: Extents,
}

/// Shares the blocks of one file after the other.
struct Sharer<'a, S: Substrate> {
    substrate: &'a S,
    pace: &'a Pace<'a>,
    members: Members<'a, S>,
    /// The first place of each content, at most `known_max` of them.
    known: HashMap<FingerprintPrefix, Location>,
    known_max: usize,
    /// The run that goes on with the next block.
    run: Option<EqualBlocks>,
    /// The last source of the present target.
    source: Option<Source<S::File>>,
    need: Need,
    /// With less room than this, the work ends: others need it.
    floor: u64,
    /// Bytes that were shared since the last look at the room.
    unlooked: u64,
    min_run_blocks: u64,
    show: &'a dyn Fn(ScanProgress) -> ControlFlow<()>,
    /// The progress at the beginning of the present target.
    progress: ScanProgress,
    done: WithoutIndexReport,
}

impl<S: Substrate> Sharer<'_, S> {
    /// Returns whether the work has ended.
    fn is_over(&self) -> bool {
        self.done.has_room() || self.done.is_full
    }

    /// Has files looked at again: what is known of sources counts for one target.
    fn begin_target(&mut self) -> Result<(), StateError> {
        self.source = None;
        self.members.begin_target()
    }

    /// Reads a file, and shares its blocks with earlier ones.
    fn file(&mut self, at: usize, key: &FingerprintKey) -> Result<(), FileError> {
        let substrate = self.substrate;
        let Some(file) = self.members.target(at)? else { return Ok(()) };
        let mut target = Target { at, file: &file, map: Extents::narrow() };
        let mut data = Vec::new();
        each_extent(substrate, &file, |extent| -> Result<(), FileError> {
            if extent.is_unwritten || self.is_over() {
                return Ok(());
            }
            data.push(*extent);
            if data.len() < 1 << 12 {
                return Ok(());
            }
            self.extents(&mut target, key, &std::mem::take(&mut data))
        })?;
        self.extents(&mut target, key, &data)?;
        self.end_run(&mut target)
    }

    fn extents(
        &mut self,
        target: &mut Target<'_, S::File>,
        key: &FingerprintKey,
        extents: &[MappedExtent],
    ) -> Result<(), FileError> {
        let mut buffer = vec![0; READ_BYTES];
        for extent in extents {
            let mut offset = extent.offset - extent.offset % BLOCK_BYTES_U64;
            while offset < extent.end() && !self.is_over() {
                self.go_on()?;
                let done_bytes = self.progress.done_bytes.saturating_add(offset);
                if (self.show)(ScanProgress { done_bytes, read_bytes: self.done.read, ..self.progress }).is_break() {
                    return Err(FileError::Stopped);
                }
                let wanted = (extent.end() - offset).min(READ_BYTES as u64);
                let wanted = usize::try_from(wanted).expect("at most READ_BYTES");
                self.pace.read(wanted as u64);
                let read = self.substrate.read_at(target.file, offset, &mut buffer[..wanted])?;
                self.done.read += read as u64;
                for (number, block) in (offset / BLOCK_BYTES_U64..).zip(buffer[..read].chunks_exact(BLOCK_BYTES)) {
                    self.block(target, key, number, block)?;
                }
                if read < wanted {
                    break;
                }
                offset += wanted as u64;
            }
        }
        Ok(())
    }

    fn go_on(&self) -> Result<(), FileError> {
        self.pace.go_on().map_err(|_| FileError::Stopped)
    }

    /// Takes a block: it continues the run, begins one, or becomes known.
    fn block(
        &mut self,
        target: &mut Target<'_, S::File>,
        key: &FingerprintKey,
        number: u64,
        block: &[u8],
    ) -> Result<(), FileError> {
        let at = target.at;
        let equal = if is_zero(block) {
            None
        } else {
            let digest = FingerprintPrefix::of(key.fingerprint(block));
            let known = self.known.get(&digest).copied();
            if known.is_none() && self.known.len() < self.known_max {
                self.known.insert(digest, (at, number));
            }
            known
        };
        let mut is_rest = false;
        if let (Some(run), Some((source, from))) = (&mut self.run, equal) {
            let continues =
                run.source.0 == source && run.source.1 + run.count == from && run.first + run.count == number;
            // Two ranges of one file must not overlap.
            if continues && (source != at || run.source.1 + run.count < run.first) {
                if run.count < RUN_BLOCKS_MAX {
                    run.count += 1;
                    return Ok(());
                }
                is_rest = true;
            }
        }
        self.end_run(target)?;
        self.run = equal.map(|source| EqualBlocks { source, first: number, count: 1, is_rest });
        Ok(())
    }

    /// Shares the blocks of the run, unless it is too short.
    fn end_run(&mut self, target: &mut Target<'_, S::File>) -> Result<(), FileError> {
        let Some(run) = self.run.take() else { return Ok(()) };
        if self.is_over() || (run.count < self.min_run_blocks && !run.is_rest) {
            return Ok(());
        }
        let mut source = match self.source.take().filter(|source| source.at == run.source.0) {
            Some(source) => source,
            None => {
                let Some(file) = self.members.source(run.source.0)? else { return Ok(()) };
                Source { at: run.source.0, file, map: ScatteredExtents::default() }
            }
        };
        let shared = self.share_run(run, &mut source, target);
        self.source = Some(source);
        shared
    }

    fn share_run(
        &mut self,
        run: EqualBlocks,
        source: &mut Source<S::File>,
        target: &mut Target<'_, S::File>,
    ) -> Result<(), FileError> {
        let substrate = self.substrate;
        let most = substrate.abilities().share_bytes_max;
        let (mut done, length) = (0, run.count * BLOCK_BYTES_U64);
        while done < length && !self.is_over() {
            self.go_on()?;
            let (ours, theirs) = (run.first * BLOCK_BYTES_U64 + done, run.source.1 * BLOCK_BYTES_U64 + done);
            let there = source.map.at(substrate, &source.file, theirs)?;
            let here = target.map.at(substrate, target.file, ours)?;
            let part = there.length.min(here.length).min(length - done);
            let part = part.min(self.pace.call_bytes(CallKind::Share, most)) / BLOCK_BYTES_U64 * BLOCK_BYTES_U64;
            let part = part.max(BLOCK_BYTES_U64);
            let is_shared = there.place.is_some() && there.place == here.place;
            let (from, into) = (At { file: &source.file, offset: theirs }, At { file: target.file, offset: ours });
            if !is_shared && !self.share(from, into, part)? {
                return Ok(());
            }
            if source.at == target.at {
                source.map.renew(substrate, &source.file, ours, ours + part);
            }
            if self.unlooked >= self.until_look() {
                self.look(target.file);
            }
            done += part;
        }
        Ok(())
    }

    fn until_look(&self) -> u64 {
        RoomState { free: self.done.free, needed: self.done.needed }.until_look()
    }

    /// Makes a call. Returns whether the rest of the run is worth one, too.
    fn share(&mut self, from: At<'_, S::File>, into: At<'_, S::File>, bytes: u64) -> Result<bool, FileError> {
        match self.pace.call(CallKind::Share, bytes, || self.substrate.share(from, into, bytes)) {
            Ok(ComparisonResult::Shared) => {
                self.done.shared += bytes;
                self.unlooked += bytes;
                Ok(true)
            }
            // The earlier place has changed.
            Ok(ComparisonResult::Differ) => Ok(true),
            Err(ShareError::Full) => {
                self.done.is_full = true;
                Ok(false)
            }
            Err(ShareError::Refused(_) | ShareError::Busy) => Ok(false),
            Err(ShareError::Io(error)) => Err(error.into()),
        }
    }

    /// Looks at the room after a file in which blocks were shared.
    fn look_after(&mut self, at: usize) {
        // Without an answer, the work goes on.
        if self.unlooked > 0
            && let Ok(Some(file)) = self.members.source(at)
        {
            self.look(&file);
        }
    }

    /// Notes the free room, once the file system has counted what a file has freed.
    fn look(&mut self, file: &S::File) {
        self.unlooked = 0;
        let synced = self.substrate.sync_shares(file);
        if let (Ok(()), Ok(room)) = (synced, self.need.look(self.substrate)) {
            (self.done.free, self.done.needed) = (room.free, room.needed);
            // Pieces take more records than their blocks free, or others are writing: they need the rest of the room.
            self.done.is_full |= room.free < self.floor;
        }
    }
}

#[cfg(test)]
mod tests;
