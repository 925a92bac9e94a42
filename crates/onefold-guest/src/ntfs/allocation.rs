//! The allocation map: the content of `$Bitmap`, and every cluster of an attribute of any record.
//!
//! One pass over the MFT in its own order finds the clusters, and looks up each in the bitmap. A cluster that is free
//! in the bitmap but belongs to a file is a difference: it is recorded, and counts as allocated. Clusters that no file
//! has stay allocated, and are also recorded. Nothing is free if the volume or the bitmap itself is in doubt. The
//! bitmap has no checksum: if a part of a file is lost, the bitmap may mark its clusters as free, so nothing is free
//! then, either.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::Ordering;

use super::Ntfs;
use super::bitmap::{BITMAP_RECORD, ClusterMap, STRUCTURE};
use super::directory::INDEX_OF_NAMES;
use super::file::MftFile;
use super::record::{
    ATTRIBUTE_LIST, Attribute, AttributeBody, BITMAP, DATA, INDEX_ALLOCATION, MappedPart, NO_CLUSTER, Record,
    STANDARD_INFORMATION,
};
use super::runs::{self, ClusterRun};
use crate::budget::{self, Budget};
use crate::error::GuestError;
use crate::filesystem::{Allocation, AllocationClass, AllocationDifferences, State, TableKind, common_length};

/// Maximum length of a map. Further parts are doubtful.
const RUNS_MAX: usize = 4 << 20;
/// Number of lists of runs that draw equal parts of the memory of a map: those of the bitmap, of files, and of both.
const PARTS: usize = 3;
/// Maximum memory for all of them, in bytes.
const MEMORY_BYTES_MAX: usize = PARTS * RUNS_MAX * size_of::<ClassRun>();

/// Clusters with one use, from `first` up to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClassRun {
    first: u64,
    end: u64,
    class: AllocationClass,
}

/// Returns the map of a volume.
pub(super) fn map(ntfs: &Ntfs<'_>, budget: &Budget) -> Result<Vec<Allocation>, GuestError> {
    let draw = budget.draw(MEMORY_BYTES_MAX);
    let run_rows = draw.rows(PARTS, size_of::<ClassRun>(), RUNS_MAX);
    let runs_max = run_rows.max;
    let bitmap = ClusterMap::open(ntfs)?;
    let room = ntfs.geometry.clusters.min(ntfs.mft.clusters().volume.size_bytes() / ntfs.geometry.cluster_bytes);
    let bits = bitmap.as_ref();
    let mut reached =
        RecordReach { bitmap: bits, ntfs, uses: Vec::new(), runs_max, is_short: false, clusters: 0, room };
    ntfs.each_record(&mut |record| reached.add_record(&record).map(ControlFlow::Continue))?;
    let is_trusted = bitmap.is_some() && reached.clusters <= room;
    if !is_trusted && !reached.is_short {
        let problem = "free clusters are in doubt: it is damaged, or files overlap";
        ntfs.damage.note(ntfs.mft.clusters().volume.damage(0, STRUCTURE, problem));
    }
    let is_whole = !ntfs.is_file_lost.load(Ordering::Relaxed) && ntfs.mft.damages().next().is_none();
    if is_trusted && !is_whole {
        let problem = "free clusters are in doubt: a part of a file is lost";
        ntfs.damage.note(ntfs.mft.clusters().volume.damage(0, STRUCTURE, problem));
    }
    let is_certain = is_trusted && is_whole && ntfs.state == State::Certain;
    let free = if is_certain { AllocationClass::Free } else { AllocationClass::Doubtful };
    reached.uses.sort_unstable();
    let mut base = runs_of_bitmap(ntfs, bits, free, runs_max)?;
    let free_runs = base.runs.iter().filter(|run| run.class == free).map(|run| run.first..run.end);
    let reached_clusters = common_length(free_runs, reached.uses.iter().map(|run| run.first..run.end));
    *ntfs.differences.lock() = Some(AllocationDifferences {
        reached_bytes: reached_clusters.saturating_mul(ntfs.geometry.cluster_bytes),
        ..AllocationDifferences::default()
    });
    let used: u64 =
        base.runs.iter().filter(|run| run.class == AllocationClass::Data).map(|run| run.end - run.first).sum();
    if is_trusted && is_whole && used > reached.clusters {
        let problem = "clusters are allocated that no file has";
        ntfs.damage.note(ntfs.mft.clusters().volume.damage(0, STRUCTURE, problem));
    }
    base.doubt_up_to(ntfs.geometry.clusters);
    let whole = overlay(&base.runs, &reached.uses, runs_max);
    if [base.runs.len(), reached.uses.len(), whole.len()].into_iter().any(|length| length >= runs_max) {
        budget.note_full(run_rows);
    }
    Ok(finish(ntfs, whole))
}

