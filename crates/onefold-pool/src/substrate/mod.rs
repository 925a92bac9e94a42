//! A pool as a substrate of sharing, in process. The engine that shares between plain files finds here, afterwards, the
//! equal blocks that writes did not find.
//!
//! This translates names, data and maps into the pool's own verbs. There is no user: the process that has the pool open
//! may do everything.

mod errors;
mod file;
mod names;

use std::io;
use std::path::Path;
use std::sync::Arc;

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};
use onefold_substrate::{
    Abilities, Access, At, ComparisonResult, CopyHints, Exclusive, FileHandle, FileStat, Files, FolderEntry, Locks,
    MappedExtent, Names, Protection, Reader, Refusal, Room, ShareError, Sharing, SubstrateKind, UserNo, WholeExtents,
};

use self::errors::{io_error, share_error};
pub use self::file::PoolFile;
use self::names::HeldInode;
use crate::attr::{AllocateMode, Durability, Ino, RangePair, RenameMode, SetAttr};
use crate::data::share::{SHARE_BYTES_MAX, ShareOutcome};
use crate::pool::Pool;

/// An open pool, or one of its folders, whose files can share blocks.
///
/// Files share only within their sharing domain. In a pool with several domains, each is best shared separately, from a
/// folder of its own.
pub struct PoolSubstrate<'a> {
    pool: &'a Pool,
    root: HeldInode<'a>,
    abilities: Abilities,
}

impl<'a> PoolSubstrate<'a> {
    /// Opens a folder of a pool; the empty path means the whole pool. Paths are relative to the folder.
    ///
    /// # Errors
    /// `NotFound`; `NotADirectory`; a symbolic link on the way.
    pub fn open(pool: &'a Pool, folder: &Path) -> io::Result<PoolSubstrate<'a>> {
        let root = names::find_folder(pool, &names::root(pool)?, folder)?;
        let abilities = Abilities {
            kind: SubstrateKind::Pool,
            block_bytes: u32::try_from(BLOCK_BYTES).expect("4096"),
            share_bytes_max: SHARE_BYTES_MAX,
            tells_last_reference: true,
            frees_whole_extents: false,
            is_clustered: false,
            shares_in_two_steps: false,
            has_own_domains: true,
        };
        Ok(PoolSubstrate { pool, root, abilities })
    }

    fn protection_of(&self, ino: Ino) -> io::Result<Protection> {
        let attr = self.pool.attr(ino).map_err(io_error)?;
        Ok(Protection { owner: UserNo(attr.uid), mode: attr.mode.into(), links: attr.link_count.into() })
    }

    fn set_mode_of(&self, ino: Ino, mode: u32) -> io::Result<()> {
        let mode = u16::try_from(mode).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.pool.set_attr(ino, &SetAttr { mode: Some(mode), ..SetAttr::default() }).map(drop).map_err(io_error)
    }
}

impl std::fmt::Debug for PoolSubstrate<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolSubstrate").field("root", &self.root.ino()).finish_non_exhaustive()
    }
}

impl<'a> Files for PoolSubstrate<'a> {
    type File = PoolFile<'a>;

    /// Returns the owner of the root: new files belong to that user.
    fn user(&self) -> UserNo {
        self.root.owner()
    }

    fn protection(&self, file: &PoolFile<'a>) -> io::Result<Protection> {
        self.protection_of(file.ino())
    }

    fn set_mode(&self, file: &PoolFile<'a>, mode: u32) -> io::Result<()> {
        self.set_mode_of(file.ino(), mode)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<PoolFile<'a>> {
        Ok(PoolFile::new(names::find_file(self.pool, &self.root, path)?, access))
    }

    fn create(&self, path: &Path) -> io::Result<PoolFile<'a>> {
        Ok(PoolFile::new(names::create_file(self.pool, &self.root, path)?, Access::Write))
    }

    fn stat(&self, file: &PoolFile<'a>) -> io::Result<FileStat> {
        let attr = self.pool.attr(file.ino()).map_err(io_error)?;
        // Needs no generation: a pool never reuses an inode number.
        let handle = FileHandle::new(&attr.ino.0.to_be_bytes()).expect("eight bytes are few");
        Ok(FileStat {
            handle,
            length: attr.size_bytes,
            allocated: attr.mapped_blocks * BLOCK_BYTES_U64,
            modified: attr.modified,
            changed: attr.changed,
            owner: attr.uid,
            names: attr.link_count,
        })
    }

    fn read_at(&self, file: &PoolFile<'a>, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.pool.read(file.ino(), offset, into).map_err(io_error)
    }

    fn borrowed_reader<'f>(&'f self, file: &'f PoolFile<'a>) -> Option<Arc<dyn Reader + 'f>> {
        Some(Arc::new(file.reader()))
    }

    fn write_at(&self, file: &PoolFile<'a>, offset: u64, from: &[u8]) -> io::Result<()> {
        file.ensure_writable()?;
        self.pool.write(file.ino(), offset, from, Durability::Later).map_err(io_error)
    }

    fn set_len(&self, file: &PoolFile<'a>, length: u64) -> io::Result<()> {
        file.ensure_writable()?;
        let change = SetAttr { size_bytes: Some(length), ..SetAttr::default() };
        self.pool.set_attr(file.ino(), &change).map(drop).map_err(io_error)
    }

    fn sync(&self, file: &PoolFile<'a>) -> io::Result<()> {
        self.pool.fsync(file.ino()).map_err(io_error)
    }
}

