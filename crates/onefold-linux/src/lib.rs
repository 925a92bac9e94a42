//! A Linux file system with reflinks: XFS, Btrfs or OCFS2.
//!
//! **What holds.** Sharing is `FIDEDUPERANGE`: the kernel locks both files, waits for what is being written to them,
//! compares, and changes only which blocks the second one refers to. Times do not change, and no reader or writer
//! notices but by waiting. Names are resolved by the kernel, beneath the root, on one mount, through no symbolic link.
//!
//! **What does not.** Maps and free space are told late: XFS frees what was removed in the background, so that blocks
//! look shared for a moment after their last other reference is gone, and free space grows after the call returned. On
//! Btrfs free space is a guess, and an extent of which one block is shared looks shared as a whole. A Btrfs that is
//! full to the last refuses every share for want of metadata, although sharing would make room: start before it is.
//!
//! **OCFS2 is worse** (`ocfs2_reflink_remap_extent`; seen in guests that lost power). Once the ranges are found equal,
//! it first makes the destination a hole, in one transaction of its journal, and refers to the source's blocks in
//! another. A host that dies between them, or a file system that is full or fails by then, leaves zeros where the bytes
//! were, and the call can report success. Both ranges are also widened to whole clusters after the comparison, which is
//! why clusters must be as large as blocks. XFS and Btrfs replace the old reference by the new one in one transaction.

mod attributes;
mod clone;
mod copy_hint;
mod cpu;
mod file;
mod locks;
mod machine;
mod map;
mod mounts;
mod names;
mod package_tools;
mod probe;
mod records;
mod share;
mod stat;
mod sys;
mod users;
mod volume_tools;
mod whole;
mod whole_first;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use onefold_block::Timestamp;
use onefold_substrate::{
    Abilities, Access, AgedExtent, At, Compared, CopyHints, Exclusive, FileHandle, FileStat, Files, HeldLock, Listed,
    ListedKind, Locks, MappedExtent, Names, Protection, Reader, Reference, Refusal, Room, ShareError, Sharing, Slice,
    SubstrateKind, UserNo, WholeExtent, WholeExtents,
};
use parking_lot::Mutex;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::thread::CapabilitySet;

pub use cpu::ProcessCpu;
pub use file::LinuxFile;
use file::Opened;
pub use locks::is_byte_locked;
pub use machine::LinuxMachine;
use names::Root;
pub use package_tools::DpkgDeb;
pub use probe::ProbeError;

/// A Linux file system with reflinks, from a folder of it downwards.
#[derive(Debug)]
pub struct LinuxSubstrate {
    root: Root,
    /// The root's path, as it was opened.
    path: PathBuf,
    abilities: Abilities,
    /// Where bytes can be sent to that nobody wants; none where there is no such place.
    nowhere: Option<OwnedFd>,
    /// How many calls were made, of those that every work makes again and again.
    calls: AtomicU64,
    /// Files that were locked, as long as they are open.
    locked: Mutex<Vec<Weak<std::fs::File>>>,
}

