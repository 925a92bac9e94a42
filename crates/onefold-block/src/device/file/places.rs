//! Whether each block of a regular file has a place that is the file's alone, by its map of extents (`FIEMAP`).
//!
//! The number of blocks that a file takes does not say so: the file system counts its own records of a fragmented file
//! among them, which can hide some holes. Neither does it say which blocks are shared with a copy of the file; an
//! overwrite of such a block takes a new one.

use std::fs::File;

use crate::fiemap::{self, RawExtent, SHARED, WITHOUT_PLACE};

/// Flags of an extent that has no place of its own.
const NO_OWN_PLACE: u32 = WITHOUT_PLACE | SHARED;

/// Calls for one file at most: 16,384 extents, a dense file of 2 TiB on ext4. A file of more is taken for one with
/// holes, as this runs beside writes: a call takes about a quarter of a millisecond.
const CALLS_MAX: usize = 32;

/// Tells whether all of the first `bytes` bytes of a file are known to have places of their own. Unwritten ones count:
/// they were set aside.
pub(super) fn has_places(file: &File, bytes: u64) -> bool {
    let mut places = AllocatedRange { end: 0, bytes };
    for _ in 0..CALLS_MAX {
        let left = bytes.saturating_sub(places.end);
        let Ok(extents) = fiemap::extents(file, places.end, left) else { return false };
        match places.take(&extents) {
            Some(has_places) => return has_places,
            None => continue,
        }
    }
    false
}

/// How much of a file is known to have places.
struct AllocatedRange {
    end: u64,
    bytes: u64,
}

impl AllocatedRange {
    /// Takes in the next extents of the file. Returns whether all of it has places, once that is known.
    fn take(&mut self, extents: &[RawExtent]) -> Option<bool> {
        let before = self.end;
        for extent in extents {
            if extent.logical > self.end || extent.flags & NO_OWN_PLACE != 0 {
                return Some(false);
            }
            self.end = self.end.max(extent.end());
        }
        let is_last = extents.last().is_none_or(RawExtent::is_last);
        let is_whole = self.end >= self.bytes;
        (is_whole || is_last || self.end == before).then_some(is_whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fiemap::{LAST, UNWRITTEN};

    fn extent(logical: u64, length: u64, flags: u32) -> RawExtent {
        RawExtent { logical, length, flags, ..RawExtent::default() }
    }

    fn has_places(calls: &[&[RawExtent]]) -> Option<bool> {
        let mut places = AllocatedRange { end: 0, bytes: 100 };
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
