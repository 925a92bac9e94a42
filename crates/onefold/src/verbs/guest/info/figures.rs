//! The use of a disk's bytes: allocated, free, misaligned, and free but not zero.

use std::fmt::Write;

use onefold_block::{BLOCK_BYTES, zero};
use onefold_disk::Disk;
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::AllocationDifferences;
use onefold_guest::guest::{DiskRun, DiskUse, Guest, GuestVolume};
use onefold_guest::volume::DiskRange;
use serde_json::{Map, Value, json};

use crate::size::human;

/// Number of bytes that are read at once in the search for stale ones.
const PIECE_BYTES: usize = 1 << 20;

/// Figures of a disk. They add up to its length.
#[derive(Debug)]
pub(super) struct Figures {
    volumes: Vec<VolumeFigures>,
    gaps_bytes: u64,
    has_stale: bool,
}

/// Figures of a volume.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VolumeFigures {
    pub(super) allocated_bytes: u64,
    pub(super) free_bytes: u64,
    /// Allocated bytes that no other disk can share by blocks of 4 KiB.
    pub(super) misaligned_bytes: u64,
    misaligned_because: Option<&'static str>,
    /// Bytes of free blocks that are not zero, if they were searched for.
    stale_bytes: Option<u64>,
    /// Differences between the sources of its allocation map, if it has one.
    differences: Option<AllocationDifferences>,
}

impl Figures {
    /// Adds up the use of a disk. Reads free blocks if stale bytes are requested.
    pub(super) fn of(guest: &Guest<'_>, stale: bool) -> Result<Figures, GuestError> {
        let stale_bytes = stale.then_some(0);
        let start = |volume: &GuestVolume<'_>| VolumeFigures {
            stale_bytes,
            misaligned_because: misaligned_because(volume),
            ..VolumeFigures::default()
        };
        let volumes = guest.volumes().iter().map(start).collect();
        let mut figures = Figures { volumes, gaps_bytes: 0, has_stale: stale };
        guest.each_run(&mut |run| figures.add(guest.disk(), &run))?;
        for (figures, volume) in figures.volumes.iter_mut().zip(guest.volumes()) {
            figures.differences = volume.file_system().and_then(|system| system.allocation_differences());
        }
        Ok(figures)
    }

    fn add(&mut self, disk: &dyn Disk, run: &DiskRun) -> Result<(), GuestError> {
        let length = run.range.length_bytes;
        let DiskUse::Volume(at, _) = run.use_ else {
            self.gaps_bytes += length;
            return Ok(());
        };
        let Some(volume) = self.volumes.get_mut(at) else { return Ok(()) };
        if run.use_.is_free() {
            volume.free_bytes += length;
            if let Some(stale) = &mut volume.stale_bytes {
                *stale += stale_in(disk, run.range)?;
            }
        } else {
            volume.allocated_bytes += length;
            volume.misaligned_bytes += if volume.misaligned_because.is_some() { length } else { 0 };
        }
        Ok(())
    }

    /// Returns the figures of a volume, by its index in the guest.
    pub(super) fn of_volume(&self, at: usize) -> VolumeFigures {
        self.volumes.get(at).copied().unwrap_or_default()
    }

    fn stale_bytes(&self) -> Option<u64> {
        self.has_stale.then(|| self.volumes.iter().filter_map(|volume| volume.stale_bytes).sum())
    }

    /// Adds the lines about the whole disk. `names` are those of all volumes of the guest.
    pub(super) fn text(&self, text: &mut String, names: impl Iterator<Item = String>) {
        // Writing into a string does not fail.
        for (volume, name) in self.volumes.iter().zip(names) {
            if let Some(why) = volume.misaligned_because {
                let _ = writeln!(text, "  {name}: misaligned, because {why}");
            }
            for (bytes, what) in volume.differences.iter().flat_map(named) {
                let _ = writeln!(text, "  {name}: {} counted as allocated because {what}", human(bytes));
            }
        }
        if let Some(stale) = self.stale_bytes() {
            let _ = writeln!(
                text,
                "  stale: {} are free and not zero; trimming in the guest would save them",
                human(stale)
            );
        }
        let _ = writeln!(text, "  between volumes: {}, counted as allocated", human(self.gaps_bytes));
    }

    /// Returns the document members about the whole disk.
    pub(super) fn json(&self) -> Map<String, Value> {
        let sum = |of: fn(&VolumeFigures) -> u64| self.volumes.iter().map(of).sum::<u64>();
        let members = json!({
            "allocated_bytes": sum(|volume| volume.allocated_bytes),
            "free_bytes": sum(|volume| volume.free_bytes),
            "gaps_bytes": self.gaps_bytes,
            "misaligned_bytes": sum(|volume| volume.misaligned_bytes),
            "stale_bytes": self.stale_bytes(),
        });
        members.as_object().cloned().unwrap_or_default()
    }
}

