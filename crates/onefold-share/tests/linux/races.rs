//! Sharing beside a guest that writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onefold_block::random::SeededRandom;
use onefold_block::{AlignedBuffer, BLOCK_BYTES};
use onefold_linux::LinuxFile;
use onefold_substrate::{Access, At, ComparisonResult, ShareError, Sharing};
use rustix::fs::{Mode, OFlags};

use crate::ground::{Ground, K, on_each};

/// Blocks of a guest's file.
pub(crate) const BLOCKS: u64 = 64;
const TIME: Duration = Duration::from_millis(1500);

/// Fills a block with one of a few contents, so that blocks are often equal and soon not any more.
pub(crate) fn fill(block: &mut [u8], content: u8) {
    for (index, byte) in block.iter_mut().enumerate() {
        *byte = content.wrapping_mul(31).wrapping_add(u8::try_from(index % 251).unwrap());
    }
}

/// Writes and reads a file past the page cache, as QEMU does (`cache=none`), and looks whether each block is as it was
/// last written. Returns how many blocks it wrote.
pub(crate) fn guest(ground: &Ground, name: &str, seed: u64, is_over: &AtomicBool) -> u64 {
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = rustix::fs::open(ground.root.join(name), flags, Mode::empty()).unwrap();
    let random = SeededRandom::new(seed);
    let mut written = vec![0; BLOCKS as usize];
    let (mut buffer, mut expected) = (AlignedBuffer::zeroed(1), vec![0; BLOCK_BYTES]);
    let mut writes = 0;
    while !is_over.load(Ordering::Relaxed) {
        let block = random.below(BLOCKS);
        written[block as usize] = random.below(3) as u8;
        fill(&mut buffer, written[block as usize]);
        assert_eq!(rustix::io::pwrite(&file, &buffer[..], block * K).unwrap(), BLOCK_BYTES);
        writes += 1;
        for block in [block, random.below(BLOCKS), random.below(BLOCKS)] {
            assert_eq!(rustix::io::pread(&file, &mut buffer[..], block * K).unwrap(), BLOCK_BYTES);
            fill(&mut expected, written[block as usize]);
            assert!(buffer[..] == expected[..], "{name}: block {block} after {writes} writes");
        }
    }
    for block in 0..BLOCKS {
        assert_eq!(rustix::io::pread(&file, &mut buffer[..], block * K).unwrap(), BLOCK_BYTES);
        fill(&mut expected, written[block as usize]);
        assert!(buffer[..] == expected[..], "{name}: block {block} at the end");
    }
    writes
}

/// Shares ranges of both files with each other wherever they are equal. Returns how many it shared.
fn sharer(ground: &Ground, files: &[LinuxFile; 2]) -> u64 {
    let (random, start) = (SeededRandom::new(3), Instant::now());
    let mut shared = 0;
    while start.elapsed() < TIME {
        let length = 1 + random.below(2);
        let (from, into) = (random.below(BLOCKS - length), random.below(BLOCKS - length));
        let pair = if random.below(2) == 0 { [&files[0], &files[1]] } else { [&files[1], &files[0]] };
        let outcome = ground.substrate.share(
            At { file: pair[0], offset: from * K },
            At { file: pair[1], offset: into * K },
            length * K,
        );
        match outcome {
            Ok(ComparisonResult::Shared) => shared += 1,
            Ok(ComparisonResult::Differ) | Err(ShareError::Busy) => {}
            Err(error) => panic!("{error}"),
        }
    }
    shared
}

#[test]
fn a_guest_reads_what_it_wrote_whatever_is_shared_meanwhile() {
    on_each(|ground| {
        let mut content = vec![0; (BLOCKS * K) as usize];
        content.chunks_mut(BLOCK_BYTES).for_each(|block| fill(block, 0));
        drop((ground.file("one", &content), ground.file("other", &content)));
        let files = ["one", "other"].map(|name| ground.open(name, Access::Write));
        let is_over = AtomicBool::new(false);
        let (writes, shared) = std::thread::scope(|scope| {
            let is_over = &is_over;
            let guests =
                [("one", 1), ("other", 2)].map(|(name, seed)| scope.spawn(move || guest(ground, name, seed, is_over)));
            let shared = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sharer(ground, &files)));
            is_over.store(true, Ordering::Relaxed);
            (guests.map(|guest| guest.join().unwrap()), shared.unwrap())
        });
        assert!(writes.iter().all(|writes| *writes > 10) && shared > 10, "{writes:?} writes, {shared} shared");
        println!("{}: {writes:?} writes, {shared} ranges shared", ground.kind());
    });
}
