//! Directories: inline in the inode, one block, or blocks with an index.
//!
//! From "XFS Filesystem Structure", chapter "Directories". The content of a directory is a space of three parts:
//! entries from byte 0, an index by the hashes of names from byte 2^35, and a list of free space from byte 2^36. One of
//! its blocks may consist of several blocks of the file system.

mod data;
mod index;
mod name;
mod short;

use std::ops::ControlFlow;

use index::Answer;

use super::Xfs;
use super::inode::{Fork, ForkForm, Inode};
use crate::directory_owners::UNOWNED_BLOCKS;
use crate::disjoint::DisjointRuns;
use crate::error::{Damage, GuestError};
use crate::filesystem::{DirectoryEntry, FileKind, FileNumber, SEARCHED_BYTES_MAX, TOO_LONG_TO_SEARCH};

const STRUCTURE: &str = "directory";
/// The byte of a directory's content at which the index begins.
const INDEX_START: u64 = 1 << 35;
/// Number of damaged blocks after which the rest of a directory is skipped.
const DAMAGED_BLOCKS_MAX: u32 = 1000;

/// Called with each entry, until it breaks.
type EntryVisit<'v> = dyn FnMut(DirectoryEntry) -> ControlFlow<()> + 'v;

/// A block of a directory.
struct DirectoryBlock {
    /// All of its bytes.
    bytes: Vec<u8>,
    /// Its start in the volume.
    place: u64,
}

