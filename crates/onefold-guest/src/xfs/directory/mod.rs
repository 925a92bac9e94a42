//! Directories: inline in the inode, one block, or blocks with an index.
//!
//! From "XFS Filesystem Structure", chapter "Directories". The content of a directory is a space of three parts:
//! entries from byte 0, an index by the hashes of names from byte 2^35, and a list of free room from byte 2^36. Its
//! blocks may be several blocks of the file system long.

mod data;
mod index;
mod short;

use std::ops::ControlFlow;

use super::Xfs;
use super::inode::{Fork, ForkForm, Inode};
use crate::error::{Damage, GuestError};
use crate::filesystem::{DirectoryEntry, FileKind, FileNumber};

const STRUCTURE: &str = "directory";
/// The byte of a directory's content at which the index begins.
const INDEX_START: u64 = 1 << 35;
/// Damaged blocks after which the rest of a directory is left out.
const DAMAGED_BLOCKS_MAX: u32 = 1000;

/// Called with each entry, until it breaks.
type EntryVisit<'v> = dyn FnMut(DirectoryEntry) -> ControlFlow<()> + 'v;

/// A block of a directory.
struct DirectoryBlock {
    /// All of its bytes.
    bytes: Vec<u8>,
    /// Where it begins in the volume.
    place: u64,
}

impl Xfs<'_> {
    /// Visits the entries of a directory, until `visit` breaks. Damaged parts are noted and left out.
    pub(super) fn entries(&self, inode: &Inode<'_>, visit: &mut EntryVisit<'_>) -> Result<(), GuestError> {
        if inode.kind != FileKind::Directory {
            return Err(GuestError::NotADirectory);
        }
        if inode.data.form == ForkForm::Inline {
            self.damage.skip(self.short_entries(&inode.data, inode.size_bytes, visit))?;
            return Ok(());
        }
        let block_bytes = self.directory_block_bytes();
        let (mut damaged, mut next, mut visited) = (0, 0, 0_u64);
        let blocks_max = (self.superblock.size_bytes() / block_bytes).saturating_add(1);
        let outcome = self.each_mapping(&inode.data, 0, &mut |mapping| {
            let start = (mapping.offset << self.superblock.block_log) / block_bytes;
            let end = (mapping.end() << self.superblock.block_log).min(INDEX_START).div_ceil(block_bytes);
            for number in start.max(next)..end {
                visited += 1;
                if damaged > DAMAGED_BLOCKS_MAX || visited > blocks_max {
                    return Err(self.reader.damage(inode.place, STRUCTURE, "too much of it is damaged").into());
                }
                match self.damage.skip(self.entries_of_block(inode, number, visit))? {
                    Some(ControlFlow::Continue(())) => {}
                    Some(ControlFlow::Break(())) => return Ok(ControlFlow::Break(())),
                    None => damaged += 1,
                }
            }
            next = end.max(next);
            Ok(ControlFlow::Continue(()))
        });
        self.damage.skip(outcome)?;
        Ok(())
    }

    /// Returns the file of a name in a directory.
    pub(super) fn entry(&self, inode: &Inode<'_>, name: &[u8]) -> Result<Option<FileNumber>, GuestError> {
        if inode.kind != FileKind::Directory {
            return Err(GuestError::NotADirectory);
        }
        let is_caseless = self.superblock.features.is_case_insensitive();
        if inode.data.form != ForkForm::Inline
            && !is_caseless
            && let Some(found) = self.damage.skip(self.entry_by_index(inode, name))?
        {
            return Ok(found);
        }
        let mut found = None;
        self.entries(inode, &mut |entry| {
            if entry.name == name || (is_caseless && entry.name.eq_ignore_ascii_case(name)) {
                found = Some(entry.file);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Returns the bytes of a directory's blocks.
    fn directory_block_bytes(&self) -> u64 {
        (self.superblock.block_bytes as u64) << self.superblock.directory_block_log
    }

    /// Reads block `number` of a directory; `None` where it has none there.
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

/// An entry as it is on the disk.
#[derive(Clone, Copy, Debug)]
struct RawEntry<'b> {
    name: &'b [u8],
    inode: u64,
    kind: Option<u8>,
}

/// Returns the kind of file that an entry notes.
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
