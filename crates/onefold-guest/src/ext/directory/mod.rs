//! Directories.
//!
//! Kernel documentation, "ext4 Data Structures and Algorithms", section "Directory Entries". A directory is a file
//! whose blocks consist of entries. Blocks of its tree of hashes look like a single unused entry, so a pass over all
//! blocks finds every name.
//!
//! The work is bounded whatever inodes say. After its first blocks, a directory is read only as far as its blocks
//! belong to no other directory (`directory_owners.rs`). Each block is read once, and the number of damaged blocks is
//! limited. A search for a name without a tree of hashes ends after a number of blocks.

mod entries;
mod hash;
mod index;
mod numbers;

use std::ops::ControlFlow;

use entries::NameForm;
use index::Answer;

use super::ROOT_INODE;
use super::checksum::crc32c;
use super::inode::{Inode, flags};
use super::map::MapRun;
use super::superblock::features;
use super::tables::Tables;
use crate::bytes::Bytes;
use crate::directory_owners::UNOWNED_BLOCKS;
use crate::disjoint::DisjointRuns;
use crate::error::GuestError;
use crate::filesystem::{DirectoryEntry, FileKind, FileNumber, SEARCHED_BYTES_MAX, TOO_LONG_TO_SEARCH};

const STRUCTURE: &str = "directory";
/// Length of the parent's inode number, with which an inline directory begins.
const INLINE_PARENT_BYTES: usize = 4;
/// Length of the last entry of a block with a checksum.
const TAIL_BYTES: usize = 12;

/// Number of damaged blocks after which the rest of a directory is skipped.
const DAMAGED_BLOCKS_MAX: u32 = 1000;

/// Progress in reading a directory.
#[derive(Debug)]
struct Progress {
    /// The block at which the directory ends.
    end: u64,
    blocks: u64,
    damaged: u32,
    runs: DisjointRuns,
}

impl Progress {
    /// Returns the initial progress for a directory that ends before block `end`.
    fn before(end: u64) -> Progress {
        Progress { end, blocks: 0, damaged: 0, runs: DisjointRuns::default() }
    }
}

/// Receives the entries of a directory.
type EntryVisit<'v> = dyn FnMut(DirectoryEntry) -> ControlFlow<()> + 'v;

