//! The substrate seam: a file system whose files can share blocks, as sharing sees it.
//!
//! Few words, and the kernel's: compare and share a range, clone a range, map of extents, lock, link. A Linux file system
//! with reflinks implements them, and so do a pool and a simulated file system that any number of hosts have mounted.
//!
//! **What may be relied on.** [`Substrate::share`] compares and shares in one step: whatever is written meanwhile, by
//! anybody on any host, and whoever dies at it, no file ever reads other bytes for it. Everything else here only says where
//! it is worth to ask.
//!
//! One that [shares in two steps](Abilities::shares_in_two_steps) promises less ([`SubstrateKind::Ocfs2`]): it compares,
//! makes the range a hole, and refers to the source's blocks after that. Who looks while the host lives sees neither step
//! alone. But where the host dies between the two, or before [`Substrate::sync_shares`], or the call fails, the range may be
//! a hole in the end. So on such a one `share` is only called for a range that a durable note names, by who has
//! [exclusive use](Substrate::try_exclusive) of the file.
//!
//! Paths are relative to the root that the substrate was opened at, never leave it, and no symbolic link is followed.
//! Offsets and lengths are in bytes.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::protection::{Protection, UserNo};

/// Read at once to bring it in, where there is no other way.
const READ_BYTES: u64 = 1 << 20;

/// What any thread reads an open file by.
pub trait Reader: Send + Sync {
    /// As [`Substrate::read_at`].
    ///
    /// # Errors
    /// Those of the device.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Told of a range that will be read after others: asks the disk for it where that pays. Nothing else depends on it.
    fn prefetch(&self, offset: u64, length: u64) {
        let _ = (offset, length);
    }
}

/// A file system whose files can share blocks, as one host has it mounted.
pub trait Substrate {
    /// An open file. Dropping it closes it, and lets go of its lock.
    type File;

    /// Returns what the file system can do. Probed once, when the substrate was opened, never by a call that may fail in
    /// the middle of a pass.
    fn abilities(&self) -> &Abilities;

    /// Returns the user for whom this opens and creates files.
    fn user(&self) -> UserNo;

    /// Returns what protects an open file.
    ///
    /// # Errors
    /// Those of the device.
    fn protection(&self, file: &Self::File) -> io::Result<Protection>;

    /// Sets the permission bits of an open file.
    ///
    /// # Errors
    /// `PermissionDenied` for all but its owner and root; those of the device.
    fn set_mode(&self, file: &Self::File, mode: u32) -> io::Result<()>;

    /// Opens a folder and keeps it open, and returns what protects it. From then on this substrate resolves every path that begins
    /// with `folder` from the kept folder, even if another one takes the name. A folder that was kept by that path before
    /// is no longer, nor are those below it. The empty path is the root, which is kept in any case.
    ///
    /// # Errors
    /// Those of [`Substrate::open`], but `NotADirectory` where it is no folder.
    fn keep_folder(&self, folder: &Path) -> io::Result<Protection>;

    /// Returns whether the name of a kept folder still leads to it.
    ///
    /// # Errors
    /// Those of [`Substrate::keep_folder`], except that a missing name is no error.
    fn is_folder_kept(&self, folder: &Path) -> io::Result<bool>;

    /// Sets the permission bits of a kept folder.
    ///
    /// # Errors
    /// As [`Substrate::set_mode`]; `NotFound` for a folder that is not kept.
    fn set_folder_mode(&self, folder: &Path, mode: u32) -> io::Result<()>;

    /// Opens a regular file.
    ///
    /// # Errors
    /// Those of `openat2(2)`: `NotFound`; `PermissionDenied`; `CrossesDevices` where the path leads to another file
    /// system; `FilesystemLoop` where it has a symbolic link; `InvalidInput` where it is no regular file.
    fn open(&self, path: &Path, access: Access) -> io::Result<Self::File>;

