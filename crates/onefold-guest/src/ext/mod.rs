//! ext2, ext3 and ext4.
//!
//! Source of all structures: kernel documentation, "ext4 Data Structures and Algorithms"
//! (`Documentation/filesystems/ext4`). Each structure is decoded in one place, next to a table of its fields. Every
//! checksum is verified; a structure that does not match its checksum is damaged.

mod allocation;
mod attributes;
mod checksum;
mod content;
mod directory;
mod facts;
mod group;
mod inode;
mod journal;
mod map;
mod orphans;
mod source;
mod superblock;
mod tables;
mod unread;
mod verity;

use std::ops::{ControlFlow, Range};

use inode::{Inode, Selection};
use parking_lot::Mutex;
use source::{Overlay, Source};
use superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};
use tables::Tables;

use crate::budget::Budget;
use crate::error::{DamageLog, GuestError};
use crate::filesystem::{
    self, Allocation, AllocationDifferences, DirectoryEntry, Doubt, ExtendedAttribute, Extent, FileKind, FileNumber,
    FileStat, FileSystem, FileSystemFacts, State, VerityDigest,
};
use crate::volume::VolumeReader;

const ROOT_INODE: u32 = 2;
const ROOT: FileNumber = FileNumber(ROOT_INODE as u64);

/// An ext2, ext3 or ext4 file system.
#[derive(Debug)]
pub struct Ext<'a> {
    tables: Tables<'a>,
    facts: FileSystemFacts,
    state: State,
    /// Those of the most recent allocation map.
    differences: Mutex<Option<AllocationDifferences>>,
}

/// Opens the ext2, ext3 or ext4 file system of a volume; `None` if it holds none.
///
/// # Errors
/// When its superblock is damaged, when it uses an unsupported feature, and those of the disk.
pub fn open(reader: VolumeReader<'_>) -> Result<Option<Ext<'_>>, GuestError> {
    if reader.size_bytes() < SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES as u64 {
        return Ok(None);
    }
    let bytes = reader.bytes(SUPERBLOCK_OFFSET, SUPERBLOCK_BYTES, "superblock")?;
    if !Superblock::is_claimed(&bytes) {
        return Ok(None);
    }
    let (superblock, is_copy) = match decode(&reader, &bytes) {
        Ok(superblock) => (superblock, false),
        Err(error @ GuestError::Damaged(_)) => (copy_of_superblock(&reader)?.ok_or(error)?, true),
        Err(error) => return Err(error),
    };
    if let Some(refused) = superblock.features.refusal() {
        return Err(GuestError::Unsupported(refused));
    }
    let (mut tables, mut doubts) = recovered(superblock, reader)?;
    let facts = tables.facts()?;
    if is_copy || tables.first_group_left_out().is_some() || !tables.has_root()? {
        doubts.push(Doubt::MetadataDamaged);
    }
    doubts.sort_unstable();
    doubts.dedup();
    let state = if doubts.is_empty() { State::Certain } else { State::Unsure(doubts) };
    Ok(Some(Ext { tables, facts, state, differences: Mutex::default() }))
}

fn decode(reader: &VolumeReader<'_>, bytes: &[u8]) -> Result<Superblock, GuestError> {
    Superblock::decode(bytes).map_err(|problem| reader.damage(SUPERBLOCK_OFFSET, "superblock", problem).into())
}

/// Returns the copy of the superblock at the start of the second group, for groups of the size that `mke2fs` makes;
/// `None` if there is none.
fn copy_of_superblock(reader: &VolumeReader<'_>) -> Result<Option<Superblock>, GuestError> {
    for block_bytes in (0..=6).map(|log| 1024_u64 << log) {
        // A bitmap of one block covers a group. Blocks of 1 KiB are numbered from 1.
        let offset = (u64::from(block_bytes == 1024) + 8 * block_bytes) * block_bytes;
        if offset.saturating_add(SUPERBLOCK_BYTES as u64) > reader.size_bytes() {
            break;
        }
        let bytes = reader.bytes(offset, SUPERBLOCK_BYTES, "superblock")?;
        let copy = Superblock::is_claimed(&bytes).then(|| Superblock::decode(&bytes).ok()).flatten();
        let copy = copy.filter(|copy| copy.copy_group == 1 && copy.block_bytes == block_bytes);
        if let Some(copy) = copy {
            // Copies are never marked as clean.
            return Ok(Some(Superblock { is_clean: true, ..copy }));
        }
    }
    Ok(None)
}

/// Returns the file system after the replay of its journal, with all reasons why it may be out of date.
fn recovered(superblock: Superblock, reader: VolumeReader<'_>) -> Result<(Tables<'_>, Vec<Doubt>), GuestError> {
    let raw = Tables::new(superblock, Source::new(reader.clone(), Overlay::default()), DamageLog::default());
    let recovery = journal::recover(&raw)?;
    let Tables { superblock: raw, damage, .. } = raw;
    let has_noted_error = raw.has_errors;
    let mut doubts: Vec<Doubt> = recovery.doubt.into_iter().collect();
    let source = Source::new(reader, recovery.overlay);
    // The journal also contains the superblock.
    let bytes = source.bytes(SUPERBLOCK_OFFSET, SUPERBLOCK_BYTES, "superblock")?;
    let superblock = match damage.skip(decode(source.reader(), &bytes))? {
        Some(superblock) if superblock.features.refusal().is_none() => superblock,
        _ => {
            doubts.push(Doubt::JournalDamaged);
            raw
        }
    };
    let tables = Tables::new(superblock, source, damage);
    doubts.extend(tables.doubts());
    // A mount and the checker keep the error on the disk, whatever the journal's superblock says.
    if recovery.has_error || has_noted_error {
        doubts.push(Doubt::HasErrors);
    }
    Ok((tables, doubts))
}

impl Ext<'_> {
    /// Returns an inode that is in use.
    fn inode(&self, file: FileNumber) -> Result<Inode, GuestError> {
        let number = u32::try_from(file.0).map_err(|_| GuestError::NotFound)?;
        let inode = self.tables.inode(number)?;
        if inode.mode == 0 { Err(GuestError::NotFound) } else { Ok(inode) }
    }
}