impl Xfs<'_> {
    /// Visits the entries of a directory, until `visit` breaks. Damaged parts are recorded and skipped.
    pub(super) fn entries(&self, inode: &Inode<'_>, visit: &mut EntryVisit<'_>) -> Result<(), GuestError> {
        self.entries_before(inode, u64::MAX, visit)
    }

    /// As [`Xfs::entries`], up to byte `end` of the directory.
    fn entries_before(&self, inode: &Inode<'_>, end: u64, visit: &mut EntryVisit<'_>) -> Result<(), GuestError> {
        if inode.kind != FileKind::Directory {
            return Err(GuestError::NotADirectory);
        }
        let outcome = if inode.data.form == ForkForm::Inline {
            self.short_entries(&inode.data, inode.size_bytes, visit)
        } else {
            self.entries_of_blocks(inode, end, visit)
        };
        self.damage.skip(outcome)?;
        Ok(())
    }

    /// Visits the entries of a directory's blocks before byte `end`. The length of an intact directory is the end of
    /// its last block of entries. Blocks behind it are not read, and no block is read twice.
    fn entries_of_blocks(&self, inode: &Inode<'_>, end: u64, visit: &mut EntryVisit<'_>) -> Result<(), GuestError> {
        let (block_log, block_bytes) = (self.superblock.block_log, self.directory_block_bytes());
        let damage = |problem| self.reader.damage(inode.place, STRUCTURE, problem);
        let length = inode.size_bytes.min(INDEX_START);
        let blocks = length.min(end).div_ceil(block_bytes);
        let is_v5 = self.superblock.features.is_v5();
        let (mut visited, mut damaged, mut next, mut mapped, mut is_cut) = (0, 0, 0, 0, false);
        let mut runs = DisjointRuns::default();
        self.each_mapping(&inode.data, 0, &mut |mapping| {
            let first = mapping.offset << block_log;
            if first >= INDEX_START {
                return Ok(ControlFlow::Break(()));
            }
            mapped = (mapping.end() << block_log).min(INDEX_START);
            if first >= blocks * block_bytes {
                is_cut = true;
                return Ok(ControlFlow::Break(()));
            }
            let linear = self.superblock.linear_run(mapping.block, mapping.count).unwrap_or_default();
            runs.add(linear, u64::from(mapping.count)).map_err(damage)?;
            let end = mapped.div_ceil(block_bytes);
            for number in (first / block_bytes).max(next)..end.min(blocks) {
                if damaged > DAMAGED_BLOCKS_MAX {
                    return Err(damage("too much of it is damaged").into());
                }
                let offset = (number << self.superblock.directory_block_log).max(mapping.offset);
                let block = linear + (offset - mapping.offset);
                if !is_v5 {
                    self.claim_block(inode, block, visited)?;
                }
                visited += 1;
                match self.damage.skip(self.entries_of_block(inode, number, visit))? {
                    Some(ControlFlow::Continue(())) => {}
                    Some(ControlFlow::Break(())) => {
                        is_cut = true;
                        return Ok(ControlFlow::Break(()));
                    }
                    None => {
                        if is_v5 {
                            self.claim_block(inode, block, u64::from(damaged))?;
                        }
                        damaged += 1;
                    }
                }
            }
            next = end.max(next);
            Ok(ControlFlow::Continue(()))
        })?;
        if mapped > length {
            return Err(damage("it has blocks behind its length").into());
        }
        if !is_cut && mapped < inode.size_bytes {
            return Err(damage("it is longer than its blocks").into());
        }
        Ok(())
    }

    /// Makes a directory the owner of a block, unless fewer than [`UNOWNED_BLOCKS`] came `before` it. In version 4
    /// these are the blocks that were read, in version 5 the damaged ones. There an intact block records its owner
    /// itself, and counts as damaged for every other directory.
    ///
    /// # Errors
    /// When another directory has the block.
    fn claim_block(&self, inode: &Inode<'_>, linear: u64, before: u64) -> Result<(), Damage> {
        if before < UNOWNED_BLOCKS {
            return Ok(());
        }
        let claimed = self.directory_owners.lock().claim(linear, inode.number.0);
        claimed.map_err(|problem| self.reader.damage(linear << self.superblock.block_log, STRUCTURE, problem))
    }

    /// Returns the file with a name in a directory.
    pub(super) fn entry(&self, inode: &Inode<'_>, name: &[u8]) -> Result<Option<FileNumber>, GuestError> {
        if inode.kind != FileKind::Directory {
            return Err(GuestError::NotADirectory);
        }
        let wanted = self.wanted(name);
        if inode.data.form != ForkForm::Inline {
            match self.damage.skip(self.look_up_by_hash(inode, &wanted))? {
                Some(Answer::Found(file)) => return Ok(Some(file)),
                Some(Answer::Missing) => return Ok(None),
                Some(Answer::Unknown) | None => {}
            }
        }
        let (mut exact, mut similar) = (None, None);
        self.entries_before(inode, SEARCHED_BYTES_MAX, &mut |entry| {
            if entry.name == name {
                exact = Some(entry.file);
                return ControlFlow::Break(());
            }
            if wanted.is_met_by(&entry.name) {
                similar = similar.or(Some(entry.file));
            }
            ControlFlow::Continue(())
        })?;
        if exact.is_none() && inode.size_bytes > SEARCHED_BYTES_MAX {
            return Err(GuestError::Unsupported(TOO_LONG_TO_SEARCH));
        }
        Ok(exact.or(similar))
    }

    /// Returns the length of a directory's blocks.
    fn directory_block_bytes(&self) -> u64 {
        (self.superblock.block_bytes as u64) << self.superblock.directory_block_log
    }

    /// Reads block `number` of a directory; `None` if the directory does not have it.
    fn directory_block(&self, fork: &Fork<'_>, number: u64) -> Result<Option<DirectoryBlock>, GuestError> {
        let superblock = &self.superblock;
        let first = number << superblock.directory_block_log;
        let mut bytes = Vec::with_capacity(superblock.block_bytes << superblock.directory_block_log);
        let mut place = None;
        for offset in first..first + (1 << superblock.directory_block_log) {
            let Some(mapping) = self.mapping_of(fork, offset)? else { break };
            let at = superblock.place_of_run(mapping.block + (offset - mapping.offset), 1).unwrap_or(u64::MAX);
            bytes.extend(self.reader.bytes(at, superblock.block_bytes, STRUCTURE)?);
            place = place.or(Some(at));
        }
        let Some(place) = place else { return Ok(None) };
        if bytes.len() != superblock.block_bytes << superblock.directory_block_log {
            return Err(self.reader.damage(place, STRUCTURE, "a part of a block is missing").into());
        }
        Ok(Some(DirectoryBlock { bytes, place }))
    }

    /// Returns an entry of a directory, or `None` for `.` and `..`.
    fn new_entry(&self, raw: RawEntry<'_>, place: u64) -> Result<Option<DirectoryEntry>, Damage> {
        if raw.name == b"." || raw.name == b".." {
            return Ok(None);
        }
        if raw.name.is_empty() || raw.name.contains(&b'/') || raw.name.contains(&0) {
            return Err(self.reader.damage(place, STRUCTURE, "a name cannot be one"));
        }
        let file = FileNumber(raw.inode);
        if self.superblock.inode_place(file).is_none() {
            return Err(self.reader.damage(place, STRUCTURE, "an entry names a file that cannot be"));
        }
        Ok(Some(DirectoryEntry { name: raw.name.to_vec(), file, kind: raw.kind.and_then(kind_of) }))
    }
}

/// An entry in its stored form.
#[derive(Clone, Copy, Debug)]
struct RawEntry<'b> {
    name: &'b [u8],
    inode: u64,
    kind: Option<u8>,
}

/// Returns the kind of file that an entry records.
fn kind_of(kind: u8) -> Option<FileKind> {
    Some(match kind {
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        3 | 8 => FileKind::CharacterDevice,
        4 => FileKind::BlockDevice,
        5 => FileKind::Fifo,
        6 => FileKind::Socket,
        7 => FileKind::SymbolicLink,
        _ => return None,
    })
}
