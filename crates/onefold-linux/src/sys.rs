//! The calls that have no safe wrapper: comparing and sharing, cloning, XFS attributes, handles,
//! leases, the local time, and limits for child processes.
//!
//! All unsafe code of the crate is here. Every structure mirrors the kernel's, field by field; assertions check its
//! layout.

#![expect(unsafe_code, reason = "these system calls have no safe wrapper")]

use std::io;
use std::mem::{offset_of, size_of};
use std::ops::RangeInclusive;
use std::os::unix::process::CommandExt;
use std::process::Command;

use onefold_substrate::At;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, Updater, ioctl, opcode};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Starts a program with these limits, or with its inherited ones where they are lower. They hold from its first
/// instruction on, and for all processes that it starts.
pub(super) fn limit(command: &mut Command, limits: &'static [(Resource, u64)]) {
    let set = move || {
        for (resource, most) in limits {
            let most = getrlimit(*resource).maximum.map_or(*most, |maximum| maximum.min(*most));
            setrlimit(*resource, Rlimit { current: Some(most), maximum: Some(most) })?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec this makes two system calls for each limit. It allocates nothing, and takes no
    // lock.
    unsafe { command.pre_exec(set) };
}

/// `struct file_dedupe_range`, followed by its only destination.
#[repr(C)]
struct DedupeRange {
    source_offset: u64,
    source_length: u64,
    destination_count: u16,
    reserved1: u16,
    reserved2: u32,
    destination: i64,
    destination_offset: u64,
    bytes_deduped: u64,
    status: i32,
    reserved3: u32,
}

const DEDUPE_HEADER_BYTES: usize = 24;
const _: () = assert!(offset_of!(DedupeRange, destination) == DEDUPE_HEADER_BYTES && size_of::<DedupeRange>() == 56);

const FIDEDUPERANGE: Opcode = opcode::read_write::<[u8; DEDUPE_HEADER_BYTES]>(0x94, 54);

/// Outcome of one `FIDEDUPERANGE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deduped {
    /// This many bytes from the start of the ranges are equal, and shared.
    Same(u64),
    /// The ranges differ somewhere.
    Differ,
}

/// Compares and shares a range.
pub(super) fn dedupe_range<F: AsFd>(source: At<'_, F>, into: At<'_, F>, length: u64) -> Result<Deduped, Errno> {
    let mut range = DedupeRange {
        source_offset: source.offset,
        source_length: length,
        destination_count: 1,
        reserved1: 0,
        reserved2: 0,
        destination: i64::from(into.file.as_fd().as_raw_fd()),
        destination_offset: into.offset,
        bytes_deduped: 0,
        status: 0,
        reserved3: 0,
    };
    // SAFETY: the opcode takes a header that says how many destinations follow; `range` is a header with one behind it.
    let call = unsafe { Updater::<FIDEDUPERANGE, DedupeRange>::new(&mut range) };
    // SAFETY: as above; the kernel writes to `range` only, during the call. Both descriptors are borrowed for longer.
    unsafe { ioctl(source.file, call) }?;
    match range.status {
        0 => Ok(Deduped::Same(range.bytes_deduped)),
        1 => Ok(Deduped::Differ),
        status @ -4095..=-1 => Err(Errno::from_raw_os_error(-status)),
        _ => Err(Errno::PROTO),
    }
}

/// `struct file_clone_range`.
#[repr(C)]
struct CloneRange {
    source: i64,
    source_offset: u64,
    source_length: u64,
    destination_offset: u64,
}

const FICLONERANGE: Opcode = opcode::write::<CloneRange>(0x94, 13);
const _: () = assert!(size_of::<CloneRange>() == 32);

/// Makes a range refer to the blocks of another range.
pub(super) fn clone_range<F: AsFd>(source: At<'_, F>, into: At<'_, F>, length: u64) -> Result<(), Errno> {
    let range = CloneRange {
        source: i64::from(source.file.as_fd().as_raw_fd()),
        source_offset: source.offset,
        source_length: length,
        destination_offset: into.offset,
    };
    // SAFETY: the opcode reads one `file_clone_range`, which is what `range` is.
    let call = unsafe { Setter::<FICLONERANGE, CloneRange>::new(range) };
    // SAFETY: as above; no memory of this process is changed. Both descriptors are borrowed for longer.
    unsafe { ioctl(into.file, call) }
}

/// `struct fsxattr`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes {
    /// `FS_XFLAG_*`.
    pub(super) flags: u32,
    pub(super) extent_bytes: u32,
    pub(super) extents: u32,
    pub(super) project: u32,
    /// Unit in which space is set aside for copies on write, in bytes. It counts only if its flag is set.
    pub(super) cow_extent_bytes: u32,
    pub(super) padding: [u8; 8],
}

