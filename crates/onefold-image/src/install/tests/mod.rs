//! Installations of random images over noise.

mod ahead;
mod compare;
mod power;
mod remote;
mod vanished;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_block::random::{Random, SeededRandom};
use onefold_disk::Progress;
use parking_lot::Mutex;

use super::*;
use crate::archive::Archive;
use crate::test_images::{TestImage, image};

/// Disks of odd lengths, of one sector, without a middle, and of several regions.
const SIZES: [u64; 6] = [3 << 20, (2 << 20) + 512 * 7 + 100, 512, 4096, (1 << 20) + 5000, 100];

/// A target in memory that records the calls.
struct MemoryTarget {
    bytes: Mutex<Vec<u8>>,
    calls: Mutex<Vec<Call>>,
    /// A byte whose reads return a flipped bit.
    flipped: Option<u64>,
    /// After how many flushes each write fails.
    fails_after: Option<usize>,
    /// A byte that cannot be written.
    bad: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Write { offset: u64, length: usize, is_zero: bool },
    Sync,
}

impl MemoryTarget {
    fn noise(seed: u64, length: u64) -> MemoryTarget {
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        SeededRandom::new(seed).fill(&mut bytes).unwrap();
        MemoryTarget { bytes: Mutex::new(bytes), calls: Mutex::default(), flipped: None, fails_after: None, bad: None }
    }

    fn range(offset: u64, length: u64) -> std::ops::Range<usize> {
        usize::try_from(offset).unwrap()..usize::try_from(offset + length).unwrap()
    }
}

impl Target for MemoryTarget {
    fn length_bytes(&self) -> u64 {
        self.bytes.lock().len() as u64
    }

    fn is_blank(&self) -> bool {
        false
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        let flushes = self.calls.lock().iter().filter(|call| **call == Call::Sync).count();
        if self.fails_after.is_some_and(|most| flushes >= most) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if self.bad.is_some_and(|bad| (offset..offset + from.len() as u64).contains(&bad)) {
            return Err(io::Error::other("a bad sector"));
        }
        self.bytes.lock()[Self::range(offset, from.len() as u64)].copy_from_slice(from);
        let is_zero = from.iter().all(|byte| *byte == 0);
        self.calls.lock().push(Call::Write { offset, length: from.len(), is_zero });
        Ok(())
    }

