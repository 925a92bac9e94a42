//! The file system itself, from one of its folders downwards: its files, names and locks. What it shares is in
//! `sharing`.

mod sharing;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use onefold_block::{Timestamp, fiemap};
use onefold_substrate::{
    Abilities, Access, At, FileHandle, FileStat, Files, FolderEntry, HeldLock, ListedKind, Locks, Names, Protection,
    Reader, ShareError, SubstrateKind, UserNo,
};
use parking_lot::Mutex;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::thread::CapabilitySet;

use crate::file::{DescriptorAccess, LinuxFile};
use crate::names::{self, RootFolder, path_of};
use crate::probe::{self, ProbeError};
use crate::{attributes, locks, stat, users, whole_first};

/// A Linux file system with reflinks, from one of its folders downwards.
#[derive(Debug)]
pub struct LinuxSubstrate {
    root: RootFolder,
    /// The root's path, as given to `open`.
    path: PathBuf,
    abilities: Abilities,
    /// A sink (`/dev/null`) for bytes that are read only to bring them into memory; `None` if it cannot be opened.
    nowhere: Option<OwnedFd>,
    /// Number of calls so far, of the kinds that all work makes repeatedly.
    calls: AtomicU64,
    /// Files whose lock was taken, as long as they are open.
    locked: Mutex<Vec<Weak<std::fs::File>>>,
}

impl LinuxSubstrate {
    /// Opens the file system beneath `root`. First shares two blocks of an unnamed file in `scratch`, a folder beneath
    /// the root (empty for the root itself), as a trial. File systems mounted beneath the root later do not belong to
    /// it.
    ///
    /// # Errors
    /// See [`ProbeError`].
    pub fn open(root: &Path, scratch: &Path) -> Result<LinuxSubstrate, ProbeError> {
        let opened = open_root(root)?;
        let abilities = probe::probe(&opened, root, scratch)?;
        Ok(LinuxSubstrate::of(opened, root, abilities))
    }

    /// Opens the file system beneath `root` to examine it. Writes nothing, and tries nothing: works on a file system
    /// that is full or mounted read-only.
    ///
    /// # Errors
    /// See [`ProbeError`].
    pub fn look(root: &Path) -> Result<LinuxSubstrate, ProbeError> {
        let opened = open_root(root)?;
        let abilities = probe::look(&opened, root)?;
        Ok(LinuxSubstrate::of(opened, root, abilities))
    }

