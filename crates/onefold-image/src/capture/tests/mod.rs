//! Complete captures, which the simplest installer installs again.

mod ext;
mod hostile;
mod kinds;
mod model;
mod random;
mod retired;

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onefold_block::clock::ManualClock;
use onefold_block::random::{Random, SeededRandom};
use onefold_block::{Clock, Timestamp};
use onefold_disk::{Disk, DiskError};

use super::*;
use crate::archive::CheckOptions;
use crate::compress::LEVEL;
use crate::disk::ArchivedDisk;
use crate::format::descriptor::{REGION_BYTES, UnitKind};
use crate::format::manifest::{CaptureWay, Totals};
use crate::store::{MemoryStore, ObjectName, Store};
use crate::testing::{MemoryDisk, assert_regions, install};

const FILES: UnitKind = UnitKind::Files { unit_bytes: 128 << 10 };
const FIXED: UnitKind = UnitKind::Fixed { unit_bytes: 32 << 10 };

/// Returns the seeds of a test that tries `count` of them by default. `ONEFOLD_IMAGE_TIMES` tries so many times as
/// many, beginning with `ONEFOLD_SEED`.
fn seeds(count: u64) -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let first = number("ONEFOLD_SEED").unwrap_or(0);
    first..first + count * number("ONEFOLD_IMAGE_TIMES").unwrap_or(1)
}

/// Reports on stderr, past the test harness, how much was tried. `make test-images` adds it up.
fn tell(count: u64, what: &str) {
    let _ = writeln!(std::io::stderr(), "{count} {what} captured and installed over noise");
}

/// An archive in memory.
struct Bench {
    store: Arc<MemoryStore>,
    archive: Arc<Archive>,
    random: SeededRandom,
    folder: tempfile::TempDir,
    threads: usize,
    scope: Scope,
    exact: bool,
}

impl Bench {
    fn new(units: UnitKind) -> Bench {
        Bench::with_regions(units, REGION_BYTES)
    }

    /// An archive whose images have many regions even where they are short.
    fn with_regions(units: UnitKind, region_bytes: u64) -> Bench {
        let random = SeededRandom::new(1);
        let store = Arc::new(MemoryStore::default());
        let shared = Arc::clone(&store) as Arc<dyn Store>;
        let archive = Arc::new(Archive::create_with_regions(shared, units, region_bytes, &random).unwrap());
        let folder = tempfile::tempdir().unwrap();
        Bench { store, archive, random, folder, threads: 3, scope: Scope::Allocated, exact: true }
    }

    fn try_capture(
        &self,
        name: &str,
        disk: &dyn Disk,
        has_changed: bool,
        progress: OnProgress<'_>,
    ) -> Result<CaptureReport, CaptureError> {
        let clock = ManualClock::starting_at(7);
        let options = CaptureOptions {
            name: ImageName::new(name).unwrap(),
            began: clock.now(),
            scope: self.scope,
            exact: self.exact,
            threads: self.threads,
            memory_bytes: 0,
            level: LEVEL,
            folder: self.folder.path(),
        };
        let mut writer = self.archive.writer(&clock, &self.random, "host").unwrap();
        let source = Source { disk, has_changed: &|| Ok(has_changed) };
        capture(&self.archive, &mut writer, source, &options, progress)
    }

    /// Captures a disk, and checks the invariants of each image: for example, its totals add up, and its regions lead
    /// to its chunks.
    fn capture(&self, name: &str, disk: &dyn Disk) -> Manifest {
        let CaptureReport { image, manifest } =
            self.try_capture(name, disk, false, &|_| ControlFlow::Continue(())).unwrap();
        assert_eq!(manifest.image, image);
        let record = self.archive.find(&image.name, Some(image.version)).unwrap();
        assert_eq!(self.archive.manifest(&record).unwrap(), manifest);
        let Totals { free_bytes, zero_bytes, data_bytes, .. } = manifest.totals;
        assert_eq!(free_bytes + zero_bytes + data_bytes, disk.size_bytes());
        assert!(manifest.volumes.iter().map(|volume| volume.taken_bytes).sum::<u64>() <= data_bytes);
        assert_eq!(manifest.captured, Timestamp { seconds: 7, nanoseconds: 0 });
        assert_regions(&self.archive, &manifest);
        let report = self.archive.check(CheckOptions { data: false }, &mut |_, _| {}).unwrap();
        assert_eq!((&*report.damages, report.copies), (&[][..], 0), "each unit is stored once");
        manifest
    }

