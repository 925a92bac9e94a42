//! Random disks.

use std::ops::Range;

use onefold_guest::filesystem::{ExtentKind, FileNumber};
use onefold_guest::guest::{OrderError, PlacedExtent};
use onefold_guest::volume::DiskRange;

use super::super::plan::Planner;
use super::super::policy::TakenRun;
use super::*;
use crate::testing::MemoryDisk;
use crate::{SECTOR_BYTES, SectorRun};

/// Regions so short that each of these disks has many.
const SMALL_REGION_BYTES: u64 = 64 << 10;

/// Returns a disk with noise, zeros, holes, text that compresses, and parts that repeat.
fn disk(random: &SeededRandom, size: usize) -> MemoryDisk {
    let mut disk = MemoryDisk::new(vec![0; size]);
    let mut at = 0;
    while at < size {
        let length = usize::try_from(1 + random.below(300_000)).unwrap().min(size - at);
        let range = at..at + length;
        match random.below(6) {
            0 => {}
            1 => disk.punch(range),
            2 if at >= length => {
                let from = usize::try_from(random.below((at - length) as u64 + 1)).unwrap() / 512 * 512;
                disk.bytes.copy_within(from..from + length, at);
            }
            3 => disk.bytes[range].chunks_mut(100).for_each(|line| line[0] = b'x'),
            _ => random.fill(&mut disk.bytes[range]).unwrap(),
        }
        at += length;
    }
    disk
}

/// The content of these disks is unknown, so they are captured raw.
#[test]
fn raw_disks_return_whole_with_every_kind_of_unit() {
    let kinds = [FILES, FIXED, UnitKind::Fixed { unit_bytes: 4096 }, UnitKind::Files { unit_bytes: 1 << 20 }];
    let seeds = seeds(8);
    for (seed, units) in seeds.clone().zip(kinds.into_iter().cycle()) {
        let bench = Bench::with_regions(units, SMALL_REGION_BYTES);
        let random = SeededRandom::new(seed);
        let size = usize::try_from(3_000_000 + random.below(6_000_000)).unwrap();
        let mut disk = disk(&random, size);
        for version in 1..4 {
            let manifest = bench.capture("raw", &disk);
            bench.assert_installed(&manifest, &disk.bytes);
            assert_eq!(manifest.totals.free_bytes, 0, "seed {seed}, version {version}");
            let [volume] = &manifest.volumes[..] else { panic!("{:?}", manifest.volumes) };
            assert!(matches!(volume.way, CaptureWay::Raw(_)), "{volume:?}");
            assert_eq!(volume.taken_bytes, manifest.totals.data_bytes);
            let new_bytes = manifest.totals.new_bytes;
            let is_known = if version > 1 { new_bytes <= 2 << 20 } else { new_bytes > 0 };
            assert!(is_known, "version {version} has {new_bytes} new bytes");
            // The next version differs in a few places.
            for _ in 0..2 {
                let at = usize::try_from(random.below(size as u64 - 10)).unwrap();
                random.fill(&mut disk.bytes[at..at + 10]).unwrap();
            }
            disk = MemoryDisk::new(disk.bytes);
        }
    }
    tell(seeds.end - seeds.start, "raw disks");
}

#[test]
fn what_is_stored_depends_on_the_disk_alone() {
    let disk = disk(&SeededRandom::new(77), 9_000_001);
    let objects = |threads: usize| {
        let bench = Bench { threads, ..Bench::new(FILES) };
        bench.capture("raw", &disk);
        bench.objects()
    };
    let alone = objects(1);
    for threads in [2, 5, 8] {
        assert!(objects(threads) == alone, "{threads} threads");
    }
}

/// A unit that occurs twice within the work in progress, and again much later.
#[test]
fn equal_units_are_stored_once() {
    let bench = Bench::new(FIXED);
    let noise = MemoryDisk::noise(10 << 20, &bench.random).bytes;
    let manifest = bench.capture("raw", &MemoryDisk::new([&noise[..1 << 20], &noise, &noise[5 << 20..]].concat()));
    assert_eq!((manifest.totals.units, manifest.totals.new_units), (16 * 32, 10 * 32));
    let headers = crate::testing::headers(&bench.archive, &manifest).len() as u64;
    let packs = bench.objects().into_iter().filter(|(name, _)| name.as_str().starts_with("packs/"));
    let entries = packs.map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
    assert!(entries < (10 << 20) + (10 * 32 + headers) * 200, "{entries} bytes in packs");
    assert!(manifest.totals.stored_bytes < entries && manifest.totals.stored_bytes > 10 << 20);
}

