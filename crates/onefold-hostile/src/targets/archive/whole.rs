//! A whole archive with believed damage: it is opened, checked, read and installed. Whatever it says, a byte is written
//! to a target only if it belongs to the unit that is named there, and a disk that is half installed does not boot.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_block::clock::ManualClock;
use onefold_block::random::SeededRandom;
use onefold_disk::Disk;
use onefold_image::archive::{Archive, ArchiveError, CheckOptions, CheckReport};
use onefold_image::format::manifest::Manifest;
use onefold_image::install::{FreeSectorPolicy, InstallError, InstallOptions, Target, install};
use onefold_image::store::{ByteRange, Creation, ListedObject, MemoryStore, ObjectName, Store, StoreError};
use onefold_image::{ArchivedDisk, SECTOR_BYTES};
use parking_lot::Mutex;

use super::build::{Builder, DISK_BYTES, build};
use crate::Choices;

/// Maximum number of calls of the store; more count as a hang. The sound archive needs about a hundred.
const CALLS_MAX: u64 = 20_000;
/// Content of a target before an installation.
const NOISE: u8 = 0xa5;
/// Where the first part of a disk ends that an installation writes last, and how much the last one has.
const FIRST_END: usize = 1 << 20;
const LAST_BYTES: usize = 33 * 512;
/// Maximum length of a disk of which all is read, in bytes.
const READ_BYTES_MAX: u64 = 4 << 20;

pub(in crate::targets) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let Builder { objects, is_damaged, .. } = build(&mut choices);
    let store = Arc::new(CountedStore { store: MemoryStore::of(objects), calls: AtomicU64::new(0) });
    let archive = match Archive::open(Arc::clone(&store) as Arc<dyn Store>) {
        Ok(archive) => Arc::new(archive),
        Err(error) => return assert!(is_damaged, "{error}"),
    };
    let reports: Vec<CheckReport> = [false, true].into_iter().filter_map(|data| check(&archive, data)).collect();
    let has_damages = reports.len() < 2 || reports.iter().any(|report| !report.damages.is_empty());
    assert!(is_damaged || (!has_damages && archive.images().len() == 2), "{reports:?}");
    for record in archive.images() {
        let installed = archive.manifest(&record).map_err(InstallError::from).and_then(|manifest| {
            assert_eq!(manifest.image, record.image);
            let installed = install_one(&archive, &manifest);
            read(&archive, &manifest, installed.as_deref().ok());
            installed
        });
        match installed {
            Ok(_) | Err(InstallError::TooSmall { .. } | InstallError::Archive(ArchiveError::Removed { .. })) => {}
            Err(error) => assert!(has_damages, "a check finds nothing, and {} is lost: {error}", record.image),
        }
    }
    if let Some(record) = archive.images().first() {
        let removed = archive.remove(&record.image, &ManualClock::starting_at(9), &SeededRandom::new(1));
        assert!(removed.is_ok() || is_damaged, "{removed:?}");
    }
}

fn check(archive: &Archive, data: bool) -> Option<CheckReport> {
    archive.check(CheckOptions { data }, &mut |_, _| ()).ok()
}

/// Installs an image over noise. Returns the target if all of the image is on it.
fn install_one(archive: &Archive, manifest: &Manifest) -> Result<Vec<u8>, InstallError> {
    let length = usize::try_from(DISK_BYTES).expect("small");
    let target = MemoryTarget(Mutex::new(vec![NOISE; length + 4096]));
    let options = InstallOptions {
        free: FreeSectorPolicy::Leave,
        verify: true,
        threads: 2,
        memory_bytes: 4 << 20,
        fresh: false,
        fit: false,
        start_bytes: 0,
    };
    let installed = install(archive, manifest, &target, &options, &|_| ControlFlow::Continue(()));
    let target = target.0.into_inner();
    if let Err(error) = installed {
        let start = &target[..512];
        assert!(start.iter().all(|byte| *byte == 0) || start == [NOISE; 512], "half installed, it boots: {error}");
        return Err(error);
    }
    let covered = assert_holds(archive, manifest, &target);
    let size = usize::try_from(manifest.size_bytes).expect("it fits the target");
    let middle = FIRST_END.min(size)..size.saturating_sub(LAST_BYTES);
    let is_left = |at: usize| covered[at / 512] || target[at] == NOISE;
    assert!(middle.into_iter().all(is_left), "free sectors change");
    Ok(target)
}

