//! How an analysis does on more data than a machine has: images that are made up as they are read.
//!
//! `cargo run --release -p onefold-report --example analyze_scale [GiB [MiB of memory [folder]]]`
//!
//! Half of each image's blocks are its own, half are those of all the others. Prints the rate, the most memory, and
//! what went into temporary files. Numbers that are not as they must be end it with an error. Then a sample of the same
//! set is analysed, beside that: how much faster, and whether its range holds.

use std::error::Error;
use std::ops::{ControlFlow, Range};
use std::path::PathBuf;
use std::time::Instant;

use onefold_disk::{Disk, DiskError};
use onefold_report::{Image, Options, Progress, Share, Shifts, Stage, WatchedDisk, analyze, analyze_sample};

const BLOCK: u64 = 4096;
const IMAGES: u64 = 8;
/// Shared and own blocks take turns in stretches of so many.
const STRETCH: u64 = 64;

/// A disk in which block `index` is filled with a number: even stretches are the same in all images.
struct GeneratedDisk {
    image: u64,
    size_bytes: u64,
}

impl GeneratedDisk {
    fn number(&self, index: u64) -> u64 {
        let owner = if (index / STRETCH).is_multiple_of(2) { 0 } else { self.image + 1 };
        // Never zero.
        (owner << 48 | index) + 1
    }
}

impl Disk for GeneratedDisk {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        Ok((offset < self.size_bytes).then_some(offset..self.size_bytes))
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        for (index, block) in (offset / BLOCK..).zip(into.chunks_mut(4096)) {
            let number = self.number(index).to_le_bytes();
            block.fill(number[0]);
            let length = block.len().min(8);
            block[..length].copy_from_slice(&number[..length]);
        }
        Ok(())
    }
}

/// Tells from time to time how far it is.
struct ProgressPrinter(Instant);

impl Progress for ProgressPrinter {
    fn update(&self, stage: Stage, done: u64, total: u64) -> ControlFlow<()> {
        if done % (64 << 30) < 1 << 16 {
            eprintln!("{:6.1} s: {stage:?} {done} of {total}", self.0.elapsed().as_secs_f64());
        }
        ControlFlow::Continue(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |otherwise: u64| arguments.next().map_or(Ok(otherwise), |text| text.parse());
    let (gib, memory_mib) = (number(64)?, number(512)?);
    let folder = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let size_bytes = (gib << 30) / IMAGES / (2 * STRETCH * BLOCK) * (2 * STRETCH * BLOCK);
    let image = |at: u64| Image {
        name: format!("image-{at}"),
        about_bytes: size_bytes,
        allocated_bytes: size_bytes,
        group: None,
        is_plain: true,
        is_copied: false,
        open: Box::new(move || {
            Ok(WatchedDisk {
                disk: Box::new(GeneratedDisk { image: at, size_bytes }),
                has_changed: Box::new(|| false),
                has_writer: false,
            })
        }),
    };
    let images: Vec<Image> = (0..IMAGES).map(image).collect();
    let options = Options {
        memory_bytes: memory_mib.saturating_sub(32) << 20,
        folder,
        key: [7; 32],
        groups: Vec::new(),
        shifts: Shifts::No,
        files: false,
        explain: ToString::to_string,
    };
    let started = Instant::now();
    let found = analyze(&images, &options, &ProgressPrinter(started))?;
    let seconds = started.elapsed().as_secs_f64();
    let expected = size_bytes / 2 * (IMAGES + 1);
    if found.total.distinct_bytes != expected {
        return Err(format!("{} distinct bytes, not {expected}", found.total.distinct_bytes).into());
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    println!(
        "{:.1} GiB in {seconds:.1} s, {:.2} GiB/s; {peak}; {:.2} GiB in temporary files",
        found.effort.read_bytes as f64 / f64::from(1 << 30),
        found.effort.read_bytes as f64 / f64::from(1 << 30) / seconds,
        found.effort.spilled_bytes as f64 / f64::from(1 << 30),
    );
    let started = Instant::now();
    let found = analyze_sample(&images, &options, Share::USUAL, &ProgressPrinter(started))?;
    let sampled_seconds = started.elapsed().as_secs_f64();
    let range = found.total.distinct_bytes;
    println!(
        "a sample of {:.1} %, {:.1} GiB, in {sampled_seconds:.2} s: {:.1} times as fast; distinct {:.2} to {:.2} GiB, truly {:.2}{}",
        found.sample.read_share * 100.0,
        found.effort.read_bytes as f64 / f64::from(1 << 30),
        seconds / sampled_seconds,
        range.low as f64 / f64::from(1 << 30),
        range.high as f64 / f64::from(1 << 30),
        expected as f64 / f64::from(1 << 30),
        if (range.low..=range.high).contains(&expected) { "" } else { ": NOT WITHIN, as up to 5 in 100 may be" },
    );
    Ok(())
}