impl FileSystem for Ext<'_> {
    fn facts(&self) -> &FileSystemFacts {
        &self.facts
    }

    fn state(&self) -> &State {
        &self.state
    }

    fn add_doubt(&mut self, doubt: Doubt) {
        self.state.add(doubt);
    }

    fn damage(&self) -> &DamageLog {
        &self.tables.damage
    }

    fn root(&self) -> FileNumber {
        ROOT
    }

    fn stat(&self, file: FileNumber) -> Result<FileStat, GuestError> {
        self.inode(file).map(|inode| inode.stat())
    }

    fn each_entry(
        &self,
        directory: FileNumber,
        visit: &mut dyn FnMut(DirectoryEntry) -> ControlFlow<()>,
    ) -> Result<(), GuestError> {
        self.tables.each_name(&self.inode(directory)?, visit)
    }

    fn look_up(&self, directory: FileNumber, name: &[u8]) -> Result<Option<FileNumber>, GuestError> {
        self.tables.look_up(&self.inode(directory)?, name)
    }

    fn read_link(&self, file: FileNumber) -> Result<Vec<u8>, GuestError> {
        let inode = self.inode(file)?;
        if inode.kind() != FileKind::SymbolicLink {
            return Err(GuestError::NotFound);
        }
        self.tables.link_target(&inode)
    }

    fn attributes(&self, file: FileNumber) -> Result<Vec<ExtendedAttribute>, GuestError> {
        self.tables.extended_attributes(&self.inode(file)?)
    }

    fn verity(&self, file: FileNumber) -> Result<Option<VerityDigest>, GuestError> {
        self.tables.verity_digest(&self.inode(file)?)
    }

    fn each_extent(
        &self,
        file: FileNumber,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<(), GuestError> {
        self.tables.each_extent(&self.inode(file)?, visit)
    }

    fn read(&self, file: FileNumber, offset: u64, into: &mut [u8]) -> Result<usize, GuestError> {
        self.tables.read_content(&self.inode(file)?, offset, into)
    }

    fn each_file(&self, visit: &mut dyn FnMut(FileNumber, &FileStat) -> ControlFlow<()>) -> Result<(), GuestError> {
        self.tables.each_inode(Selection::Used, &mut |inode| {
            if self.tables.is_internal(&inode) {
                return ControlFlow::Continue(());
            }
            visit(FileNumber(u64::from(inode.number)), &inode.stat())
        })
    }

    fn allocation(&self) -> Result<Vec<Allocation>, GuestError> {
        self.allocation_within(&Budget::default())
    }

    fn each_unread(&self, visit: &mut dyn FnMut(Range<u64>)) -> Result<(), GuestError> {
        if self.state == State::Certain { self.tables.each_unread(visit) } else { Ok(()) }
    }

    fn allocation_within(&self, budget: &Budget) -> Result<Vec<Allocation>, GuestError> {
        let (runs, differences) = self.tables.allocation(self.state == State::Certain, budget)?;
        *self.differences.lock() = Some(differences);
        Ok(runs)
    }

    fn free_by_bitmaps(&self, budget: &Budget) -> Result<Vec<Range<u64>>, GuestError> {
        Ok(filesystem::free_ranges(&self.tables.bitmap_allocation(self.state == State::Certain, budget)?))
    }

    fn allocation_differences(&self) -> Option<AllocationDifferences> {
        *self.differences.lock()
    }
}
