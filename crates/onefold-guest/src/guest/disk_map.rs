//! The use of all bytes of a disk: the allocation maps of its volumes, and the gaps between them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::{Guest, GuestVolume};
use crate::budget::{Budget, Draw};
use crate::error::GuestError;
use crate::filesystem::{Allocation, AllocationClass};
use crate::volume::DiskRange;

/// A run of a disk whose bytes have the same use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskRun {
    /// Its place.
    pub range: DiskRange,
    /// Its use.
    pub use_: DiskUse,
}

/// The use of a run of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskUse {
    /// A part of a volume, identified by its index in [`Guest::volumes`], and its use within that volume. A volume that
    /// counts as a whole is [`AllocationClass::Doubtful`] throughout; its content gives the reason.
    Volume(usize, AllocationClass),
    /// No volume. It counts as allocated, because boot loaders may be there.
    Gap,
}

impl DiskUse {
    /// Returns whether the bytes are certainly free.
    #[must_use]
    pub fn is_free(self) -> bool {
        matches!(self, DiskUse::Volume(_, AllocationClass::Free))
    }
}

impl Guest<'_> {
    /// Returns the use of all bytes of the disk, as [`Guest::each_run`] visits it.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn disk_map(&self) -> Result<Vec<DiskRun>, GuestError> {
        let mut runs = Vec::new();
        self.each_run(&mut |run| {
            runs.push(run);
            Ok(())
        })?;
        Ok(runs)
    }

    /// Calls `visit` with the use of all bytes of the disk: runs in order that cover it. A volume counts as a whole if
    /// its map is uncertain or cannot be made, if it overlaps another volume, or if its group is not sure of it. The
    /// parts of a physical volume that belong to no readable logical volume count for the physical volume; its free
    /// extents are free. At any time, memory holds only the maps of volumes that have begun and not ended.
    ///
    /// # Errors
    /// Those of the disk and of `visit`. The first error of `visit` ends the visits.
    pub fn each_run(&self, visit: &mut dyn FnMut(DiskRun) -> Result<(), GuestError>) -> Result<(), GuestError> {
        let mut joined = RunMerger { last: None, visit };
        let mut maps: HashMap<usize, VolumeMap> = HashMap::new();
        for run in self.volume_runs() {
            let (at, volume) = match run.use_ {
                DiskUse::Volume(at, AllocationClass::Doubtful) => (at, self.volumes().get(at)),
                _ => (0, None),
            };
            let Some(volume) = volume.filter(|volume| !volume.is_physical() && !self.counts_whole(at)) else {
                joined.push(run)?;
                continue;
            };
            let map = match maps.entry(at) {
                Entry::Occupied(map) => map.into_mut(),
                Entry::Vacant(place) => place.insert(VolumeMap::read(volume, self.budget())?),
            };
            map.each_in(run.range, &mut |range, class| {
                joined.push(DiskRun { range, use_: DiskUse::Volume(at, class) })
            })?;
            if map.bytes_left == 0 {
                maps.remove(&at);
            }
        }
        joined.finish()
    }

    /// Returns the volume of each byte of the disk: runs in order that cover it. The runs of volumes are doubtful.
    fn volume_runs(&self) -> Vec<DiskRun> {
        let (mut runs, mut physical) = (self.free_extents(), Vec::new());
        for (at, volume) in self.volumes().iter().enumerate() {
            let use_ = DiskUse::Volume(at, AllocationClass::Doubtful);
            let runs = if volume.is_physical() { &mut physical } else { &mut runs };
            runs.extend(volume.volume.ranges.iter().map(|range| DiskRun { range: *range, use_ }));
        }
        runs.sort_unstable();
        physical.sort_unstable();
        let size_bytes = self.disk().size_bytes();
        filled(covering(runs, size_bytes), &covering(physical, size_bytes))
    }

    /// Returns the free extents of groups whose physical volumes overlap nothing; none if the disk is in doubt.
    fn free_extents(&self) -> Vec<DiskRun> {
        let mut free = Vec::new();
        if self.doubt().is_some() {
            return free;
        }
        for group in self.groups().iter().filter(|group| !group.physical.iter().any(|at| self.overlaps(*at))) {
            for range in &group.group.free {
                let is_in = |at: &&usize| self.volumes()[**at].offset_of(range.start_bytes).is_some();
                if let Some(at) = group.physical.iter().find(is_in) {
                    free.push(DiskRun { range: *range, use_: DiskUse::Volume(*at, AllocationClass::Free) });
                }
            }
        }
        free
    }
}

/// Runs on their way to a visitor. Neighbours with the same use are merged.
struct RunMerger<'v> {
    last: Option<DiskRun>,
    visit: &'v mut dyn FnMut(DiskRun) -> Result<(), GuestError>,
}

impl RunMerger<'_> {
    fn push(&mut self, run: DiskRun) -> Result<(), GuestError> {
        match &mut self.last {
            Some(last) if last.use_ == run.use_ && last.range.end_bytes() == run.range.start_bytes => {
                last.range.length_bytes += run.range.length_bytes;
                Ok(())
            }
            last => last.replace(run).map_or(Ok(()), &mut *self.visit),
        }
    }

    fn finish(self) -> Result<(), GuestError> {
        self.last.map_or(Ok(()), self.visit)
    }
}

/// The allocation map of a volume, with its places on the disk.
struct VolumeMap {
    allocation: Vec<Allocation>,
    /// Its ranges in the order of the disk, each with its first byte in the volume.
    pieces: Vec<(DiskRange, u64)>,
    /// Number of its bytes that were not visited yet.
    bytes_left: u64,
    /// The memory of the map.
    _draw: Draw,
}

