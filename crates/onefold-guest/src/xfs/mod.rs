//! XFS, versions 4 and 5: read-only, without log replay.
//!
//! From "XFS Filesystem Structure" (the documentation of its on-disk format); each module has the table of its
//! structures. From the bottom up: `superblock` with `features` and `geometry`; `seal`, which verifies the
//! self-describing fields of version 5 metadata; `btree`, then `group` for the headers of allocation groups; `inode`
//! and `map` for files. On these are based `chunks`, `content`, `directory`, `link`, `attributes`, `log` and
//! `allocation`.
//!
//! A file system with a realtime device, an external log, zones or an unknown feature is refused by name. A log that
//! contains changes makes the file system unsure.

mod allocation;
mod attributes;
mod btree;
mod chunks;
mod content;
mod directory;
mod features;
mod geometry;
mod group;
mod hashed;
mod inode;
mod link;
mod log;
mod map;
mod seal;
mod superblock;

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use self::chunks::{CHUNK_INODES, InodeStep};
use self::inode::Inode;
use self::map::MapBlocks;
use self::superblock::Superblock;
use crate::budget::Budget;
use crate::directory_owners::DirectoryOwners;
use crate::error::{Damage, DamageLog, GuestError};
use crate::filesystem::{
    self, Allocation, AllocationDifferences, DirectoryEntry, Doubt, ExtendedAttribute, Extent, FileKind, FileNumber,
    FileStat, FileSystem, FileSystemFacts, FileSystemKind, State,
};
use crate::volume::VolumeReader;

/// An XFS file system.
#[derive(Debug)]
pub struct Xfs<'a> {
    reader: VolumeReader<'a>,
    superblock: Superblock,
    facts: FileSystemFacts,
    state: State,
    damage: DamageLog,
    /// Those of the most recent allocation map.
    differences: Mutex<Option<AllocationDifferences>>,
    /// Only for version 4, whose directory blocks record no owner.
    directory_owners: Mutex<DirectoryOwners>,
    /// Whether an inode, a part of a tree of inodes, or the map of a file was skipped because of damage.
    is_file_lost: AtomicBool,
}

