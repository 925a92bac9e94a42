//! The use of all bytes of a disk: the allocation maps of its volumes, and what lies between them.

use super::Guest;
use crate::error::GuestError;
use crate::filesystem::AllocationClass;
use crate::volume::DiskRange;

/// A run of a disk whose bytes have the same use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskRun {
    /// Where it lies.
    pub range: DiskRange,
    /// Its use.
    pub use_: DiskUse,
}

/// The use of a run of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskUse {
    /// A part of a volume, by its place in [`Guest::volumes`], with the use that the volume has for it. A volume that is
    /// counted whole has [`AllocationClass::Doubtful`] throughout; its content says why.
    Volume(usize, AllocationClass),
    /// No volume. Boot loaders keep themselves there, so it counts as allocated.
    Gap,
}

impl DiskUse {
    /// Returns whether the bytes are free with certainty.
    #[must_use]
    pub fn is_free(self) -> bool {
        matches!(self, DiskUse::Volume(_, AllocationClass::Free))
    }
}

impl Guest<'_> {
    /// Returns the use of all bytes of the disk: runs in order that cover it. A volume counts whole where its map is
    /// not certain, where it overlaps another one, and where its group is not sure of it. What lies in a physical
    /// volume and in none of the logical volumes that are read belongs to the physical volume; its free extents are
    /// free.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn disk_map(&self) -> Result<Vec<DiskRun>, GuestError> {
        let mut runs = Vec::new();
        for (at, volume) in self.volumes().iter().enumerate() {
            if volume.is_physical() {
                continue;
            }
            if self.counts_whole(at) {
                let whole =
                    |range: &DiskRange| DiskRun { range: *range, use_: DiskUse::Volume(at, AllocationClass::Doubtful) };
                runs.extend(volume.volume.ranges.iter().map(whole));
                continue;
            }
            for run in volume.content.allocation(volume.reader.size_bytes())? {
                volume.reader.each_on_disk(run.start_bytes, run.length_bytes, &mut |range| {
                    runs.push(DiskRun { range, use_: DiskUse::Volume(at, run.class) });
                });
            }
        }
        runs.extend(self.free_extents());
        runs.sort_unstable();
        let covered = covering(runs, self.disk().size_bytes());
        let mut physical = Vec::new();
        for (at, volume) in self.volumes().iter().enumerate().filter(|(_, volume)| volume.is_physical()) {
            let use_ = DiskUse::Volume(at, AllocationClass::Doubtful);
            physical.extend(volume.volume.ranges.iter().map(|range| DiskRun { range: *range, use_ }));
        }
        physical.sort_unstable();
        Ok(filled(covered, &covering(physical, self.disk().size_bytes())))
    }

    /// Returns the free extents of groups whose physical volumes overlap nothing.
    fn free_extents(&self) -> Vec<DiskRun> {
        let mut free = Vec::new();
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

/// Returns runs whose gaps have the uses of others. Both cover the disk in order.
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

/// Returns runs in order that cover a disk of `size_bytes`: where sorted runs overlap, the first counts; where there is
/// none, a gap.
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