impl LinuxSubstrate {
    /// Opens the file system beneath `root`, once it has shared two blocks of a file without a name in `scratch`, a
    /// folder beneath the root (empty for the root itself). What is mounted beneath it later does not belong to it.
    ///
    /// # Errors
    /// See [`ProbeError`].
    pub fn open(root: &Path, scratch: &Path) -> Result<LinuxSubstrate, ProbeError> {
        let opened = Root::open(root);
        let opened = opened.map_err(|errno| ProbeError::Root { path: root.to_owned(), source: errno.into() })?;
        let abilities = probe::probe(&opened, root, scratch)?;
        let nowhere = rustix::fs::open(c"/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        let (calls, locked) = (AtomicU64::new(0), Mutex::default());
        Ok(LinuxSubstrate { root: opened, path: root.to_owned(), abilities, nowhere, calls, locked })
    }

    /// Opens for reading only what could not be opened for writing, if the kernel lets the caller share into it
    /// nevertheless: it asks for no more than the owner or root. So read-only snapshots of Btrfs are reached, and files
    /// that are append-only or without the right to write; immutable ones open as well, and are refused when shared
    /// into.
    fn open_to_share_into(&self, path: &Path, refusal: io::Error) -> io::Result<LinuxFile> {
        let Ok(file) = self.root.open_file(path, OFlags::RDONLY) else { return Err(refusal) };
        if may_share_into(&file)? { Ok(LinuxFile::new(file, Opened::ReadOnly)) } else { Err(refusal) }
    }

    /// What [`Exclusive::prepare_clone`] does on OCFS2, but for the look whether it is done: where other file systems
    /// tell an extent as shared, that ends with the clone.
    ///
    /// # Errors
    /// As [`Exclusive::prepare_clone`].
    pub fn clone_whole_extents(source: At<'_, LinuxFile>, length: u64, scratch: &LinuxFile) -> Result<(), ShareError> {
        whole_first::clone_whole_extents(source, length, scratch, false)
    }

    /// Returns how many calls were made so far, of those that every work makes again and again. Where it stays the same
    /// for long, a call hangs.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Gives up all locks that were taken through this, whatever else this process does: other hosts and processes may
    /// take them. Returns how many. For a process that is about to end while one of its calls hangs in the kernel: as
    /// long as that call does not return, the kernel closes no file of the process.
    ///
    /// Nothing is given up where a share takes two steps (OCFS2): another host would fill a hole that the call is about
    /// to fill.
    pub fn give_up_locks(&self) -> usize {
        if self.abilities.shares_in_two_steps {
            return 0;
        }
        let locked: Vec<_> = self.locked.lock().iter().filter_map(Weak::upgrade).collect();
        let given_up = locked.iter().filter(|file| rustix::fs::flock(file, FlockOperation::NonBlockingUnlock).is_ok());
        given_up.count()
    }

    fn note_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn note_locked(&self, file: &LinuxFile) {
        let mut locked = self.locked.lock();
        if locked.len() == locked.capacity() {
            locked.retain(|file| file.strong_count() > 0);
        }
        locked.push(file.weak());
    }

    /// Tells whether the kernel brings in by large pages what is read, but by single ones what is asked for ahead. To
    /// ask took a fifth of the processor time of a pass on XFS, and writing an index anew reached two thirds of the
    /// rate. The kernel reads ahead by itself, and where two threads read, the disk is as busy.
    fn has_large_pages(&self) -> bool {
        self.abilities.kind == SubstrateKind::Xfs
    }
}

impl Files for LinuxSubstrate {
    type File = LinuxFile;

    /// Returns the effective user of this process.
    fn user(&self) -> UserNo {
        UserNo(rustix::process::geteuid().as_raw())
    }

    fn protection(&self, file: &LinuxFile) -> io::Result<Protection> {
        names::protection(file)
    }

    fn set_mode(&self, file: &LinuxFile, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?)
    }

    /// Opens a regular file. What is read through it leaves no trace in the time of last access, if the caller is its
    /// owner or root.
    ///
    /// With [`Access::Write`] a file opens too that may only be shared into (see [`LinuxFile::is_writable`]): bytes
    /// cannot be written to it then. An owner's lease is not waited for, the call fails with `WouldBlock`.
    fn open(&self, path: &Path, access: Access) -> io::Result<LinuxFile> {
        self.note_call();
        match access {
            Access::Read => Ok(LinuxFile::new(self.root.open_file(path, OFlags::RDONLY)?, Opened::ReadOnly)),
            Access::Write => match self.root.open_file(path, OFlags::RDWR) {
                Ok(file) => Ok(LinuxFile::new(file, Opened::ReadWrite)),
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY) => {
                        self.open_to_share_into(path, error)
                    }
                    _ => Err(error),
                },
            },
        }
    }

    /// Opens a regular file by its handle, for who has `CAP_DAC_READ_SEARCH`.
    fn open_handle(&self, handle: &FileHandle, access: Access) -> io::Result<LinuxFile> {
        let (flags, opened) = match access {
            Access::Read => (OFlags::RDONLY, Opened::ReadOnly),
            Access::Write => (OFlags::RDWR, Opened::ReadWrite),
        };
        Ok(LinuxFile::new(self.root.open_handle(&stat::decode(handle)?, flags)?, opened))
    }

    fn create(&self, path: &Path) -> io::Result<LinuxFile> {
        let mode = Mode::RUSR | Mode::WUSR;
        self.root.create_file(path, mode).map(|(file, folder)| LinuxFile::created(file, folder))
    }

    fn stat(&self, file: &LinuxFile) -> io::Result<FileStat> {
        self.note_call();
        stat::stat(file)
    }

    fn read_at(&self, file: &LinuxFile, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.note_call();
        file.read_at(offset, into)
    }

    fn reader(&self, file: &LinuxFile) -> Option<Arc<dyn Reader>> {
        Some(file.reader(self.has_large_pages()))
    }

    fn as_system_file(&self, file: &LinuxFile) -> io::Result<Option<std::fs::File>> {
        file.system_file().map(Some)
    }

    fn prefetch(&self, file: &LinuxFile, offset: u64, length: u64) {
        if !self.has_large_pages() {
            file.prefetch(offset, length);
        }
    }

    fn bring_in(&self, file: &LinuxFile, offset: u64, length: u64) -> io::Result<()> {
        file.bring_in(self.nowhere.as_ref(), offset, length)
    }

    fn write_at(&self, file: &LinuxFile, offset: u64, from: &[u8]) -> io::Result<()> {
        file.write_at(offset, from)
    }

    fn write_back(&self, file: &LinuxFile, offset: u64, length: u64) {
        file.write_back(offset, length);
    }

    fn set_len(&self, file: &LinuxFile, length: u64) -> io::Result<()> {
        file.set_len(length)
    }

    /// Makes a file's content and length durable (`fsync`), and the name that [`Files::create`] gave it.
    ///
    /// Names given by `link` and `rename` and removals are not waited for: they reach the disk in the order in which
    /// they were made, within the half minute in which each of these file systems writes its journal. A name that
    /// survives leads to the whole content, if this was called before the name was given.
    fn sync(&self, file: &LinuxFile) -> io::Result<()> {
        file.sync()
    }

    /// Writes back what is only in memory, by asking for a map of what is then (`FIEMAP_FLAG_SYNC`): `fsync` of a file
    /// of Btrfs that a guest has written much to logs its map, and the guest waits for that (half a second was seen).
    fn settle(&self, file: &LinuxFile) -> io::Result<()> {
        Ok(sys::settled_extents(file).map(drop)?)
    }

    fn set_modified(&self, file: &LinuxFile, modified: Timestamp) -> io::Result<()> {
        file.set_modified(modified)
    }

    fn attribute_of(&self, file: &LinuxFile, name: &str) -> io::Result<Option<Vec<u8>>> {
        attributes::get(file, name)
    }
}

