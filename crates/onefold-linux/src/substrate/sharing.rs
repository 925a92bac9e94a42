//! What the file system shares: extents and their sharing, and what some kinds need besides.

use std::io;
use std::path::Path;

use onefold_substrate::{
    Abilities, AgedExtent, At, ComparisonResult, CopyHints, Exclusive, MappedExtent, Reference, Refusal, Room,
    ShareError, Sharing, Slice, SubstrateKind, WholeExtent, WholeExtents,
};

use super::LinuxSubstrate;
use crate::file::{self, LinuxFile};
use crate::sys::btrfs;
use crate::{clone, copy_hint, map, records, share, whole, whole_first};

impl Sharing for LinuxSubstrate {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    /// Returns the next extents of a file, at most 512. Data not yet written back has no place.
    ///
    /// Btrfs reports an extent as a whole: it is shared if any part of it is referred to elsewhere.
    fn extents(&self, file: &LinuxFile, from: u64) -> io::Result<Vec<MappedExtent>> {
        self.note_call();
        map::extents(file, from, u64::MAX)
    }

    fn extents_up_to(&self, file: &LinuxFile, from: u64, end: u64) -> io::Result<Vec<MappedExtent>> {
        self.note_call();
        map::extents(file, from, end)
    }

    /// Compares and shares, in one call of the kernel, or in several if it stops early. If a later call reports a
    /// difference or fails, the first part stays shared. A range that its owner has meanwhile truncated counts as
    /// different.
    ///
    /// [`ComparisonResult::Shared`] proves that the ranges were equal. Only maps show whether all of their blocks are
    /// shared now: kernels from 4.20 on report the requested length even if they ran out of space on the way.
    ///
    /// # Panics
    /// If offsets or length are not whole blocks, or the length is zero or above the maximum: the kernel would report
    /// some of those ranges as equal without comparing anything.
    fn share(
        &self,
        source: At<'_, LinuxFile>,
        into: At<'_, LinuxFile>,
        length: u64,
    ) -> Result<ComparisonResult, ShareError> {
        share::share(source, into, length)
    }

    /// Clones a range (`FICLONERANGE`).
    ///
    /// # Panics
    /// See [`LinuxSubstrate::share`].
    fn clone_range(&self, source: At<'_, LinuxFile>, into: At<'_, LinuxFile>, length: u64) -> Result<(), ShareError> {
        share::clone_range(source, into, length)
    }

    /// Makes the whole file system durable on OCFS2 and Btrfs. On OCFS2 it is unknown what part of a share `fsync`
    /// covers. On Btrfs, `fsync` of a file with very many newly shared blocks logs its whole map while writers of the
    /// file wait (half a second for 90,000 blocks; with `syncfs` no writer waited for more than 10 ms).
    fn sync_shares(&self, file: &LinuxFile) -> io::Result<()> {
        match self.abilities.kind {
            SubstrateKind::Ocfs2 | SubstrateKind::Btrfs => file.sync_all(),
            SubstrateKind::Xfs | SubstrateKind::Pool | SubstrateKind::Simulated => file.sync(),
        }
    }

    fn syncs_all_shares(&self) -> bool {
        matches!(self.abilities.kind, SubstrateKind::Ocfs2 | SubstrateKind::Btrfs)
    }

    fn punch(&self, file: &LinuxFile, offset: u64, length: u64) -> io::Result<()> {
        file.punch(offset, length)
    }

    /// Clones a whole file (`FICLONE`). The kernel locks the source meanwhile, so the clone is of one moment. The new
    /// file belongs to the caller. Its permissions are those of the source, as limited by the umask or the folder's
    /// default ACL.
    fn create_clone(&self, source: &LinuxFile, path: &Path) -> Result<LinuxFile, ShareError> {
        clone::create_clone(&self.root, source, path)
    }

    fn refusal(&self, file: &LinuxFile) -> io::Result<Option<Refusal>> {
        share::refusal(file)
    }

    /// Returns the number of the latest transaction on Btrfs. Requires `CAP_SYS_ADMIN`. `None` for files that are
    /// overwritten in place, and on other file systems.
    fn generation(&self, file: &LinuxFile) -> io::Result<Option<u64>> {
        match self.abilities.kind {
            SubstrateKind::Btrfs => whole::generation(file),
            _ => Ok(None),
        }
    }

