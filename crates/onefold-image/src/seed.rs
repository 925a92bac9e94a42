//! Seeds: disks that may have units of an image, beside the archive or the server.
//!
//! A seed is cut into units as a capture would cut it, and those that the image has are noted with their places. When
//! such a unit is wanted, it is read from the seed again, and verified by its name. A seed that lies, or that changes
//! meanwhile, costs only time: its units come from the source then.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onefold_disk::{Disk, OnProgress};

use crate::archive::{ArchiveError, Headers, WantedUnit};
use crate::capture::{CaptureError, SeedOptions, each_unit};
use crate::format::chunk_header::PlacedUnit;
use crate::format::manifest::Manifest;
use crate::image_source::{Arrivals, ChunkReader, ImageSource, OnUnit, WantedUnits};
use crate::{ImageVersion, SectorRun, UnitKey, UnitName};

/// Memory that a unit of the image takes: an entry of a hash table, which is there twice while it grows.
const ENTRY_BYTES: usize = 2 * (size_of::<u64>() + size_of::<Option<SeedPlace>>() + 1);
/// Headers that are read at once. A hostile one has up to 1 MiB.
const HEADERS_AT_ONCE: usize = 16;

/// The images of a source, with seeds that are asked first.
pub struct SeededImages {
    source: Arc<dyn ImageSource>,
    disks: Vec<Box<dyn Disk>>,
    /// For each unit of the image, by the first bytes of its name, its place in a seed.
    places: HashMap<u64, Option<SeedPlace>>,
    /// Memory for further places of several runs, in bytes.
    left_bytes: usize,
    taken_bytes: AtomicU64,
}

/// Where a unit lies.
#[derive(Clone, Debug)]
struct SeedPlace {
    disk: usize,
    runs: SeedRuns,
}

/// The runs of a unit; most have one.
#[derive(Clone, Debug)]
enum SeedRuns {
    One(SectorRun),
    Several(Box<[SectorRun]>),
}

impl fmt::Debug for SeededImages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeededImages").field("source", &self.source).finish_non_exhaustive()
    }
}

impl SeededImages {
    /// Returns the images of a source without seeds. Notes the units of one image in at most `memory_bytes`; those
    /// beyond that come from the source.
    ///
    /// # Errors
    /// When a header of the image is lost or damaged, or the source fails.
    pub fn new(
        source: Arc<dyn ImageSource>,
        manifest: &Manifest,
        memory_bytes: usize,
    ) -> Result<SeededImages, ArchiveError> {
        let mut places = HashMap::new();
        let units_max = memory_bytes / ENTRY_BYTES;
        for names in manifest.chunks.chunks(HEADERS_AT_ONCE) {
            if places.len() >= units_max {
                break;
            }
            let headers = source.headers(names)?;
            for index in 0..names.len() {
                for unit in headers.get(index)?.units.iter().take(units_max.saturating_sub(places.len())) {
                    places.insert(key_of(&unit.name), None);
                }
            }
        }
        let left_bytes = memory_bytes.saturating_sub(places.len() * ENTRY_BYTES);
        Ok(SeededImages { source, disks: Vec::new(), places, left_bytes, taken_bytes: AtomicU64::new(0) })
    }

    /// Adds a seed: reads all of it. If that fails, the units that were found by then are used.
    ///
    /// # Errors
    /// When the seed cannot be read, or `progress` stops the work.
    pub fn add(
        &mut self,
        disk: Box<dyn Disk>,
        manifest: &Manifest,
        options: &SeedOptions<'_>,
        progress: OnProgress<'_>,
    ) -> Result<(), CaptureError> {
        let number = self.disks.len();
        let (places, left_bytes) = (&mut self.places, &mut self.left_bytes);
        let cut = each_unit(&*disk, manifest.units, self.source.key(), options, progress, &mut |unit| {
            if let Some(place @ None) = places.get_mut(&key_of(&unit.name)) {
                *place = SeedRuns::of(&unit, left_bytes).map(|runs| SeedPlace { disk: number, runs });
            }
        });
        self.disks.push(disk);
        cut
    }

