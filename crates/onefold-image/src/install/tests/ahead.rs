//! Many threads and chunks of which each arrives only once it is compared, as on a network that nobody else uses.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::*;
use crate::archive::{Headers, WantedUnit};
use crate::image_source::{Arrivals, ChunkReader, LackingPart, OnUnit, WantedUnits};
use crate::{ImageVersion, UnitKey, UnitName};

const SIZE: u64 = 4 << 20;
/// How long the comparison waits for the installation of an earlier chunk, which may have failed.
const INSTALLED_WITHIN: Duration = Duration::from_millis(100);
/// A thread that has waited so long for a chunk would wait for ever.
const PATIENCE_MAX: Duration = Duration::from_secs(5);

/// An archive whose chunks arrive one by one.
#[derive(Debug)]
struct RequestedChunks {
    archive: Arc<Archive>,
    /// Chunks that are compared, and have not arrived.
    compared: Mutex<Vec<usize>>,
    /// Numbers of chunks that have arrived, and that are installed.
    arrived: AtomicU64,
    finished: AtomicU64,
    /// Whether the thread that compares the third chunk panics.
    panics: bool,
    has_hung: AtomicBool,
}

impl ImageSource for RequestedChunks {
    fn key(&self) -> &UnitKey {
        self.archive.key()
    }

    fn read(&self, wanted: &[WantedUnit], ahead_bytes: u64, each: OnUnit<'_>) -> Result<(), ArchiveError> {
        self.archive.read(wanted, ahead_bytes, each)
    }

    fn find(&self, wanted: WantedUnit) -> Result<(), ArchiveError> {
        self.archive.find_unit(wanted)
    }

    fn chunks<'s>(
        &'s self,
        names: &[UnitName],
        headers: &Headers,
        wanted: &[WantedUnits],
        ahead_bytes: u64,
    ) -> Result<Box<dyn ChunkReader + 's>, ArchiveError> {
        self.archive.chunks(names, headers, wanted, ahead_bytes)
    }

    fn received_bytes(&self) -> u64 {
        self.archive.read_bytes()
    }

    fn of_image(&self, image: &ImageVersion, error: ArchiveError) -> ArchiveError {
        self.archive.of_image(image, error)
    }

    fn arrivals(&self, chunks: &[UnitName], is_compared: bool) -> Option<Box<dyn Arrivals + '_>> {
        assert!(is_compared);
        Some(Box::new(OneByOne { chunks: chunks.len() as u64, of: self }))
    }
}

struct OneByOne<'s> {
    chunks: u64,
    of: &'s RequestedChunks,
}

impl Arrivals for OneByOne<'_> {
    fn next(&self, patience: Duration) -> Option<Vec<usize>> {
        let began = Instant::now();
        while began.elapsed() < patience {
            if let Some(chunk) = self.of.compared.lock().pop() {
                self.of.arrived.fetch_add(1, Ordering::Relaxed);
                return Some(vec![chunk]);
            }
            if self.of.arrived.load(Ordering::Relaxed) == self.chunks {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Some(Vec::new())
    }

    fn compared(&self, index: usize, _: LackingPart) {
        assert!(!self.of.panics || index < 3, "the thread that compares is to panic here");
        // The others wait again before this thread goes on.
        let began = Instant::now();
        while self.of.finished.load(Ordering::Relaxed) < index as u64 && began.elapsed() < INSTALLED_WITHIN {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.of.compared.lock().push(index);
    }

    fn finish(&self, indices: &[usize]) {
        self.of.finished.fetch_add(indices.len() as u64, Ordering::Relaxed);
    }
}

/// Installs to a target that has the image but for a byte of each chunk, in eight threads. Fails if a thread waits for
/// ever.
fn installed(
    image: &TestImage,
    panics: bool,
    fails_after: Option<usize>,
) -> std::thread::Result<Result<InstallReport, InstallError>> {
    let target = MemoryTarget::noise(1, SIZE);
    install(&*image.archive, &image.manifest, &target, &options(FreeSectorPolicy::Leave, false), &go_on).unwrap();
    for header in crate::testing::headers(&image.archive, &image.manifest) {
        let changed = header.units.last().map(|unit| usize::try_from(unit.runs[0].start_bytes()).unwrap());
        changed.into_iter().for_each(|at| target.bytes.lock()[at] ^= 1);
    }
    let target = MemoryTarget { fails_after, calls: Mutex::default(), ..target };
    let source = RequestedChunks {
        archive: Arc::clone(&image.archive),
        compared: Mutex::default(),
        arrived: AtomicU64::new(0),
        finished: AtomicU64::new(0),
        panics,
        has_hung: AtomicBool::new(false),
    };
    let last = Mutex::new((Instant::now(), 0));
    let watched = |_: Progress| {
        let (since, seen) = &mut *last.lock();
        let arrived = source.arrived.load(Ordering::Relaxed);
        if arrived != *seen {
            (*since, *seen) = (Instant::now(), arrived);
        }
        let hangs = since.elapsed() > PATIENCE_MAX;
        source.has_hung.fetch_or(hangs, Ordering::Relaxed);
        if hangs { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let options = InstallOptions { threads: 8, memory_bytes: 64 << 20, ..options(FreeSectorPolicy::Leave, false) };
    let done = catch_unwind(AssertUnwindSafe(|| install(&source, &image.manifest, &target, &options, &watched)));
    assert!(!source.has_hung.load(Ordering::Relaxed), "all threads waited for a chunk that nobody compared");
    if matches!(done, Ok(Ok(_))) {
        assert_holds(image, &target.bytes.lock(), &|_| None);
    }
    done
}

/// Regression: the thread that compared left before the others, which waited for ever.
#[test]
fn chunks_that_arrive_only_once_compared_are_all_installed() {
    for seed in 0..8 {
        let image = image(seed, SIZE);
        assert!(image.manifest.chunks.len() >= 8, "{}", image.manifest.chunks.len());
        let done = installed(&image, false, None).unwrap().unwrap();
        assert!(done.found_bytes > 0 && done.written_bytes > 0, "{done:?}");
    }
}

/// Regression: threads that waited for a chunk did not see that another one had failed.
#[test]
fn a_thread_that_fails_or_panics_ends_the_wait_of_the_others() {
    let image = image(3, SIZE);
    let done = installed(&image, false, Some(1)).unwrap();
    assert!(matches!(done, Err(InstallError::Target { action: "write", .. })), "{done:?}");
    assert!(installed(&image, true, None).is_err(), "the panic of a thread is passed on");
}
