//! Installations to targets that have a part of the image in its place.

use std::sync::atomic::AtomicBool;

use super::*;

/// Long enough that the disk has a middle between its ends.
const SIZE: u64 = 4 << 20;
const FREE: [FreeSectorPolicy; 3] = [FreeSectorPolicy::Leave, FreeSectorPolicy::Zero, FreeSectorPolicy::Discard];

/// Returns what a target of noise has after an installation.
fn installed(image: &TestImage, free: FreeSectorPolicy) -> Vec<u8> {
    let target = MemoryTarget::noise(99, image.manifest.size_bytes);
    install(&*image.archive, &image.manifest, &target, &options(free, false), &go_on).unwrap();
    target.bytes.into_inner()
}

pub(super) fn with_bytes(bytes: Vec<u8>) -> MemoryTarget {
    MemoryTarget { bytes: Mutex::new(bytes), ..MemoryTarget::noise(0, 0) }
}

/// Returns the sum of the lengths of writes that have bytes other than zeros.
fn written_bytes(target: &MemoryTarget) -> usize {
    let calls = target.calls.lock();
    let length = |call: &Call| match call {
        Call::Write { length, is_zero: false, .. } => *length,
        _ => 0,
    };
    calls.iter().map(length).sum()
}

fn ends_bytes(size_bytes: u64) -> u64 {
    let middle = Ends::of(size_bytes).middle();
    size_bytes - (middle.end - middle.start)
}

#[test]
fn an_image_over_itself_is_found_and_only_the_ends_are_written() {
    for (seed, size_bytes) in (0..).zip(SIZES) {
        let image = image(seed, size_bytes);
        for free in FREE {
            let before = installed(&image, FreeSectorPolicy::Leave);
            let target = with_bytes(before.clone());
            let done = install(&*image.archive, &image.manifest, &target, &options(free, true), &go_on).unwrap();
            let totals = image.manifest.totals;
            assert_eq!((done.found_bytes, done.written_bytes, done.zeroed_bytes), (totals.data_bytes, 0, 0));
            assert_eq!(
                (done.zero_bytes, done.verified_bytes),
                (totals.zero_bytes, totals.data_bytes + totals.zero_bytes)
            );
            assert!(written_bytes(&target) as u64 <= ends_bytes(size_bytes));
            let left = |at: usize| match free {
                FreeSectorPolicy::Leave => before.get(at).copied(),
                FreeSectorPolicy::Zero => Some(0),
                FreeSectorPolicy::Discard => Some(0xdd),
            };
            assert_holds(&image, &target.bytes.lock(), &left);
        }
    }
}

/// Sectors anywhere have changed since the installation, in data, zeros, free sectors and ends.
#[test]
fn changed_sectors_cost_their_units_only() {
    for seed in 0..24 {
        let image = image(seed, SIZE);
        let free = FREE[usize::try_from(seed).unwrap() % 3];
        let random = SeededRandom::new(seed + 100);
        let mut before = installed(&image, free);
        for _ in 0..1 + random.below(40) {
            let at = usize::try_from(random.below(SIZE)).unwrap();
            before[at] ^= 1 << random.below(8);
        }
        let target = with_bytes(before.clone());
        let done = install(&*image.archive, &image.manifest, &target, &options(free, true), &go_on).unwrap();
        let totals = image.manifest.totals;
        assert_eq!(done.found_bytes + done.written_bytes, totals.data_bytes);
        // A unit has at most 61 sectors, and at most 40 are hit.
        assert!(done.written_bytes <= 40 * 61 * 512, "{seed}: {done:?}");
        let left = |at: usize| match free {
            FreeSectorPolicy::Leave => before.get(at).copied(),
            FreeSectorPolicy::Zero => Some(0),
            FreeSectorPolicy::Discard => Some(0xdd),
        };
        assert_holds(&image, &target.bytes.lock(), &left);
    }
}

