//! Maps of extents.

use std::io;

use onefold_block::BLOCK_BYTES_U64;
use onefold_block::fiemap::{self, RawExtent, SHARED, UNWRITTEN, WITHOUT_PLACE};
use onefold_substrate::MappedExtent;
use rustix::io::Errno;

use crate::file::LinuxFile;

/// Returns the next extents of a file. Writes nothing back first (`FIEMAP_FLAG_SYNC`): maps of files that guests write
/// to are requested often, and data without a place is not worth sharing yet.
///
/// Leaves out extents behind `end` and behind the end of the file, which XFS sets aside for appends.
pub(super) fn extents(file: &LinuxFile, from: u64, end: u64) -> io::Result<Vec<MappedExtent>> {
    let end = file.length()?.checked_next_multiple_of(BLOCK_BYTES_U64).unwrap_or(u64::MAX).min(end);
    let mut from = from;
    while from < end {
        let told = fiemap::extents(file, from, end - from).map_err(|errno| match errno {
            Errno::NOTTY => Errno::OPNOTSUPP,
            errno => errno,
        })?;
        let extents = clipped(&told, from, end);
        let next = told.last().map_or(from, RawExtent::end);
        let is_over = next <= from || told.iter().any(RawExtent::is_last);
        if is_over || !extents.is_empty() {
            return Ok(extents);
        }
        from = next;
    }
    Ok(Vec::new())
}

/// An extent from its beginning to its end, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExtentRange {
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// Returns the unshared extents that overlap a range and reach beyond it. To the kernel's clone call, extents that are
/// only set aside (unwritten) are like the others.
pub(super) fn unmarked(file: &LinuxFile, from: u64, length: u64) -> io::Result<Vec<ExtentRange>> {
    let (mut at, end) = (from, from.saturating_add(length));
    let mut found = Vec::new();
    while at < end {
        let told = fiemap::extents(file, at, end - at)?;
        found.extend(told.iter().filter_map(|extent| unmarked_whole(extent, from, end)));
        match told.last() {
            Some(last) if !last.is_last() && last.end() > at => at = last.end(),
            _ => break,
        }
    }
    Ok(found)
}

fn unmarked_whole(extent: &RawExtent, from: u64, end: u64) -> Option<ExtentRange> {
    let is_within = extent.logical >= from && extent.end() <= end;
    let is_plain = extent.flags & (SHARED | WITHOUT_PLACE) == 0;
    (is_plain && !is_within).then_some(ExtentRange { offset: extent.logical, length: extent.length })
}

/// Returns the parts of extents within `from..end`: Btrfs reports whole extents, whatever range was asked for. Leaves
/// out extents that are out of order: they moved during the call.
fn clipped(told: &[RawExtent], from: u64, end: u64) -> Vec<MappedExtent> {
    let mut position = from;
    let mut extents = Vec::with_capacity(told.len());
    for extent in told {
        let offset = extent.logical.max(position);
        let behind = extent.end().min(end);
        if offset >= behind {
            continue;
        }
        let has_place = extent.flags & WITHOUT_PLACE == 0;
        extents.push(MappedExtent {
            offset,
            place: has_place.then(|| extent.physical.saturating_add(offset - extent.logical)),
            length: behind - offset,
            is_shared: extent.flags & SHARED != 0,
            is_unwritten: extent.flags & UNWRITTEN != 0,
        });
        position = behind;
    }
    extents
}

#[cfg(test)]
mod tests {
    use onefold_block::fiemap::LAST;

    use super::*;

    const K: u64 = BLOCK_BYTES_U64;

    fn raw(logical: u64, physical: u64, length: u64, flags: u32) -> RawExtent {
        RawExtent { logical, physical, length, flags, ..RawExtent::default() }
    }

    fn mapped(offset: u64, place: Option<u64>, length: u64) -> MappedExtent {
        MappedExtent { offset, place, length, is_shared: false, is_unwritten: false }
    }

    #[test]
    fn extents_are_cut_at_both_ends_of_what_was_asked_for() {
        let told = [raw(0, 100 * K, 4 * K, 0), raw(8 * K, 50 * K, 8 * K, 0)];
        let expected = [mapped(K, Some(101 * K), 3 * K), mapped(8 * K, Some(50 * K), 2 * K)];
        assert_eq!(clipped(&told, K, 10 * K), expected);
        assert_eq!(clipped(&told, 4 * K, 8 * K), []);
    }

    #[test]
    fn flags_are_understood() {
        let told = |flags| clipped(&[raw(0, 7 * K, K, flags)], 0, K)[0];
        assert_eq!(told(LAST | 0x1000), mapped(0, Some(7 * K), K));
        assert!(told(SHARED).is_shared && told(UNWRITTEN).is_unwritten);
        for flag in (0..32).map(|bit| 1 << bit).filter(|flag| WITHOUT_PLACE & flag != 0) {
            assert_eq!(told(flag), mapped(0, None, K));
        }
    }

    #[test]
    fn extents_that_are_cloned_in_part_for_the_first_time_are_told_as_wholes() {
        let whole = |extent| unmarked_whole(&extent, 4 * K, 8 * K);
        assert_eq!(whole(raw(2 * K, 50 * K, 4 * K, 0)), Some(ExtentRange { offset: 2 * K, length: 4 * K }));
        assert_eq!(whole(raw(7 * K, 50 * K, 2 * K, LAST)), Some(ExtentRange { offset: 7 * K, length: 2 * K }));
        assert_eq!(whole(raw(0, 50 * K, 90 * K, 0)), Some(ExtentRange { offset: 0, length: 90 * K }));
        assert_eq!(whole(raw(4 * K, 50 * K, 4 * K, 0)), None, "it is cloned as a whole anyway");
        assert_eq!(whole(raw(0, 50 * K, 90 * K, SHARED)), None, "it is marked");
        assert_eq!(whole(raw(0, 50 * K, 90 * K, UNWRITTEN)), Some(ExtentRange { offset: 0, length: 90 * K }));
        assert_eq!(whole(raw(0, 0, 90 * K, 0x4)), None, "not on the disk yet");
    }

    #[test]
    fn odd_answers_give_extents_that_are_in_order_and_apart() {
        let told = [
            raw(4 * K, 0, 4 * K, 0),
            raw(0, 0, 2 * K, 0),
            raw(6 * K, 90 * K, 4 * K, 0),
            raw(10 * K, 0, 0, 0),
            raw(12 * K, u64::MAX, u64::MAX, 0),
            raw(u64::MAX, u64::MAX, u64::MAX, 0),
        ];
        let expected =
            [mapped(4 * K, Some(0), 4 * K), mapped(8 * K, Some(92 * K), 2 * K), mapped(12 * K, Some(u64::MAX), K)];
        assert_eq!(clipped(&told, 0, 13 * K), expected);
    }
}