    /// Installs an image over noise, and over the complement of that noise: bytes that differ were not captured.
    /// Asserts that all other bytes match the disk, and that the totals count them. Returns the disk as installed over
    /// the noise.
    fn assert_installed(&self, manifest: &Manifest, disk: &[u8]) -> Vec<u8> {
        let mut noise = vec![0; disk.len()];
        SeededRandom::new(100).fill(&mut noise).unwrap();
        let mut complement: Vec<u8> = noise.iter().map(|byte| !byte).collect();
        install(&self.archive, manifest, &mut noise);
        install(&self.archive, manifest, &mut complement);
        let mut free_bytes = 0;
        for (at, byte) in disk.iter().enumerate() {
            if noise[at] == complement[at] {
                assert_eq!(noise[at], *byte, "byte {at}");
            } else {
                free_bytes += 1;
            }
        }
        assert_eq!(free_bytes, manifest.totals.free_bytes);
        self.assert_read_in_place(manifest, disk);
        noise
    }

    /// Asserts that an image reads in place as it is installed over zeros, as a whole and in pieces.
    fn assert_read_in_place(&self, manifest: &Manifest, disk: &[u8]) {
        let mut installed = vec![0; disk.len()];
        install(&self.archive, manifest, &mut installed);
        let archived = ArchivedDisk::new(self.archive.clone(), manifest.clone(), 1 << 20);
        let mut read = vec![1; disk.len()];
        archived.read(0, &mut read).unwrap();
        let differs = installed.iter().zip(&read).position(|(installed, read)| installed != read);
        assert_eq!(differs, None, "the first byte that differs");
        let mut read = vec![0; disk.len()];
        let mut offset = 0;
        while let Some(data) = archived.next_data(offset).unwrap() {
            let [start, end] = [data.start, data.end].map(|at| usize::try_from(at).unwrap());
            archived.read(data.start, &mut read[start..end]).unwrap();
            offset = data.end;
        }
        assert!(installed == read, "what lies outside of data is zero");
    }

    fn objects(&self) -> BTreeMap<ObjectName, Vec<u8>> {
        self.store.objects()
    }
}

/// A disk with a bad sector in its fourth mebibyte, within the range of long reads.
struct FailingDisk(MemoryDisk);

impl Disk for FailingDisk {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        self.0.next_data(offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        if (offset..offset + into.len() as u64).contains(&((3 << 20) + 5000)) {
            return Err(DiskError::Other("bad sector".into()));
        }
        self.0.read(offset, into)
    }
}

#[test]
fn a_capture_that_fails_adds_no_image() {
    let bench = Bench::new(FILES);
    let disk = MemoryDisk::noise(5 << 20, &bench.random);
    let go_on = |_| ControlFlow::Continue(());
    let changed = bench.try_capture("web", &disk, true, &go_on);
    assert!(matches!(changed, Err(CaptureError::Changed)), "{changed:?}");
    let stopped = bench.try_capture("web", &disk, false, &|_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(CaptureError::Stopped)), "{stopped:?}");
    let calls = AtomicUsize::new(0);
    let is_first = |_| match calls.fetch_add(1, Ordering::Relaxed) {
        0 => ControlFlow::Break(()),
        _ => panic!("the guest is read though the work stops"),
    };
    let stopped = bench.try_capture("web", &disk, false, &is_first);
    assert!(matches!(stopped, Err(CaptureError::Stopped)), "{stopped:?}");
    let failed = bench.try_capture("web", &FailingDisk(disk.clone()), false, &go_on);
    assert!(matches!(failed, Err(CaptureError::Disk(_))), "{failed:?}");
    assert_eq!(bench.archive.images(), []);
    assert_eq!(bench.capture("web", &disk).image.version, 1);
    assert_eq!(bench.capture("web", &disk).image.version, 2);
}

