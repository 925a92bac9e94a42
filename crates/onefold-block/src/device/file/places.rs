//! Whether each block of a regular file has a place that is the file's alone, by its map of extents (`FIEMAP`).
//!
//! The number of blocks that a file takes does not say so: the file system counts its own records of a fragmented file
//! among them, which can hide some holes. Neither does it say which blocks are shared with a copy of the file; an
//! overwrite of such a block takes a new one.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::AsRawFd;

/// `FIEMAP_EXTENT_LAST`.
const LAST: u32 = 0x1;
/// Flags of an extent that has no place of its own: unknown, delayed, encoded, encrypted, not aligned, within metadata,
/// in a block with other tails, shared.
const WITHOUT_PLACE: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400 | 0x2000;

/// Extents that one call returns at most: 28 KiB of them.
const EXTENTS: usize = 512;
/// Calls for one file at most. A file of more extents is taken for one with holes: this runs beside writes.
const CALLS_MAX: usize = 8;

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    /// Offset in the file.
    logical: u64,
    /// Offset on the device.
    physical: u64,
    /// Length in bytes.
    length: u64,
    reserved1: [u64; 2],
    flags: u32,
    reserved2: [u32; 3],
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
    extents: [Extent; EXTENTS],
}

const HEADER_BYTES: usize = 32;
const _: () = assert!(offset_of!(ExtentMap, extents) == HEADER_BYTES && size_of::<Extent>() == 56);

/// Tells whether all of the first `bytes` bytes of a file are known to have places of their own. Unwritten ones count:
/// they were set aside.
pub(super) fn has_places(file: &File, bytes: u64) -> bool {
    let mut places = Places { end: 0, bytes };
    for _ in 0..CALLS_MAX {
        let Ok(extents) = extents(file, places.end, bytes.saturating_sub(places.end)) else { return false };
        match places.take(&extents) {
            Some(has_places) => return has_places,
            None => continue,
        }
    }
    false
}

/// How much of a file is known to have places.
struct Places {
    end: u64,
    bytes: u64,
}

impl Places {
    /// Takes in the next extents of the file. Returns whether all of it has places, once that is known.
    fn take(&mut self, extents: &[Extent]) -> Option<bool> {
        let before = self.end;
        for extent in extents {
            if extent.logical > self.end || extent.flags & WITHOUT_PLACE != 0 {
                return Some(false);
            }
            self.end = self.end.max(extent.logical.saturating_add(extent.length));
        }
        let is_last = extents.last().is_none_or(|last| last.flags & LAST != 0);
        let is_whole = self.end >= self.bytes;
        (is_whole || is_last || self.end == before).then_some(is_whole)
    }
}

/// Returns the first extents of a range of a file.
#[expect(unsafe_code, reason = "the ioctl has no safe wrapper")]
fn extents(file: &File, start: u64, length: u64) -> io::Result<Vec<Extent>> {
    /// `FS_IOC_FIEMAP`: `_IOWR('f', 11, struct fiemap)`.
    const MAP: libc::Ioctl = 0xc020_660b_u32 as libc::Ioctl;
    let capacity = u32::try_from(EXTENTS).expect("a small constant");
    let extents = [Extent::default(); EXTENTS];
    let mut map = Box::new(ExtentMap { start, length, flags: 0, mapped: 0, capacity, reserved: 0, extents });
    // SAFETY: the ioctl takes a header that says for how many extents there is room behind it, as many as `map` has. It
    // writes to `map` only, during the call, and any bytes are valid extents.
    let outcome = unsafe { libc::ioctl(file.as_raw_fd(), MAP, &raw mut *map) };
    if outcome < 0 {
        return Err(io::Error::last_os_error());
    }
    let mapped = usize::try_from(map.mapped).unwrap_or(EXTENTS).min(EXTENTS);
    Ok(map.extents[..mapped].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARED: u32 = 0x2000;
    const UNWRITTEN: u32 = 0x800;

    fn extent(logical: u64, length: u64, flags: u32) -> Extent {
        Extent { logical, length, flags, ..Extent::default() }
    }

    fn has_places(calls: &[&[Extent]]) -> Option<bool> {
        let mut places = Places { end: 0, bytes: 100 };
        calls.iter().find_map(|extents| places.take(extents))
    }

    #[test]
    fn a_hole_anywhere_or_an_extent_without_a_place_of_its_own_is_found() {
        assert_eq!(has_places(&[&[extent(0, 60, 0), extent(60, 40, UNWRITTEN | LAST)]]), Some(true));
        assert_eq!(has_places(&[&[extent(0, 60, 0)], &[extent(60, 50, 0)]]), Some(true));
        assert_eq!(has_places(&[&[extent(0, 60, 0)]]), None, "there are more");
        assert_eq!(has_places(&[&[extent(1, 99, LAST)]]), Some(false), "a hole at the beginning");
        assert_eq!(has_places(&[&[extent(0, 60, 0)], &[extent(61, 39, LAST)]]), Some(false), "a hole in between");
        assert_eq!(has_places(&[&[extent(0, 99, LAST)]]), Some(false), "a hole at the end");
        assert_eq!(has_places(&[&[]]), Some(false), "nothing but a hole");
        assert_eq!(has_places(&[&[extent(0, 60, 0)], &[extent(0, 60, 0)]]), Some(false), "no progress");
        assert_eq!(has_places(&[&[extent(0, 60, SHARED), extent(60, 40, LAST)]]), Some(false));
        assert_eq!(has_places(&[&[extent(0, u64::MAX, 0x4)]]), Some(false), "not yet allocated");
    }
}