#[test]
fn a_fresh_installation_compares_nothing_and_writes_everything() {
    let image = image(3, SIZE);
    let inner = with_bytes(installed(&image, FreeSectorPolicy::Leave));
    let target = FailingTarget { inner, fails: |_| false, reads: Mutex::default() };
    let fresh = InstallOptions { fresh: true, ..options(FreeSectorPolicy::Leave, false) };
    let done = install(&*image.archive, &image.manifest, &target, &fresh, &go_on).unwrap();
    assert_eq!((done.found_bytes, done.written_bytes), (0, image.manifest.totals.data_bytes));
    // Only the signature of a partition table's backup.
    assert!(target.reads.lock().iter().all(|read| read.length == 8));
    assert_holds(&image, &target.inner.bytes.lock(), &|_| None);
}

/// A target of something else is not read to its end for nothing.
#[test]
fn a_target_without_units_of_the_image_is_sampled_only() {
    let image = image(4, SIZE);
    let target = FailingTarget { inner: MemoryTarget::noise(4, SIZE), fails: |_| false, reads: Mutex::default() };
    let done = install(&*image.archive, &image.manifest, &target, &options(FreeSectorPolicy::Leave, false), &go_on);
    assert_eq!(done.unwrap().found_bytes, 0);
    let middle = Ends::of(SIZE).middle();
    let read_bytes: u64 = target.reads.lock().iter().map(|read| read.length as u64).sum();
    let sampled_bytes = read_bytes - ends_bytes(SIZE);
    assert!(sampled_bytes > 0 && sampled_bytes < (middle.end - middle.start) / 2, "{sampled_bytes}");
    assert_holds(&image, &target.inner.bytes.lock(), &|_| None);
}

/// An installation is stopped at any moment, and another one finishes it.
#[test]
fn a_stopped_installation_is_continued() {
    for seed in 0..40 {
        let image = image(seed, SIZE);
        let free = FREE[usize::try_from(seed).unwrap() % 3];
        let totals = image.manifest.totals;
        let all_bytes = totals.data_bytes + totals.zero_bytes;
        let random = SeededRandom::new(seed);
        // Two stops, and then the end.
        let target = MemoryTarget::noise(seed, SIZE);
        let noise = target.bytes.lock().clone();
        let mut done_before = 0;
        for _ in 0..2 {
            let until = random.below(all_bytes);
            let reached = AtomicU64::new(0);
            let stop = |progress: Progress| {
                reached.fetch_max(progress.done_bytes, Ordering::Relaxed);
                if progress.done_bytes > until { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let stopped = install(&*image.archive, &image.manifest, &target, &options(free, false), &stop);
            assert!(matches!(stopped, Err(InstallError::Stopped)), "{seed}: {stopped:?}");
            assert!(target.bytes.lock()[..512].iter().all(|byte| *byte == 0), "it does not boot");
            done_before = done_before.max(until);
        }
        let done = install(&*image.archive, &image.manifest, &target, &options(free, true), &go_on).unwrap();
        assert_eq!(done.found_bytes + done.written_bytes, totals.data_bytes);
        // The finished part, without the ends and zeros.
        let least = done_before.saturating_sub(ends_bytes(SIZE) + totals.zero_bytes + 200_000);
        assert!(done.found_bytes >= least, "{seed}: {done_before} of {all_bytes}, {done:?}");
        let left = |at: usize| match free {
            FreeSectorPolicy::Leave => noise.get(at).copied(),
            FreeSectorPolicy::Zero => Some(0),
            FreeSectorPolicy::Discard => Some(0xdd),
        };
        assert_holds(&image, &target.bytes.lock(), &left);
    }
}

/// A target some of whose reads fail.
struct FailingTarget {
    inner: MemoryTarget,
    fails: fn(&Read) -> bool,
    reads: Mutex<Vec<Read>>,
}

/// A read of a target.
struct Read {
    /// Number of reads before it.
    number: usize,
    /// Number of flushes before it.
    flushes: usize,
    length: usize,
}

/// The calls that are passed on unchanged.
macro_rules! pass_on {
    () => {
        fn length_bytes(&self) -> u64 {
            self.inner.length_bytes()
        }

        fn is_blank(&self) -> bool {
            false
        }

        fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
            self.inner.write(offset, from)
        }

        fn zero(&self, offset: u64, length_bytes: u64) -> io::Result<u64> {
            self.inner.zero(offset, length_bytes)
        }

        fn discard(&self, offset: u64, length_bytes: u64) -> io::Result<u64> {
            self.inner.discard(offset, length_bytes)
        }
    };
}

impl Target for FailingTarget {
    pass_on!();

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, into)?;
        let mut reads = self.reads.lock();
        let read = Read { number: reads.len(), flushes: flushes(&self.inner), length: into.len() };
        let fails = (self.fails)(&read);
        reads.push(read);
        // All bytes may have come, and be right.
        if fails { Err(io::Error::other("a bad sector")) } else { Ok(()) }
    }
}

