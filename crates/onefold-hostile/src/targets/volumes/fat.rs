//! FAT volumes: boot sector, tables, directories. FAT has no checksums, so every change is believed.

use std::collections::HashSet;
use std::ops::{ControlFlow, Range};
use std::sync::LazyLock;

use onefold_guest::error::GuestError;
use onefold_guest::fat::Fat;
use onefold_guest::filesystem::{AllocationClass, FileKind, FileNumber, FileSystem};
use onefold_guest::volume::VolumeReader;

use super::disk::{CountedDisk, SECTOR_BYTES, SECTOR_LENGTH, Sectors};
use crate::Choices;

/// More files than the records of the largest seed.
const FILES_MAX: usize = 1 << 21;
/// Maximum number of files to read. A seed has fewer than twenty; content taken for directories makes many.
const FILES_USED: usize = 60;
/// Maximum number of bytes to read of a file.
const READ_LENGTH: usize = 4000;

static SEEDS: LazyLock<[Sectors; 3]> = LazyLock::new(|| {
    [
        include_bytes!("../../../seeds/fat12.seed").as_slice(),
        include_bytes!("../../../seeds/fat16.seed"),
        include_bytes!("../../../seeds/fat32.seed"),
    ]
    .map(Sectors::decode)
});

pub(crate) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let seed = &SEEDS[*choices.one_of(&[0, 0, 0, 0, 0, 1, 1, 2])];
    let mut image = seed.clone();
    let used: Vec<u64> = seed.sectors.keys().copied().collect();
    for _ in 0..1 + choices.below(6) {
        damage(&mut choices, &used, &mut image);
    }
    if choices.below(16) == 0 {
        image.size_bytes = choices.below(image.size_bytes);
    }
    let mut disk = CountedDisk::new(image);
    {
        let whole = disk.whole();
        if let Ok(Some(fat)) = Fat::open(VolumeReader::new(&disk, &whole)) {
            use_everything(&fat, disk.image.size_bytes).expect("the disk does not fail");
        }
    }
    if disk.fail_after(choices.below(256)) {
        let whole = disk.whole();
        if let Ok(Some(fat)) = Fat::open(VolumeReader::new(&disk, &whole)) {
            let outcome = use_everything(&fat, disk.image.size_bytes);
            assert!(outcome.is_ok() || disk.has_failed(), "{outcome:?}");
        }
    }
}

fn damage(choices: &mut Choices<'_>, used: &[u64], image: &mut Sectors) {
    // The boot sector, the first sectors (its tables), and all others.
    let sector = match choices.below(4) {
        0 => 0,
        1 => used[choices.index(used.len().min(8))],
        _ => *choices.one_of(used),
    };
    // Fields of the boot sector; entries of tables and records.
    let within = if sector == 0 { choices.below(80) } else { choices.below(SECTOR_LENGTH as u64) };
    let number = match choices.below(4) {
        0 => choices.number(),
        1 => *choices.one_of(&[0, 1, 2, 0xfff, 0xff8, 0xff7, 0xffff, 0x0fff_ffff, u64::MAX, 0x2f, 0xe5]),
        _ => choices.below(256),
    };
    let length = *choices.one_of(&[1, 1, 2, 2, 4]);
    image.put(sector * SECTOR_BYTES + within, &number.to_le_bytes()[..length]);
}

/// Makes all queries of a volume. Fails if the disk does, and only then.
fn use_everything(fat: &Fat<'_>, volume_bytes: u64) -> Result<(), GuestError> {
    let free = free_ranges(fat, volume_bytes)?;
    let mut files = Vec::new();
    let mut numbers = HashSet::new();
    fat.each_file(&mut |file, stat| {
        assert!(numbers.insert(file), "each file comes once");
        assert!(files.len() < FILES_MAX, "files without end");
        files.push((file, stat.kind));
        ControlFlow::Continue(())
    })?;
    for (file, kind) in files.into_iter().take(FILES_USED) {
        disk_errors_only(fat.stat(file))?;
        disk_errors_only(use_file(fat, file, &free))?;
        if kind == FileKind::Directory {
            disk_errors_only(use_directory(fat, file))?;
        }
    }
    Ok(())
}

/// Returns the free ranges of the map. Checks that the map covers the volume.
fn free_ranges(fat: &Fat<'_>, volume_bytes: u64) -> Result<Vec<Range<u64>>, GuestError> {
    let runs = fat.allocation()?;
    let end = runs.iter().fold(0, |end, run| {
        assert!(run.start_bytes == end && run.length_bytes > 0, "{run:?} after {end}");
        run.end_bytes()
    });
    assert_eq!(end, volume_bytes);
    let free = runs.iter().filter(|run| run.class == AllocationClass::Free);
    Ok(free.map(|run| run.start_bytes..run.end_bytes()).collect())
}

/// Reads a file and its map. Checks that none of its clusters is free.
fn use_file(fat: &Fat<'_>, file: FileNumber, free: &[Range<u64>]) -> Result<(), GuestError> {
    let (mut next, mut count) = (0, 0);
    let outcome = fat.each_extent(file, &mut |extent| {
        assert!(extent.offset == next && extent.length_bytes > 0, "{extent:?} after {next}");
        next += extent.length_bytes;
        count += 1;
        let place = extent.place..extent.place + extent.length_bytes;
        let after = free.partition_point(|range| range.end <= place.start);
        assert!(free.get(after).is_none_or(|range| range.start >= place.end), "{extent:?} is free");
        if count == 1000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    disk_errors_only(outcome)?;
    let mut into = vec![0; READ_LENGTH];
    for offset in [0, 700, 5, u64::MAX, u64::from(u32::MAX) - 1] {
        disk_errors_only(fat.read(file, offset, &mut into))?;
    }
    Ok(())
}

fn use_directory(fat: &Fat<'_>, directory: FileNumber) -> Result<(), GuestError> {
    let mut first = None;
    let mut count = 0;
    fat.each_entry(directory, &mut |entry| {
        assert!(!entry.name.is_empty() && !entry.name.iter().any(|byte| b"/\0".contains(byte)), "{entry:?}");
        assert!(entry.name != b"." && entry.name != b"..");
        count += 1;
        first.get_or_insert(entry);
        if count == FILES_USED { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if let Some(entry) = first {
        let found = fat.look_up(directory, &entry.name)?;
        assert_eq!(found, Some(entry.file), "the first of a name is found");
    }
    Ok(())
}

/// Passes on errors of the disk; damage of the volume is a valid answer.
fn disk_errors_only<T>(outcome: Result<T, GuestError>) -> Result<(), GuestError> {
    match outcome {
        Err(error @ GuestError::Disk(_)) => Err(error),
        _ => Ok(()),
    }
}