/// Returns the map of a volume by its bitmap alone.
pub(super) fn bitmap_map(ntfs: &Ntfs<'_>, budget: &Budget) -> Result<Vec<Allocation>, GuestError> {
    let draw = budget.draw(MEMORY_BYTES_MAX);
    let run_rows = draw.rows(PARTS, size_of::<ClassRun>(), RUNS_MAX);
    let bitmap = ClusterMap::open(ntfs)?;
    let free = if ntfs.state == State::Certain { AllocationClass::Free } else { AllocationClass::Doubtful };
    let mut base = runs_of_bitmap(ntfs, bitmap.as_ref(), free, run_rows.max)?;
    base.doubt_up_to(ntfs.geometry.clusters);
    if base.runs.len() >= run_rows.max {
        budget.note_full(run_rows);
    }
    Ok(finish(ntfs, base.runs))
}

/// Returns the runs of the bitmap up to the first part that cannot be read.
fn runs_of_bitmap(
    ntfs: &Ntfs<'_>,
    bitmap: Option<&ClusterMap<'_>>,
    free: AllocationClass,
    runs_max: usize,
) -> Result<ClassRuns, GuestError> {
    let mut runs = ClassRuns::of_at_most(runs_max);
    if let Some(bitmap) = bitmap {
        let add = &mut |clusters: Range<u64>, is_used| {
            let class = if is_used { AllocationClass::Data } else { free };
            runs.push(ClassRun { first: clusters.start, end: clusters.end, class });
        };
        ntfs.damage.skip(bitmap.each_run(add))?;
    }
    Ok(runs)
}

/// Returns the runs in bytes, limited to the volume, and a run for the bytes behind the clusters.
fn finish(ntfs: &Ntfs<'_>, uses: Vec<ClassRun>) -> Vec<Allocation> {
    let volume_bytes = ntfs.mft.clusters().volume.size_bytes();
    let allocation = |start_bytes: u64, end_bytes: u64, class| {
        let end_bytes = end_bytes.min(volume_bytes);
        (start_bytes < end_bytes).then(|| Allocation { start_bytes, length_bytes: end_bytes - start_bytes, class })
    };
    let bytes = ntfs.geometry.cluster_bytes;
    // The list keeps its memory, as the rows of both have the same length.
    let inside = uses.into_iter().filter_map(|run| allocation(run.first * bytes, run.end * bytes, run.class));
    let mut runs: Vec<_> = inside.collect();
    runs.reserve_exact(1);
    runs.extend(allocation(ntfs.geometry.size_bytes(), volume_bytes, AllocationClass::Outside));
    runs
}

/// Sorted runs. Adjacent ones with the same class are merged.
struct ClassRuns {
    runs: Vec<ClassRun>,
    runs_max: usize,
}

impl ClassRuns {
    /// Returns an empty list. After `runs_max` runs, the last one extends over the rest, and is doubtful.
    fn of_at_most(runs_max: usize) -> ClassRuns {
        ClassRuns { runs: Vec::new(), runs_max }
    }

    /// Adds a doubtful run from the end of the last one to `end`.
    fn doubt_up_to(&mut self, end: u64) {
        let first = self.runs.last().map_or(0, |last| last.end);
        self.push(ClassRun { first, end, class: AllocationClass::Doubtful });
    }

    fn push(&mut self, run: ClassRun) {
        if run.first >= run.end {
            return;
        }
        let is_full = self.runs.len() >= self.runs_max;
        match self.runs.last_mut() {
            Some(last) if last.class == run.class => last.end = run.end,
            Some(last) if is_full => {
                last.class = AllocationClass::Doubtful;
                last.end = run.end;
            }
            _ => budget::push_row(&mut self.runs, run, self.runs_max),
        }
    }
}

/// Returns `base` overlaid with `above`. Both are sorted; if two runs of `above` overlap, the first one wins.
fn overlay(base: &[ClassRun], above: &[ClassRun], runs_max: usize) -> Vec<ClassRun> {
    let (mut uses, mut at, mut above) = (ClassRuns::of_at_most(runs_max), 0, above.iter().peekable());
    for below in base {
        at = at.max(below.first);
        while at < below.end {
            while above.peek().is_some_and(|over| over.end <= at) {
                above.next();
            }
            let (end, class) = match above.peek() {
                Some(over) if over.first <= at => (over.end.min(below.end), over.class),
                Some(over) => (over.first.min(below.end), below.class),
                None => (below.end, below.class),
            };
            uses.push(ClassRun { first: at, end, class });
            at = end;
        }
    }
    uses.runs
}

/// The clusters that records reach.
struct RecordReach<'r> {
    bitmap: Option<&'r ClusterMap<'r>>,
    ntfs: &'r Ntfs<'r>,
    /// Metadata, and clusters that are free in the bitmap.
    uses: Vec<ClassRun>,
    runs_max: usize,
    /// Whether there are more of them than can be kept.
    is_short: bool,
    /// Number of clusters of all attributes. If it exceeds that of the volume, files overlap.
    clusters: u64,
    /// Number of clusters of the volume.
    room: u64,
}