    /// Returns the extents in those leaves of a file's tree that were written since a transaction
    /// (`BTRFS_IOC_TREE_SEARCH_V2`).
    fn changed_since(&self, file: &LinuxFile, generation: u64, from: u64) -> io::Result<Vec<AgedExtent>> {
        match self.abilities.kind {
            SubstrateKind::Btrfs => whole::changed_since(file, generation, from),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Returns the room for users other than root. On Btrfs it is approximate: space not yet set aside for data or
    /// metadata counts as if it all became data, and Btrfs may refuse writes long before the last of it is used.
    fn room(&self) -> io::Result<Room> {
        let host = rustix::fs::fstatvfs(self.root.folder())?;
        let bytes = |blocks: u64| blocks.saturating_mul(host.f_frsize);
        Ok(Room { total: bytes(host.f_blocks), free: bytes(host.f_bavail) })
    }
}

impl Exclusive for LinuxSubstrate {
    /// On OCFS2, clones each unshared extent that the range touches as a whole, and drops the clones. OCFS2 marks
    /// extents whose blocks it counts, and splits an extent when a part of it is cloned for the first time. If the
    /// file's map has to grow for the split (every 250 extents or so), the kernel exceeds its reservation in the
    /// journal, and the host or the file system stops (`ocfs2_add_refcount_flag`, seen with 6.1). Marked extents are
    /// not split.
    fn prepare_clone(&self, source: At<'_, LinuxFile>, length: u64, scratch: &LinuxFile) -> Result<(), ShareError> {
        match self.abilities.kind {
            SubstrateKind::Ocfs2 => whole_first::clone_whole_extents(source, length, scratch, true),
            SubstrateKind::Xfs | SubstrateKind::Btrfs | SubstrateKind::Pool | SubstrateKind::Simulated => Ok(()),
        }
    }

    /// Takes a write lease (`F_SETLEASE`): a process that opens the file waits in the kernel until the lease ends, at
    /// most for `lease-break-time`, usually 45 seconds. Requires the owner of the file or `CAP_LEASE`.
    fn try_exclusive(&self, file: &LinuxFile) -> io::Result<bool> {
        file.try_exclusive()
    }

    fn is_exclusive_wanted(&self, file: &LinuxFile) -> bool {
        file.is_exclusive_wanted()
    }

    /// The lease counts as lost half of `lease-break-time` after it was last seen intact.
    fn is_exclusive_lost(&self, file: &LinuxFile) -> bool {
        file.is_exclusive_lost(file::lease_lasts)
    }

    fn leave_exclusive(&self, file: &LinuxFile) {
        file.leave_exclusive();
    }
}

impl WholeExtents for LinuxSubstrate {
    /// Returns slices on Btrfs. Requires `CAP_SYS_ADMIN`.
    fn slices(&self, file: &LinuxFile, from: u64) -> io::Result<Vec<Slice>> {
        match self.abilities.kind {
            SubstrateKind::Btrfs => whole::slices(file, from),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Returns references on Btrfs, including those of snapshots and of deleted files that are still open. Requires
    /// `CAP_SYS_ADMIN`.
    fn references(&self, extent: WholeExtent) -> io::Result<Vec<Reference>> {
        match self.abilities.kind {
            // The root itself is open for path look-ups only (`O_PATH`).
            SubstrateKind::Btrfs => whole::references(&self.root.open_folder(Path::new(""))?, extent),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Returns the room left for metadata on Btrfs, which may run out while there is room for data; elsewhere the free
    /// space.
    fn room_for_records(&self) -> io::Result<u64> {
        let free = self.room()?.free;
        match self.abilities.kind {
            SubstrateKind::Btrfs => {
                Ok(records::left(&btrfs::space_infos(self.root.open_folder(Path::new(""))?)?, free))
            }
            _ => Ok(free),
        }
    }
}

impl CopyHints for LinuxSubstrate {
    /// Makes XFS set aside one block at a time for copies on write into this file (`FS_XFLAG_COWEXTSIZE`). By default
    /// it sets aside 32 blocks around each small write into shared blocks, and returns them after five minutes, so
    /// sharing would first cost space. A size that is already set stays. Requires the owner or root, but no descriptor
    /// for writing. Does nothing on other file systems.
    fn keep_copies_small(&self, file: &LinuxFile) -> io::Result<bool> {
        if self.abilities.kind != SubstrateKind::Xfs {
            return Ok(false);
        }
        copy_hint::keep_copies_small(file)
    }
}