impl Names for LinuxSubstrate {
    fn keep_folder(&self, folder: &Path) -> io::Result<Protection> {
        self.root.keep(folder)
    }

    fn is_folder_kept(&self, folder: &Path) -> io::Result<bool> {
        self.root.is_kept(folder)
    }

    fn set_folder_mode(&self, folder: &Path, mode: u32) -> io::Result<()> {
        self.root.set_kept_mode(folder, Mode::from_raw_mode(mode))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = self.root.parent(path)?;
        Ok(retry_on_intr(|| rustix::fs::mkdirat(&folder, name, Mode::RWXU))?)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from_folder, from_name) = self.root.parent(from)?;
        let (to_folder, to_name) = self.root.parent(to)?;
        let link = || rustix::fs::linkat(&from_folder, from_name, &to_folder, to_name, AtFlags::empty());
        Ok(retry_on_intr(link)?)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from_folder, from_name) = self.root.parent(from)?;
        let (to_folder, to_name) = self.root.parent(to)?;
        Ok(retry_on_intr(|| rustix::fs::renameat(&from_folder, from_name, &to_folder, to_name))?)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = self.root.parent(path)?;
        Ok(retry_on_intr(|| rustix::fs::unlinkat(&folder, name, AtFlags::empty()))?)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        let folder = self.root.open_folder(folder)?;
        let mut listed = Vec::new();
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if let Some(kind) = listed_kind(&folder, name, entry.file_type())? {
                listed.push(Listed { name: path_of(name), kind });
            }
        }
        Ok(listed)
    }

    fn attribute(&self, path: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
        attributes::get(&self.root.open_any(path)?, name)
    }

    fn set_attribute(&self, path: &Path, name: &str, value: Option<&[u8]>) -> io::Result<()> {
        attributes::set(&self.root.open_any(path)?, name, value)
    }

    fn path_protection(&self, path: &Path) -> io::Result<Protection> {
        names::protection(self.root.open_any(path)?)
    }

    /// Returns a user's number by `/etc/passwd`: users of system services are there, whatever else the host asks.
    fn user_named(&self, name: &str) -> Option<u32> {
        users::number_of(name)
    }

    /// Tells whether the process has `CAP_SYS_ADMIN`: to others the kernel shows no attribute `trusted.NAME`.
    fn reads_trusted_attributes(&self) -> bool {
        rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
    }

    fn mounted_at(&self) -> &Path {
        &self.path
    }
}

impl Locks for LinuxSubstrate {
    /// Takes the file's lock (`flock`, exclusive). Locks of `fcntl(2)` would do on one host; on OCFS2 they are not seen
    /// by others. It belongs to this opening of the file: a second one, of the same process too, is kept out, and a
    /// child that was forked without an `exec` holds it on. An OCFS2 that is mounted with `localflocks` would keep out
    /// this host only, and is refused.
    fn try_lock(&self, file: &LinuxFile) -> io::Result<bool> {
        let is_taken = file.try_lock(FlockOperation::NonBlockingLockExclusive)?;
        if is_taken {
            self.note_locked(file);
        }
        Ok(is_taken)
    }