#[test]
fn the_parts_of_the_memory_add_up_to_less_than_it() {
    let sizes = [0, 64 << 20, 100 << 20, 512 << 20, 8 << 30];
    let kinds = [(LEVEL, 128 << 10), (LEVEL, 256 << 10), (19, 256 << 10), (19, 1 << 20)];
    for (memory_bytes, (level, unit_bytes)) in sizes.into_iter().flat_map(|size| kinds.map(|kind| (size, kind))) {
        for threads in [0, 1, 2, 8, 1000] {
            let options = CaptureOptions {
                name: ImageName::new("web").unwrap(),
                began: Timestamp { seconds: 0, nanoseconds: 0 },
                scope: Scope::Allocated,
                exact: true,
                threads,
                memory_bytes,
                level,
                folder: Path::new(""),
            };
            let Memory {
                cache_bytes,
                maps_bytes,
                files_bytes,
                plan_bytes,
                recent_bytes,
                pack_bytes,
                tables_bytes,
                width,
            } = Memory::of(&options.cut(), unit_bytes);
            let bytes = memory_bytes.max(MEMORY_BYTES_MIN);
            assert!(cache_bytes + maps_bytes + files_bytes + plan_bytes + tables_bytes <= bytes);
            let batch_bytes = usize::try_from(width.batch_bytes).unwrap();
            // The rows of the plan stay in memory.
            let under_way = width.threads * 2 * batch_bytes + width.batches * batch_bytes;
            let of_threads = (width.threads + 1) * (READ_BYTES + compressor_bytes(level, unit_bytes));
            let of_packs = 2 * pack_bytes + tables_bytes;
            assert!(of_packs + recent_bytes + under_way + of_threads + plan_bytes <= bytes, "{width:?} in {bytes}");
            assert!((8 << 20..=PACK_BYTES).contains(&pack_bytes), "{pack_bytes} in {bytes}");
            let threads_min = if level == LEVEL { threads.clamp(1, 3) } else { 1 };
            assert!(width.threads >= threads_min && width.batches > width.threads, "{width:?} in {bytes}");
        }
    }
    let options = CaptureOptions {
        name: ImageName::new("web").unwrap(),
        began: Timestamp { seconds: 0, nanoseconds: 0 },
        scope: Scope::Allocated,
        exact: true,
        threads: 8,
        memory_bytes: 1 << 40,
        level: LEVEL,
        folder: Path::new(""),
    };
    let memory = Memory::of(&options.cut(), 128 << 10);
    assert!(memory.files_bytes.max(memory.plan_bytes) <= SORTED_BYTES_MAX, "the sorter takes its memory at once");
}

/// A disk of any length without data.
struct EmptyDisk(u64);

impl Disk for EmptyDisk {
    fn size_bytes(&self) -> u64 {
        self.0
    }

    fn next_data(&self, _: u64) -> Result<Option<Range<u64>>, DiskError> {
        Ok(None)
    }

    fn read(&self, _: u64, into: &mut [u8]) -> Result<(), DiskError> {
        into.fill(0);
        Ok(())
    }
}

#[test]
fn a_hole_of_terabytes_is_one_run() {
    for units in [FILES, FIXED] {
        let bench = Bench::new(units);
        let manifest = bench.capture("empty", &EmptyDisk((1 << 42) + 3));
        let [header] = &crate::testing::headers(&bench.archive, &manifest)[..] else { panic!("one chunk") };
        assert_eq!(header.zeros, [crate::SectorRun { start: 0, count: (1 << 33) + 1 }]);
        assert_eq!((header.units.len(), manifest.regions.len()), (0, (1 << 16) + 1));
        let nothing = bench.capture("nothing", &EmptyDisk(0));
        assert!(nothing.chunks.is_empty() && nothing.regions.is_empty());
        let go_on = |_| ControlFlow::Continue(());
        let refused = bench.try_capture("long", &EmptyDisk(1 << 50), false, &go_on);
        assert!(matches!(refused, Err(CaptureError::TooLarge { .. })), "{refused:?}");
    }
}