impl<'a> Names for PoolSubstrate<'a> {
    /// Keeps nothing: a pool is open in one process, in which nothing else changes names.
    fn keep_folder(&self, folder: &Path) -> io::Result<Protection> {
        self.protection_of(names::find_folder(self.pool, &self.root, folder)?.ino())
    }

    fn is_folder_kept(&self, folder: &Path) -> io::Result<bool> {
        match names::find_folder(self.pool, &self.root, folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            found => found.map(|_| true),
        }
    }

    fn set_folder_mode(&self, folder: &Path, mode: u32) -> io::Result<()> {
        self.set_mode_of(names::find_folder(self.pool, &self.root, folder)?.ino(), mode)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        names::create_folder(self.pool, &self.root, path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let file = names::find_file(self.pool, &self.root, from)?;
        let (folder, name) = names::place(self.pool, &self.root, to)?;
        let linked = self.pool.link(file.ino(), folder.ino(), name).map_err(io_error)?;
        self.pool.release(linked.ino, 1);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (folder, name) = names::place(self.pool, &self.root, from)?;
        let (new_folder, new_name) = names::place(self.pool, &self.root, to)?;
        let renamed = self.pool.rename(folder.ino(), name, new_folder.ino(), new_name, RenameMode::Replace);
        renamed.map_err(io_error)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = names::place(self.pool, &self.root, path)?;
        self.pool.unlink(folder.ino(), name).map_err(io_error)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<FolderEntry>> {
        names::list(self.pool, &names::find_folder(self.pool, &self.root, folder)?)
    }
}

impl<'a> Locks for PoolSubstrate<'a> {
    fn try_lock(&self, file: &PoolFile<'a>) -> io::Result<bool> {
        Ok(file.try_lock())
    }
}

impl<'a> Sharing for PoolSubstrate<'a> {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn extents(&self, file: &PoolFile<'a>, from: u64) -> io::Result<Vec<MappedExtent>> {
        self.pool.extents(file.ino(), from).map_err(io_error)
    }

    fn share(
        &self,
        source: At<'_, PoolFile<'a>>,
        into: At<'_, PoolFile<'a>>,
        length: u64,
    ) -> Result<ComparisonResult, ShareError> {
        ensure_may_change(into)?;
        match self.pool.share_range(range_pair(source, into, length)).map_err(share_error)? {
            ShareOutcome::Shared => Ok(ComparisonResult::Shared),
            ShareOutcome::Differ => Ok(ComparisonResult::Differ),
            // References may be dropped later, too, which may make room for another attempt.
            ShareOutcome::InPart => Err(ShareError::Busy),
        }
    }

    fn clone_range(
        &self,
        source: At<'_, PoolFile<'a>>,
        into: At<'_, PoolFile<'a>>,
        length: u64,
    ) -> Result<(), ShareError> {
        ensure_may_change(into)?;
        // A clone would share files that must not be shared, and copy those that cannot be.
        self.pool.ensure_may_share(source.file.ino(), into.file.ino()).map_err(share_error)?;
        if [source.offset, into.offset, length].iter().any(|number| !number.is_multiple_of(BLOCK_BYTES_U64)) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
        }
        let mut left = range_pair(source, into, length);
        while left.bytes > 0 {
            match self.pool.clone_range(left).map_err(share_error)? {
                // The source ends within the range.
                0 => return Err(io::Error::from(io::ErrorKind::InvalidInput).into()),
                bytes => left = left.after(bytes),
            }
        }
        Ok(())
    }

    fn punch(&self, file: &PoolFile<'a>, offset: u64, length: u64) -> io::Result<()> {
        file.ensure_writable()?;
        self.pool.allocate(file.ino(), offset, length, AllocateMode::PunchHole).map_err(io_error)
    }

    fn room(&self) -> io::Result<Room> {
        let stat = self.pool.fs_stat();
        Ok(Room { total: stat.blocks * BLOCK_BYTES_U64, free: stat.blocks_available * BLOCK_BYTES_U64 })
    }
}

impl<'a> Exclusive for PoolSubstrate<'a> {}

impl<'a> WholeExtents for PoolSubstrate<'a> {}

impl<'a> CopyHints for PoolSubstrate<'a> {}

fn range_pair(source: At<'_, PoolFile<'_>>, into: At<'_, PoolFile<'_>>, bytes: u64) -> RangePair {
    RangePair {
        source: source.file.ino(),
        source_offset: source.offset,
        target: into.file.ino(),
        target_offset: into.offset,
        bytes,
    }
}

fn ensure_may_change(into: At<'_, PoolFile<'_>>) -> Result<(), ShareError> {
    into.file.ensure_writable().map_err(|_| ShareError::Refused(Refusal::NotPermitted))
}