impl VolumeFigures {
    /// Returns the document members about a volume.
    pub(super) fn json(&self) -> Map<String, Value> {
        let members = json!({
            "allocated_bytes": self.allocated_bytes,
            "free_bytes": self.free_bytes,
            "misaligned_bytes": self.misaligned_bytes,
            "misaligned_because": self.misaligned_because,
            "stale_bytes": self.stale_bytes,
            "differences": self.differences.map(|differences| json!({
                "before_recovery_bytes": differences.before_recovery_bytes,
                "reached_bytes": differences.reached_bytes,
                "between_copies_bytes": differences.between_copies_bytes,
            })),
        });
        members.as_object().cloned().unwrap_or_default()
    }
}

/// Returns the differences that are there, with their causes.
fn named(differences: &AllocationDifferences) -> impl Iterator<Item = (u64, &'static str)> {
    let AllocationDifferences { before_recovery_bytes, reached_bytes, between_copies_bytes } = *differences;
    let named = [
        (before_recovery_bytes, "the bitmaps had them in use before recovery"),
        (reached_bytes, "files reach them, though the bitmaps call them free"),
        (between_copies_bytes, "one copy of the table has them in use"),
    ];
    named.into_iter().filter(|(bytes, _)| *bytes > 0)
}

/// Returns why the blocks of a volume are not aligned to 4 KiB blocks of the disk; `None` if they are.
fn misaligned_because(volume: &GuestVolume<'_>) -> Option<&'static str> {
    let begins_within = |range: &DiskRange| !range.start_bytes.is_multiple_of(BLOCK_BYTES as u64);
    if volume.volume.ranges.iter().any(begins_within) {
        return Some("the volume begins within a block of 4 KiB");
    }
    let system = volume.file_system()?;
    if system.facts().block_bytes < BLOCK_BYTES as u64 {
        return Some("the blocks of the file system are smaller than 4 KiB");
    }
    let is_across = !system.blocks_start().is_multiple_of(BLOCK_BYTES as u64);
    is_across.then_some("the data area of the FAT begins within a block of 4 KiB")
}

/// Returns the bytes of a free range that lie in 4 KiB pieces with content other than zeros. The pieces count from the
/// range's start. Holes are not read.
fn stale_in(disk: &dyn Disk, range: DiskRange) -> Result<u64, GuestError> {
    let (mut at, end, mut stale) = (range.start_bytes, range.end_bytes(), 0);
    let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(range.length_bytes).unwrap_or(PIECE_BYTES))];
    while at < end {
        // Pieces count from the start of the range, wherever data begins.
        let Some(data) = disk.next_data(at)?.filter(|data| data.start < end) else { break };
        at += data.start.saturating_sub(at) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        let stop = data.end.max(at + 1).min(end);
        while at < stop {
            let length = usize::try_from(end - at).unwrap_or(PIECE_BYTES).min(piece.len());
            let bytes = &mut piece[..length];
            disk.read(at, bytes)?;
            let blocks = bytes.chunks(BLOCK_BYTES).filter(|block| !zero::is_zero(block));
            stale += blocks.map(|block| block.len() as u64).sum::<u64>();
            at += length as u64;
        }
    }
    Ok(stale)
}