/// Asserts that a target has the units and zeros that the image names. Returns which sectors they take.
fn assert_holds(archive: &Archive, manifest: &Manifest, target: &[u8]) -> Vec<bool> {
    let size = usize::try_from(manifest.size_bytes).expect("it fits the target");
    let mut covered = vec![false; size.div_ceil(512)];
    let mut sectors = |start: u64, count: u64| {
        let [first, end] = [start, start + count].map(|sector| usize::try_from(sector).expect("on the disk"));
        covered[first..end].fill(true);
        &target[first * 512..(end * 512).min(size)]
    };
    for chunk in &manifest.chunks {
        let header = archive.header(chunk).expect("it was installed");
        for unit in &header.units {
            let plain: Vec<u8> = unit.runs.iter().flat_map(|run| sectors(run.start, run.count)).copied().collect();
            assert!(archive.descriptor().key.name(&plain) == unit.name, "wrong bytes are written");
        }
        for run in &header.zeros {
            assert!(sectors(run.start, run.count).iter().all(|byte| *byte == 0), "zeros are missing");
        }
    }
    covered
}

/// Reads an archived disk, and compares it with the installed one.
fn read(archive: &Arc<Archive>, manifest: &Manifest, installed: Option<&[u8]>) {
    let disk = ArchivedDisk::new(archive.clone(), manifest.clone(), 1 << 20);
    let length = usize::try_from(manifest.size_bytes.min(READ_BYTES_MAX)).expect("small");
    let mut bytes = vec![1; length];
    let result = disk.read(0, &mut bytes);
    if let Some(installed) = installed {
        result.expect("what can be installed can be read");
        let mut offset = 0;
        while let Some(range) = disk.next_data(offset).expect("it was read") {
            assert!(range.start >= offset && range.end > range.start && range.end <= manifest.size_bytes);
            let [start, end] = [range.start, range.end].map(|at| usize::try_from(at).expect("small"));
            assert!(bytes[start..end] == installed[start..end], "an archived disk reads otherwise than installed");
            offset = range.end;
        }
    }
    // A disk of any length ends somewhere.
    let mut last = [1; 512];
    let _ = disk.read(manifest.size_bytes.saturating_sub(SECTOR_BYTES), &mut last);
}

/// A target in memory.
struct MemoryTarget(Mutex<Vec<u8>>);

fn range(offset: u64, length_bytes: u64) -> std::ops::Range<usize> {
    let end = offset.checked_add(length_bytes).expect("a range ends");
    usize::try_from(offset).expect("small")..usize::try_from(end).expect("small")
}

impl Target for MemoryTarget {
    fn length_bytes(&self) -> u64 {
        self.0.lock().len() as u64
    }

    fn is_blank(&self) -> bool {
        false
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.0.lock()[range(offset, from.len() as u64)].copy_from_slice(from);
        Ok(())
    }

    fn zero(&self, offset: u64, length_bytes: u64) -> io::Result<u64> {
        self.0.lock()[range(offset, length_bytes)].fill(0);
        Ok(length_bytes)
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<u64> {
        Ok(0)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        into.copy_from_slice(&self.0.lock()[range(offset, into.len() as u64)]);
        Ok(())
    }
}

/// A store that counts calls.
#[derive(Debug)]
struct CountedStore {
    store: MemoryStore,
    calls: AtomicU64,
}

impl CountedStore {
    fn count(&self) -> &MemoryStore {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        assert!(calls < CALLS_MAX, "{calls} calls: this does not end");
        &self.store
    }
}

impl Store for CountedStore {
    fn get(&self, name: &ObjectName, range: ByteRange) -> Result<Vec<u8>, StoreError> {
        self.count().get(name, range)
    }

    fn put(&self, name: &ObjectName, parts: &[&[u8]]) -> Result<(), StoreError> {
        self.count().put(name, parts)
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<Creation, StoreError> {
        self.count().create(name, bytes)
    }

    fn list(&self, prefix: &str, after: Option<&ObjectName>) -> Result<Vec<ListedObject>, StoreError> {
        self.count().list(prefix, after)
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StoreError> {
        self.count().delete(name)
    }
}
