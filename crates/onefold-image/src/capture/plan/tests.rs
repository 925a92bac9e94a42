//! Plans compared with a model that decides about each sector on its own.

use std::collections::BTreeMap;
use std::ops::Range;

use onefold_block::random::SeededRandom;
use onefold_guest::filesystem::{ExtentKind, FileNumber};
use onefold_guest::volume::DiskRange;

use super::*;

const DISK_SECTORS: u64 = 3000;

/// A disk of zeros that reports data at some places. Nothing reads it.
struct SparseDisk {
    size_bytes: u64,
    /// Ranges of bytes in order.
    data: Vec<Range<u64>>,
}

impl Disk for SparseDisk {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        let next = self.data.iter().find(|data| data.end > offset);
        Ok(next.map(|data| data.start.max(offset)..data.end))
    }

    fn read(&self, _: u64, into: &mut [u8]) -> Result<(), DiskError> {
        into.fill(0);
        Ok(())
    }
}

fn extent(start: u64, count: u64, file: u64, offset: u64, used_bytes: u64) -> PlacedExtent {
    PlacedExtent {
        range: DiskRange { start_bytes: start * SECTOR_BYTES, length_bytes: count * SECTOR_BYTES },
        volume: 1,
        file: FileNumber(file),
        offset: offset * SECTOR_BYTES,
        used_bytes,
        kind: ExtentKind::Written,
    }
}

fn plan(disk: &SparseDisk, units: UnitKind, extents: &[PlacedExtent], taken: &[TakenRun]) -> Vec<PlanItem> {
    let folder = tempfile::tempdir().unwrap();
    // The memory is so small that rows go into files.
    let mut planner = Planner::new(disk, units, extents.iter().copied().map(Ok), folder.path(), 4000);
    taken.iter().for_each(|run| planner.add(*run).unwrap());
    planner.finish().unwrap().map(Result::unwrap).collect()
}

fn taken(start: u64, end: u64) -> TakenRun {
    TakenRun { sectors: SectorRun { start, count: end - start }, volume: Some(1), phase: 0 }
}

fn unit(runs: &[(u64, u64)], slack: u64) -> PlanItem {
    let runs = runs.iter().map(|&(start, count)| SectorRun { start, count }).collect();
    PlanItem::Unit(PlannedUnit { runs, slack })
}

fn hole(start: u64, count: u64) -> PlanItem {
    PlanItem::Hole(SectorRun { start, count })
}

const FILES: UnitKind = UnitKind::Files { unit_bytes: 8192 };

fn all_data() -> SparseDisk {
    let size_bytes = DISK_SECTORS * SECTOR_BYTES;
    SparseDisk { size_bytes, data: Vec::from_iter(std::iter::once(0..size_bytes)) }
}

#[test]
fn a_unit_follows_its_file_wherever_its_blocks_lie() {
    // A file of two units and a bit more, in three pieces whose order on the disk differs. The last piece ends within
    // its block.
    let extents =
        [extent(64, 16, 7, 24, 8 * 512 + 100), extent(100, 16, 7, 0, 16 * 512), extent(200, 8, 7, 16, 8 * 512)];
    let planned = plan(&all_data(), FILES, &extents, &[taken(60, 220)]);
    let expected = [
        unit(&[(60, 4)], 0),
        // Eight sectors of 24, then content up to a byte in the first sector of the next unit.
        unit(&[(72, 8)], 7),
        // The rest of the extent belongs to no file.
        unit(&[(80, 20), (116, 12)], 0),
        unit(&[(100, 16)], 0),
        unit(&[(128, 64)], 0),
        unit(&[(192, 8), (208, 12)], 0),
        unit(&[(200, 8), (64, 8)], 0),
    ];
    assert_eq!(planned, expected);
}

#[test]
fn units_of_a_fixed_size_lie_on_the_grid_of_the_disk_and_are_cut_to_what_is_taken() {
    let fixed = UnitKind::Fixed { unit_bytes: 8192 };
    let runs = [taken(3, 20), taken(25, 27), TakenRun { volume: None, phase: 5, ..taken(40, 80) }];
    let disk = SparseDisk { size_bytes: 80 * 512, data: vec![0..28 * 512, 47 * 512..48 * 512] };
    let planned = plan(&disk, fixed, &[extent(3, 8, 1, 0, 4096)], &runs);
    // The window from 32 has data in one sector; those from 48 on are holes.
    let expected = [unit(&[(3, 13)], 0), unit(&[(16, 4), (25, 2)], 0), unit(&[(40, 8)], 0), hole(48, 32)];
    assert_eq!(planned, expected);
}

