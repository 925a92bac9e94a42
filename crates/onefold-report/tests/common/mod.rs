//! What the tests share: images in memory, and a way to analyse them.

#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod browser;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use onefold_block::random::SeededRandom;
use onefold_disk::{Disk, DiskError};
use onefold_report::{Analysis, AnalyzeError, Image, Options, Progress, Shifts, Stage, WatchedDisk, analyze};

/// An image in memory. Its holes are its zero stretches of 64 KiB.
pub(crate) struct Memory {
    pub(crate) bytes: Arc<Vec<u8>>,
    /// Reading fails from here on.
    pub(crate) fails_at: Option<u64>,
    pub(crate) changes: bool,
}

const HOLE_BYTES: usize = 64 << 10;

impl Disk for Memory {
    fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        let mut start = usize::try_from(offset).unwrap();
        while start < self.bytes.len() {
            let end = (start / HOLE_BYTES + 1) * HOLE_BYTES;
            let end = end.min(self.bytes.len());
            if self.bytes[start..end].iter().any(|&byte| byte != 0) {
                return Ok(Some(start as u64..end as u64));
            }
            start = end;
        }
        Ok(None)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let end = offset + into.len() as u64;
        if self.fails_at.is_some_and(|at| at < end) {
            return Err(DiskError::Other("the disk is gone".into()));
        }
        let offset = usize::try_from(offset).unwrap();
        let there = self.bytes.len().saturating_sub(offset).min(into.len());
        into[..there].copy_from_slice(&self.bytes[offset..offset + there]);
        into[there..].fill(0);
        Ok(())
    }
}

impl Memory {
    pub(crate) fn watched(self) -> WatchedDisk {
        let changes = self.changes;
        WatchedDisk { disk: Box::new(self), has_changed: Box::new(move || changes), has_writer: false }
    }
}

/// Returns an image of these bytes, a plain file that occupies what is not zero.
pub(crate) fn image(name: &str, bytes: &[u8]) -> Image {
    let bytes = Arc::new(bytes.to_vec());
    let length = bytes.len() as u64;
    Image {
        name: name.to_owned(),
        about_bytes: length,
        allocated_bytes: length,
        group: None,
        is_plain: true,
        is_copied: false,
        open: Box::new(move || Ok(Memory { bytes: Arc::clone(&bytes), fails_at: None, changes: false }.watched())),
    }
}

/// Returns an image that opens as `make` says.
pub(crate) fn image_of(name: &str, make: impl Fn() -> Result<Memory, DiskError> + Sync + 'static) -> Image {
    Image { open: Box::new(move || Ok(make()?.watched())), ..image(name, &[]) }
}

pub(crate) fn options() -> Options {
    Options {
        memory_bytes: 1 << 20,
        folder: std::env::temp_dir(),
        key: [7; 32],
        groups: Vec::new(),
        shifts: Shifts::No,
        files: false,
        explain: ToString::to_string,
    }
}

/// Shows nothing, and never stops.
pub(crate) struct SilentProgress;

impl Progress for SilentProgress {
    fn update(&self, _: Stage, _: u64, _: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

pub(crate) fn analyzed(images: &[Image], options: &Options) -> Analysis {
    let analysis: Result<Analysis, AnalyzeError> = analyze(images, options, &SilentProgress);
    analysis.unwrap()
}

/// Images that share blocks in many ways: equal and shifted stretches, repeats, zeros, odd lengths, different sizes.
pub(crate) fn random_images(seed: u64, count: usize, blocks_max: u64) -> Vec<Vec<u8>> {
    let random = SeededRandom::new(seed);
    let below = |bound: u64| random.next_u64() % bound.max(1);
    let block = |number: u64| -> Vec<u8> {
        let numbers = SeededRandom::new(number);
        (0..512).flat_map(|_| numbers.next_u64().to_le_bytes()).collect()
    };
    let mut images: Vec<Vec<u8>> = Vec::new();
    for _ in 0..count {
        let mut bytes = Vec::new();
        let length = below(blocks_max);
        while (bytes.len() as u64) < length * 4096 {
            let run = 1 + below(40);
            match below(6) {
                0 => bytes.resize(bytes.len() + usize::try_from(run * 4096).unwrap(), 0),
                1 => (0..run).for_each(|_| bytes.extend(block(1 + below(3)))),
                2 => (0..run).for_each(|_| bytes.extend(block(random.next_u64()))),
                3 => {
                    let first = below(300);
                    (first..first + run).for_each(|number| bytes.extend(block(100 + number)));
                }
                4 if !images.is_empty() => {
                    // The same as another image at the same offset, as clones have it.
                    let other = &images[usize::try_from(below(images.len() as u64)).unwrap()];
                    let start = bytes.len().min(other.len());
                    let end = (start + usize::try_from(run * 16384).unwrap()).min(other.len());
                    bytes.extend(&other[start..end]);
                    bytes.resize(bytes.len().next_multiple_of(4096), 0);
                }
                _ => {
                    // A stretch that begins inside a block.
                    bytes.extend(vec![9; 512 * usize::try_from(1 + below(7)).unwrap()]);
                    bytes.extend(block(1000 + below(4)));
                    bytes.resize(bytes.len().next_multiple_of(4096), 0);
                }
            }
        }
        bytes.truncate(usize::try_from(length * 4096 + below(4096)).unwrap());
        images.push(bytes);
    }
    images
}
