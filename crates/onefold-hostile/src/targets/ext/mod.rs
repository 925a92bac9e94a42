//! ext2, ext3 and ext4: small real images, changed where a reader believes them, and journals.

mod image;

use std::collections::HashSet;
use std::ops::ControlFlow;

use image::{BLOCK_BYTES, Image, SEEDS, Seed};
use onefold_guest::error::GuestError;
use onefold_guest::ext::{self, Ext};
use onefold_guest::filesystem::{AllocationClass, FileKind, FileNumber, FileSystem, State};
use onefold_guest::volume::{DiskRange, Volume, VolumeOrigin, VolumeReader};

use crate::Choices;

/// Maximum number of files and names to use. A seed has a hundred; content taken for directories makes more.
const FILES_MAX: usize = 300;
const EXTENTS_MAX: usize = 2000;
/// Number of used blocks of the journal, and some after them.
const JOURNAL_BLOCKS: u64 = 24;
/// Fields of the superblock that decide the layout.
const SUPERBLOCK_FIELDS: [u64; 24] = [
    0x0, 0x4, 0x14, 0x18, 0x1c, 0x20, 0x24, 0x28, 0x38, 0x3a, 0x4c, 0x54, 0x58, 0x5c, 0x60, 0x64, 0xce, 0xe0, 0xfe,
    0x104, 0x150, 0x168, 0x24c, 0x280,
];
/// Numbers at limits.
const EDGES: [u64; 12] = [0, 1, 2, 3, 0x7fff, 0x8000, 0x8001, 0xffff, 0x1_0000, 0xf30a, u32::MAX as u64, u64::MAX];

pub(super) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let seed = &SEEDS[choices.index(SEEDS.len())];
    let mut image = Image::new(seed);
    for _ in 0..1 + choices.below(6) {
        damage(&mut choices, seed, &mut image);
    }
    if choices.below(4) != 0 {
        image.make_believed();
    }
    use_image(&mut choices, image);
}

pub(super) fn run_journal(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let seed = &SEEDS[3 + choices.index(2)];
    let mut image = Image::new(seed);
    for _ in 0..1 + choices.below(6) {
        let block = choices.below(JOURNAL_BLOCKS);
        // Records are at the beginning of blocks.
        let bound = if choices.below(4) == 0 { BLOCK_BYTES } else { 96 };
        let within = choices.below(bound);
        put_number(&mut choices, &mut image, |image| image.journal(block) + within, true);
    }
    if choices.below(4) != 0 {
        image.make_journal_believed(JOURNAL_BLOCKS);
    }
    use_image(&mut choices, image);
}

/// Changes a field, mostly of a structure.
fn damage(choices: &mut Choices<'_>, seed: &Seed, image: &mut Image) {
    match choices.below(8) {
        0 => {
            let field = *choices.one_of(&SUPERBLOCK_FIELDS);
            put_number(choices, image, |_| 1024 + field, false);
        }
        1 => {
            let (group, field) = (choices.below(4), choices.below(32) * 2);
            put_number(choices, image, |image| image.descriptor(group) + field, false);
        }
        2..=4 => {
            let (index, field) = (choices.below(40), choices.below(80) * 2);
            put_number(choices, image, |image| image.inode(index) + field, false);
        }
        _ => {
            let (place, within) = (*choices.one_of(&seed.used), choices.below(16));
            put_number(choices, image, |_| place + within, false);
        }
    }
}

fn put_number(choices: &mut Choices<'_>, image: &mut Image, place: impl Fn(&Image) -> u64, is_big: bool) {
    let number = match choices.below(4) {
        0 => *choices.one_of(&EDGES),
        1 => choices.below(256),
        2 => choices.below(8192),
        _ => choices.number(),
    };
    let length = *choices.one_of(&[4_usize, 2, 1, 8]);
    let place = place(image);
    if is_big {
        image.put(place, &number.to_be_bytes()[8 - length..])
    } else {
        image.put(place, &number.to_le_bytes()[..length])
    }
}

fn use_image(choices: &mut Choices<'_>, mut image: Image) {
    if choices.below(16) == 0 {
        image.size_bytes = choices.below(image.size_bytes);
    }
    let fails = choices.below(16) == 0;
    if fails {
        image.fails_from = choices.below(256);
    }
    let whole = DiskRange { start_bytes: 0, length_bytes: image.size_bytes };
    let ranges = if whole.length_bytes == 0 { Vec::new() } else { vec![whole] };
    let volume = Volume { origin: VolumeOrigin::WholeDisk, ranges };
    match ext::open(VolumeReader::new(&image, &volume)) {
        Ok(Some(fs)) => {
            let outcome = use_everything(&fs, image.size_bytes);
            assert!(fails || outcome.is_ok(), "the disk does not fail: {outcome:?}");
        }
        Ok(None) => {}
        Err(GuestError::Disk(error)) => assert!(fails, "the disk does not fail: {error}"),
        Err(_) => {}
    }
}