fn ranges(random: &SeededRandom, gap: u64, length: u64, end: u64) -> Vec<Range<u64>> {
    let mut at = random.below(gap);
    let next = || {
        let start = at;
        let count = 1 + random.below(length);
        at = start + count + 1 + random.below(gap);
        (start + count <= end).then_some(start..start + count)
    };
    std::iter::from_fn(next).collect()
}

/// Disks with known maps and files, compared with the simplest store: a copy of the disk. Captured bytes return, and
/// other bytes stay unchanged, whatever files claim.
#[test]
fn exactly_what_is_taken_returns() {
    let seeds = seeds(12);
    for seed in seeds.clone() {
        let units = [FILES, FIXED, UnitKind::Files { unit_bytes: 8192 }][usize::try_from(seed % 3).unwrap()];
        let bench = Bench::with_regions(units, SMALL_REGION_BYTES);
        let random = SeededRandom::new(seed);
        let disk = disk(&random, usize::try_from(2_000_000 + random.below(3_000_000)).unwrap());
        let end = disk.size_bytes().div_ceil(SECTOR_BYTES);
        let runs = ranges(&random, 300, 2000, end);
        let extent = |range: Range<u64>| {
            let length_bytes = (range.end - range.start) * SECTOR_BYTES;
            PlacedExtent {
                range: DiskRange { start_bytes: range.start * SECTOR_BYTES, length_bytes },
                volume: 0,
                file: FileNumber(random.below(5)),
                offset: random.below(1000) * SECTOR_BYTES,
                used_bytes: length_bytes - random.below(2) * random.below(length_bytes.min(5000)),
                kind: ExtentKind::Written,
            }
        };
        let mut extents: Vec<PlacedExtent> = ranges(&random, 10, 300, end).into_iter().map(extent).collect();
        // Further extents overlap them.
        extents.extend(ranges(&random, 1000, 900, end).into_iter().map(extent));
        extents.sort_by_key(|extent| extent.range.start_bytes);
        let manifest = planned(&bench, &disk, &runs, &extents);
        assert_regions(&bench.archive, &manifest);
        let installed = bench.assert_installed(&manifest, &disk.bytes);
        for run in &runs {
            let [start, end] = [run.start, run.end].map(|sector| usize::try_from(sector * SECTOR_BYTES).unwrap());
            let end = end.min(installed.len());
            assert!(installed[start..end] == disk.bytes[start..end], "{run:?} of seed {seed}");
        }
    }
    tell(seeds.end - seeds.start, "planned disks");
}

/// Captures some runs of a disk whose files have these extents.
fn planned(bench: &Bench, disk: &MemoryDisk, runs: &[Range<u64>], extents: &[PlacedExtent]) -> Manifest {
    let clock = ManualClock::starting_at(7);
    let archive: &Archive = &bench.archive;
    let options = CaptureOptions {
        name: ImageName::new("planned").unwrap(),
        began: clock.now(),
        scope: Scope::Allocated,
        exact: true,
        threads: 2,
        memory_bytes: 0,
        level: LEVEL,
        folder: bench.folder.path(),
    };
    let files = extents.iter().copied().map(Ok::<_, OrderError>);
    let mut planner = Planner::new(disk, archive.descriptor().units, files, bench.folder.path(), 10_000);
    let mut taken = 0;
    for run in runs {
        let sectors = SectorRun { start: run.start, count: run.end - run.start };
        taken += policy::bytes_of(sectors, disk.size_bytes());
        planner.add(TakenRun { sectors, volume: None, phase: run.start % 64 }).unwrap();
    }
    let plan = planner.finish().unwrap();
    let found = MapSurvey::new(disk.size_bytes() - taken, 0);
    let source = Source { disk, has_changed: &|| Ok(false) };
    let (memory, recent) = (Memory::of(&options.cut(), 128 << 10), RecentUnits::new(1000));
    let progress = |_| ControlFlow::Continue(());
    let pass = Pass {
        archive,
        source,
        options: &options,
        memory: &memory,
        only: None,
        recent: &recent,
        found: &found,
        progress: &progress,
    };
    let mut writer = archive.writer(&clock, &bench.random, "host").unwrap();
    let CollectorResult { totals, chunks, regions, .. } =
        pass.run(&mut writer, plan, &mut AddedUnits::default()).unwrap();
    let draft = ManifestDraft {
        name: options.name.clone(),
        captured: options.began,
        size_bytes: disk.size_bytes(),
        units: archive.descriptor().units,
        region_bytes: archive.descriptor().region_bytes,
        volumes: Vec::new(),
        totals,
        chunks,
        regions,
    };
    writer.commit(draft).unwrap().1
}