fn flushes(target: &MemoryTarget) -> usize {
    target.calls.lock().iter().filter(|call| **call == Call::Sync).count()
}

/// Places of the target cannot be read: its ends, some between them, or all from a moment on.
#[test]
fn places_that_cannot_be_read_are_written() {
    let cases: [fn(&Read) -> bool; 3] = [
        |read| read.number < 2,
        |read| read.flushes > 0 && read.number % 3 == 0,
        |read| read.flushes > 0 && read.number > 30,
    ];
    for (case, fails) in cases.into_iter().enumerate() {
        let image = image(case as u64, SIZE);
        let inner = with_bytes(installed(&image, FreeSectorPolicy::Leave));
        let target = FailingTarget { inner, fails, reads: Mutex::default() };
        let done = install(&*image.archive, &image.manifest, &target, &options(FreeSectorPolicy::Leave, false), &go_on);
        let done = done.unwrap();
        let data_bytes = image.manifest.totals.data_bytes;
        assert_eq!(done.found_bytes + done.written_bytes, data_bytes);
        assert!(done.written_bytes > data_bytes / 10 && done.found_bytes > 0, "{case}: {done:?}");
        assert_holds(&image, &target.inner.bytes.lock(), &|_| None);
        let failed = target.reads.lock().iter().filter(|read| fails(read)).count();
        assert!(failed > 1 && failed <= 16 + 3 * 2, "{case}: {failed}");
    }
}

/// A disk with sectors that were lost. A read of one fails, with the bytes of before in the buffer; a write mends it.
struct WornTarget {
    inner: MemoryTarget,
    before: Vec<u8>,
    lost: Mutex<Vec<u64>>,
}

impl Target for WornTarget {
    pass_on!();

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let range = offset..offset + into.len() as u64;
        if !self.lost.lock().iter().any(|lost| range.contains(lost)) {
            return self.inner.read(offset, into);
        }
        into.copy_from_slice(&self.before[MemoryTarget::range(offset, into.len() as u64)]);
        Err(io::Error::other("a bad sector"))
    }
}

#[test]
fn bytes_that_come_with_an_error_are_not_believed() {
    for seed in 0..10 {
        let image = image(seed + 80, SIZE);
        let before = installed(&image, FreeSectorPolicy::Leave);
        let random = SeededRandom::new(seed);
        let mut worn = before.clone();
        let mut lost = Vec::new();
        for _ in 0..10 {
            let at = 2048 + random.below(SIZE / 512 - 2048 - 40);
            lost.push(at * 512);
            worn[MemoryTarget::range(at * 512, 512)].fill(0xee);
        }
        let target = WornTarget { inner: with_bytes(worn), before, lost: Mutex::new(lost) };
        let done = install(&*image.archive, &image.manifest, &target, &options(FreeSectorPolicy::Leave, false), &go_on);
        assert!(done.unwrap().found_bytes > 0);
        assert_holds(&image, &target.inner.bytes.lock(), &|_| None);
    }
}

/// A target that seems to hold the image until everything is written.
struct LyingTarget {
    inner: MemoryTarget,
    image: Vec<u8>,
    is_lying: AtomicBool,
}

