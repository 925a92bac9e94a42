//! What goes wrong: images that fail half way or change, temporary folders that do not take anything, a user who stops
//! it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::ops::{ControlFlow, Range};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{Memory, SilentProgress, analyzed, image, image_of, options, random_images};
use onefold_disk::{Disk, DiskError};
use onefold_report::{AnalyzeError, GROUPS_MAX, Image, Options, Progress, Shifts, Stage, WatchedDisk, analyze};

fn memory(bytes: &[u8]) -> Memory {
    Memory { bytes: Arc::new(bytes.to_vec()), fails_at: None, changes: false }
}

#[test]
fn nothing_of_an_image_that_fails_half_way_counts() {
    for seed in 0..6 {
        let mut images = random_images(seed, 3, 900);
        // Long enough to be half read.
        images[1].resize(3 << 20, 7);
        let failing = images[1].clone();
        let whole = [image("a", &images[0]), image("c", &images[2])];
        let with = [
            image("a", &images[0]),
            image_of("b", move || Ok(Memory { fails_at: Some(2 << 20), ..memory(&failing) })),
            image_of("gone", || Err(DiskError::Other("there is no such file".into()))),
            image("c", &images[2]),
        ];
        // What is read of the next image ahead of its turn changes nothing.
        let files = Options { files: true, ..options() };
        let (mut ahead, expected) = (analyzed(&with, &files), analyzed(&whole, &files));
        assert_eq!(ahead.left_out.len(), 2, "seed {seed}");
        (ahead.left_out, ahead.effort) = (Vec::new(), expected.effort.clone());
        assert_eq!(ahead, expected, "seed {seed}");
        let mut found = analyzed(&with, &options());
        let left: Vec<(String, String)> = found.left_out.drain(..).map(|left| (left.name, left.why)).collect();
        assert_eq!(left[0], ("b".into(), "the disk is gone".into()));
        assert_eq!(left[1], ("gone".into(), "there is no such file".into()));
        let expected = analyzed(&whole, &options());
        found.effort = expected.effort.clone();
        assert_eq!(found, expected, "seed {seed}");
    }
}

/// An image some of whose reads take long.
struct SlowDisk {
    memory: Memory,
    is_slow: fn(usize) -> bool,
}

impl Disk for SlowDisk {
    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        self.memory.next_data(offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        if (self.is_slow)(into.len()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.memory.read(offset, into)
    }
}

/// Makes an image a disk with one partition of what is unknown, and returns the bytes outside of it that are not zero.
fn partition(bytes: &mut Vec<u8>) -> u64 {
    bytes.resize(9 << 20, 0);
    let (first, count) = (3000_u32, 9000_u32);
    bytes[..512].fill(0);
    bytes[450] = 0x83;
    bytes[454..458].copy_from_slice(&first.to_le_bytes());
    bytes[458..462].copy_from_slice(&count.to_le_bytes());
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    let partition = first as usize / 8..(first + count) as usize / 8;
    let blocks = bytes.chunks(4096).enumerate().filter(|(at, _)| !partition.contains(at));
    4096 * blocks.filter(|(_, block)| block.iter().any(|byte| *byte != 0)).count() as u64
}

/// Blocks are read in pieces of 1 MiB, and guests in smaller ones. Which of the two is over first must not be seen.
#[test]
fn a_guest_that_takes_longer_than_the_blocks_changes_nothing() {
    let mut images = random_images(11, 3, 2500);
    let outside: u64 = images.iter_mut().map(partition).sum();
    assert!(outside > 1 << 20, "{outside}");
    let slow: [fn(usize) -> bool; 3] = [|_| false, |length| length < 256 << 10, |length| length >= 256 << 10];
    let found = slow.map(|is_slow| {
        let slow = |bytes: &Vec<u8>| {
            let bytes = bytes.clone();
            let open = move || {
                let disk = Box::new(SlowDisk { memory: memory(&bytes), is_slow });
                Ok(WatchedDisk { disk, has_changed: Box::new(|| false), has_writer: false })
            };
            Image { open: Box::new(open), ..image("slow", &[]) }
        };
        let images: Vec<Image> = images.iter().map(slow).collect();
        // The least memory has room for one piece that waits, the other for all.
        [1 << 20, 256 << 20].map(|memory_bytes| {
            let mut found = analyzed(&images, &Options { files: true, memory_bytes, ..options() });
            found.effort = Default::default();
            found
        })
    });
    let expected = &found[0][1];
    let files = expected.files.as_ref().unwrap();
    assert_eq!(files.total.classes.gap_bytes, outside);
    assert!(files.total.classes.not_read_bytes > 1 << 20, "{:?}", files.total.classes);
    assert!(found.as_flattened().iter().all(|found| found == expected));
}

#[test]
fn an_image_that_changed_is_counted_and_told() {
    let bytes = random_images(1, 1, 300).remove(0);
    let copy = bytes.clone();
    let images = [image_of("live", move || Ok(Memory { changes: true, ..memory(&copy) })), image("still", &bytes)];
    let found = analyzed(&images, &options());
    assert!(found.images[0].changed_meanwhile && !found.images[1].changed_meanwhile);
    assert_eq!(found.images[0].distinct_bytes, found.images[1].distinct_bytes);
}

#[test]
fn an_image_of_absurd_length_is_left_out() {
    struct EndlessDisk;
    impl Disk for EndlessDisk {
        fn size_bytes(&self) -> u64 {
            u64::MAX
        }
        fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
            Ok(Some(offset..u64::MAX))
        }
        fn read(&self, _: u64, into: &mut [u8]) -> Result<(), DiskError> {
            into.fill(1);
            Ok(())
        }
    }
    let mut endless = image("endless", &[]);
    endless.open = Box::new(|| {
        Ok(WatchedDisk { disk: Box::new(EndlessDisk), has_changed: Box::new(|| false), has_writer: false })
    });
    let found = analyzed(&[endless], &options());
    assert!(found.images.is_empty() && found.left_out[0].why.contains("4 PiB"), "{found:?}");
}

