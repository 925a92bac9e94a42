//! Shares equal blocks without writing anything: for a file system without room for a state folder, its logs or its
//! index.
//!
//! The files of a selection are read in order of their paths. A table in memory names the place at which a content
//! first occurred; equal blocks are shared with that place by the call that compares them. The table is bounded:
//! once it is full, blocks are still compared with the contents that it knows. The work ends as soon as there is
//! room for the records of a usual run, which finds the rest.
//!
//! Opt-outs and domains count as in a run, also those that change meanwhile. The keys of fingerprints are drawn anew each time and forgotten. File
//! systems on which a share takes two steps are left alone, because a host that dies between them has to have
//! declared it.

mod members;

use std::collections::HashMap;
use std::io;
use std::path::Path;

use onefold_block::zero::is_zero;
use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64, FingerprintKey};
use onefold_substrate::{At, Compared, MappedExtent, ShareError, Substrate};

use self::members::Members;
use crate::domain::Domain;
use crate::extents::{Extents, each_extent};
use crate::format::FingerprintPrefix;
use crate::pace::{CallKind, Pace};
use crate::policy::SharePolicy;
use crate::room::left_for_others;
use crate::run::Seams;
use crate::scan::find::{SelectedFiles, find};
use crate::selection::Selection;
use crate::state::files::Marks;
use crate::state::{State, StateError};

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;
/// Memory of an entry of the table: key and value, with the spare room of a hash table.
const ENTRY_BYTES: usize = 64;
/// Room that a run needs for its records: a log, an index and its next generation for each block, with a margin.
const RECORD_BYTES: u64 = 64;
/// Room that a run needs however few blocks there are.
const RECORDS_LEAST: u64 = 4 << 20;

/// Options for sharing without an index.
pub struct WithoutIndexOptions<'a> {
    /// The files.
    pub selection: Selection<'a>,
    /// Memory for the table, in bytes.
    pub memory_bytes: usize,
    /// Limits.
    pub pace: &'a Pace<'a>,
}

/// The result of sharing without an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WithoutIndex {
    /// Bytes that were read.
    pub read: u64,
    /// Bytes that were shared.
    pub shared: u64,
    /// Room that a usual run needs for its records, in bytes.
    pub needed: u64,
    /// Free room at the end, in bytes.
    pub free: u64,
    /// Whether the file system had no room even for its own records of a share.
    pub is_full: bool,
}

impl WithoutIndex {
    /// Returns whether a usual run has the room that it needs.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.free >= self.needed
    }
}

/// Shares equal blocks until there is room for the records of a usual run.
///
/// # Errors
/// Errors of an existing state folder, as it may keep files apart; `Interrupted`; errors of the device other than those
/// of single files.
pub fn share_without_index<S: Substrate>(
    seams: &Seams<'_, S>,
    options: &WithoutIndexOptions<'_>,
) -> Result<WithoutIndex, StateError> {
    let substrate = seams.substrate;
    let mut done = WithoutIndex::default();
    if SharePolicy::of(substrate.abilities()).is_declared() {
        return Ok(done);
    }
    let state = State::look(substrate, seams.clock, seams.notices)?;
    let marks = state.as_ref().map(Marks::load).transpose()?.unwrap_or_default();
    let domains = members::rules(substrate, state.as_ref())?;
    let SelectedFiles { found, .. } =
        find(substrate, seams.clock, seams.notices, &marks, &domains, &options.selection)?;
    let blocks = found.iter().map(|found| found.stat.length / BLOCK_BYTES_U64).fold(0, u64::saturating_add);
    let room = substrate.room().map_err(StateError::at(Path::new("")))?;
    done.needed = blocks.saturating_mul(RECORD_BYTES).saturating_add(RECORDS_LEAST + left_for_others(room.total));
    done.free = room.free;
    let mut secret = [0; FingerprintKey::BYTES];
    seams.random.fill(&mut secret).map_err(StateError::at(Path::new("")))?;
    let mut sharer = Sharer {
        substrate,
        pace: options.pace,
        members: Members::new(substrate, state.as_ref(), &found)?,
        known: HashMap::new(),
        known_max: (options.memory_bytes / ENTRY_BYTES).max(1),
        run: None,
        done,
    };
    for (at, image) in found.iter().enumerate() {
        if sharer.done.has_room() || sharer.done.is_full {
            break;
        }
        options.pace.go_on()?;
        sharer.members.begin_target()?;
        let key = key_of(&image.membership.domain, &secret);
        match sharer.file(at, &key) {
            Ok(()) => {}
            Err(FileError::Stopped) => return Err(StateError::Interrupted),
            // The file is left to a usual run, which reports it.
            Err(FileError::Io(_)) => sharer.run = None,
        }
        sharer.measure(at);
    }
    Ok(sharer.done)
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
    done: WithoutIndex,
}