#[test]
fn a_hole_is_left_out_only_where_a_whole_unit_is_one() {
    let disk = SparseDisk { size_bytes: DISK_SECTORS * 512, data: vec![20 * 512..30 * 512, 200 * 512..201 * 512] };
    let extents = [extent(8, 64, 1, 0, 64 * 512), extent(72, 8, 2, 0, 5)];
    let planned = plan(&disk, FILES, &extents, &[taken(0, 256)]);
    // The unit of the file at sector 8 has four sectors of data behind 12 of a hole.
    for whole in [unit(&[(8, 16)], 0), unit(&[(24, 16)], 0), unit(&[(192, 64)], 0)] {
        assert!(planned.contains(&whole), "{planned:?}");
    }
    let holes = planned.iter().filter(|planned| matches!(planned, PlanItem::Hole(_)));
    assert_eq!(holes.map(sectors).sum::<u64>(), 256 - 16 - 16 - 64);
}

#[test]
fn a_unit_in_more_pieces_than_a_unit_may_have_is_cut() {
    // Two thousand sectors of one unit of 1 MiB, every other sector of the disk; then a file all of whose extents
    // claim one place in it.
    let scattered: Vec<PlacedExtent> = (0..1000).map(|at| extent(2 * at, 1, 1, 1999 - at, 512)).collect();
    let heaped: Vec<PlacedExtent> = (0..20).map(|at| extent(2000 + 9 * at, 8, 2, 0, 4096)).collect();
    let extents: Vec<PlacedExtent> = scattered.into_iter().chain(heaped).collect();
    let planned = plan(&all_data(), UnitKind::Files { unit_bytes: 1 << 20 }, &extents, &[taken(0, 2000)]);
    let runs = |planned: &PlanItem| if let PlanItem::Unit(unit) = planned { unit.runs.len() } else { 0 };
    assert!(planned.iter().all(|planned| (1..=RUNS_MAX).contains(&runs(planned))));
    assert_eq!(planned.iter().filter(|planned| runs(planned) == RUNS_MAX).count(), 3);
    let planned = plan(&all_data(), FILES, &extents, &[taken(2000, 2180)]);
    let heaps = planned.iter().filter(|planned| runs(planned) == 2 && sectors(planned) == 16).count();
    assert_eq!(heaps, 10, "{planned:?}");
}

fn sectors(planned: &PlanItem) -> u64 {
    match planned {
        PlanItem::Unit(unit) => unit.runs.iter().map(|run| run.count).sum(),
        PlanItem::Hole(hole) => hole.count,
    }
}

/// The last sector may be truncated, so it must be the last one of its unit.
#[test]
fn no_file_claims_the_last_sector_of_a_disk_that_is_cut_off() {
    let disk = SparseDisk { size_bytes: 31 * 512 + 1, ..all_data() };
    let extents = [extent(0, 8, 1, 0, 4096), extent(24, 8, 2, 0, 4096)];
    let planned = plan(&disk, FILES, &extents, &[taken(0, 32)]);
    assert_eq!(planned, [unit(&[(0, 8)], 0), unit(&[(8, 24)], 0)]);
}

#[test]
fn numbers_that_no_row_holds_claim_nothing() {
    let mut extents = [extent(0, 8, 1, 0, 4096), extent(8, 8, 1, 1 << 54, 4096), extent(16, 8, 1, 0, 4096)];
    extents[0].kind = ExtentKind::Inline;
    extents[2].offset = 3;
    let planned = plan(&all_data(), FILES, &extents, &[taken(0, 64)]);
    assert_eq!(planned, [unit(&[(0, 64)], 0)]);
}

/// Identity of a unit in the model: a unit of a file, or of a volume's grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    File(u64, u64),
    Grid(Option<usize>, u64),
}

/// Returns, for each unit of the model, its sectors in its own order, and whether any of them is data.
fn model(
    disk: &SparseDisk,
    extents: &[PlacedExtent],
    runs: &[TakenRun],
    unit: u64,
) -> BTreeMap<Key, Vec<(u64, u64, bool)>> {
    let mut units: BTreeMap<Key, Vec<(u64, u64, bool)>> = BTreeMap::new();
    for run in runs {
        for sector in run.sectors.start..run.sectors.end() {
            let claims = extents.iter().filter_map(Claim::of);
            let claim = claims.into_iter().find(|claim| {
                (claim.sectors.start..claim.sectors.end()).contains(&sector)
                    && claim.sectors.end() <= disk.size_bytes / SECTOR_BYTES
            });
            let is_data = disk
                .data
                .iter()
                .any(|data| (data.start / SECTOR_BYTES..data.end.div_ceil(SECTOR_BYTES)).contains(&sector));
            let (key, offset) = match claim {
                Some(claim) => {
                    let in_file = claim.offset + sector - claim.sectors.start;
                    (Key::File(claim.file, in_file / unit), in_file)
                }
                None => (Key::Grid(run.volume, (sector + run.phase) / GRID_SECTORS), sector),
            };
            units.entry(key).or_default().push((offset, sector, is_data));
        }
    }
    units.values_mut().for_each(|sectors| sectors.sort_unstable());
    units
}