    fn of(opened: RootFolder, root: &Path, abilities: Abilities) -> LinuxSubstrate {
        let nowhere = rustix::fs::open(c"/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        let (calls, locked) = (AtomicU64::new(0), Mutex::default());
        LinuxSubstrate { root: opened, path: root.to_owned(), abilities, nowhere, calls, locked }
    }

    /// Opens for reading a file that could not be opened for writing, if the kernel lets the caller share into it
    /// nevertheless: that takes only the owner or root. This reaches read-only snapshots of Btrfs, append-only files,
    /// and files without write permission. Immutable files open as well, but the kernel refuses to share into them.
    fn open_to_share_into(&self, path: &Path, refusal: io::Error) -> io::Result<LinuxFile> {
        let Ok(file) = self.root.open_file(path, OFlags::RDONLY) else { return Err(refusal) };
        if may_share_into(&file)? { Ok(LinuxFile::new(file, DescriptorAccess::ReadOnly)) } else { Err(refusal) }
    }

    /// Does what [`Exclusive::prepare_clone`] does on OCFS2, but skips the check for success: on file systems that
    /// report whether an extent is shared, the mark ends with the clone.
    ///
    /// # Errors
    /// See [`Exclusive::prepare_clone`].
    pub fn clone_whole_extents(source: At<'_, LinuxFile>, length: u64, scratch: &LinuxFile) -> Result<(), ShareError> {
        whole_first::clone_whole_extents(source, length, scratch, false)
    }

    /// Returns the number of calls so far, of the kinds that all work makes repeatedly. If it stays the same for long,
    /// a call hangs.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Releases all locks that were taken through this substrate, even while other calls run: other hosts and processes
    /// may then take them. Returns the number of released locks. A process uses this when it is about to end while one
    /// of its calls hangs in the kernel: until that call returns, the kernel closes no file of the process.
    ///
    /// Releases nothing if a share takes two steps (OCFS2): another host would fill a hole that the call is about to
    /// fill.
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

    /// Returns whether the kernel reads into large pages, but prefetches into single ones. On such a file system (XFS),
    /// prefetching took a fifth of the processor time of a pass, and rebuilding an index reached two thirds of the
    /// rate. The kernel reads ahead by itself, and two reading threads keep the disk as busy.
    fn has_large_pages(&self) -> bool {
        self.abilities.kind == SubstrateKind::Xfs
    }
}

fn open_root(root: &Path) -> Result<RootFolder, ProbeError> {
    RootFolder::open(root).map_err(|errno| ProbeError::Root { path: root.to_owned(), source: errno.into() })
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

    /// Opens a regular file. If the caller is its owner or root, reads do not change the time of last access.
    ///
    /// With [`Access::Write`], a file that may only be shared into opens as well (see [`LinuxFile::is_writable`]):
    /// bytes cannot be written to it. The call does not wait for an owner's lease, but fails with `WouldBlock`.
    fn open(&self, path: &Path, access: Access) -> io::Result<LinuxFile> {
        self.note_call();
        match access {
            Access::Read => Ok(LinuxFile::new(self.root.open_file(path, OFlags::RDONLY)?, DescriptorAccess::ReadOnly)),
            Access::Write => match self.root.open_file(path, OFlags::RDWR) {
                Ok(file) => Ok(LinuxFile::new(file, DescriptorAccess::ReadWrite)),
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY) => {
                        self.open_to_share_into(path, error)
                    }
                    _ => Err(error),
                },
            },
        }
    }

    /// Opens a regular file by handle. Requires `CAP_DAC_READ_SEARCH`.
    fn open_handle(&self, handle: &FileHandle, access: Access) -> io::Result<LinuxFile> {
        let (flags, opened) = match access {
            Access::Read => (OFlags::RDONLY, DescriptorAccess::ReadOnly),
            Access::Write => (OFlags::RDWR, DescriptorAccess::ReadWrite),
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
    /// Does not wait for names given by `link` and `rename`, nor for removals. They reach the disk in the order in
    /// which they were made, within half a minute, the interval at which each of these file systems writes its journal.
    /// If `sync` was called before a name was given, a name that survives leads to the whole content.
    fn sync(&self, file: &LinuxFile) -> io::Result<()> {
        file.sync()
    }

    /// Writes back dirty data by asking for a map of it (`FIEMAP_FLAG_SYNC`). On Btrfs, `fsync` of a file that a guest
    /// has written much to logs the file's map, and the guest waits for that (half a second was seen).
    fn settle(&self, file: &LinuxFile) -> io::Result<()> {
        Ok(fiemap::settled_extents(file).map(drop)?)
    }

    fn set_modified(&self, file: &LinuxFile, modified: Timestamp) -> io::Result<()> {
        file.set_modified(modified)
    }

    fn attribute_of(&self, file: &LinuxFile, name: &str) -> io::Result<Option<Vec<u8>>> {
        attributes::get(file, name)
    }

    fn set_attribute_of(&self, file: &LinuxFile, name: &str, value: Option<&[u8]>) -> io::Result<()> {
        attributes::set(file, name, value)
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

    fn list(&self, folder: &Path) -> io::Result<Vec<FolderEntry>> {
        let folder = self.root.open_folder(folder)?;
        let mut listed = Vec::new();
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if let Some(kind) = listed_kind(&folder, name, entry.file_type())? {
                listed.push(FolderEntry { name: path_of(name), kind });
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

    /// Returns a user's number from `/etc/passwd`. System users are listed there, whatever other sources the host uses.
    fn user_named(&self, name: &str) -> Option<u32> {
        users::number_of(name)
    }

    /// Returns whether the process has `CAP_SYS_ADMIN`: the kernel hides `trusted.NAME` attributes from other
    /// processes.
    fn reads_trusted_attributes(&self) -> bool {
        rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
    }

    fn mounted_at(&self) -> &Path {
        &self.path
    }
}

impl Locks for LinuxSubstrate {
    /// Takes the file's lock (`flock`, exclusive). Locks of `fcntl(2)` would do on one host, but on OCFS2 other hosts
    /// do not see them. The lock belongs to this opening of the file. It keeps out a second opening, even by the same
    /// process, and a child forked without `exec` keeps it held. An OCFS2 mounted with `localflocks` would keep out
    /// this host only, and is refused.
    fn try_lock(&self, file: &LinuxFile) -> io::Result<bool> {
        let is_taken = file.try_lock(FlockOperation::NonBlockingLockExclusive)?;
        if is_taken {
            self.note_locked(file);
        }
        Ok(is_taken)
    }

    /// Tries a shared lock: many openings can hold it at once.
    fn is_locked(&self, file: &LinuxFile) -> io::Result<bool> {
        Ok(!file.try_lock(FlockOperation::NonBlockingLockShared)?)
    }

    /// Returns the files of a folder that processes of this host have locked, from `/proc/locks`. Locks of other hosts
    /// (OCFS2) and of processes invisible to this one are missing. On Btrfs, a locked file of another subvolume with
    /// the same inode number counts as locked, too.
    fn held_locks(&self, folder: &Path) -> io::Result<Vec<HeldLock>> {
        locks::held(&self.root, folder)
    }
}

/// Returns whether the kernel lets this process share into a file that is open for reading only (`may_dedupe_file`).
fn may_share_into(file: &OwnedFd) -> io::Result<bool> {
    let owner = rustix::fs::fstat(file)?.st_uid;
    let capabilities = rustix::thread::capabilities(None)?;
    Ok(owner == rustix::process::geteuid().as_raw() || capabilities.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Returns the kind of an entry of a folder; `None` if the entry is gone.
fn listed_kind(folder: impl AsFd, name: &std::ffi::CStr, told: FileType) -> io::Result<Option<ListedKind>> {
    let kind = match told {
        // Not every file system stores the kind in the folder.
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