/// `FS_XFLAG_COWEXTSIZE`.
pub(super) const HAS_COW_EXTENT_BYTES: u32 = 0x0001_0000;

const FS_IOC_FSGETXATTR: Opcode = opcode::read::<Attributes>(b'X', 31);
const FS_IOC_FSSETXATTR: Opcode = opcode::write::<Attributes>(b'X', 32);
const _: () = assert!(size_of::<Attributes>() == 28);

/// Returns the attributes that XFS keeps of a file beyond the usual ones.
pub(super) fn attributes(file: impl AsFd) -> Result<Attributes, Errno> {
    // SAFETY: the opcode writes one `fsxattr`, which is what `Attributes` is.
    let call = unsafe { Getter::<FS_IOC_FSGETXATTR, Attributes>::new() };
    // SAFETY: as above; any bytes are valid `Attributes`.
    unsafe { ioctl(file, call) }
}

/// Sets the attributes that XFS keeps of a file beyond the usual ones.
pub(super) fn set_attributes(file: impl AsFd, attributes: Attributes) -> Result<(), Errno> {
    // SAFETY: the opcode reads one `fsxattr`, which is what `Attributes` is.
    let call = unsafe { Setter::<FS_IOC_FSSETXATTR, Attributes>::new(attributes) };
    // SAFETY: as above; no memory of this process is changed.
    unsafe { ioctl(file, call) }
}

/// `struct btrfs_ioctl_search_args_v2`, followed by room for the result.
#[repr(C)]
struct TreeSearch {
    tree: u64,
    objects: [u64; 2],
    offsets: [u64; 2],
    transactions: [u64; 2],
    kinds: [u32; 2],
    item_count: u32,
    reserved1: u32,
    reserved2: [u64; 4],
    buffer_bytes: u64,
    buffer: [u8; TREE_BUFFER_BYTES],
}

const TREE_SEARCH_HEADER_BYTES: usize = 112;
/// Room for about six hundred items of a file's map.
const TREE_BUFFER_BYTES: usize = 48 << 10;
const _: () = assert!(offset_of!(TreeSearch, buffer) == TREE_SEARCH_HEADER_BYTES);

const BTRFS_IOC_TREE_SEARCH_V2: Opcode = opcode::read_write::<[u8; TREE_SEARCH_HEADER_BYTES]>(0x94, 17);

/// An item of a Btrfs tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TreeItem {
    /// The last part of its key.
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

/// Returns the first items of one kind of a Btrfs object, within a range of offsets. They come from the tree of the
/// given number, or without one from the tree of the file's subvolume.
pub(super) fn tree_items(
    file: impl AsFd,
    tree: Option<u64>,
    object: (u64, u8),
    offsets: RangeInclusive<u64>,
) -> Result<Vec<TreeItem>, Errno> {
    tree_items_since(file, tree, object, offsets, 0)
}

/// Like [`tree_items`], but returns only items in tree blocks that were changed in the given generation or later.
pub(super) fn tree_items_since(
    file: impl AsFd,
    tree: Option<u64>,
    (object, kind): (u64, u8),
    offsets: RangeInclusive<u64>,
    generation: u64,
) -> Result<Vec<TreeItem>, Errno> {
    let mut search = Box::new(TreeSearch {
        tree: tree.unwrap_or(0),
        objects: [object; 2],
        offsets: [*offsets.start(), *offsets.end()],
        transactions: [generation, u64::MAX],
        kinds: [kind.into(); 2],
        item_count: u32::MAX,
        reserved1: 0,
        reserved2: [0; 4],
        buffer_bytes: TREE_BUFFER_BYTES as u64,
        buffer: [0; TREE_BUFFER_BYTES],
    });
    // SAFETY: the opcode takes a header that says how many bytes there are behind it: as many as `search` has.
    let call = unsafe { Updater::<BTRFS_IOC_TREE_SEARCH_V2, TreeSearch>::new(&mut search) };
    // SAFETY: as above; the kernel writes to `search` only, during the call, and any bytes are valid there.
    unsafe { ioctl(file, call) }?;
    Ok(items_of(&search.buffer, search.item_count, object, kind))
}