impl RecordReach<'_> {
    fn add_record(&mut self, record: &Record) -> Result<(), GuestError> {
        // The pass reaches the other records of a file on its own, except those that are no longer valid records.
        // Overlapping lists are read as long as files have fewer clusters than the volume.
        let has_list = record.base.is_none() && record.attributes().any(|found| found.kind == ATTRIBUTE_LIST);
        if has_list
            && self.clusters <= self.room
            && !MftFile::of(record.clone(), &self.ntfs.mft, &self.ntfs.damage)?.is_whole()
        {
            self.ntfs.lose_file();
        }
        for attribute in record.attributes() {
            let AttributeBody::Mapped(part) = attribute.body else { continue };
            let mut runs = Vec::new();
            let decoded = runs::decode(part.pairs, part.first, self.ntfs.geometry.clusters, &mut runs);
            let end = runs.last().map_or(part.first, ClusterRun::end);
            let is_whole = is_whole(&attribute, part, end, self.ntfs.geometry.cluster_bytes);
            if let Err(problem) = decoded.and(if is_whole { Ok(()) } else { Err("its map is cut off") }) {
                self.ntfs.damage.note(self.ntfs.mft.damage(record.number, problem));
                self.ntfs.lose_file();
            }
            let class = class_of(record, &attribute);
            for run in runs {
                let Some(first) = run.cluster else { continue };
                self.add(ClassRun { first, end: first + run.count, class })?;
            }
        }
        Ok(())
    }

    fn add(&mut self, found: ClassRun) -> Result<(), GuestError> {
        self.clusters = self.clusters.saturating_add(found.end - found.first);
        if self.clusters > self.room {
            // The whole map is in doubt, and a hostile volume could make the rest take any time.
            return Ok(());
        }
        let is_free = match self.bitmap {
            Some(bitmap) => self.ntfs.damage.skip(bitmap.has_free(found.first..found.end))?.unwrap_or(false),
            None => false,
        };
        if is_free {
            let clusters = self.ntfs.mft.clusters();
            let problem = "a file has clusters that are free in the bitmap";
            self.ntfs.damage.note(clusters.volume.damage(found.first * clusters.bytes, STRUCTURE, problem));
        }
        if is_free || found.class != AllocationClass::Data {
            budget::push_row(&mut self.uses, found, self.runs_max);
        }
        if self.uses.len() >= self.runs_max {
            // The rest is skipped. As with overlapping files, nothing counts as free.
            self.is_short = true;
            self.clusters = u64::MAX;
        }
        Ok(())
    }
}

/// Returns whether a part of a map ends where it must. `end` is the cluster of the stream after its last run.
///
/// The last cluster is 0 in a map of one cluster, and also where a driver left it out because the stream has no other
/// part. The lengths of the stream show how many clusters there must be.
fn is_whole(attribute: &Attribute<'_>, part: MappedPart<'_>, end: u64, cluster_bytes: u64) -> bool {
    if part.first != 0 || !matches!(part.last, 0 | NO_CLUSTER) {
        return end == part.last.wrapping_add(1);
    }
    // A map with holes may end before the last unit of clusters does.
    let has_holes = attribute.coding.is_compressed() || attribute.coding.is_sparse();
    let mapped_bytes = if has_holes { part.size_bytes } else { part.size_bytes.max(part.allocated_bytes) };
    end >= mapped_bytes.div_ceil(cluster_bytes) && (part.last == 0 || end == 0)
}

/// Returns the class of an attribute's clusters.
fn class_of(record: &Record, attribute: &Attribute<'_>) -> AllocationClass {
    let owner = record.base.map_or(record.number, |base| base.record());
    let table = match (attribute.kind, owner) {
        (DATA, 0 | 1) => TableKind::Inodes,
        (DATA, 2) => TableKind::Journal,
        (DATA, BITMAP_RECORD) | (BITMAP, _) => TableKind::Bitmap,
        (DATA, 7) => TableKind::Superblock,
        (DATA, 4 | 9 | 10) => TableKind::Tree,
        (DATA, _) => return AllocationClass::Data,
        (INDEX_ALLOCATION, _) if attribute.name == INDEX_OF_NAMES => TableKind::Directory,
        (INDEX_ALLOCATION | STANDARD_INFORMATION..=0x7f, _) => TableKind::Tree,
        _ => return AllocationClass::Data,
    };
    AllocationClass::Table(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u64, end: u64, class: AllocationClass) -> ClassRun {
        ClassRun { first, end, class }
    }

    #[test]
    fn what_files_have_lies_over_the_bitmap() {
        use AllocationClass::{Data, Free};
        let tree = AllocationClass::Table(TableKind::Tree);
        let base = [run(0, 10, Data), run(10, 20, Free), run(20, 30, Data)];
        let above = [run(2, 4, tree), run(8, 12, tree), run(9, 14, Data), run(19, 20, Data)];
        let expected = [
            run(0, 2, Data),
            run(2, 4, tree),
            run(4, 8, Data),
            run(8, 12, tree),
            run(12, 14, Data),
            run(14, 19, Free),
            run(19, 30, Data),
        ];
        assert_eq!(overlay(&base, &above, 100), expected);
        assert_eq!(overlay(&base, &[], 100), base);
        assert_eq!(overlay(&base, &[run(5, 40, tree)], 100), [run(0, 5, Data), run(5, 30, tree)]);
    }
}