    /// Fills `plain` with the bytes of a unit. Returns false if no seed has it.
    fn take(&self, wanted: WantedUnit, plain: &mut Vec<u8>) -> bool {
        let (Some(Some(place)), Some(plain_bytes)) = (self.places.get(&key_of(&wanted.name)), wanted.plain_bytes)
        else {
            return false;
        };
        let disk = &self.disks[place.disk];
        plain.clear();
        for run in place.runs.as_slice() {
            // A unit has at most 1 MiB.
            let Ok(length) = usize::try_from(run.length_bytes()) else { return false };
            let start = plain.len();
            plain.resize(start + length, 0);
            if disk.read(run.start_bytes(), &mut plain[start..]).is_err() {
                return false;
            }
        }
        // The last sector of a disk may be truncated.
        plain.truncate(plain_bytes as usize);
        // A hostile header may give a unit a length that its content does not have.
        let is_unit = plain.len() == plain_bytes as usize && self.source.key().name(plain) == wanted.name;
        if is_unit {
            self.taken_bytes.fetch_add(plain.len() as u64, Ordering::Relaxed);
        }
        is_unit
    }

    /// Passes the wanted units that seeds have. Returns the others, with their indices.
    fn take_all(&self, wanted: &[WantedUnit], each: OnUnit<'_>) -> (Vec<usize>, Vec<WantedUnit>) {
        let (mut indices, mut rest, mut plain) = (Vec::new(), Vec::new(), Vec::new());
        for (index, unit) in wanted.iter().enumerate() {
            if self.take(*unit, &mut plain) {
                each(index, &plain);
            } else {
                indices.push(index);
                rest.push(*unit);
            }
        }
        (indices, rest)
    }
}

impl SeedRuns {
    /// Returns the runs of a unit; `None` if there is no memory left for them.
    fn of(unit: &PlacedUnit, left_bytes: &mut usize) -> Option<SeedRuns> {
        if let [run] = unit.runs[..] {
            return Some(SeedRuns::One(run));
        }
        *left_bytes = left_bytes.checked_sub(size_of_val(&unit.runs[..]))?;
        Some(SeedRuns::Several(unit.runs.clone().into()))
    }

    fn as_slice(&self) -> &[SectorRun] {
        match self {
            SeedRuns::One(run) => std::slice::from_ref(run),
            SeedRuns::Several(runs) => runs,
        }
    }
}

/// Returns the key under which a unit is noted. Two units may have the same one: then the name tells that a place is
/// not that of the other.
fn key_of(name: &UnitName) -> u64 {
    let [first, ..] = *name.0.as_chunks::<8>().0 else { return 0 };
    u64::from_le_bytes(first)
}

impl ImageSource for SeededImages {
    fn key(&self) -> &UnitKey {
        self.source.key()
    }

    fn read(&self, wanted: &[WantedUnit], ahead_bytes: u64, each: OnUnit<'_>) -> Result<(), ArchiveError> {
        self.source.read(wanted, ahead_bytes, each)
    }

    fn read_of_chunks(&self, chunks: &[UnitName], wanted: &[WantedUnit], each: OnUnit<'_>) -> Result<(), ArchiveError> {
        self.source.read_of_chunks(chunks, wanted, each)
    }

    fn read_headers(&self, chunks: &[UnitName], ahead_bytes: u64, each: OnUnit<'_>) -> Result<(), ArchiveError> {
        self.source.read_headers(chunks, ahead_bytes, each)
    }

    fn find(&self, wanted: WantedUnit) -> Result<(), ArchiveError> {
        self.source.find(wanted)
    }

    fn chunks<'s>(
        &'s self,
        names: &[UnitName],
        headers: &Headers,
        wanted: &[WantedUnits],
        ahead_bytes: u64,
    ) -> Result<Box<dyn ChunkReader + 's>, ArchiveError> {
        let mut beside = Vec::with_capacity(wanted.len());
        for (index, wanted) in wanted.iter().enumerate() {
            let header = headers.get(index)?;
            let units = header.units.iter().enumerate();
            let flags = units.map(|(unit, placed)| wanted.has(unit) && !self.is_in_seed(&placed.name));
            beside.push(WantedUnits::Some(flags.collect()));
        }
        let rest = self.source.chunks(names, headers, &beside, ahead_bytes)?;
        Ok(Box::new(SeededChunks { images: self, rest }))
    }

    fn received_bytes(&self) -> u64 {
        self.source.received_bytes()
    }

    fn seed_bytes(&self) -> u64 {
        self.taken_bytes.load(Ordering::Relaxed)
    }

    fn has_seeds(&self) -> bool {
        !self.disks.is_empty()
    }

    fn is_in_seed(&self, unit: &UnitName) -> bool {
        matches!(self.places.get(&key_of(unit)), Some(Some(_)))
    }

    fn arrivals(&self, chunks: &[UnitName], is_compared: bool) -> Option<Box<dyn Arrivals + '_>> {
        self.source.arrivals(chunks, is_compared)
    }

    fn waited(&self) -> Option<Duration> {
        self.source.waited()
    }

    fn of_image(&self, image: &ImageVersion, error: ArchiveError) -> ArchiveError {
        self.source.of_image(image, error)
    }
}

