//! Maps regions to cells: linear hashing.
//!
//! The low bits of a key choose its region. Regions are split one at a time in order of their number: with `count`
//! regions, 2^L <= count < 2^(L + 1), the regions below `count - 2^L` are already split. These and their halves are
//! chosen by L + 1 bits, the others by L. So the filter grows by one region at a time and never doubles.

use super::arena::CellAt;

/// The directory grows by this share of its length, so that its slack stays negligible.
const GROWTH_SHARE: usize = 32;
const GROWTH_MIN: usize = 64;

/// A region's number, and the number of low key bits that choose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionPlace {
    pub(super) region: u32,
    pub(super) bits: u32,
}

/// The cells of all regions; an empty region has none.
#[derive(Debug)]
pub(super) struct RegionDirectory {
    cells: Vec<Option<CellAt>>,
}

impl RegionDirectory {
    /// Returns a directory of one empty region.
    pub(super) fn new() -> RegionDirectory {
        RegionDirectory { cells: vec![None] }
    }

    /// Returns the number of regions, at least 1.
    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    /// Returns the memory held, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        (self.cells.capacity() * size_of::<Option<CellAt>>()) as u64
    }

    /// Returns the memory that would be held with one more region.
    pub(super) fn memory_bytes_after_push(&self) -> u64 {
        let more = if self.cells.len() == self.cells.capacity() { self.growth() } else { 0 };
        self.memory_bytes() + (more * size_of::<Option<CellAt>>()) as u64
    }

    /// Returns the region that holds `key`.
    pub(super) fn locate(&self, key: u64) -> RegionPlace {
        locate(self.len() as u64, key)
    }

    /// Returns the region that the next split divides; its other half becomes region [`RegionDirectory::len`].
    pub(super) fn next_to_split(&self) -> RegionPlace {
        let level = self.len().ilog2();
        RegionPlace { region: index(self.len() as u64 - (1 << level)), bits: level }
    }

    /// Returns a region's cell.
    pub(super) fn cell(&self, region: u32) -> Option<CellAt> {
        self.cells[region as usize]
    }

    /// Replaces a region's cell.
    pub(super) fn set(&mut self, region: u32, cell: Option<CellAt>) {
        self.cells[region as usize] = cell;
    }

    /// Adds an empty region.
    pub(super) fn push(&mut self) {
        if self.cells.len() == self.cells.capacity() {
            self.cells.reserve_exact(self.growth());
        }
        self.cells.push(None);
    }

    /// Removes the last region, which is empty and not the first.
    pub(super) fn pop(&mut self) {
        let last = self.cells.pop();
        debug_assert!(last == Some(None) && !self.cells.is_empty(), "{last:?}");
    }

    fn growth(&self) -> usize {
        (self.cells.len() / GROWTH_SHARE).max(GROWTH_MIN)
    }
}

/// Returns the region that holds `key` among `count` regions, at least one.
pub(super) fn locate(count: u64, key: u64) -> RegionPlace {
    let level = count.ilog2();
    let fine = key & ((2 << level) - 1);
    let coarse = key & ((1 << level) - 1);
    let split = count - (1 << level);
    if coarse < split {
        RegionPlace { region: index(fine), bits: level + 1 }
    } else {
        RegionPlace { region: index(coarse), bits: level }
    }
}

fn index(region: u64) -> u32 {
    u32::try_from(region).expect("a filter of 2^32 regions is larger than any memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_in_one_region_and_a_split_divides_only_the_region_it_says() {
        let mut directory = RegionDirectory::new();
        for count in 1..200_u64 {
            assert_eq!(directory.len() as u64, count);
            let before: Vec<RegionPlace> = (0..512).map(|key| directory.locate(key)).collect();
            let split = directory.next_to_split();
            directory.push();
            for (key, before) in (0_u64..).zip(before) {
                assert_eq!(key & ((1 << before.bits) - 1), u64::from(before.region) & ((1 << before.bits) - 1));
                assert!(u64::from(before.region) < count);
                let after = directory.locate(key);
                if before != split {
                    assert_eq!(after, before);
                } else if key >> split.bits & 1 == 0 {
                    assert_eq!(after, RegionPlace { region: split.region, bits: split.bits + 1 });
                } else {
                    assert_eq!(after, RegionPlace { region: index(count), bits: split.bits + 1 });
                }
            }
        }
    }

    #[test]
    fn the_directory_grows_by_a_small_share() {
        let mut directory = RegionDirectory::new();
        for _ in 0..10_000 {
            let announced = directory.memory_bytes_after_push();
            directory.push();
            assert_eq!(directory.memory_bytes(), announced);
            let needed = (directory.len() * size_of::<Option<CellAt>>()) as u64;
            assert!(directory.memory_bytes() <= needed + needed / 32 + 64 * 8);
        }
    }
}