impl Target for LyingTarget {
    pass_on!();

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()?;
        self.is_lying.store(flushes(&self.inner) < 2, Ordering::Relaxed);
        Ok(())
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if !self.is_lying.load(Ordering::Relaxed) {
            return self.inner.read(offset, into);
        }
        into.copy_from_slice(&self.image[MemoryTarget::range(offset, into.len() as u64)]);
        Ok(())
    }
}

/// A disk that somebody changes after the comparison is found out in the same way.
#[test]
fn a_target_that_lies_in_the_comparison_is_found_out_and_does_not_boot() {
    let image = image(5, SIZE);
    let whole = installed(&image, FreeSectorPolicy::Leave);
    let inner = MemoryTarget::noise(5, SIZE);
    let target = LyingTarget { inner, image: whole, is_lying: AtomicBool::new(true) };
    let done = install(&*image.archive, &image.manifest, &target, &options(FreeSectorPolicy::Leave, true), &go_on);
    assert!(matches!(done, Err(InstallError::ReadBack { .. })), "{done:?}");
    assert!(target.inner.bytes.lock()[..1 << 20].iter().all(|byte| *byte == 0));
}

/// A comparison without an installation lists the changed units and zeros, and touches nothing.
#[test]
fn differences_are_listed_where_they_are() {
    for seed in 0..12 {
        let image = image(seed + 40, SIZE);
        let before = installed(&image, FreeSectorPolicy::Leave);
        let options = options(FreeSectorPolicy::Leave, false);
        let compare = |target: &MemoryTarget| {
            let found = differences(&*image.archive, &image.manifest, target, &options, &go_on).unwrap();
            assert!(target.calls.lock().is_empty());
            found
        };
        let totals = image.manifest.totals;
        let found = compare(&with_bytes(before.clone()));
        assert!(found.is_none() && found.same_bytes == totals.data_bytes, "{seed}: {found:?}");

        let random = SeededRandom::new(seed);
        let mut changed = before;
        let mut hit = Vec::new();
        for _ in 0..1 + random.below(9) {
            let at = usize::try_from(random.below(SIZE)).unwrap();
            changed[at] ^= 1;
            hit.extend(
                image.sectors[at / 512].as_ref().map(|sector| (at as u64, sector.iter().all(|byte| *byte == 0))),
            );
        }
        let found = compare(&with_bytes(changed));
        assert_eq!(found.same_bytes + found.other_bytes, totals.data_bytes);
        assert_eq!(found.other_bytes > 0, hit.iter().any(|(_, is_zero)| !is_zero), "{seed}: {found:?}");
        assert_eq!(found.nonzero_bytes > 0, hit.iter().any(|(_, is_zero)| *is_zero), "{seed}: {found:?}");
        let listed_bytes: u64 = found.places.iter().map(|place| place.length_bytes).sum();
        assert_eq!(listed_bytes, found.other_bytes + found.nonzero_bytes);
        assert_eq!(found.unlisted_bytes, 0);
        assert!(found.places.is_sorted() && found.places.len() <= hit.len());
        for (at, _) in hit.iter().filter(|(_, is_zero)| *is_zero) {
            let has = |place: &DifferentPlace| (place.offset..place.offset + place.length_bytes).contains(at);
            assert!(found.places.iter().any(has), "{seed}: {at} in {found:?}");
        }
    }
    let image = image(60, SIZE);
    let target = MemoryTarget::noise(60, SIZE);
    let options = options(FreeSectorPolicy::Leave, false);
    let found = differences(&*image.archive, &image.manifest, &target, &options, &go_on).unwrap();
    let totals = image.manifest.totals;
    assert_eq!((found.same_bytes, found.other_bytes), (0, totals.data_bytes));
    // All of it would be written, and none of it is listed.
    assert_eq!((found.nonzero_bytes, found.unlisted_bytes), (totals.zero_bytes, totals.data_bytes + totals.zero_bytes));
}