#[test]
fn random_plans_are_those_of_the_model() {
    for seed in 0..300 {
        let random = SeededRandom::new(seed);
        let ranges = |gap: u64, length: u64, end: u64| {
            let mut at = random.below(gap);
            std::iter::from_fn(|| {
                let start = at;
                let count = 1 + random.below(length);
                at = start + count + 1 + random.below(gap);
                (start + count <= end).then_some(start..start + count)
            })
            .collect::<Vec<_>>()
        };
        let size_bytes = DISK_SECTORS * SECTOR_BYTES - random.below(2) * 100;
        let data = ranges(40_000, 100_000, size_bytes);
        let disk = SparseDisk { size_bytes, data };
        let mut extents: Vec<PlacedExtent> = Vec::new();
        // Extents of a file follow one another in the file, so its units contain no sector twice.
        let mut ends = [0_u64; 6];
        for _ in 0..random.below(60) {
            let file = random.below(6);
            let (start, count) = (random.below(DISK_SECTORS), 1 + random.below(60));
            let end = &mut ends[usize::try_from(file).unwrap()];
            let used = (count * SECTOR_BYTES).saturating_sub(random.below(2) * random.below(9000));
            extents.push(extent(start, count, file, *end, used));
            *end += count + random.below(30);
        }
        extents.sort_by_key(|extent| extent.range.start_bytes);
        let runs: Vec<TakenRun> = ranges(100, 500, DISK_SECTORS)
            .into_iter()
            .map(|range| TakenRun { phase: random.below(64), ..taken(range.start, range.end) })
            .enumerate()
            .map(|(at, run)| TakenRun { volume: Some(at), ..run })
            .collect();
        let model = model(&disk, &extents, &runs, 16);
        let mut units: Vec<Vec<u64>> = Vec::new();
        let mut holes: Vec<u64> = Vec::new();
        for sectors in model.into_values() {
            let places = sectors.iter().map(|(_, sector, _)| *sector);
            if sectors.iter().any(|(_, _, is_data)| *is_data) {
                units.push(places.collect())
            } else {
                holes.extend(places)
            }
        }
        units.sort_unstable();
        holes.sort_unstable();
        let planned = plan(&disk, FILES, &extents, &runs);
        let places = |run: &SectorRun| run.start..run.end();
        let mut found_holes: Vec<u64> = Vec::new();
        let mut found: Vec<Vec<u64>> = Vec::new();
        for planned in &planned {
            match planned {
                PlanItem::Unit(unit) => found.push(unit.runs.iter().flat_map(places).collect()),
                PlanItem::Hole(hole) => found_holes.extend(places(hole)),
            }
        }
        assert!(found.is_sorted_by_key(|unit| unit[0]), "seed {seed}");
        found.sort_unstable();
        found_holes.sort_unstable();
        assert_eq!((found, found_holes), (units, holes), "seed {seed}");
    }
}

/// More extents than fit into memory. Neighbouring extents belong to different files, and all extents of a file claim
/// its first unit.
#[test]
fn half_a_million_extents_of_a_block_are_planned_in_files() {
    let count = 500_000;
    let size_bytes = count * 4096;
    let disk = SparseDisk { size_bytes, data: Vec::from_iter(std::iter::once(0..size_bytes)) };
    let folder = tempfile::tempdir().unwrap();
    let extents = (0..count).map(|at| Ok(extent(8 * at, 8, at % 7, 0, 4096)));
    let mut planner = Planner::new(&disk, FILES, extents, folder.path(), 1 << 20);
    planner.add(taken(0, 8 * count)).unwrap();
    let (mut units, mut sum, mut last) = (0, 0, None);
    for planned in planner.finish().unwrap() {
        let planned = planned.unwrap();
        let PlanItem::Unit(unit) = &planned else { panic!("{planned:?}") };
        assert!(last < Some(unit.runs[0].start), "units are in order");
        last = Some(unit.runs[0].start);
        units += 1;
        sum += sectors(&planned);
    }
    // Two blocks fill a unit. Each of the seven files has an odd number of blocks, or no block is left over.
    assert_eq!(sum, 8 * count);
    assert!((count / 2..=count / 2 + 7).contains(&units), "{units}");
}