/// Splits the kernel's result into items: a header of 32 bytes and the item's bytes, repeated.
fn items_of(buffer: &[u8], count: u32, object: u64, kind: u8) -> Vec<TreeItem> {
    let (mut items, mut rest) = (Vec::new(), buffer);
    for _ in 0..count {
        let Some((header, behind)) = rest.split_first_chunk::<32>() else { break };
        let long = |at: usize| header[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        let short = |at: usize| header[at..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
        let length = usize::try_from(short(28)).unwrap_or(usize::MAX);
        let Some((bytes, next)) = behind.split_at_checked(length) else { break };
        if long(8) == object && short(24) == u32::from(kind) {
            items.push(TreeItem { offset: long(16), bytes: bytes.to_vec() });
        }
        rest = next;
    }
    items
}

/// `struct btrfs_ioctl_fs_info_args`, as far as needed here.
#[repr(C)]
struct FileSystemInfo {
    before: [u64; 6],
    flags: u64,
    generation: u64,
    behind: [u64; 120],
}

const BTRFS_IOC_FS_INFO: Opcode = opcode::read::<FileSystemInfo>(0x94, 31);
const _: () = assert!(offset_of!(FileSystemInfo, flags) == 48 && size_of::<FileSystemInfo>() == 1024);
/// `BTRFS_FS_INFO_FLAG_GENERATION`, since Linux 5.9.
const WITH_GENERATION: u64 = 2;

/// Returns the number of the latest Btrfs transaction that was begun. `None` if the kernel does not report it.
pub(super) fn generation(file: impl AsFd) -> Result<Option<u64>, Errno> {
    let mut info = Box::new(FileSystemInfo { before: [0; 6], flags: WITH_GENERATION, generation: 0, behind: [0; 120] });
    // SAFETY: the opcode reads and writes one `btrfs_ioctl_fs_info_args`, which has the size of `info`.
    let call = unsafe { Updater::<BTRFS_IOC_FS_INFO, FileSystemInfo>::new(&mut info) };
    // SAFETY: as above; the kernel writes to `info` only, during the call, and any bytes are valid there.
    unsafe { ioctl(file, call) }?;
    Ok((info.flags & WITH_GENERATION != 0).then_some(info.generation))
}

/// `struct btrfs_ioctl_space_info`: the space that Btrfs has allocated for a kind of content, and its used part.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SpaceInfo {
    /// `BTRFS_BLOCK_GROUP_*`.
    pub(super) flags: u64,
    pub(super) total: u64,
    pub(super) used: u64,
}

/// Maximum number of kinds. There are four, or twice as many while a file system is converted.
const SPACE_INFOS_MAX: usize = 32;

/// `struct btrfs_ioctl_space_args`, followed by room for the result.
#[repr(C)]
struct SpaceInfos {
    capacity: u64,
    count: u64,
    infos: [SpaceInfo; SPACE_INFOS_MAX],
}

const SPACE_HEADER_BYTES: usize = 16;
const BTRFS_IOC_SPACE_INFO: Opcode = opcode::read_write::<[u8; SPACE_HEADER_BYTES]>(0x94, 20);
const _: () = assert!(offset_of!(SpaceInfos, infos) == SPACE_HEADER_BYTES && size_of::<SpaceInfo>() == 24);

/// Returns the space that Btrfs has allocated for each kind of content.
pub(super) fn space_infos(file: impl AsFd) -> Result<Vec<SpaceInfo>, Errno> {
    let infos = [SpaceInfo::default(); SPACE_INFOS_MAX];
    let mut spaces = SpaceInfos { capacity: SPACE_INFOS_MAX as u64, count: 0, infos };
    // SAFETY: the opcode takes a header that says for how many kinds there is room behind it: as many as `spaces` has.
    let call = unsafe { Updater::<BTRFS_IOC_SPACE_INFO, SpaceInfos>::new(&mut spaces) };
    // SAFETY: as above; the kernel writes to `spaces` only, during the call, and any bytes are valid there.
    unsafe { ioctl(file, call) }?;
    let count = usize::try_from(spaces.count).unwrap_or(SPACE_INFOS_MAX).min(SPACE_INFOS_MAX);
    Ok(spaces.infos[..count].to_vec())
}

/// `struct btrfs_ioctl_logical_ino_args`.
#[repr(C)]
struct LogicalInodes {
    place: u64,
    buffer_bytes: u64,
    reserved: [u64; 3],
    flags: u64,
    buffer: u64,
}

const BTRFS_IOC_LOGICAL_INO_V2: Opcode = opcode::read_write::<LogicalInodes>(0x94, 59);
const _: () = assert!(size_of::<LogicalInodes>() == 56);

/// Also report references to other parts of the extent.
const IGNORE_OFFSET: u64 = 1;
/// Maximum number of references in a result, of three numbers each.
pub(super) const REFERENCES_MAX: usize = 2048;

/// `struct btrfs_data_container`, followed by room for the result.
#[repr(C)]
struct FoundInodes {
    bytes_left: u32,
    bytes_missing: u32,
    /// Count of the numbers that were found, three for each reference.
    count: u32,
    missed: u32,
    numbers: [[u64; 3]; REFERENCES_MAX],
}

/// A reference to an extent of Btrfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct InodeReference {
    pub(super) inode: u64,
    /// Offset in the file at which the item of its map begins, in bytes.
    pub(super) offset: u64,
    /// The tree of the subvolume.
    pub(super) tree: u64,
}