impl Tables<'_> {
    /// Calls `visit` with each entry of a directory, until it breaks. Damaged blocks are recorded and skipped.
    ///
    /// # Errors
    /// When it is not a directory, or the disk fails.
    pub(super) fn each_name(&self, inode: &Inode, visit: &mut EntryVisit<'_>) -> Result<(), GuestError> {
        self.each_name_before(inode, u64::MAX, visit)
    }

    /// As [`Tables::each_name`], up to byte `end` of the directory.
    fn each_name_before(&self, inode: &Inode, end: u64, visit: &mut EntryVisit<'_>) -> Result<(), GuestError> {
        if inode.kind() != FileKind::Directory {
            return Err(GuestError::NotADirectory);
        }
        if inode.is_inline() {
            return self.each_inline_name(inode, visit);
        }
        let mut outcome = Ok(ControlFlow::Continue(()));
        let mut progress = Progress::before(inode.size_bytes.min(end).div_ceil(self.superblock.block_bytes));
        let walked = self.each_run(inode, 0, &mut |run| {
            // Another directory may be read meanwhile, with its own memory.
            let mut memory = std::mem::take(&mut *self.block_memory.lock());
            outcome = self.each_name_in_run(inode, &run, &mut progress, &mut memory, visit);
            *self.block_memory.lock() = memory;
            if matches!(outcome, Ok(ControlFlow::Continue(()))) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        self.damage.skip(walked)?;
        self.damage.skip(outcome).map(|_| ())
    }

    /// Returns the file with a name in a directory. Uses the directory's tree of hashes if possible.
    ///
    /// # Errors
    /// When it is not a directory, or the disk fails.
    pub(super) fn look_up(&self, inode: &Inode, name: &[u8]) -> Result<Option<FileNumber>, GuestError> {
        match self.look_up_by_hash(inode, name)? {
            Answer::Found(file) => return Ok(Some(file)),
            Answer::Missing => return Ok(None),
            Answer::Unknown => {}
        }
        let (mut exact, mut folded) = (None, None);
        self.each_name_before(inode, SEARCHED_BYTES_MAX, &mut |entry| {
            if entry.name == name {
                exact = Some(entry.file);
                return ControlFlow::Break(());
            }
            if inode.has(flags::CASEFOLD) && folded.is_none() && is_same_letters(&entry.name, name) {
                folded = Some(entry.file);
            }
            ControlFlow::Continue(())
        })?;
        if exact.is_none() && inode.size_bytes > SEARCHED_BYTES_MAX {
            return Err(GuestError::Unsupported(TOO_LONG_TO_SEARCH));
        }
        Ok(exact.or(folded))
    }

    /// Returns whether there is a root directory: its inode and its first names. Other content may have been made over
    /// a former file system, and have left its superblock in place.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn has_root(&self) -> Result<bool, GuestError> {
        match self.inode(ROOT_INODE).and_then(|inode| self.begins_with_itself(&inode)) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(GuestError::Damaged(damage)) => self.damage.note(damage),
            Err(GuestError::Disk(error)) => return Err(GuestError::Disk(error)),
            Err(_) => {}
        }
        let place = self.superblock.group_start(0) * self.superblock.block_bytes;
        self.damage.note(self.source.damage(place, STRUCTURE, "there is no root directory"));
        Ok(false)
    }

    /// Returns whether the first entry of a directory names the directory itself; of an inline one, whether its parent
    /// is the root directory.
    fn begins_with_itself(&self, inode: &Inode) -> Result<bool, GuestError> {
        if inode.kind() != FileKind::Directory {
            return Ok(false);
        }
        if inode.is_inline() {
            return Ok(inode.map_bytes().le32(0) == Some(ROOT_INODE));
        }
        let mut first = None;
        self.each_run(inode, 0, &mut |run| {
            first = Some(run.block).filter(|_| run.first == 0);
            ControlFlow::Break(())
        })?;
        let Some(block) = first else { return Ok(false) };
        let block = self.directory_block(inode, block)?;
        let block = Bytes(&block);
        Ok(block.le32(0) == Some(inode.number) && (block.u8(6), block.u8(8)) == (Some(1), Some(b'.')))
    }

    fn each_inline_name(&self, inode: &Inode, visit: &mut EntryVisit<'_>) -> Result<(), GuestError> {
        let names = self.names(inode);
        for (index, (place, bytes)) in self.inline_parts(inode)?.iter().enumerate() {
            let skipped = if index == 0 { INLINE_PARENT_BYTES } else { 0 };
            let entries = Bytes(bytes).from(skipped).unwrap_or(Bytes(&[]));
            let mut progress = Progress::before(0);
            if self.each_name_of(&names, entries, place + skipped as u64, &mut progress, visit).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Visits the entries of consecutive blocks, which are read into `memory`. A map that leads to the same blocks
    /// again and again, or only to damage, is followed only to a limit.
    fn each_name_in_run(
        &self,
        inode: &Inode,
        run: &MapRun,
        progress: &mut Progress,
        memory: &mut Vec<u8>,
        visit: &mut EntryVisit<'_>,
    ) -> Result<ControlFlow<()>, GuestError> {
        let names = self.names(inode);
        let damage = |problem| self.source.damage(inode.offset, STRUCTURE, problem);
        let count = run.count.min(progress.end.saturating_sub(run.first));
        if count == 0 {
            return Ok(ControlFlow::Break(()));
        }
        progress.runs.add(run.block, count).map_err(damage)?;
        for block in run.block..run.block + count {
            progress.blocks += 1;
            if progress.damaged > DAMAGED_BLOCKS_MAX {
                return Err(damage("too much of it is damaged").into());
            }
            let offset = block * self.superblock.block_bytes;
            if progress.blocks > UNOWNED_BLOCKS {
                let claimed = self.directory_owners.lock().claim(block, u64::from(inode.number));
                claimed.map_err(|problem| self.source.damage(offset, STRUCTURE, problem))?;
            }
            if self.damage.skip(self.read_directory_block(inode, block, memory))?.is_none() {
                progress.damaged += 1;
                continue;
            }
            if self.each_name_of(&names, Bytes(memory), offset, progress, visit).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Visits the entries of a block, or of a part of an inline directory. A block with damaged entries counts as
    /// damaged.
    fn each_name_of(
        &self,
        names: &NameForm,
        bytes: Bytes<'_>,
        offset: u64,
        progress: &mut Progress,
        visit: &mut EntryVisit<'_>,
    ) -> ControlFlow<()> {
        let (mut at, mut is_damaged, mut outcome) = (0, false, ControlFlow::Continue(()));
        while at < bytes.len() && outcome.is_continue() {
            let (found, next) = match names.at(bytes, at) {
                Ok(found) => found,
                Err(problem) => (Some(Err(problem)), bytes.len()),
            };
            match found {
                Some(Ok(entry)) => outcome = visit(entry),
                Some(Err(problem)) => {
                    is_damaged = true;
                    self.damage.note(self.source.damage(offset + at as u64, STRUCTURE, problem));
                }
                None => {}
            }
            at = next;
        }
        progress.damaged += u32::from(is_damaged);
        outcome
    }

    fn names(&self, inode: &Inode) -> NameForm {
        NameForm {
            inode_count: self.superblock.inode_count,
            has_kinds: self.superblock.features.has(features::FILETYPE),
            is_encrypted: inode.has(flags::ENCRYPT),
        }
    }

    /// Returns a block of a directory after checking its checksum.
    fn directory_block(&self, inode: &Inode, block: u64) -> Result<Vec<u8>, GuestError> {
        let mut bytes = Vec::new();
        self.read_directory_block(inode, block, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills `into` with a block of a directory, and checks its checksum.
    fn read_directory_block(&self, inode: &Inode, block: u64, into: &mut Vec<u8>) -> Result<(), GuestError> {
        let offset = block * self.superblock.block_bytes;
        into.resize(self.superblock.block_length, 0);
        self.source.read(offset, into, STRUCTURE)?;
        if self.superblock.features.has(features::METADATA_CSUM) && !has_right_checksum(inode, into) {
            return Err(self.source.damage(offset, STRUCTURE, "its checksum is wrong").into());
        }
        Ok(())
    }
}

/// Returns whether two names differ only in the case of letters. Names that are not UTF-8 must be equal byte by byte.
fn is_same_letters(one: &[u8], other: &[u8]) -> bool {
    let lower = |name| std::str::from_utf8(name).map(str::to_lowercase).ok();
    lower(one).is_some_and(|one| Some(one) == lower(other))
}

/// Returns whether the checksum of a block of names, or of the tree of hashes, is right.
fn has_right_checksum(inode: &Inode, block: &[u8]) -> bool {
    let bytes = Bytes(block);
    if inode.has(flags::INDEX)
        && let Some(at) = entries::index_at(bytes)
    {
        return has_right_index_checksum(inode, bytes, at).unwrap_or(false);
    }
    let summed = bytes.part(0, block.len().saturating_sub(TAIL_BYTES));
    let sum = bytes.le32(block.len().saturating_sub(4));
    summed.is_some_and(|summed| Some(crc32c(inode.checksum_seed, summed.0)) == sum)
}

/// Checks the checksum of a block of the tree of hashes. It is behind the last possible entry, after four bytes that
/// are included in the checksum.
fn has_right_index_checksum(inode: &Inode, bytes: Bytes<'_>, at: usize) -> Option<bool> {
    let (room, count) = (usize::from(bytes.le16(at)?), usize::from(bytes.le16(at + 2)?));
    let tail = at + room * 8;
    let parts = [bytes.part(0, at + count * 8)?.0, bytes.part(tail, 4)?.0, &[0; 4]];
    let sum = parts.iter().fold(inode.checksum_seed, |sum, part| crc32c(sum, part));
    Some(bytes.le32(tail + 4)? == sum)
}