/// Passes on a failure of the disk; accepts every other outcome.
fn disk_only<T>(outcome: Result<T, GuestError>) -> Result<Option<T>, GuestError> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error @ GuestError::Disk(_)) => Err(error),
        Err(_) => Ok(None),
    }
}

fn use_everything(fs: &Ext<'_>, size_bytes: u64) -> Result<(), GuestError> {
    let mut files = HashSet::new();
    fs.each_file(&mut |file, _| {
        files.insert(file);
        if files.len() < FILES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    walk(fs, &mut files)?;
    for file in files {
        use_file(fs, file, size_bytes)?;
    }
    check_allocation(fs, size_bytes)
}

/// Walks the tree and visits each directory once.
fn walk(fs: &Ext<'_>, files: &mut HashSet<FileNumber>) -> Result<(), GuestError> {
    let (mut ahead, mut seen) = (vec![fs.root()], HashSet::from([fs.root()]));
    while let Some(directory) = ahead.pop() {
        let mut names = Vec::new();
        disk_only(fs.each_entry(directory, &mut |entry| {
            assert!(!entry.name.is_empty() && !entry.name.contains(&b'/') && !entry.name.contains(&0));
            if seen.len() < FILES_MAX && seen.insert(entry.file) {
                ahead.push(entry.file);
            }
            names.push(entry.name);
            if names.len() < FILES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }))?;
        for name in names.iter().take(3) {
            disk_only(fs.look_up(directory, name))?;
        }
    }
    files.extend(seen);
    Ok(())
}

fn use_file(fs: &Ext<'_>, file: FileNumber, size_bytes: u64) -> Result<(), GuestError> {
    let Some(stat) = disk_only(fs.stat(file))? else { return Ok(()) };
    disk_only(fs.attributes(file))?;
    if stat.kind == FileKind::SymbolicLink
        && let Some(target) = disk_only(fs.read_link(file))?
    {
        assert!(target.len() <= 4096);
    }
    let (mut extents, mut end) = (0, 0);
    disk_only(fs.each_extent(file, &mut |extent| {
        assert!(extent.length_bytes > 0 && extent.offset >= end, "{extent:?} after {end}");
        end = extent.offset + extent.length_bytes;
        extents += 1;
        if extents < EXTENTS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }))?;
    let mut content = [0xaa; 5000];
    for offset in [0, 3000, stat.size_bytes.saturating_sub(100), size_bytes, u64::MAX] {
        if let Some(count) = disk_only(fs.read(file, offset, &mut content))? {
            assert_eq!(count as u64, stat.size_bytes.saturating_sub(offset).min(5000), "at {offset}");
        }
    }
    Ok(())
}

/// Checks that the map covers the volume in order, and that nothing is free where maps are in doubt.
fn check_allocation(fs: &Ext<'_>, size_bytes: u64) -> Result<(), GuestError> {
    let mut end = 0;
    for run in fs.allocation()? {
        assert!(run.start_bytes == end && run.length_bytes > 0, "{run:?} after {end}");
        assert!(run.class != AllocationClass::Free || *fs.state() == State::Certain);
        end = run.end_bytes();
    }
    assert_eq!(end, size_bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With wrong checksums, readers would refuse the changes and never process them.
    #[test]
    fn seeds_are_sound_with_the_checksums_that_are_made_here() {
        for (index, seed) in SEEDS.iter().enumerate() {
            let mut image = Image::new(seed);
            // A number that checksums cover, in an inode and in the log.
            let time = image.inode(11) + 0x10;
            image.put(time, &[7]);
            image.make_believed();
            if index >= 3 {
                let seconds = image.journal(4) + 56;
                image.put(seconds, &[0, 0, 0, 9]);
                image.make_journal_believed(JOURNAL_BLOCKS);
            }
            let whole = DiskRange { start_bytes: 0, length_bytes: image.size_bytes };
            let volume = Volume { origin: VolumeOrigin::WholeDisk, ranges: vec![whole] };
            let fs = ext::open(VolumeReader::new(&image, &volume)).unwrap().expect("an ext file system");
            use_everything(&fs, image.size_bytes).unwrap();
            assert_eq!((fs.state(), fs.damage().first()), (&State::Certain, Vec::new()), "seed {index}");
        }
    }
}