/// Returns all references to an extent of Btrfs. `OVERFLOW` if there are too many.
pub(super) fn references(file: impl AsFd, place: u64) -> Result<Vec<InodeReference>, Errno> {
    let numbers = [[0; 3]; REFERENCES_MAX];
    let mut found = Box::new(FoundInodes { bytes_left: 0, bytes_missing: 0, count: 0, missed: 0, numbers });
    let buffer: *mut FoundInodes = &raw mut *found;
    let mut call = LogicalInodes {
        place,
        buffer_bytes: size_of::<FoundInodes>() as u64,
        reserved: [0; 3],
        flags: IGNORE_OFFSET,
        buffer: buffer.expose_provenance() as u64,
    };
    // SAFETY: the opcode takes one `btrfs_ioctl_logical_ino_args`, which is what `call` is; it names `found` and its
    // size.
    let call = unsafe { Updater::<BTRFS_IOC_LOGICAL_INO_V2, LogicalInodes>::new(&mut call) };
    // SAFETY: as above; the kernel writes to `call` and to `found` only, during the call, and both outlive it.
    unsafe { ioctl(file, call) }?;
    if found.missed > 0 || found.bytes_missing > 0 {
        return Err(Errno::OVERFLOW);
    }
    let count = usize::try_from(found.count / 3).unwrap_or(REFERENCES_MAX).min(REFERENCES_MAX);
    let references = found.numbers[..count].iter();
    Ok(references.map(|&[inode, offset, tree]| InodeReference { inode, offset, tree }).collect())
}

/// Length of the longest handle (`MAX_HANDLE_SZ`), in bytes.
pub(super) const HANDLE_BYTES_MAX: usize = 128;

/// `struct file_handle`, followed by room for the longest one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct RawHandle {
    byte_count: u32,
    /// Layout of the bytes, as numbered by the file system.
    pub(super) kind: i32,
    bytes: [u8; HANDLE_BYTES_MAX],
}

const _: () = assert!(offset_of!(RawHandle, bytes) == 8);

impl RawHandle {
    /// Returns the bytes of the handle.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::try_from(self.byte_count).map_or(HANDLE_BYTES_MAX, |count| count.min(HANDLE_BYTES_MAX))]
    }
}

/// Returns the handle of an open file.
pub(super) fn file_handle(file: BorrowedFd<'_>) -> Result<RawHandle, Errno> {
    let byte_count = u32::try_from(HANDLE_BYTES_MAX).expect("a small constant");
    let mut handle = RawHandle { byte_count, kind: 0, bytes: [0; HANDLE_BYTES_MAX] };
    let mut mount: libc::c_int = 0;
    let (name, handle_at, mount_at) = (c"".as_ptr(), &raw mut handle, &raw mut mount);
    let (number, file) = (libc::SYS_name_to_handle_at, file.as_raw_fd());
    // SAFETY: `name` ends with a zero, `handle` has room for as many bytes as it says, `mount` for one number; all of
    // them outlive the call.
    let outcome = unsafe { libc::syscall(number, file, name, handle_at, mount_at, libc::AT_EMPTY_PATH) };
    if outcome == 0 { Ok(handle) } else { Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)) }
}

impl RawHandle {
    /// Returns the handle of this type and these bytes; `None` if there are too many.
    pub(super) fn new(kind: i32, bytes: &[u8]) -> Option<RawHandle> {
        let mut handle = RawHandle { byte_count: u32::try_from(bytes.len()).ok()?, kind, bytes: [0; HANDLE_BYTES_MAX] };
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(handle)
    }
}