    /// Opens a regular file by what stands for it, whatever its names.
    ///
    /// # Errors
    /// `Unsupported`, or `PermissionDenied`, where that cannot be done; `NotFound` where there is no such file any more.
    fn open_handle(&self, handle: &FileHandle, access: Access) -> io::Result<Self::File> {
        let _ = (handle, access);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Creates a file that only its owner may read, and opens it for writing.
    ///
    /// # Errors
    /// `AlreadyExists`; those of [`Substrate::open`]; no space.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    /// Creates a folder that only its owner may enter.
    ///
    /// # Errors
    /// `AlreadyExists`; no space.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Gives a file a second name. Of two hosts that try the same name, one fails.
    ///
    /// # Errors
    /// `AlreadyExists`; `NotFound`.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file another name, in place of whatever bore it.
    ///
    /// # Errors
    /// `NotFound`. `PermissionDenied` where another host renames to the same name at this moment (OCFS2): try again.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name.
    ///
    /// # Errors
    /// `NotFound`.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Returns what is in a folder, in no order, but for `.` and `..`.
    ///
    /// # Errors
    /// `NotFound`; `NotADirectory`.
    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>>;

    /// Returns what a file is and when it was changed.
    ///
    /// # Errors
    /// Those of the device.
    fn stat(&self, file: &Self::File) -> io::Result<FileStat>;

    /// Reads from an offset until `into` is full or the file ends; returns how many bytes were read.
    ///
    /// # Errors
    /// Those of the device.
    fn read_at(&self, file: &Self::File, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Returns what other threads read a file by. It keeps the file open, and its lock and exclusive use with it, until it is
    /// dropped. None where only the caller's own thread may read.
    fn reader(&self, file: &Self::File) -> Option<Arc<dyn Reader>> {
        let _ = file;
        None
    }

    /// Asks for a range to be brought into memory, and does not wait for it. Whoever reads it soon waits for less, and
    /// nothing else depends on it.
    fn prefetch(&self, file: &Self::File, offset: u64, length: u64) {
        let _ = (file, offset, length);
    }

    /// Brings a range into memory and waits for it, so that whoever works on it next need not wait for the disk. What is
    /// behind the end of the file is left out.
    ///
    /// # Errors
    /// Those of the device.
    fn bring_in(&self, file: &Self::File, offset: u64, length: u64) -> io::Result<()> {
        let mut bytes = vec![0; usize::try_from(length.min(READ_BYTES)).expect("a small number")];
        let mut done = 0;
        while done < length {
            let at_once = usize::try_from((length - done).min(READ_BYTES)).expect("a small number");
            match self.read_at(file, offset + done, &mut bytes[..at_once])? {
                0 => break,
                count => done += count as u64,
            }
        }
        Ok(())
    }

    /// Writes all of `from`. Nothing is durable before [`Substrate::sync`].
    ///
    /// # Errors
    /// No space; those of the device. Any part may have been written then.
    fn write_at(&self, file: &Self::File, offset: u64, from: &[u8]) -> io::Result<()>;

    /// Asks for what was written to a range to be brought to the disk, and does not wait for it. [`Substrate::sync`] has less
    /// to wait for then, and nothing else depends on it.
    fn write_back(&self, file: &Self::File, offset: u64, length: u64) {
        let _ = (file, offset, length);
    }

    /// Sets a file's length: what is beyond is dropped, what is new is a hole.
    ///
    /// # Errors
    /// No space; those of the device.
    fn set_len(&self, file: &Self::File, length: u64) -> io::Result<()>;

    /// Makes a file's content, length and times durable, and the name that it was created with, if it was created so. A name
    /// given to it afterwards never leads to less.
    ///
    /// # Errors
    /// Those of the device; what was written before may be lost then.
    fn sync(&self, file: &Self::File) -> io::Result<()>;

    /// Has all that was written to a file so far get its place, so that maps tell it. Whoever writes to it should not wait for
    /// that, as he may for [`Substrate::sync`]; nothing is durable for it.
    ///
    /// # Errors
    /// Those of the device; what was written before may be lost then.
    fn settle(&self, file: &Self::File) -> io::Result<()> {
        self.sync(file)
    }

    /// Takes the file's only lock, if nobody on any host has it, and keeps it until the file is dropped. Returns whether
    /// it was taken. The host loses it without being told when the others think it dead.
    ///
    /// # Errors
    /// Those of `flock(2)`.
    fn try_lock(&self, file: &Self::File) -> io::Result<bool>;

    /// Tells whether the file's lock is taken. The file is of no other use to the caller: until it is dropped, it may keep others from
    /// taking the lock, but not from asking this.
    ///
    /// # Errors
    /// As [`Substrate::try_lock`].
    fn is_locked(&self, file: &Self::File) -> io::Result<bool> {
        Ok(!self.try_lock(file)?)
    }

    /// Returns where the data of a file lies from an offset on, in order and without holes between that are told: what is
    /// between two extents is a hole. At most as many as the substrate likes to give at once; ask again from the end of the
    /// last. Empty when there is no data from the offset on.
    ///
    /// A hint: data that was just written may be missing its place, and all of it may have changed on return.
    ///
    /// # Errors
    /// `Unsupported` where the file system has no maps.
    fn extents(&self, file: &Self::File, from: u64) -> io::Result<Vec<MappedExtent>>;

    /// Compares `length` bytes of two files and, where they are equal, makes the second range refer to the blocks of the
    /// first, in one step. Offsets and length are multiples of [`Abilities::block_bytes`], the length at most
    /// [`Abilities::share_bytes_max`], both ranges within their files and apart. It does not matter how the ranges are
    /// stored: where they share their blocks already they are compared nevertheless.
    ///
    /// # Errors
    /// As [`ShareError`] says. Nothing was changed then, or the first part of the range was shared.
    fn share(&self, source: At<'_, Self::File>, into: At<'_, Self::File>, length: u64) -> Result<Compared, ShareError>;

    /// Makes all that was shared into a file durable.
    ///
    /// # Errors
    /// Those of the device.
    fn sync_shares(&self, file: &Self::File) -> io::Result<()> {
        self.sync(file)
    }

    /// Tells whether [`Substrate::sync_shares`] makes durable what was shared into any file of the file system: once for many is enough.
    fn syncs_all_shares(&self) -> bool {
        false
    }

    /// Takes a file for this opening alone, unless anybody else on this host has it open. Returns whether it was taken. Who
    /// opens it on this host from then on waits, until [`Substrate::leave_exclusive`] or the file is dropped, or for as long
    /// as the system lets him wait. Says nothing of other hosts.
    ///
    /// # Errors
    /// Where it cannot be told. `PermissionDenied` where the file cannot be written to.
    fn try_exclusive(&self, file: &Self::File) -> io::Result<bool> {
        let _ = file;
        Ok(true)
    }

    /// Tells whether somebody waits to open a file that was taken, or may have opened it meanwhile: it should be left soon.
    fn is_exclusive_wanted(&self, file: &Self::File) -> bool {
        let _ = file;
        false
    }

    /// Tells whether somebody may have opened a file that was taken: he has waited for as long as the system lets him, or nearly. What
    /// he does from then on must not be undone.
    fn is_exclusive_lost(&self, file: &Self::File) -> bool {
        let _ = file;
        false
    }

    /// Gives up what [`Substrate::try_exclusive`] took.
    fn leave_exclusive(&self, file: &Self::File) {
        let _ = file;
    }

    /// Makes a range refer to the blocks of another one, whatever it held before. Rules as in [`Substrate::share`].
    /// Only for files that sharing made itself, and for holes that a share has left: it does not look at what it replaces.
    ///
    /// # Errors
    /// As [`ShareError`] says.
    fn clone_range(&self, source: At<'_, Self::File>, into: At<'_, Self::File>, length: u64) -> Result<(), ShareError>;

    /// Makes a range ready to be the source of [`Substrate::clone_range`], where the file system is not made for clones of parts of
    /// extents. `scratch` is a file that sharing made, of one block at least, and only that block is left of it. Rules for the
    /// range as in [`Substrate::share`], but for its length; whoever writes to the range undoes this.
    ///
    /// # Errors
    /// As [`ShareError`] says.
    fn prepare_clone(&self, source: At<'_, Self::File>, length: u64, scratch: &Self::File) -> Result<(), ShareError> {
        let _ = (source, length, scratch);
        Ok(())
    }

    /// Sets when a file's content changed last: for who has put back what was in it then.
    ///
    /// # Errors
    /// `Unsupported`; `PermissionDenied`; those of the device.
    fn set_modified(&self, file: &Self::File, modified: Timestamp) -> io::Result<()> {
        let _ = (file, modified);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes a range a hole. Only for files that sharing made itself.
    ///
    /// # Errors
    /// Those of the device.
    fn punch(&self, file: &Self::File, offset: u64, length: u64) -> io::Result<()>;

    /// Creates a file that holds what `source` holds at one moment, the call's, by referring to its blocks; with the
    /// permissions of the source, as a plain copy would get them. It may be written to by whoever these let.
    ///
    /// # Errors
    /// As [`ShareError`] says, and those of [`Substrate::create`]; nothing is left of the file then.
    fn create_clone(&self, source: &Self::File, path: &Path) -> Result<Self::File, ShareError> {
        let _ = (source, path);
        Err(ShareError::Io(io::ErrorKind::Unsupported.into()))
    }

    /// Tells why blocks of a file could not be shared, as far as that can be seen without trying. None says nothing.
    ///
    /// # Errors
    /// Those of the device.
    fn refusal(&self, file: &Self::File) -> io::Result<Option<Refusal>> {
        let _ = file;
        Ok(None)
    }

    /// Has the file system set aside no more than is written where it copies shared blocks of this file on a write, if it
    /// can be told so and nobody has told it anything else. Returns whether that is new; then the time of the last change
    /// is, too, but not that of the content.
    ///
    /// # Errors
    /// Those of the device; `PermissionDenied`.
    fn keep_copies_small(&self, file: &Self::File) -> io::Result<bool> {
        let _ = file;
        Ok(false)
    }

    /// Returns an extended attribute of a file or folder (`user.NAME`); none where it has none of that name, or the file
    /// system has none at all.
    ///
    /// # Errors
    /// Those of [`Substrate::open`], but that a folder is as good as a file.
    fn attribute(&self, path: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
        let _ = (path, name);
        Ok(None)
    }

    /// Gives a file or folder an extended attribute, or takes it away.
    ///
    /// # Errors
    /// As [`Substrate::attribute`]; `Unsupported`; no space.
    fn set_attribute(&self, path: &Path, name: &str, value: Option<&[u8]>) -> io::Result<()> {
        let _ = (path, name, value);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// As [`Substrate::attribute`], of an open file: no other file can take its place meanwhile.
    ///
    /// # Errors
    /// Those of the device.
    fn attribute_of(&self, file: &Self::File, name: &str) -> io::Result<Option<Vec<u8>>> {
        let _ = (file, name);
        Ok(None)
    }

    /// Returns the owner and the permissions of a file or folder. By default, those of a folder of root's that everybody may
    /// write into: such a folder guards nothing.
    ///
    /// # Errors
    /// As [`Substrate::attribute`].
    fn ownership(&self, path: &Path) -> io::Result<Ownership> {
        let _ = path;
        Ok(Ownership { user: ROOT, mode: 0o777 })
    }

    /// Returns the user number that this host knows by a name; none where it knows no such user.
    fn user_named(&self, name: &str) -> Option<u32> {
        let _ = name;
        None
    }

    /// Tells whether attributes that only root may set (`trusted.NAME`) can be read. Where not, they read as missing.
    fn reads_trusted_attributes(&self) -> bool {
        true
    }

    /// Returns the path at which this host has the file system mounted, or from which on it was opened; empty where it has
    /// none.
    fn mounted_at(&self) -> &Path {
        Path::new("")
    }

    /// Returns which files of a folder somebody has locked, as far as this host can see. No lock is tried for it: whoever
    /// wants one at this moment gets it.
    ///
    /// # Errors
    /// `Unsupported` where that cannot be told; those of [`Substrate::list`].
    fn held_locks(&self, folder: &Path) -> io::Result<Vec<HeldLock>> {
        let _ = folder;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the file system's present generation, a number that grows with its changes, where
    /// [`Substrate::changed_since`] tells of this file all that was changed. None where nothing tells, or not of this file:
    /// its blocks may be overwritten where they lie.
    ///
    /// # Errors
    /// Those of the device.
    fn generation(&self, file: &Self::File) -> io::Result<Option<u64>> {
        let _ = file;
        Ok(None)
    }

    /// Returns the extents of those parts of a file's map, from an offset on, that were touched in a generation or later, in
    /// order; neighbours that were not touched may be among them, and holes are left out. Bytes of the file are others
    /// than at a look in that generation only within extents that are younger ([`AgedExtent::generation`]), or lie elsewhere than
    /// then. At most as many as the substrate likes to give at once; ask again from the end of the last. Empty when there is
    /// nothing from the offset on. What was written and not [settled](Substrate::settle) may be missing.
    ///
    /// # Errors
    /// `Unsupported` where [`Substrate::generation`] gives none; those of the device.
    fn changed_since(&self, file: &Self::File, generation: u64, from: u64) -> io::Result<Vec<AgedExtent>> {
        let _ = (file, generation, from);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns in which whole extents the data of a file lies from an offset on, in order; only of use where
    /// [`Abilities::frees_whole_extents`]. At most as many as the substrate likes to give at once; ask again from the end of
    /// the last. Empty when there is nothing from the offset on. What is stored in another way (compressed, within
    /// metadata, not yet written back) is left out.
    ///
    /// A hint like [`Substrate::extents`].
    ///
    /// # Errors
    /// `Unsupported`, or `PermissionDenied`, where it cannot be told; those of the device.
    fn slices(&self, file: &Self::File, from: u64) -> io::Result<Vec<Slice>> {
        let _ = (file, from);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns who refers to any part of a whole extent, on this file system: each slice that lies in it once, in no order.
    /// Empty where there is no such extent any more. A hint.
    ///
    /// # Errors
    /// As [`Substrate::slices`]; `InvalidInput` where there are more than can be told.
    fn references(&self, extent: WholeExtent) -> io::Result<Vec<Reference>> {
        let _ = extent;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns how much room there is.
    ///
    /// # Errors
    /// Those of the device.
    fn room(&self) -> io::Result<Room>;

    /// Returns how much room is left for what the file system notes about files, in bytes: each piece of a file that lies by
    /// itself takes a record. As much as is free, where that is one room.
    ///
    /// # Errors
    /// Those of the device.
    fn room_for_records(&self) -> io::Result<u64> {
        self.room().map(|room| room.free)
    }
}

/// What a file system can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// What kind of file system it is.
    pub kind: SubstrateKind,
    /// Unit of sharing, in bytes.
    pub block_bytes: u32,
    /// The longest range that one call of [`Substrate::share`] takes, in bytes.
    pub share_bytes_max: u64,
    /// Whether a map tells that nobody else refers to an extent ([`MappedExtent::is_shared`]).
    pub tells_last_reference: bool,
    /// Whether an extent's blocks come free only when none of them is referred to any more.
    pub frees_whole_extents: bool,
    /// Whether other hosts may have the file system mounted.
    pub is_clustered: bool,
    /// Whether a share may leave a hole where its host dies at it.
    pub shares_in_two_steps: bool,
    /// Whether the file system has sharing domains of its own, and never shares a block across them.
    pub has_own_domains: bool,
}

/// Kinds of file systems that differ in how they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubstrateKind {
    /// XFS with reflinks.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// OCFS2 with reflinks.
    Ocfs2,
    /// A pool, in process.
    Pool,
    /// The one of the tests.
    Simulated,
}

impl fmt::Display for SubstrateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SubstrateKind::Xfs => "XFS",
            SubstrateKind::Btrfs => "Btrfs",
            SubstrateKind::Ocfs2 => "OCFS2",
            SubstrateKind::Pool => "a pool",
            SubstrateKind::Simulated => "a simulated file system",
        })
    }
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading, as a source of shared blocks too.
    Read,
    /// Reading and writing.
    Write,
}

/// A place in a file.
#[derive(Debug)]
pub struct At<'a, F> {
    /// The file.
    pub file: &'a F,
    /// Offset in bytes.
    pub offset: u64,
}

impl<F> Clone for At<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for At<'_, F> {}

/// What stands for a file as long as it exists, whatever its names: none of another file, even a later one, is equal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileHandle(Box<[u8]>);

impl FileHandle {
    /// The longest handle that Linux gives (`MAX_HANDLE_SZ`), and its type before it, in bytes.
    pub const BYTES_MAX: usize = 128 + 4;