    fn zero(&self, offset: u64, length_bytes: u64) -> io::Result<u64> {
        self.bytes.lock()[Self::range(offset, length_bytes)].fill(0);
        Ok(0)
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> io::Result<u64> {
        self.bytes.lock()[Self::range(offset, length_bytes)].fill(0xdd);
        Ok(length_bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.calls.lock().push(Call::Sync);
        Ok(())
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        into.copy_from_slice(&self.bytes.lock()[Self::range(offset, into.len() as u64)]);
        let within = self.flipped.and_then(|at| at.checked_sub(offset)).and_then(|at| usize::try_from(at).ok());
        if let Some(byte) = within.and_then(|at| into.get_mut(at)) {
            *byte ^= 1;
        }
        Ok(())
    }
}

fn options(free: FreeSectorPolicy, verify: bool) -> InstallOptions {
    InstallOptions { free, verify, fresh: false, threads: 3, memory_bytes: 24 << 20, fit: false, start_bytes: 0 }
}

fn go_on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Asserts that a target holds the captured data. Free sectors outside of the ends, and bytes behind the disk, must be
/// `left`, if that is given.
fn assert_holds(image: &TestImage, target: &[u8], left: &dyn Fn(usize) -> Option<u8>) {
    let size = usize::try_from(image.manifest.size_bytes).unwrap();
    let mut offset = 0;
    for sector in &image.sectors {
        let length = (size - offset).min(512);
        let found = &target[offset..offset + length];
        match sector {
            Some(bytes) => assert!(found == &bytes[..], "sector at {offset}"),
            None => {
                let is_end = offset < 1 << 20 || offset + length > size.saturating_sub(33 * 512);
                let all_left = (offset..offset + length).all(|at| left(at).is_none_or(|byte| byte == target[at]));
                assert!(is_end || all_left, "free sector at {offset}");
            }
        }
        offset += length;
    }
    assert!((size..target.len()).all(|at| left(at).is_none_or(|byte| byte == target[at])), "behind the disk");
}

/// Asserts that a target of noise from this seed was neither written to nor flushed.
fn assert_untouched(target: &MemoryTarget, seed: u64) {
    assert!(target.calls.lock().is_empty());
    let noise = MemoryTarget::noise(seed, target.length_bytes());
    assert!(*target.bytes.lock() == *noise.bytes.lock());
}

/// Returns why an image is refused before the target is touched.
fn refusal(archive: &Archive, manifest: &Manifest) -> InstallError {
    let target = MemoryTarget::noise(1, manifest.size_bytes);
    let installed = install(archive, manifest, &target, &options(FreeSectorPolicy::Zero, true), &go_on);
    assert_untouched(&target, 1);
    match installed {
        Err(InstallError::Untouched(cause)) => *cause,
        other => panic!("{other:?}"),
    }
}

/// Regression: two threads wrote the same sectors, and the last one won.
#[test]
fn chunks_with_the_same_sectors_are_refused_before_the_target_is_touched() {
    let image = image(11, 2 << 20);
    let last = image.manifest.chunks.len() - 1;
    for chunk in [0, last / 2, last] {
        let mut twice = image.manifest.clone();
        twice.chunks.push(twice.chunks[chunk]);
        let error = refusal(&image.archive, &twice);
        assert!(matches!(&error, InstallError::Header(_)) && error.to_string().contains("same sectors"), "{error}");
    }
}

/// Regression: a manifest that lacks chunks was installed, and free sectors kept the bytes of a former user.
#[test]
fn totals_that_the_chunks_do_not_have_are_refused_before_the_target_is_touched() {
    let image = image(12, 2 << 20);
    let mut short = image.manifest.clone();
    short.chunks.pop();
    let mut claims = image.manifest.clone();
    claims.totals.zero_bytes += 512;
    for manifest in [short, claims] {
        let error = refusal(&image.archive, &manifest);
        assert!(
            matches!(&error, InstallError::Archive(ArchiveError::Damaged { name, .. }) if name.starts_with("manifests/")),
            "{error}"
        );
    }
}

/// Regression: both ends of the target were wiped before the first header was read.
#[test]
fn packs_that_are_gone_are_found_before_the_target_is_touched() {
    use crate::store::Store;
    let image = image(13, 2 << 20);
    for pack in image.store.list("packs/", None).unwrap() {
        image.store.delete(&pack.name).unwrap();
    }
    let archive = Archive::open(image.store.clone()).unwrap();
    let error = refusal(&archive, &image.manifest);
    assert!(matches!(error, InstallError::Archive(ArchiveError::Store(_) | ArchiveError::Lost { .. })), "{error}");
}

/// The table of a pack may be damaged where its units are whole: they can be read where the index says.
#[test]
fn a_table_that_is_damaged_costs_no_image() {
    use crate::store::{ByteRange, Store};
    let image = image(14, 2 << 20);
    for pack in image.store.list("packs/", None).unwrap() {
        let mut object = image.store.get(&pack.name, ByteRange::Whole).unwrap();
        let digest = object.len() - 1;
        object[digest] ^= 1;
        image.store.put(&pack.name, &[&object]).unwrap();
    }
    let archive = Archive::open(image.store.clone()).unwrap();
    let target = MemoryTarget::noise(14, 2 << 20);
    install(&archive, &image.manifest, &target, &options(FreeSectorPolicy::Leave, false), &go_on).unwrap();
    assert_holds(&image, &target.bytes.lock(), &|_| None);
}

#[test]
fn every_captured_byte_gets_to_its_place_and_free_sectors_are_treated_as_asked() {
    for (seed, size_bytes) in (0..).zip(SIZES.repeat(4)) {
        let image = image(seed, size_bytes);
        for free in [FreeSectorPolicy::Leave, FreeSectorPolicy::Zero, FreeSectorPolicy::Discard] {
            let behind = (seed % 2) * 10_000;
            let target = MemoryTarget::noise(seed, size_bytes + behind);
            let noise = target.bytes.lock().clone();
            let done = install(&*image.archive, &image.manifest, &target, &options(free, true), &go_on).unwrap();
            let totals = image.manifest.totals;
            assert_eq!((done.written_bytes, done.zero_bytes), (totals.data_bytes, totals.zero_bytes));
            assert_eq!(done.verified_bytes, totals.data_bytes + totals.zero_bytes);
            let middle = Ends::of(size_bytes).middle();
            let discarded_bytes =
                if free == FreeSectorPolicy::Discard { middle.end - middle.start + behind } else { 0 };
            assert_eq!(done.discarded_bytes, discarded_bytes);
            let left = |at: usize| match free {
                FreeSectorPolicy::Leave => noise.get(at).copied(),
                FreeSectorPolicy::Zero => Some(0),
                FreeSectorPolicy::Discard => Some(0xdd),
            };
            assert_holds(&image, &target.bytes.lock(), &left);
        }
    }
}

#[test]
fn the_ends_are_wiped_durably_first_and_written_last() {
    let size_bytes = 3 << 20;
    let image = image(3, size_bytes);
    let target = MemoryTarget::noise(3, size_bytes);
    install(&*image.archive, &image.manifest, &target, &options(FreeSectorPolicy::Leave, false), &go_on).unwrap();
    let calls = target.calls.lock().clone();
    let is_end = |offset: u64, length: usize| offset < 1 << 20 || offset + length as u64 > size_bytes - 33 * 512;
    let parts: Vec<&[Call]> = calls.split(|call| *call == Call::Sync).collect();
    let [wiped, middle, ends, first, []] = parts[..] else { panic!("{} parts", parts.len()) };
    let all = |part: &[Call], holds: &dyn Fn(u64, usize, bool) -> bool| {
        !part.is_empty()
            && part.iter().all(|call| match *call {
                Call::Write { offset, length, is_zero } => holds(offset, length, is_zero),
                Call::Sync => false,
            })
    };
    assert!(all(wiped, &|offset, length, is_zero| is_zero && is_end(offset, length)));
    let wiped_bytes: usize =
        wiped.iter().map(|call| if let Call::Write { length, .. } = call { *length } else { 0 }).sum();
    assert_eq!(wiped_bytes, (1 << 20) + 33 * 512);
    assert!(all(middle, &|offset, length, _| !is_end(offset, length)));
    assert!(all(ends, &|offset, length, _| is_end(offset, length) && offset >= 4096));
    assert_eq!(first.len(), 1);
    assert!(all(first, &|offset, length, _| offset == 0 && length == 4096));
}

#[test]
fn the_backup_of_an_old_table_on_a_longer_target_is_wiped() {
    let image = image(4, 2 << 20);
    for (header, table) in [(512, 33 * 512), (4096, 5 * 4096)] {
        let target = MemoryTarget::noise(4, 4 << 20);
        let end = 4 << 20;
        let (header, table) = (end - header, end - table);
        target.bytes.lock()[header..header + 8].copy_from_slice(b"EFI PART");
        let noise = target.bytes.lock().clone();
        install(&*image.archive, &image.manifest, &target, &options(FreeSectorPolicy::Leave, false), &go_on).unwrap();
        let bytes = target.bytes.lock();
        assert!(bytes[table..].iter().all(|byte| *byte == 0));
        assert!(bytes[2 << 20..table] == noise[2 << 20..table]);
    }
}

#[test]
fn a_target_that_is_too_small_is_not_touched() {
    let image = image(5, 1 << 20);
    let target = MemoryTarget::noise(5, (1 << 20) - 1);
    let error = install(&*image.archive, &image.manifest, &target, &options(FreeSectorPolicy::Zero, false), &go_on)
        .unwrap_err();
    assert!(error.to_string().contains("1048576 bytes"), "{error}");
    assert!(target.calls.lock().is_empty());
    let untouched = MemoryTarget::noise(5, (1 << 20) - 1);
    assert!(*target.bytes.lock() == *untouched.bytes.lock());
}

/// An installation that is stopped at any moment leaves zeroed ends. Regression: after a discard of the whole target,
/// the wiped ends could read as anything.
#[test]
fn a_stopped_installation_leaves_a_disk_that_does_not_boot() {
    let image = image(6, 3 << 20);
    for (free, verify) in [
        (FreeSectorPolicy::Leave, false),
        (FreeSectorPolicy::Zero, true),
        (FreeSectorPolicy::Discard, false),
        (FreeSectorPolicy::Leave, true),
    ] {
        let calls = AtomicU64::new(0);
        let count = |_: Progress| {
            calls.fetch_add(1, Ordering::Relaxed);
            ControlFlow::Continue(())
        };
        let target = MemoryTarget::noise(6, 4 << 20);
        install(&*image.archive, &image.manifest, &target, &options(free, verify), &count).unwrap();
        let total = calls.load(Ordering::Relaxed);
        assert!(total > 10);
        for stop_at in 0..total {
            let target = MemoryTarget::noise(6, 4 << 20);
            let left = AtomicU64::new(stop_at);
            let stop = |_: Progress| {
                let next = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
                if next.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            let stopped = install(&*image.archive, &image.manifest, &target, &options(free, verify), &stop);
            // The order of threads differs, so the last calls of two runs need not be the same ones.
            if let Err(error) = stopped {
                let is_untouched =
                    matches!(&error, InstallError::Untouched(cause) if matches!(**cause, InstallError::Stopped));
                assert!(is_untouched || matches!(error, InstallError::Stopped), "{error}");
                if is_untouched {
                    assert_untouched(&target, 6);
                    continue;
                }
                let bytes = target.bytes.lock();
                let ends = bytes[..1 << 20].iter().chain(&bytes[(3 << 20) - 33 * 512..3 << 20]);
                assert!(ends.copied().all(|byte| byte == 0), "{free:?} {verify} {stop_at}");
            } else {
                assert!(stop_at + 8 > total, "{stop_at} of {total}");
            }
        }
    }
}

/// Between the ends, a free sector may hold anything. In the ends all was written.
#[test]
fn a_target_that_returns_another_bit_is_found_out_and_does_not_boot() {
    let image = image(7, 2 << 20);
    let middle = Ends::of(2 << 20).middle();
    let mut counts = [0, 0];
    for (offset, sector) in (0_u64..).step_by(512).zip(&image.sectors).step_by(37) {
        let flipped = Some(offset + 100);
        let target = MemoryTarget { flipped, ..MemoryTarget::noise(7, 2 << 20) };
        let installed =
            install(&*image.archive, &image.manifest, &target, &options(FreeSectorPolicy::Leave, true), &go_on);
        let is_free = sector.is_none() && middle.contains(&offset);
        counts[usize::from(is_free)] += 1;
        if is_free {
            assert!(installed.is_ok(), "{offset}");
            continue;
        }
        assert!(matches!(installed, Err(InstallError::ReadBack { .. })), "{offset}");
        let bytes = target.bytes.lock();
        let mut ends = bytes[..1 << 20].iter().chain(&bytes[(2 << 20) - 33 * 512..]);
        assert!(ends.all(|byte| *byte == 0), "{offset}");
        let calls = target.calls.lock();
        let is_published = |call: &Call| matches!(call, Call::Write { offset: 4096, length, .. } if *length > 4096);
        // What lies between the ends was read before they were written.
        assert_eq!(calls.iter().any(is_published), !middle.contains(&offset), "{offset}");
        assert_eq!(calls.last(), Some(&Call::Sync), "{offset}");
    }
    assert!(counts.iter().all(|count| *count > 10), "{counts:?}");
}

#[test]
fn a_byte_that_cannot_be_written_is_reported_with_its_place() {
    let image = image(11, 2 << 20);
    let middle = Ends::of(2 << 20).middle();
    let mut found = 0;
    for (sector, _) in (0_u64..).step_by(512).zip(&image.sectors).filter(|(_, content)| content.is_some()).step_by(37) {
        if !middle.contains(&sector) {
            continue;
        }
        let bad = sector + 100;
        let target = MemoryTarget { bad: Some(bad), ..MemoryTarget::noise(11, 2 << 20) };
        let installed =
            install(&*image.archive, &image.manifest, &target, &options(FreeSectorPolicy::Leave, false), &go_on);
        // Zeros are not written here.
        if let Err(error) = installed {
            let place = error.failed_byte().unwrap();
            assert!(matches!(error, InstallError::Target { action: "write", .. }), "{error}");
            assert!((place..place + 4096).contains(&bad), "{bad}: {error}");
            assert_eq!(error.to_string(), format!("cannot write the target at byte {place} of the image or behind it"));
            found += 1;
        }
    }
    assert!(found > 5, "{found}");
}

#[test]
fn a_full_file_system_is_no_failure_of_a_byte() {
    let failed = |kind: io::ErrorKind| {
        let cause = InstallError::Target { action: "write", offset: Some(7), source: kind.into() };
        InstallError::Untouched(Box::new(cause)).failed_byte()
    };
    assert_eq!(failed(io::ErrorKind::Other), Some(7));
    assert_eq!(failed(io::ErrorKind::StorageFull), None);
    assert_eq!(failed(io::ErrorKind::ReadOnlyFilesystem), None);
}

#[test]
fn a_target_that_fails_with_its_ends_written_and_cannot_be_wiped_says_so() {
    let image = image(9, 2 << 20);
    for (fails_after, is_unwiped) in [(0, false), (1, false), (2, true), (3, true), (4, false)] {
        let target = MemoryTarget { fails_after: Some(fails_after), ..MemoryTarget::noise(9, 2 << 20) };
        match install(&*image.archive, &image.manifest, &target, &options(FreeSectorPolicy::Leave, true), &go_on) {
            Ok(_) => assert_eq!(fails_after, 4),
            Err(InstallError::Unwiped { cause, .. }) => {
                assert!(is_unwiped && matches!(*cause, InstallError::Target { action: "write", .. }));
            }
            Err(error) => assert!(!is_unwiped && matches!(error, InstallError::Target { .. }), "{error}"),
        }
    }
}

/// Every unit is verified by its name: a flipped bit is an error, and all that was written until then is right.
#[test]
fn damage_of_a_pack_writes_no_wrong_byte() {
    use crate::store::{ByteRange, Store};
    let image = image(8, 2 << 20);
    let pack = image.store.list("packs/", None).unwrap().remove(0);
    let whole = image.store.get(&pack.name, ByteRange::Whole).unwrap();
    let random = SeededRandom::new(8);
    let (mut failed, mut refused, mut unharmed) = (0, 0, 0);
    for _ in 0..80 {
        let at = usize::try_from(random.below(whole.len() as u64)).unwrap();
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << random.below(8);
        image.store.put(&pack.name, &[&flipped]).unwrap();
        let target = MemoryTarget::noise(8, 2 << 20);
        let archive = Archive::open(image.store.clone());
        let installed = archive.map_err(InstallError::Archive).and_then(|archive| {
            install(&archive, &image.manifest, &target, &options(FreeSectorPolicy::Leave, false), &go_on)
        });
        match installed {
            // The bit was in the table, or in a field that no reader needs.
            Ok(_) => {
                unharmed += 1;
                assert_holds(&image, &target.bytes.lock(), &|_| None);
            }
            Err(InstallError::Archive(_) | InstallError::Untouched(_)) if target.calls.lock().is_empty() => {
                refused += 1;
                assert_untouched(&target, 8);
            }
            Err(_) => {
                failed += 1;
                let noise = MemoryTarget::noise(8, 2 << 20);
                let (bytes, noise) = (target.bytes.lock(), noise.bytes.lock());
                let middle = Ends::of(2 << 20).middle();
                assert!(bytes[..4096].iter().all(|byte| *byte == 0));
                for (offset, sector) in (0..).step_by(512).zip(&image.sectors) {
                    let found = &bytes[offset..offset + 512];
                    let is_right = sector.as_ref().is_some_and(|sector| found == &sector[..]);
                    let is_old = *found == noise[offset..offset + 512];
                    // Only the ends are wiped.
                    let is_wiped = !middle.contains(&(offset as u64)) && found.iter().all(|byte| *byte == 0);
                    assert!(is_right || is_old || is_wiped, "sector at {offset}");
                }
            }
        }
    }
    assert!(failed > 20 && refused > 0, "{failed} failed, {refused} refused, {unharmed} unharmed");
}

#[test]
fn an_image_at_a_place_of_a_target_leaves_the_rest_alone() {
    for (seed, size_bytes) in (0..).zip(SIZES) {
        let image = image(seed, size_bytes);
        for free in [FreeSectorPolicy::Leave, FreeSectorPolicy::Zero, FreeSectorPolicy::Discard] {
            let target = MemoryTarget::noise(seed + 50, size_bytes + 700_000);
            let before = target.bytes.lock().clone();
            let place = TargetPlace::new(&target, 50_176, size_bytes);
            install(&*image.archive, &image.manifest, &place, &options(free, true), &go_on).unwrap();
            let after = target.bytes.lock().clone();
            let range = MemoryTarget::range(50_176, size_bytes);
            assert!(after[..range.start] == before[..range.start] && after[range.end..] == before[range.end..]);
            assert_holds(&image, &after[range], &|_| None);
        }
        let short = MemoryTarget::noise(seed, 50_176 + size_bytes - 1);
        let place = TargetPlace::new(&short, 50_176, size_bytes);
        let outcome =
            install(&*image.archive, &image.manifest, &place, &options(FreeSectorPolicy::Leave, false), &go_on);
        assert!(matches!(outcome, Err(InstallError::TooSmall { .. })), "{outcome:?}");
    }
}

/// A volume of FAT32 or NTFS with its boot sector and a copy at `copy`.
fn volume_with_boot_sectors(content: &str, size_bytes: u64, copy: u64) -> Vec<u8> {
    let mut disk = vec![0x55; usize::try_from(size_bytes).unwrap()];
    let mut boot = vec![3; 512];
    boot[11..13].copy_from_slice(&512_u16.to_le_bytes());
    boot[510..].copy_from_slice(&[0x55, 0xaa]);
    match content {
        "fat32" => boot[50..52].copy_from_slice(&u16::try_from(copy / 512).unwrap().to_le_bytes()),
        _ => boot[40..48].copy_from_slice(&(copy / 512).to_le_bytes()),
    }
    for at in [0, usize::try_from(copy).unwrap()] {
        disk[at..at + 512].copy_from_slice(&boot);
    }
    disk
}

#[test]
fn hidden_sectors_are_right_in_the_boot_sector_and_in_its_copy() {
    // The copy lies in the head and in the tail. A stale boot sector names a place between them, which is a file's.
    for (content, copy) in [("fat32", 6 * 512), ("ntfs", (3 << 20) - 512), ("ntfs", 1_500_160)] {
        let size_bytes = 3 << 20;
        let disk = volume_with_boot_sectors(content, size_bytes, copy);
        let mut manifest = image(1, 512).manifest;
        manifest.size_bytes = size_bytes;
        manifest.volumes = vec![crate::format::manifest::CapturedVolume {
            start_bytes: 0,
            length_bytes: size_bytes,
            content: content.to_owned(),
            way: crate::format::manifest::CaptureWay::Map,
            taken_bytes: 0,
            unread_bytes: 0,
        }];
        let target = MemoryTarget::noise(1, size_bytes);
        let ends = Ends::of(size_bytes);
        ends.write(&target, 0, &disk).unwrap();
        assert_eq!(HiddenSectors::of(&manifest, 0), None, "at the start of a disk, the number stays");
        let hidden = HiddenSectors::of(&manifest, 1 << 20).unwrap();
        assert_eq!(ends.hide(&target, hidden, true).unwrap(), Some(2048));
        ends.publish(&target).unwrap();
        ends.read_back(&target).unwrap();
        let mut expected = disk;
        let is_stale = copy == 1_500_160;
        for at in [0, usize::try_from(copy).unwrap()].into_iter().take(if is_stale { 1 } else { 2 }) {
            expected[at + 28..at + 32].copy_from_slice(&2048_u32.to_le_bytes());
        }
        assert!(*target.bytes.lock() == expected, "{content} {copy}");
        manifest.volumes[0].content = "ext4".to_owned();
        assert_eq!(HiddenSectors::of(&manifest, 1 << 20), None);
        manifest.volumes[0].content = content.to_owned();
        manifest.volumes[0].start_bytes = 512;
        assert_eq!(HiddenSectors::of(&manifest, 1 << 20), None, "a volume of a disk with a table");
    }
}

/// Regression: the wrong part of a table that begins before the held back end was compared with the target.
#[test]
fn a_long_table_is_fitted_to_a_target_that_is_hardly_longer() {
    let disk = fit::tests::disk(8192, 512, 1024);
    for more in [512, 32 << 10, 100 << 10, 1 << 20] {
        let target = MemoryTarget::noise(1, (disk.len() + more) as u64);
        let ends = Ends::of(disk.len() as u64);
        ends.write(&target, 0, &disk).unwrap();
        assert!(ends.fit(target.length_bytes()).unwrap());
        ends.publish(&target).unwrap();
        ends.read_back(&target).unwrap();
        let bytes = target.bytes.lock();
        let (header, entries) = (bytes.len() - 512, 1024 * 128);
        assert!(bytes[header..].starts_with(b"EFI PART"), "{more}");
        assert!(bytes[header - entries..header] == bytes[1024..1024 + entries], "{more}");
    }
}

#[test]
fn a_disk_without_a_table_is_not_fitted_and_does_not_boot() {
    let image = image(4, 3 << 20);
    let target = MemoryTarget::noise(4, 4 << 20);
    let options = InstallOptions { fit: true, ..options(FreeSectorPolicy::Leave, false) };
    let outcome = install(&*image.archive, &image.manifest, &target, &options, &go_on);
    assert!(matches!(outcome, Err(InstallError::Fit(FitError::NoTable))), "{outcome:?}");
    assert!(target.bytes.lock()[..512].iter().all(|byte| *byte == 0));
}
