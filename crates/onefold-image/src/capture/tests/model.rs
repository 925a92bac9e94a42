//! Random captures, removals, collections and restores, compared with a naive store of whole disks.

use std::time::Duration;

use super::*;
use crate::ImageVersion;
use crate::archive::{COLLECT_BYTES_MIN, CollectOptions, CollectReport};
use crate::testing::MemoryDisk;

/// Maximum number of images at a time.
const IMAGES_MAX: usize = 6;

/// An archive beside the naive store.
struct Model {
    bench: Bench,
    random: SeededRandom,
    disks: BTreeMap<ImageVersion, (Manifest, Vec<u8>)>,
    /// The highest version that each name has had.
    versions: BTreeMap<&'static str, u32>,
    collected: CollectReport,
}

impl Model {
    fn new(seed: u64) -> Model {
        let random = SeededRandom::new(seed);
        let units = [FILES, FIXED, UnitKind::Fixed { unit_bytes: 4096 }][usize::try_from(seed % 3).unwrap()];
        let bench = Bench::with_regions(units, 128 << 10);
        let (disks, versions) = (BTreeMap::new(), BTreeMap::new());
        Model { bench, random, disks, versions, collected: CollectReport::default() }
    }

    fn below(&self, bound: usize) -> usize {
        usize::try_from(self.random.below(bound as u64)).unwrap()
    }

    /// Chooses an image that exists.
    fn choose(&self) -> Option<ImageVersion> {
        self.disks.keys().nth(self.below(self.disks.len())).cloned()
    }

    /// Returns a disk: noise and zeros, or one of the captured disks with some changes.
    fn disk(&self) -> Vec<u8> {
        let known = self.choose().filter(|_| self.below(4) > 0).map(|image| self.disks[&image].1.clone());
        let mut disk = known.unwrap_or_else(|| {
            let mut disk = vec![0; 50_000 + self.below(400_000)];
            let data = self.below(disk.len());
            self.random.fill(&mut disk[data..]).unwrap();
            disk
        });
        for _ in 0..self.below(5) {
            let at = self.below(disk.len());
            let end = (at + self.below(60_000)).min(disk.len());
            match self.below(5) {
                0 => disk[at..end].fill(0),
                1 => self.random.fill(&mut disk[at..end]).unwrap(),
                2 => disk.copy_within(at..end, self.below(at + 1)),
                3 => disk.truncate(end.max(1)),
                _ => disk.extend(vec![0; end - at]),
            }
        }
        disk
    }

    fn capture(&mut self) {
        let name = ["web", "mail", "debian/12"][self.below(3)];
        let disk = self.disk();
        let source = MemoryDisk::new(disk.clone());
        if self.below(5) == 0 {
            // It ends early.
            let calls = AtomicUsize::new(0);
            let stop = |_| match calls.fetch_add(1, Ordering::Relaxed) {
                0..2 => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            };
            let stopped = self.bench.try_capture(name, &source, true, &stop);
            assert!(matches!(stopped, Err(CaptureError::Stopped | CaptureError::Changed)), "{stopped:?}");
            return;
        }
        let manifest = self.bench.capture(name, &source);
        let version = self.versions.entry(name).or_default();
        *version += 1;
        assert_eq!(manifest.image, ImageVersion { name: ImageName::new(name).unwrap(), version: *version });
        self.disks.insert(manifest.image.clone(), (manifest, disk));
    }

    fn remove(&mut self) {
        let Some(image) = self.choose() else { return };
        self.bench.archive.remove(&image, &ManualClock::starting_at(8), &self.random).unwrap();
        self.disks.remove(&image);
    }

    fn collect(&mut self) {
        let options = CollectOptions {
            delay: Duration::ZERO,
            silence: Duration::ZERO,
            needed_percent: u8::try_from(50 + self.below(51)).unwrap(),
            level: (self.below(3) == 0).then_some(9),
            memory_bytes: COLLECT_BYTES_MIN,
            ..CollectOptions::new(self.bench.folder.path())
        };
        let clock = ManualClock::starting_at(1000);
        let report = self.bench.archive.collect(&options, &clock, &self.random, &mut |_, _| ()).unwrap();
        self.collected.retired.objects += report.retired.objects;
        self.collected.rewritten.objects += report.rewritten.objects;
        self.collected.deleted.objects += report.deleted.objects;
    }

    /// Opens the archive as another host would, and compares all images.
    fn compare(&mut self) {
        if self.below(2) == 0 {
            let store = Arc::clone(&self.bench.store) as Arc<dyn Store>;
            self.bench.archive = Arc::new(Archive::open(store).unwrap());
        }
        let images: Vec<ImageVersion> = self.bench.archive.images().into_iter().map(|record| record.image).collect();
        assert_eq!(images, self.disks.keys().cloned().collect::<Vec<_>>());
        for (image, (manifest, disk)) in &self.disks {
            let record = self.bench.archive.find(&image.name, Some(image.version)).unwrap();
            assert_eq!(self.bench.archive.manifest(&record).unwrap(), *manifest);
            self.bench.assert_installed(manifest, disk);
        }
        let report = self.bench.archive.check(CheckOptions { data: true }, &mut |_, _| ()).unwrap();
        assert_eq!(report.damages, []);
    }
}

#[test]
fn an_archive_is_like_a_store_of_whole_disks() {
    let mut collected = [0; 3];
    for seed in onefold_testing::simulated::seeds(1, 4) {
        println!("again with ONEFOLD_SEED={seed}");
        let mut model = Model::new(seed);
        for _ in 0..30 {
            match model.below(10) {
                0..5 if model.disks.len() < IMAGES_MAX => model.capture(),
                0..7 => model.remove(),
                _ => model.collect(),
            }
            model.compare();
        }
        let CollectReport { retired, rewritten, deleted, .. } = model.collected;
        let counts = [retired.objects, rewritten.objects, deleted.objects];
        collected.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let is_one = std::env::var_os("ONEFOLD_SEED").is_some();
    assert!(is_one || collected.iter().all(|count| *count > 3), "hardly anything is collected: {collected:?}");
}