#[test]
fn a_temporary_folder_that_takes_nothing_is_named() {
    let images = [image("a", &random_images(3, 1, 900)[0])];
    let nowhere = Options { memory_bytes: 8 << 10, folder: PathBuf::from("/proc/nowhere"), ..options() };
    let error = analyze(&images, &nowhere, &SilentProgress).unwrap_err();
    assert!(matches!(error, AnalyzeError::Spill { .. }) && error.to_string().contains("/proc/nowhere"), "{error}");
}

#[test]
fn too_many_groups_are_refused() {
    let groups = vec![String::new(); GROUPS_MAX + 1];
    let error = analyze(&[], &Options { groups, ..options() }, &SilentProgress).unwrap_err();
    assert!(matches!(error, AnalyzeError::TooManyGroups(_)), "{error}");
}

/// Stops at the call with this number, and checks that progress only goes forward.
struct StoppingProgress {
    calls_left: AtomicU64,
    stage: Stage,
    reached: AtomicU64,
}

impl Progress for StoppingProgress {
    fn update(&self, stage: Stage, done: u64, total: u64) -> ControlFlow<()> {
        assert!(done <= total, "{done} of {total}");
        if stage != self.stage {
            return ControlFlow::Continue(());
        }
        self.reached.fetch_max(done, Ordering::Relaxed);
        let before = self.calls_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if before.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

#[test]
fn it_stops_when_asked_to_in_either_stage() {
    let mut images = random_images(4, 3, 900);
    images.iter_mut().for_each(|bytes| bytes.resize(4 << 20, 5));
    let images: Vec<_> = images.iter().map(|bytes| image("a", bytes)).collect();
    for (stage, calls) in [(Stage::Reading, 0), (Stage::Reading, 5), (Stage::Reading, 60), (Stage::Counting, 0)] {
        for files in [false, true] {
            let progress = StoppingProgress { calls_left: AtomicU64::new(calls), stage, reached: AtomicU64::new(0) };
            let result = analyze(&images, &Options { shifts: Shifts::All, files, ..options() }, &progress);
            assert!(matches!(result, Err(AnalyzeError::Interrupted)), "{stage:?}, {calls}, {files}");
        }
    }
    // All that there is to read is told, once.
    let progress =
        StoppingProgress { calls_left: AtomicU64::new(u64::MAX), stage: Stage::Reading, reached: AtomicU64::new(0) };
    analyze(&images, &Options { shifts: Shifts::All, ..options() }, &progress).unwrap();
    let reached = progress.reached.into_inner();
    assert!(reached > 11 << 20 && reached <= 12 << 20, "{reached}");
}

/// A disk that notes how many copies are open at once.
struct CountedDisk {
    memory: Memory,
    open: Arc<AtomicU64>,
}

impl Disk for CountedDisk {
    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        self.memory.next_data(offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        // Time for the next image to be opened.
        std::thread::sleep(Duration::from_millis(1));
        self.memory.read(offset, into)
    }
}

impl Drop for CountedDisk {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The next image was opened while one was read, so that the copies of both took room.
#[test]
fn no_two_copies_are_there_at_once() {
    let bytes = random_images(3, 1, 900).remove(0);
    for (copied, expected) in [(&[true; 5][..], 1), (&[false, true, false, true, true], 1), (&[false; 5], 0)] {
        let (open, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let made = |(at, is_copied): (usize, &bool)| {
            let (bytes, open, most, is_copied) = (bytes.clone(), Arc::clone(&open), Arc::clone(&most), *is_copied);
            let opened = move || {
                if !is_copied {
                    return Ok(memory(&bytes).watched());
                }
                most.fetch_max(open.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                let disk = Box::new(CountedDisk { memory: memory(&bytes), open: Arc::clone(&open) });
                Ok(WatchedDisk { disk, has_changed: Box::new(|| false), has_writer: false })
            };
            Image { is_copied, open: Box::new(opened), ..image(&format!("image {at}"), &[]) }
        };
        let images: Vec<Image> = copied.iter().enumerate().map(made).collect();
        let found = analyzed(&images, &Options { files: true, ..options() });
        assert_eq!(found.left_out, []);
        assert_eq!(most.load(Ordering::Relaxed), expected, "{copied:?}");
        assert_eq!(open.load(Ordering::Relaxed), 0);
    }
}
