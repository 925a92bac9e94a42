//! The calls that have no safe wrapper: here comparing and sharing, cloning, XFS attributes, writing back, the local
//! time, and limits for child processes; those of Btrfs, handles, leases, locks, loop devices and the network in
//! modules of their own.
//!
//! All unsafe code of the crate is here. Every structure mirrors the kernel's, field by field; assertions check its
//! layout.

#![expect(unsafe_code, reason = "these system calls have no safe wrapper")]

pub(crate) mod btrfs;
pub(crate) mod handles;
pub(crate) mod locks;
pub(crate) mod loops;
pub(crate) mod network;

use std::io;
use std::mem::{offset_of, size_of};
use std::os::unix::process::CommandExt;
use std::process::Command;

use onefold_substrate::At;
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, Updater, ioctl, opcode};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Starts a program with these limits, or with its inherited ones where they are lower. They hold from its first
/// instruction on, and for all processes that it starts.
pub(crate) fn limit(command: &mut Command, limits: &'static [(Resource, u64)]) {
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
pub(crate) enum DedupeOutcome {
    /// This many bytes from the start of the ranges are equal, and shared.
    Same(u64),
    /// The ranges differ somewhere.
    Differ,
}

/// Compares and shares a range.
pub(crate) fn dedupe_range<F: AsFd>(source: At<'_, F>, into: At<'_, F>, length: u64) -> Result<DedupeOutcome, Errno> {
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
        0 => Ok(DedupeOutcome::Same(range.bytes_deduped)),
        1 => Ok(DedupeOutcome::Differ),
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
pub(crate) fn clone_range<F: AsFd>(source: At<'_, F>, into: At<'_, F>, length: u64) -> Result<(), Errno> {
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
pub(crate) struct FsxAttributes {
    /// `FS_XFLAG_*`.
    pub(crate) flags: u32,
    pub(crate) extent_bytes: u32,
    pub(crate) extents: u32,
    pub(crate) project: u32,
    /// Unit in which space is set aside for copies on write, in bytes. It counts only if its flag is set.
    pub(crate) cow_extent_bytes: u32,
    pub(crate) padding: [u8; 8],
}

/// `FS_XFLAG_COWEXTSIZE`.
pub(crate) const HAS_COW_EXTENT_BYTES: u32 = 0x0001_0000;

const FS_IOC_FSGETXATTR: Opcode = opcode::read::<FsxAttributes>(b'X', 31);
const FS_IOC_FSSETXATTR: Opcode = opcode::write::<FsxAttributes>(b'X', 32);
const _: () = assert!(size_of::<FsxAttributes>() == 28);

/// Returns the attributes that XFS keeps of a file beyond the usual ones.
pub(crate) fn attributes(file: impl AsFd) -> Result<FsxAttributes, Errno> {
    // SAFETY: the opcode writes one `fsxattr`, which is what `FsxAttributes` is.
    let call = unsafe { Getter::<FS_IOC_FSGETXATTR, FsxAttributes>::new() };
    // SAFETY: as above; any bytes are valid `FsxAttributes`.
    unsafe { ioctl(file, call) }
}

/// Sets the attributes that XFS keeps of a file beyond the usual ones.
pub(crate) fn set_attributes(file: impl AsFd, attributes: FsxAttributes) -> Result<(), Errno> {
    // SAFETY: the opcode reads one `fsxattr`, which is what `FsxAttributes` is.
    let call = unsafe { Setter::<FS_IOC_FSSETXATTR, FsxAttributes>::new(attributes) };
    // SAFETY: as above; no memory of this process is changed.
    unsafe { ioctl(file, call) }
}

/// Makes the kernel start writing a range to the disk (`sync_file_range`).
pub(crate) fn write_back(file: impl AsFd, offset: u64, length: u64) -> Result<(), Errno> {
    let as_signed = |number| i64::try_from(number).map_err(|_| Errno::INVAL);
    let (offset, length) = (as_signed(offset)?, as_signed(length)?);
    let file = file.as_fd().as_raw_fd();
    // SAFETY: the call takes numbers, and changes no memory.
    match unsafe { libc::sync_file_range(file, offset, length, libc::SYNC_FILE_RANGE_WRITE) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Returns the local hour and minute; `None` if the system does not know them.
pub(crate) fn local_time() -> Option<(u16, u16)> {
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