/// Consecutive chunks, whose units come from seeds where these have them.
struct SeededChunks<'s> {
    images: &'s SeededImages,
    rest: Box<dyn ChunkReader + 's>,
}

impl ChunkReader for SeededChunks<'_> {
    fn read(&mut self, chunk: usize, wanted: &[WantedUnit], each: OnUnit<'_>) -> Result<(), ArchiveError> {
        let (indices, rest) = self.images.take_all(wanted, each);
        match rest.is_empty() {
            true => Ok(()),
            false => self.rest.read(chunk, &rest, &mut |at, plain| each(indices[at], plain)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::{ControlFlow, Range};

    use onefold_block::random::SeededRandom;
    use onefold_disk::{DiskError, Progress};
    use parking_lot::Mutex;

    use super::*;
    use crate::archive::{Archive, ImageRecord};
    use crate::capture::{CaptureOptions, Scope, Source, capture};
    use crate::format::descriptor::UnitKind;
    use crate::install::{FileTarget, FreeSectorPolicy, InstallOptions, install};
    use crate::store::MemoryStore;
    use crate::testing::MemoryDisk;
    use crate::{ImageName, compress};

    const UNITS: UnitKind = UnitKind::Fixed { unit_bytes: 32 << 10 };
    const UNIT: usize = 32 << 10;
    const SIZE: usize = 4 << 20;

    fn go_on(_: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Returns an archive with an image of a disk.
    fn captured(disk: &MemoryDisk) -> (Arc<Archive>, Manifest) {
        let (clock, random) = (onefold_block::clock::ManualClock::starting_at(3), SeededRandom::new(1));
        let archive = Archive::create(Arc::new(MemoryStore::default()), UNITS, &random).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let options = CaptureOptions {
            name: ImageName::new("web").unwrap(),
            began: onefold_block::Clock::now(&clock),
            scope: Scope::Allocated,
            exact: false,
            threads: 2,
            memory_bytes: 0,
            level: compress::LEVEL,
            folder: folder.path(),
        };
        let mut writer = archive.writer(&clock, &random, "host").unwrap();
        let source = Source { disk, has_changed: &|| Ok(false) };
        capture(&archive, &mut writer, source, &options, &go_on).unwrap();
        let record: ImageRecord = archive.images().remove(0);
        let manifest = archive.manifest(&record).unwrap();
        (Arc::new(archive), manifest)
    }

    fn add(seeded: &mut SeededImages, manifest: &Manifest, disk: impl Disk + 'static) -> Result<(), CaptureError> {
        let folder = tempfile::tempdir().unwrap();
        let options = SeedOptions { threads: 2, memory_bytes: 0, folder: folder.path() };
        seeded.add(Box::new(disk), manifest, &options, &go_on)
    }

    /// Installs to a new file. Asserts that it becomes the disk. Returns the bytes that came from the archive, and from
    /// seeds.
    fn install_with(seeded: &SeededImages, manifest: &Manifest, disk: &MemoryDisk) -> (u64, u64) {
        let file = tempfile::tempfile().unwrap();
        let target = FileTarget::blank(file.try_clone().unwrap(), SIZE as u64).unwrap();
        let free = FreeSectorPolicy::Leave;
        let (threads, memory_bytes) = (2, 24 << 20);
        let options =
            InstallOptions { free, verify: true, fresh: false, threads, memory_bytes, fit: false, start_bytes: 0 };
        let done = install(seeded, manifest, &target, &options, &go_on).unwrap();
        let mut found = vec![0; SIZE];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 0).unwrap();
        assert!(found == disk.bytes);
        assert_eq!(done.written_bytes, SIZE as u64);
        (done.received_bytes, done.seed_bytes)
    }

    /// Returns a disk with all units of another one, each at another place, in reverse order.
    fn reversed(disk: &MemoryDisk) -> MemoryDisk {
        MemoryDisk::new(disk.bytes.chunks(UNIT).rev().flatten().copied().collect())
    }

    /// Regression: a hostile header gives a unit of the seed another length, and the installation panicked.
    #[test]
    fn a_unit_of_another_length_is_not_taken() {
        let disk = MemoryDisk::noise(SIZE, &SeededRandom::new(1));
        let (archive, manifest) = captured(&disk);
        let mut seeded = SeededImages::new(archive, &manifest, 1 << 20).unwrap();
        add(&mut seeded, &manifest, reversed(&disk)).unwrap();
        let name = seeded.key().name(&disk.bytes[..UNIT]);
        let plain_bytes = u32::try_from(UNIT).unwrap();
        let mut plain = Vec::new();
        let mut take = |plain_bytes| seeded.take(WantedUnit { name, plain_bytes: Some(plain_bytes) }, &mut plain);
        assert!(take(plain_bytes) && !take(2 * plain_bytes) && !take(plain_bytes / 2));
    }

    #[test]
    fn units_at_other_places_of_a_seed_are_taken_from_it() {
        let disk = MemoryDisk::noise(SIZE, &SeededRandom::new(1));
        let (archive, manifest) = captured(&disk);
        let mut seeded = SeededImages::new(archive, &manifest, 1 << 20).unwrap();
        // A seed with a fourth of the units, and one with all of them.
        let mut quarter = reversed(&disk);
        quarter.bytes.truncate(SIZE / 4);
        add(&mut seeded, &manifest, quarter).unwrap();
        let (received_bytes, taken_bytes) = install_with(&seeded, &manifest, &disk);
        assert_eq!(taken_bytes, SIZE as u64 / 4);
        assert!(received_bytes >= SIZE as u64 * 3 / 4 && received_bytes < SIZE as u64 * 4 / 5, "{received_bytes}");
        add(&mut seeded, &manifest, reversed(&disk)).unwrap();
        let (received_bytes, taken_bytes) = install_with(&seeded, &manifest, &disk);
        assert_eq!(taken_bytes, SIZE as u64);
        assert!(received_bytes < 100_000, "{received_bytes}");
    }

    /// A plain file, whose length is no multiple of anything, has the units that its copy in a guest has.
    #[test]
    fn a_plain_file_is_cut_as_the_content_of_a_file() {
        let units = UnitKind::Files { unit_bytes: 128 << 10 };
        let (key, folder) = (UnitKey([7; 32]), tempfile::tempdir().unwrap());
        let file = MemoryDisk::noise(300_001, &SeededRandom::new(4));
        let options = SeedOptions { threads: 2, memory_bytes: 0, folder: folder.path() };
        let mut cut = Vec::new();
        each_unit(&file, units, &key, &options, &go_on, &mut |unit| cut.push(unit)).unwrap();
        let mut padded = file.bytes.clone();
        padded.resize(300_001_usize.next_multiple_of(4096), 0);
        for (number, plain) in (0..).zip(padded.chunks(128 << 10)) {
            let unit = cut.iter().find(|unit| unit.name == key.name(plain)).unwrap();
            assert_eq!(unit.plain_bytes as usize, plain.len());
            assert_eq!(unit.runs, [SectorRun { start: number * 256, count: plain.len() as u64 / 512 }]);
        }
    }

    #[test]
    fn memory_for_units_is_bounded() {
        let disk = MemoryDisk::noise(SIZE, &SeededRandom::new(2));
        let (archive, manifest) = captured(&disk);
        let mut seeded = SeededImages::new(archive, &manifest, 10 * ENTRY_BYTES).unwrap();
        add(&mut seeded, &manifest, reversed(&disk)).unwrap();
        assert_eq!(install_with(&seeded, &manifest, &disk).1, 10 * UNIT as u64);
    }

    /// A disk that changes, or fails, once it was cut.
    struct ChangingDisk {
        disk: Mutex<MemoryDisk>,
        /// Bytes to read until the change.
        left_bytes: Mutex<usize>,
        fails: bool,
    }

    impl Disk for ChangingDisk {
        fn size_bytes(&self) -> u64 {
            SIZE as u64
        }

        fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
            self.disk.lock().next_data(offset)
        }

        fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
            let mut left = self.left_bytes.lock();
            match left.checked_sub(into.len()) {
                Some(rest) => *left = rest,
                None if self.fails => return Err(DiskError::Other("a bad sector".into())),
                None => self.disk.lock().bytes.iter_mut().step_by(UNIT).for_each(|byte| *byte ^= 1),
            }
            self.disk.lock().read(offset, into)
        }
    }

    #[test]
    fn a_seed_that_changes_or_fails_costs_no_byte() {
        let disk = MemoryDisk::noise(SIZE, &SeededRandom::new(3));
        let (archive, manifest) = captured(&disk);
        for fails in [false, true] {
            for until in [SIZE / 3, SIZE + SIZE / 2, 10 * SIZE] {
                let mut seeded = SeededImages::new(archive.clone(), &manifest, 1 << 20).unwrap();
                let seed = ChangingDisk { disk: Mutex::new(reversed(&disk)), left_bytes: Mutex::new(until), fails };
                let cut = add(&mut seeded, &manifest, seed);
                assert_eq!(cut.is_err(), fails && until < SIZE, "{until}: {cut:?}");
                install_with(&seeded, &manifest, &disk);
            }
        }
    }
}