    /// Returns the handle of these bytes, if they are not too many.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<FileHandle> {
        (bytes.len() <= FileHandle::BYTES_MAX).then(|| FileHandle(bytes.into()))
    }

    /// Returns the bytes of the handle.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileHandle({self})")
    }
}

/// What a file is and when it was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// The file itself.
    pub handle: FileHandle,
    /// Length in bytes.
    pub length: u64,
    /// Bytes that the file system counts for it.
    pub allocated: u64,
    /// When its content changed last. Sharing does not change it.
    pub modified: Timestamp,
    /// When anything about it changed last.
    pub changed: Timestamp,
    /// User number of its owner.
    pub owner: u32,
    /// How many names it has.
    pub names: u32,
}

/// User number of root.
pub const ROOT: u32 = 0;

/// Owner and permissions of a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// User number of the owner.
    pub user: u32,
    /// Permission bits, as in `chmod(2)`.
    pub mode: u32,
}

impl Ownership {
    /// Tells whether root alone may write to it.
    #[must_use]
    pub fn is_roots_alone(self) -> bool {
        self.user == ROOT && self.mode & 0o022 == 0
    }
}

/// Something in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: PathBuf,
    /// What it is.
    pub kind: ListedKind,
}

/// What something in a folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// Anything else.
    Other,
}