/// Opens the XFS file system of a volume; `None` if there is none. The copy in another group replaces a damaged
/// superblock, which makes the file system unsure.
///
/// # Errors
/// [`GuestError::Unsupported`] with the name of the unsupported feature, [`GuestError::Damaged`] if the superblock or
/// the root directory is damaged, and those of the disk.
pub fn open(reader: VolumeReader<'_>) -> Result<Option<Xfs<'_>>, GuestError> {
    match Superblock::read(&reader) {
        Ok(superblock) => superblock.map(|superblock| with_superblock(reader, superblock)).transpose(),
        Err(error @ GuestError::Damaged(_)) => Ok(Some(open_by_copy(reader)?.ok_or(error)?)),
        Err(error) => Err(error),
    }
}

/// Opens an XFS file system by the superblock of another group, whatever is in place of the first one; `None` if no
/// copy is found. Another format that was made over an XFS may have left the copies in place, so all other kinds are
/// tried first.
///
/// # Errors
/// Those of the disk.
pub fn open_by_copy(reader: VolumeReader<'_>) -> Result<Option<Xfs<'_>>, GuestError> {
    let Some(superblock) = Superblock::read_copy(&reader)? else { return Ok(None) };
    let mut xfs = match with_superblock(reader, superblock) {
        Ok(xfs) => xfs,
        Err(GuestError::Disk(error)) => return Err(error.into()),
        Err(_) => return Ok(None),
    };
    let mut doubts = vec![Doubt::MetadataDamaged];
    if let State::Unsure(others) = &xfs.state {
        doubts.extend(others);
    }
    doubts.sort_unstable();
    doubts.dedup();
    xfs.state = State::Unsure(doubts);
    xfs.damage.note(xfs.reader.damage(0, "superblock", "a copy stands in for it"));
    Ok(Some(xfs))
}

fn with_superblock(reader: VolumeReader<'_>, superblock: Superblock) -> Result<Xfs<'_>, GuestError> {
    let facts = facts_of(&superblock);
    let (state, damage) = (State::Certain, DamageLog::default());
    let (directory_owners, is_file_lost) = (Mutex::default(), AtomicBool::new(false));
    let differences = Mutex::default();
    let mut xfs = Xfs { reader, superblock, facts, state, damage, differences, directory_owners, is_file_lost };
    let doubts = xfs.doubts()?;
    if !doubts.is_empty() {
        xfs.state = State::Unsure(doubts);
    }
    let root = xfs.superblock.root;
    let problem = match xfs.with_inode(root, |inode| Ok(inode.kind == FileKind::Directory)) {
        Ok(true) => return Ok(xfs),
        Ok(false) => "it is no directory",
        Err(GuestError::NotFound) => "it is not in use",
        Err(error) => return Err(error),
    };
    let place = xfs.superblock.inode_place(root).unwrap_or(0);
    Err(xfs.reader.damage(place, "root directory", problem).into())
}

fn facts_of(superblock: &Superblock) -> FileSystemFacts {
    let counters = superblock.counters;
    let per_block_log = superblock.block_log - superblock.inode_log;
    // If there is no limit for inodes, all free blocks may become inodes.
    let possible = counters.inodes.saturating_add(counters.blocks_free.min(superblock.blocks) << per_block_log);
    let chunk_blocks = u64::from(CHUNK_INODES >> per_block_log).max(1);
    let share = superblock.blocks * u64::from(counters.inodes_percent_max) / 100 / chunk_blocks * chunk_blocks;
    let files_max = if counters.inodes_percent_max == 0 { possible } else { possible.min(share << per_block_log) };
    FileSystemFacts {
        kind: FileSystemKind::Xfs,
        features: superblock.features.names(),
        label: superblock.label.clone(),
        uuid: uuid_text(superblock.uuid),
        block_bytes: superblock.block_bytes as u64,
        size_bytes: superblock.size_bytes(),
        free_bytes: Some(counters.blocks_free.min(superblock.blocks) << superblock.block_log),
        files_max: Some(files_max.max(counters.inodes)),
        files_used: Some(counters.inodes.saturating_sub(counters.inodes_free)),
    }
}

/// Returns a UUID in the form of tools.
fn uuid_text(uuid: [u8; 16]) -> String {
    let digits: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)];
    parts.map(|(from, to)| &digits[from..to]).join("-")
}

impl Xfs<'_> {
    fn doubts(&self) -> Result<Vec<Doubt>, GuestError> {
        let superblock = &self.superblock;
        let mut doubts = Vec::new();
        if superblock.size_bytes() > self.reader.size_bytes() {
            doubts.push(Doubt::LongerThanVolume);
        }
        if superblock.features.needs_repair() || superblock.is_in_progress {
            doubts.push(Doubt::HasErrors);
        }
        doubts.extend(self.doubt_of_log()?);
        Ok(doubts)
    }

    /// Records damage and returns `None`, like [`DamageLog::skip`], and remembers that a part of a file is missing.
    fn skip_file<T>(&self, outcome: Result<T, GuestError>) -> Result<Option<T>, GuestError> {
        let found = self.damage.skip(outcome)?;
        if found.is_none() {
            self.is_file_lost.store(true, Ordering::Relaxed);
        }
        Ok(found)
    }

    /// Records damage of a part of a file.
    fn note_file(&self, damage: Damage) {
        self.damage.note(damage);
        self.is_file_lost.store(true, Ordering::Relaxed);
    }

    /// Calls `then` with an inode.
    fn with_inode<T>(
        &self,
        file: FileNumber,
        then: impl FnOnce(&Inode<'_>) -> Result<T, GuestError>,
    ) -> Result<T, GuestError> {
        let record = self.inode_record(file)?;
        then(&self.inode(file, &record)?)
    }

    fn stat_of(&self, inode: &Inode<'_>) -> Result<FileStat, GuestError> {
        let stat = inode.stat(self.superblock.block_log);
        stat.ok_or_else(|| self.reader.damage(inode.place, "inode", "its times or lengths are impossible").into())
    }
}

impl FileSystem for Xfs<'_> {
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
        &self.damage
    }

    fn root(&self) -> FileNumber {
        self.superblock.root
    }

    fn stat(&self, file: FileNumber) -> Result<FileStat, GuestError> {
        self.with_inode(file, |inode| self.stat_of(inode))
    }

    fn each_entry(
        &self,
        directory: FileNumber,
        visit: &mut dyn FnMut(DirectoryEntry) -> ControlFlow<()>,
    ) -> Result<(), GuestError> {
        self.with_inode(directory, |inode| self.entries(inode, visit))
    }

    fn look_up(&self, directory: FileNumber, name: &[u8]) -> Result<Option<FileNumber>, GuestError> {
        self.with_inode(directory, |inode| self.entry(inode, name))
    }

    fn read_link(&self, file: FileNumber) -> Result<Vec<u8>, GuestError> {
        self.with_inode(file, |inode| self.target(inode))
    }

    fn attributes(&self, file: FileNumber) -> Result<Vec<ExtendedAttribute>, GuestError> {
        self.with_inode(file, |inode| self.attributes_of(inode))
    }

    fn each_extent(
        &self,
        file: FileNumber,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<(), GuestError> {
        self.with_inode(file, |inode| self.extents(inode, visit))
    }

    fn read(&self, file: FileNumber, offset: u64, into: &mut [u8]) -> Result<usize, GuestError> {
        self.with_inode(file, |inode| self.read_content(inode, offset, into))
    }

    fn each_file(&self, visit: &mut dyn FnMut(FileNumber, &FileStat) -> ControlFlow<()>) -> Result<(), GuestError> {
        let mut met = MapBlocks::default();
        self.each_inode(&mut |step| {
            let InodeStep::Inode(inode) = step else { return Ok(ControlFlow::Continue(())) };
            if self.superblock.internal.contains(&inode.number) {
                return Ok(ControlFlow::Continue(()));
            }
            // The map of each visited file is read.
            if self.damage.skip(self.meet_all(&mut met, &inode.data))?.is_none() {
                return Ok(ControlFlow::Continue(()));
            }
            let stat = self.damage.skip(self.stat_of(&inode))?;
            Ok(stat.map_or(ControlFlow::Continue(()), |stat| visit(inode.number, &stat)))
        })
    }

    fn allocation(&self) -> Result<Vec<Allocation>, GuestError> {
        self.allocation_within(&Budget::default())
    }

    fn allocation_within(&self, budget: &Budget) -> Result<Vec<Allocation>, GuestError> {
        self.allocation_map(budget)
    }

    fn free_by_bitmaps(&self, budget: &Budget) -> Result<Vec<Range<u64>>, GuestError> {
        Ok(filesystem::free_ranges(&self.free_space_map(budget)?))
    }

    fn allocation_differences(&self) -> Option<AllocationDifferences> {
        *self.differences.lock()
    }
}