    /// Asks for a shared lock: many have it at once.
    fn is_locked(&self, file: &LinuxFile) -> io::Result<bool> {
        Ok(!file.try_lock(FlockOperation::NonBlockingLockShared)?)
    }

    /// Returns which files of a folder are locked by processes of this host, as `/proc/locks` has it. Locks of other
    /// hosts (OCFS2), and of processes that this one cannot see, are not told. On Btrfs a lock on a file of another
    /// subvolume that has the same inode number is taken for one.
    fn held_locks(&self, folder: &Path) -> io::Result<Vec<HeldLock>> {
        locks::held(&self.root, folder)
    }
}

impl Sharing for LinuxSubstrate {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    /// Returns the next extents of a file, at most 512. What was written and not yet written back has no place.
    ///
    /// On Btrfs an extent is told as a whole: it is shared if any part of it is referred to elsewhere.
    fn extents(&self, file: &LinuxFile, from: u64) -> io::Result<Vec<MappedExtent>> {
        self.note_call();
        map::extents(file, from)
    }

    /// Compares and shares, in one call of the kernel, or in several where it stops early: if it then says that the
    /// rest differs, or fails, the first part is shared. A range that its owner has cut off meanwhile differs.
    ///
    /// [`Compared::Shared`] says for sure that the ranges were equal. That all of their blocks are shared now only maps
    /// tell: kernels from 4.20 on repeat the length that was asked for, even where they ran out of space on the way.
    ///
    /// # Panics
    /// When offsets or length are not whole blocks, or the length is zero or above the most: the kernel would take some
    /// of those for equal without comparing anything.
    fn share(&self, source: At<'_, LinuxFile>, into: At<'_, LinuxFile>, length: u64) -> Result<Compared, ShareError> {
        share::share(source, into, length)
    }

    /// Clones a range (`FICLONERANGE`).
    ///
    /// # Panics
    /// As [`LinuxSubstrate::share`].
    fn clone_range(&self, source: At<'_, LinuxFile>, into: At<'_, LinuxFile>, length: u64) -> Result<(), ShareError> {
        share::clone_range(source, into, length)
    }

    /// Makes the whole file system durable on OCFS2 and Btrfs. On OCFS2 it is not known what `fsync` covers of a share.
    /// On Btrfs `fsync` of a file of which very many blocks were shared logs its map as a whole, and writers of the
    /// file wait meanwhile (half a second for 90,000 blocks, where `syncfs` kept nobody waiting for more than 10 ms).
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

    /// Clones a whole file (`FICLONE`): the source is locked meanwhile, so that it is of one moment. The new file
    /// belongs to the caller; its permissions are those of the source that the umask, or the folder's default ACL,
    /// leaves.
    fn create_clone(&self, source: &LinuxFile, path: &Path) -> Result<LinuxFile, ShareError> {
        clone::create_clone(&self.root, source, path)
    }

    fn refusal(&self, file: &LinuxFile) -> io::Result<Option<Refusal>> {
        share::refusal(file)
    }

    /// Returns the number of the latest transaction on Btrfs, to who has `CAP_SYS_ADMIN`. None of a file that is
    /// overwritten in place, and on other file systems.
    fn generation(&self, file: &LinuxFile) -> io::Result<Option<u64>> {
        match self.abilities.kind {
            SubstrateKind::Btrfs => whole::generation(file),
            _ => Ok(None),
        }
    }