/// A file that somebody has locked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldLock {
    /// Its name in its folder.
    pub name: PathBuf,
    /// The process that has it, where it is one of this host's.
    pub process: Option<u32>,
}

/// A run of a file's data and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedExtent {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Place on the device, in bytes; none where the file system has not told: not yet chosen, or stored in another way
    /// (compressed, within metadata).
    pub place: Option<u64>,
    /// Length in bytes.
    pub length: u64,
    /// Whether others refer to it, for all that the file system knows.
    pub is_shared: bool,
    /// Whether it is set aside and reads as zeros.
    pub is_unwritten: bool,
}

impl MappedExtent {
    /// Offset of the first byte behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }
}

/// A run of a file's data, where it lies and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgedExtent {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Place on the device, in bytes; none where it has no place of its own. Of what is stored in another way it tells only
    /// that it is the same.
    pub place: Option<u64>,
    /// Whether it is set aside and reads as zeros.
    pub is_unwritten: bool,
    /// In which generation its bytes were written. A clone is as old as what it was cloned from.
    pub generation: u64,
}

impl AgedExtent {
    /// Offset in the file of the first byte behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// A run of blocks whose room comes free when none of them is referred to any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WholeExtent {
    /// Place of its first byte on the device.
    pub place: u64,
    /// Length in bytes.
    pub length: u64,
}