/// Opens a file by its handle, on the file system of `mount`.
pub(super) fn open_by_handle(mount: BorrowedFd<'_>, handle: &RawHandle, flags: OFlags) -> Result<OwnedFd, Errno> {
    let (number, mount, handle) = (libc::SYS_open_by_handle_at, mount.as_raw_fd(), std::ptr::from_ref(handle));
    // SAFETY: `handle` has as many bytes as it says, and outlives the call, which only reads it.
    let opened = unsafe { libc::syscall(number, mount, handle, flags.bits()) };
    match i32::try_from(opened) {
        // SAFETY: the kernel has just opened it, for this call alone.
        Ok(file) if file >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(file) }),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// `F_SETSIG`: chooses the signal that announces the end of a lease.
const SET_SIGNAL: libc::c_int = 10;

/// Takes a write lease. It holds while no other process opens the file.
pub(super) fn take_lease(file: impl AsFd) -> Result<(), Errno> {
    // The default signal would end the process; this one does nothing. The program polls the lease instead.
    fcntl(file.as_fd(), SET_SIGNAL, libc::SIGURG)?;
    fcntl(file.as_fd(), libc::F_SETLEASE, libc::F_WRLCK).map(drop)
}

/// Returns whether a file has a write lease that no process waits for.
pub(super) fn has_lease(file: impl AsFd) -> bool {
    fcntl(file.as_fd(), libc::F_GETLEASE, 0) == Ok(libc::F_WRLCK)
}

/// Ends a lease.
pub(super) fn end_lease(file: impl AsFd) -> Result<(), Errno> {
    fcntl(file.as_fd(), libc::F_SETLEASE, libc::F_UNLCK).map(drop)
}

/// Returns whether another open file description holds a lock on a byte of a file, for reading or writing
/// (`F_OFD_GETLK`).
pub(super) fn is_byte_locked(file: impl AsFd, offset: u64) -> Result<bool, Errno> {
    let start = libc::off_t::try_from(offset).map_err(|_| Errno::INVAL)?;
    // A write lock conflicts with every other lock. The call sets none, so the file need not be open for writing.
    let (kind, whence) = (libc::c_short::try_from(libc::F_WRLCK), libc::c_short::try_from(libc::SEEK_SET));
    let (Ok(l_type), Ok(l_whence)) = (kind, whence) else { return Err(Errno::INVAL) };
    let mut lock = libc::flock { l_type, l_whence, l_start: start, l_len: 1, l_pid: 0 };
    // SAFETY: the command reads and writes one `flock`, which is what `lock` is, during the call.
    match unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } {
        -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(libc::c_int::from(lock.l_type) != libc::F_UNLCK),
    }
}

/// Makes the kernel start writing a range to the disk (`sync_file_range`).
pub(super) fn write_back(file: impl AsFd, offset: u64, length: u64) -> Result<(), Errno> {
    let as_signed = |number| i64::try_from(number).map_err(|_| Errno::INVAL);
    let (offset, length) = (as_signed(offset)?, as_signed(length)?);
    let file = file.as_fd().as_raw_fd();
    // SAFETY: the call takes numbers, and changes no memory.
    match unsafe { libc::sync_file_range(file, offset, length, libc::SYNC_FILE_RANGE_WRITE) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// `fcntl` with a number as its argument.
fn fcntl(file: BorrowedFd<'_>, command: libc::c_int, argument: libc::c_int) -> Result<libc::c_int, Errno> {
    // SAFETY: the commands above take a number, and change no memory.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
        -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
        answer => Ok(answer),
    }
}

/// Returns the local hour and minute; `None` if the system does not know them.
pub(super) fn local_time() -> Option<(u16, u16)> {
    // SAFETY: takes and returns nothing; reads the environment, which this program never changes after its start.
    unsafe { tzset() };
    // SAFETY: `tm` is made of integers and a pointer that may be null.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: a null pointer is allowed, and means that the time is only returned.
    let now = unsafe { libc::time(std::ptr::null_mut()) };
    // SAFETY: both pointers are to variables of this function, and are not kept.
    let told = unsafe { libc::localtime_r(&raw const now, &raw mut local) };
    if told.is_null() {
        return None;
    }
    Some((u16::try_from(local.tm_hour).ok()?, u16::try_from(local.tm_min).ok()?))
}

unsafe extern "C" {
    /// Reads the time zone again: an administrator may have changed it. POSIX; the crate `libc` lacks it.
    fn tzset();
}
