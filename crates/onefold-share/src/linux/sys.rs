//! The calls that have no safe wrapper: comparing and sharing, cloning, maps of extents, XFS attributes, handles, the
//! clock on the wall.
//!
//! All unsafe code of the crate is here. Every structure is the kernel's, field by field; its layout is asserted.

#![expect(unsafe_code, reason = "these system calls have no safe wrapper")]

use std::io;
use std::mem::{offset_of, size_of};

use onefold_block::substrate::At;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, Updater, ioctl, opcode};

/// `struct file_dedupe_range` with the only destination that is ever asked for behind it.
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

/// What one `FIDEDUPERANGE` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deduped {
    /// So many bytes from the start of the ranges are equal, and shared.
    Same(u64),
    /// Somewhere the ranges differ.
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

/// Makes a range refer to the blocks of another one.
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

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RawExtent {
    /// Offset in the file.
    pub(super) logical: u64,
    /// Offset on the device.
    pub(super) physical: u64,
    /// Length in bytes.
    pub(super) length: u64,
    pub(super) reserved1: [u64; 2],
    /// `FIEMAP_EXTENT_*`.
    pub(super) flags: u32,
    pub(super) reserved2: [u32; 3],
}

/// How many extents one call gives at most: 28 KiB of them. Btrfs walks the references of each one to tell whether it
/// is shared, so that a call for all of a big file could take seconds.
pub(super) const EXTENTS_MAX: usize = 512;

/// `struct fiemap` with room for extents behind it.
#[repr(C)]
struct ExtentMap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    capacity: u32,
    reserved: u32,
    extents: [RawExtent; EXTENTS_MAX],
}

const MAP_HEADER_BYTES: usize = 32;
const _: () = assert!(offset_of!(ExtentMap, extents) == MAP_HEADER_BYTES && size_of::<RawExtent>() == 56);

const FS_IOC_FIEMAP: Opcode = opcode::read_write::<[u8; MAP_HEADER_BYTES]>(b'f', 11);

/// Returns the first extents of a range, as the file system tells them: the first one may begin before it. Nothing is
/// written back first.
pub(super) fn extents(file: impl AsFd, start: u64, length: u64) -> Result<Vec<RawExtent>, Errno> {
    let capacity = u32::try_from(EXTENTS_MAX).expect("a small constant");
    let extents = [RawExtent::default(); EXTENTS_MAX];
    let mut map = Box::new(ExtentMap { start, length, flags: 0, mapped: 0, capacity, reserved: 0, extents });
    // SAFETY: the opcode takes a header that says for how many extents there is room behind it: as many as `map` has.
    let call = unsafe { Updater::<FS_IOC_FIEMAP, ExtentMap>::new(&mut map) };
    // SAFETY: as above; the kernel writes to `map` only, during the call, and any bytes are valid extents.
    unsafe { ioctl(file, call) }?;
    let mapped = usize::try_from(map.mapped).unwrap_or(EXTENTS_MAX).min(EXTENTS_MAX);
    Ok(map.extents[..mapped].to_vec())
}

/// `struct fsxattr`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes {
    /// `FS_XFLAG_*`.
    pub(super) flags: u32,
    extent_bytes: u32,
    extents: u32,
    project: u32,
    /// In which unit space is set aside for copies on write, in bytes; counts if the flag for it is set.
    pub(super) cow_extent_bytes: u32,
    padding: [u8; 8],
}

/// `FS_XFLAG_COWEXTSIZE`.
pub(super) const HAS_COW_EXTENT_BYTES: u32 = 0x0001_0000;

const FS_IOC_FSGETXATTR: Opcode = opcode::read::<Attributes>(b'X', 31);
const FS_IOC_FSSETXATTR: Opcode = opcode::write::<Attributes>(b'X', 32);
const _: () = assert!(size_of::<Attributes>() == 28);

/// Returns the attributes that XFS has of a file beyond the usual ones.
pub(super) fn attributes(file: impl AsFd) -> Result<Attributes, Errno> {
    // SAFETY: the opcode writes one `fsxattr`, which is what `Attributes` is.
    let call = unsafe { Getter::<FS_IOC_FSGETXATTR, Attributes>::new() };
    // SAFETY: as above; any bytes are valid `Attributes`.
    unsafe { ioctl(file, call) }
}

/// Sets the attributes that XFS has of a file beyond the usual ones.
pub(super) fn set_attributes(file: impl AsFd, attributes: Attributes) -> Result<(), Errno> {
    // SAFETY: the opcode reads one `fsxattr`, which is what `Attributes` is.
    let call = unsafe { Setter::<FS_IOC_FSSETXATTR, Attributes>::new(attributes) };
    // SAFETY: as above; no memory of this process is changed.
    unsafe { ioctl(file, call) }
}

/// The longest handle there is (`MAX_HANDLE_SZ`), in bytes.
pub(super) const HANDLE_BYTES_MAX: usize = 128;

/// `struct file_handle` with room for the longest one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct RawHandle {
    byte_count: u32,
    /// Which layout the bytes have: the file system's own number.
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

/// Returns the hour and the minute of the day where this machine is; none where the system cannot tell.
pub(super) fn local_time() -> Option<(u16, u16)> {
    // SAFETY: takes nothing and gives nothing; reads the environment, which this program never changes once it has begun.
    unsafe { tzset() };
    // SAFETY: `tm` is made of integers and a pointer that may be null.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: a null pointer is allowed, and stands for no place where the time is written, too.
    let now = unsafe { libc::time(std::ptr::null_mut()) };
    // SAFETY: both pointers are to variables of this function, and are not kept.
    let told = unsafe { libc::localtime_r(&raw const now, &raw mut local) };
    if told.is_null() {
        return None;
    }
    Some((u16::try_from(local.tm_hour).ok()?, u16::try_from(local.tm_min).ok()?))
}

unsafe extern "C" {
    /// Looks anew where the machine is: somebody may have moved it since the last time. POSIX; the crate `libc` leaves it out.
    fn tzset();
}