/// A run of a file's data and the whole extent in which it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// In which extent.
    pub extent: WholeExtent,
    /// Offset in the extent, in bytes.
    pub within: u64,
    /// Whether it is set aside and reads as zeros.
    pub is_unwritten: bool,
}

impl Slice {
    /// Offset in the file of the first byte behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// Somebody who refers to a part of a whole extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Which file; none where it has no handle any more, and stands for nothing that could be opened.
    pub handle: Option<FileHandle>,
    /// Where in it the slice begins, in bytes.
    pub offset: u64,
}

/// What comparing showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Compared {
    /// The ranges were equal, and share their blocks now.
    Shared,
    /// The ranges differ; nothing was changed.
    Differ,
}

/// Why a range was not shared.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// The file system refuses this file as it is.
    #[error("{0}")]
    Refused(Refusal),
    /// There is no room for the metadata.
    #[error("the file system is full")]
    Full,
    /// Not now: another operation has the file system or the file. Worth to be tried again later.
    #[error("the file system is busy with the file")]
    Busy,
    /// Reading or writing failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Why a file is not shared as long as nobody changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It is immutable.
    Immutable,
    /// It is in use as swap space.
    Swap,
    /// Its blocks are overwritten in place (`nodatacow`), those of the other file are not.
    NoCopyOnWrite,
    /// The two files cannot share with each other: another file system, another tree of references.
    Apart,
    /// Whoever asks may not write it.
    NotPermitted,
    /// Sharing is switched off for it, or for the other file.
    SwitchedOff,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Immutable => "it is immutable",
            Refusal::Swap => "it is in use as swap space",
            Refusal::NoCopyOnWrite => "it is overwritten in place (nodatacow), the other file is not",
            Refusal::Apart => {
                "the file system cannot share blocks between these two files; on OCFS2, because one was cloned by other means"
            }
            Refusal::NotPermitted => "it may not be written by who runs this",
            Refusal::SwitchedOff => "sharing is switched off for it",
        })
    }
}

/// How much room a file system has, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// In all.
    pub total: u64,
    /// Free.
    pub free: u64,
}