impl<S: Substrate> Sharer<'_, S> {
    /// Reads a file, and shares its blocks with earlier ones.
    fn file(&mut self, at: usize, key: &FingerprintKey) -> Result<(), FileError> {
        let substrate = self.substrate;
        let Some(file) = self.members.target(at)? else { return Ok(()) };
        let mut data = Vec::new();
        each_extent(substrate, &file, |extent| -> Result<(), FileError> {
            if extent.is_unwritten {
                return Ok(());
            }
            data.push(*extent);
            if data.len() < 1 << 12 {
                return Ok(());
            }
            self.extents(at, &file, key, &std::mem::take(&mut data))
        })?;
        self.extents(at, &file, key, &data)?;
        self.end_run(at, &file)
    }

    fn extents(
        &mut self,
        at: usize,
        file: &S::File,
        key: &FingerprintKey,
        extents: &[MappedExtent],
    ) -> Result<(), FileError> {
        let mut buffer = vec![0; READ_BYTES];
        for extent in extents {
            let mut offset = extent.offset - extent.offset % BLOCK_BYTES_U64;
            while offset < extent.end() && !self.done.is_full {
                if self.pace.go_on().is_err() {
                    return Err(FileError::Stopped);
                }
                let wanted = (extent.end() - offset).min(READ_BYTES as u64);
                let wanted = usize::try_from(wanted).expect("at most READ_BYTES");
                self.pace.read(wanted as u64);
                let read = self.substrate.read_at(file, offset, &mut buffer[..wanted])?;
                self.done.read += read as u64;
                for (number, block) in (offset / BLOCK_BYTES_U64..).zip(buffer[..read].chunks_exact(BLOCK_BYTES)) {
                    self.block(at, file, key, number, block)?;
                }
                if read < wanted {
                    break;
                }
                offset += wanted as u64;
            }
        }
        Ok(())
    }

    /// Takes a block: it continues the run, begins one, or becomes known.
    fn block(
        &mut self,
        at: usize,
        file: &S::File,
        key: &FingerprintKey,
        number: u64,
        block: &[u8],
    ) -> Result<(), FileError> {
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
        if let (Some(run), Some((source, from))) = (&mut self.run, equal) {
            let continues =
                run.source.0 == source && run.source.1 + run.count == from && run.first + run.count == number;
            // Two ranges of one file must not overlap.
            if continues && (source != at || run.source.1 + run.count < run.first) {
                run.count += 1;
                return Ok(());
            }
        }
        self.end_run(at, file)?;
        self.run = equal.map(|source| EqualBlocks { source, first: number, count: 1 });
        Ok(())
    }

    /// Shares the blocks of the run.
    fn end_run(&mut self, at: usize, file: &S::File) -> Result<(), FileError> {
        let Some(EqualBlocks { source, first, count }) = self.run.take() else { return Ok(()) };
        if self.done.is_full {
            return Ok(());
        }
        let opened;
        let from = if source.0 == at {
            file
        } else {
            let Some(file) = self.members.source(source.0)? else { return Ok(()) };
            opened = file;
            &opened
        };
        let (mut there, mut here) = (Extents::new(), Extents::new());
        let (mut done, length) = (0, count * BLOCK_BYTES_U64);
        while done < length {
            let (ours, theirs) = (first * BLOCK_BYTES_U64 + done, source.1 * BLOCK_BYTES_U64 + done);
            let placed = (there.at(self.substrate, from, theirs)?, here.at(self.substrate, file, ours)?);
            let part = placed.0.length.min(placed.1.length).min(length - done);
            let most = self.substrate.abilities().share_bytes_max;
            let part = part.min(self.pace.call_bytes(CallKind::Share, most)) / BLOCK_BYTES_U64 * BLOCK_BYTES_U64;
            let part = part.max(BLOCK_BYTES_U64);
            let is_shared = placed.0.place.is_some() && placed.0.place == placed.1.place;
            if !is_shared && !self.share(At { file: from, offset: theirs }, At { file, offset: ours }, part)? {
                return Ok(());
            }
            done += part;
        }
        Ok(())
    }

    /// Makes a call. Returns whether the rest of the run is worth one, too.
    fn share(&mut self, from: At<'_, S::File>, into: At<'_, S::File>, bytes: u64) -> Result<bool, FileError> {
        match self.pace.call(CallKind::Share, bytes, || self.substrate.share(from, into, bytes)) {
            Ok(Compared::Shared) => {
                self.done.shared += bytes;
                Ok(true)
            }
            // The earlier place has changed.
            Ok(Compared::Differ) => Ok(true),
            Err(ShareError::Full) => {
                self.done.is_full = true;
                Ok(false)
            }
            Err(ShareError::Refused(_) | ShareError::Busy) => Ok(false),
            Err(ShareError::Io(error)) => Err(error.into()),
        }
    }

    /// Notes the free room, after the file system has counted what a file has freed.
    fn measure(&mut self, at: usize) {
        // Without an answer, the work goes on.
        let Ok(Some(file)) = self.members.source(at) else { return };
        let synced = self.substrate.sync_shares(&file);
        if let (Ok(()), Ok(room)) = (synced, self.substrate.room()) {
            // Pieces take more records than their blocks free, or others are writing: they need the rest of the room.
            self.done.is_full |= room.free < self.done.free;
            self.done.free = room.free;
        }
    }
}

#[cfg(test)]
mod tests;
