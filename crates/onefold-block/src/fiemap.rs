//! Maps of extents, as file systems report them (`FIEMAP`).

#![expect(unsafe_code, reason = "the system call has no safe wrapper")]

use std::mem::{offset_of, size_of};

use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// `FIEMAP_EXTENT_LAST`.
pub const LAST: u32 = 0x1;
/// `FIEMAP_EXTENT_UNWRITTEN`: set aside, and read as zeros.
pub const UNWRITTEN: u32 = 0x800;
/// `FIEMAP_EXTENT_SHARED`.
pub const SHARED: u32 = 0x2000;
/// Flags of an extent that has no place, or whose place does not hold the plain bytes: unknown, delayed, encoded,
/// encrypted, not aligned, within metadata, in a block with other tails.
pub const WITHOUT_PLACE: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400;

/// Maximum number of extents that one call returns: 28 KiB of them. Btrfs walks the references of each extent to find
/// out whether it is shared, so one call for all of a big file could take seconds.
pub const EXTENTS_MAX: usize = 512;

/// `struct fiemap_extent`: a range of a file, and the place of its bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RawExtent {
    /// Offset in the file.
    pub logical: u64,
    /// Offset on the device.
    pub physical: u64,
    /// Length in bytes.
    pub length: u64,
    /// Not used by the kernel.
    pub reserved1: [u64; 2],
    /// `FIEMAP_EXTENT_*`.
    pub flags: u32,
    /// Not used by the kernel.
    pub reserved2: [u32; 3],
}

impl RawExtent {
    /// Returns the offset behind the extent in the file.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.logical.saturating_add(self.length)
    }

    /// Returns whether the file system says that no further extent follows.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.flags & LAST != 0
    }
}

/// `struct fiemap`, followed by room for extents.
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

const HEADER_BYTES: usize = 32;
const _: () = assert!(offset_of!(ExtentMap, extents) == HEADER_BYTES && size_of::<RawExtent>() == 56);

const FS_IOC_FIEMAP: Opcode = opcode::read_write::<[u8; HEADER_BYTES]>(b'f', 11);

/// `FIEMAP_FLAG_SYNC`.
const WRITES_BACK: u32 = 1;

/// Returns the first extents of a range, as the file system reports them: the first one may begin before the range.
/// Writes nothing back first.
///
/// # Errors
/// Those of the call; `NOTTY` or `OPNOTSUPP` if the file system has no maps.
pub fn extents(file: impl AsFd, start: u64, length: u64) -> Result<Vec<RawExtent>, Errno> {
    map(file, start, length, 0)
}

/// Writes the whole file back first, whatever the range, and returns its first extents.
///
/// # Errors
/// See [`extents`].
pub fn settled_extents(file: impl AsFd) -> Result<Vec<RawExtent>, Errno> {
    // A short range, as the map itself is not needed.
    map(file, 0, 1, WRITES_BACK)
}

fn map(file: impl AsFd, start: u64, length: u64, flags: u32) -> Result<Vec<RawExtent>, Errno> {
    let capacity = u32::try_from(EXTENTS_MAX).expect("a small constant");
    let extents = [RawExtent::default(); EXTENTS_MAX];
    let mut map = Box::new(ExtentMap { start, length, flags, mapped: 0, capacity, reserved: 0, extents });
    // SAFETY: the opcode takes a header that states the number of extents for which there is room behind it. `map` has
    // room for exactly this number.
    let call = unsafe { Updater::<FS_IOC_FIEMAP, ExtentMap>::new(&mut map) };
    // SAFETY: as above; the kernel writes to `map` only, during the call, and any bytes are valid extents.
    unsafe { ioctl(file, call) }?;
    let mapped = usize::try_from(map.mapped).unwrap_or(EXTENTS_MAX).min(EXTENTS_MAX);
    Ok(map.extents[..mapped].to_vec())
}