    /// Returns extents of those leaves of a file's tree that were written since a transaction
    /// (`BTRFS_IOC_TREE_SEARCH_V2`).
    fn changed_since(&self, file: &LinuxFile, generation: u64, from: u64) -> io::Result<Vec<AgedExtent>> {
        match self.abilities.kind {
            SubstrateKind::Btrfs => whole::changed_since(file, generation, from),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Returns how much room there is for users other than root. On Btrfs it is only about right: what is not yet set
    /// aside for data or for metadata counts as if it all became data, and the last of it may be refused long before it
    /// is used up.
    fn room(&self) -> io::Result<Room> {
        let host = rustix::fs::fstatvfs(self.root.folder())?;
        let bytes = |blocks: u64| blocks.saturating_mul(host.f_frsize);
        Ok(Room { total: bytes(host.f_blocks), free: bytes(host.f_bavail) })
    }
}

impl Exclusive for LinuxSubstrate {
    /// On OCFS2, clones all extents of which a part is in the range, and that nobody shares, as wholes, and drops the
    /// clones. It marks extents whose blocks it counts, and splits an extent of which only a part is cloned for the
    /// first time. Where the file's map has to grow for that (each 250 extents or so), the kernel runs out of what it
    /// had reserved in its journal: the host stops, or the file system does (`ocfs2_add_refcount_flag`, seen with 6.1).
    /// What is marked is not split.
    fn prepare_clone(&self, source: At<'_, LinuxFile>, length: u64, scratch: &LinuxFile) -> Result<(), ShareError> {
        match self.abilities.kind {
            SubstrateKind::Ocfs2 => whole_first::clone_whole_extents(source, length, scratch, true),
            SubstrateKind::Xfs | SubstrateKind::Btrfs | SubstrateKind::Pool | SubstrateKind::Simulated => Ok(()),
        }
    }

    /// Takes a write lease (`F_SETLEASE`): who opens the file waits in the kernel until it is left, or for
    /// `lease-break-time`, 45 seconds as a rule. Takes the owner of the file or `CAP_LEASE`.
    fn try_exclusive(&self, file: &LinuxFile) -> io::Result<bool> {
        file.try_exclusive()
    }

    fn is_exclusive_wanted(&self, file: &LinuxFile) -> bool {
        file.is_exclusive_wanted()
    }

    /// Half of `lease-break-time` after the lease was seen to be whole last.
    fn is_exclusive_lost(&self, file: &LinuxFile) -> bool {
        file.is_exclusive_lost(file::lease_lasts)
    }

    fn leave_exclusive(&self, file: &LinuxFile) {
        file.leave_exclusive();
    }
}

impl WholeExtents for LinuxSubstrate {
    /// Returns slices on Btrfs, to who has `CAP_SYS_ADMIN`.
    fn slices(&self, file: &LinuxFile, from: u64) -> io::Result<Vec<Slice>> {
        match self.abilities.kind {
            SubstrateKind::Btrfs => whole::slices(file, from),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Returns references on Btrfs, to who has `CAP_SYS_ADMIN`, also those of snapshots and of files that are deleted
    /// and still open.
    fn references(&self, extent: WholeExtent) -> io::Result<Vec<Reference>> {
        match self.abilities.kind {
            // The root itself is open for names only.
            SubstrateKind::Btrfs => whole::references(&self.root.open_folder(Path::new(""))?, extent),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Returns what is left for metadata on Btrfs, which may be used up while there is room for data; elsewhere what is
    /// free.
    fn room_for_records(&self) -> io::Result<u64> {
        let free = self.room()?.free;
        match self.abilities.kind {
            SubstrateKind::Btrfs => Ok(records::left(&sys::space_infos(self.root.open_folder(Path::new(""))?)?, free)),
            _ => Ok(free),
        }
    }
}

impl CopyHints for LinuxSubstrate {
    /// Has XFS set aside one block at a time for copies on write into this file (`FS_XFLAG_COWEXTSIZE`). As it comes,
    /// it sets aside 32 around each small write into shared blocks, and gives them back after five minutes: sharing
    /// would first cost space. A size that somebody has set stays. Takes the owner or root, not a descriptor for
    /// writing. Nothing happens on other file systems.
    fn keep_copies_small(&self, file: &LinuxFile) -> io::Result<bool> {
        if self.abilities.kind != SubstrateKind::Xfs {
            return Ok(false);
        }
        copy_hint::keep_copies_small(file)
    }
}

/// Tells whether the kernel lets this process share into a file that it has open for reading only (`may_dedupe_file`).
fn may_share_into(file: &OwnedFd) -> io::Result<bool> {
    let owner = rustix::fs::fstat(file)?.st_uid;
    let capabilities = rustix::thread::capabilities(None)?;
    Ok(owner == rustix::process::geteuid().as_raw() || capabilities.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Returns what a name in a folder stands for, or none if it is gone.
fn listed_kind(folder: impl AsFd, name: &std::ffi::CStr, told: FileType) -> io::Result<Option<ListedKind>> {
    let kind = match told {
        // Not every file system keeps the kind in the folder.
        FileType::Unknown => match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        },
        told => told,
    };
    Ok(Some(match kind {
        FileType::RegularFile => ListedKind::File,
        FileType::Directory => ListedKind::Folder,
        _ => ListedKind::Other,
    }))
}

fn path_of(name: &std::ffi::CStr) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::OsStr::from_bytes(name.to_bytes()).into()
}