impl VolumeMap {
    fn read(volume: &GuestVolume<'_>, budget: &Budget) -> Result<VolumeMap, GuestError> {
        let mut offset = 0;
        let with_offset = |range: &DiskRange| {
            offset += range.length_bytes;
            (*range, offset - range.length_bytes)
        };
        let mut pieces: Vec<(DiskRange, u64)> = volume.volume.ranges.iter().map(with_offset).collect();
        pieces.sort_unstable();
        let allocation = volume.allocation(budget)?;
        let draw = budget.draw(allocation.len() * size_of::<Allocation>());
        Ok(VolumeMap { allocation, pieces, bytes_left: volume.volume.size_bytes(), _draw: draw })
    }

    /// Calls `visit` with the runs of the map within a range of the disk, in the order of the disk.
    fn each_in(
        &mut self,
        within: DiskRange,
        visit: &mut dyn FnMut(DiskRange, AllocationClass) -> Result<(), GuestError>,
    ) -> Result<(), GuestError> {
        let first = self.pieces.partition_point(|(range, _)| range.end_bytes() <= within.start_bytes);
        for (range, offset) in self.pieces.iter().skip(first) {
            let start = range.start_bytes.max(within.start_bytes);
            let end = range.end_bytes().min(within.end_bytes());
            if start >= end {
                break;
            }
            let (from, to) = (offset + (start - range.start_bytes), offset + (end - range.start_bytes));
            let first = self.allocation.partition_point(|run| run.end_bytes() <= from);
            for run in self.allocation.iter().skip(first).take_while(|run| run.start_bytes < to) {
                let (begin, stop) = (run.start_bytes.max(from), run.end_bytes().min(to));
                let range = DiskRange { start_bytes: start + (begin - from), length_bytes: stop - begin };
                visit(range, run.class)?;
            }
            self.bytes_left = self.bytes_left.saturating_sub(end - start);
        }
        Ok(())
    }
}

/// Returns runs whose gaps are filled with the uses of `others`. Both cover the disk in order.
fn filled(runs: Vec<DiskRun>, others: &[DiskRun]) -> Vec<DiskRun> {
    let mut filled = Vec::with_capacity(runs.len());
    let mut others = others.iter().peekable();
    for run in runs {
        if run.use_ != DiskUse::Gap {
            filled.push(run);
            continue;
        }
        while others.next_if(|other| other.range.end_bytes() <= run.range.start_bytes).is_some() {}
        let mut start_bytes = run.range.start_bytes;
        while start_bytes < run.range.end_bytes()
            && let Some(other) = others.peek()
        {
            let end = other.range.end_bytes().min(run.range.end_bytes());
            filled
                .push(DiskRun { range: DiskRange { start_bytes, length_bytes: end - start_bytes }, use_: other.use_ });
            start_bytes = end;
            if other.range.end_bytes() == end {
                others.next();
            }
        }
    }
    filled
}

/// Returns runs in order that cover a disk of `size_bytes`. If sorted runs overlap, the first one wins. Bytes without a
/// run become a gap.
fn covering(runs: Vec<DiskRun>, size_bytes: u64) -> Vec<DiskRun> {
    let mut covering: Vec<DiskRun> = Vec::with_capacity(runs.len() + 1);
    let mut end = 0;
    let mut push = |start_bytes: u64, end_bytes: u64, use_: DiskUse| {
        if start_bytes >= end_bytes {
            return;
        }
        match covering.last_mut() {
            Some(last) if last.use_ == use_ && last.range.end_bytes() == start_bytes => {
                last.range.length_bytes += end_bytes - start_bytes;
            }
            _ => {
                covering.push(DiskRun { range: DiskRange { start_bytes, length_bytes: end_bytes - start_bytes }, use_ })
            }
        }
    };
    for run in runs {
        let stop = run.range.end_bytes().min(size_bytes);
        push(end, run.range.start_bytes.min(size_bytes), DiskUse::Gap);
        push(run.range.start_bytes.max(end), stop, run.use_);
        end = end.max(stop);
    }
    push(end, size_bytes, DiskUse::Gap);
    covering
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start_bytes: u64, end: u64, use_: DiskUse) -> DiskRun {
        DiskRun { range: DiskRange { start_bytes, length_bytes: end - start_bytes }, use_ }
    }

    #[test]
    fn runs_cover_a_disk_once() {
        let data = DiskUse::Volume(0, AllocationClass::Data);
        let free = DiskUse::Volume(1, AllocationClass::Free);
        let runs = vec![run(10, 20, data), run(15, 30, free), run(30, 35, free), run(40, 90, data)];
        let covered = covering(runs, 50);
        let expected = [
            run(0, 10, DiskUse::Gap),
            run(10, 20, data),
            run(20, 35, free),
            run(35, 40, DiskUse::Gap),
            run(40, 50, data),
        ];
        assert_eq!(covered, expected);
        let physical = DiskUse::Volume(2, AllocationClass::Doubtful);
        let range = DiskRange { start_bytes: 5, length_bytes: 33 };
        let claimed = filled(covered, &covering(vec![DiskRun { range, use_: physical }], 50));
        assert_eq!(claimed[..2], [run(0, 5, DiskUse::Gap), run(5, 10, physical)]);
        assert_eq!(claimed[4..6], [run(35, 38, physical), run(38, 40, DiskUse::Gap)]);
        assert_eq!(covering(Vec::new(), 5), [run(0, 5, DiskUse::Gap)]);
        assert!(covering(Vec::new(), 0).is_empty());
    }
}
