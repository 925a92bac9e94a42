//! XFS images of versions 4 and 5: changes fields of their structures, corrects checksums, and reads everything.

mod image;
mod log;
mod structures;

use std::ops::ControlFlow;
use std::sync::OnceLock;

use onefold_guest::error::GuestError;
use onefold_guest::filesystem::{AllocationClass, FileNumber, FileSystem, State};
use onefold_guest::volume::{DiskRange, Volume, VolumeOrigin, VolumeReader};
use onefold_guest::xfs;

use self::image::{ChangedDisk, GONE, Image};
pub(super) use self::log::run as run_log;
use self::structures::{BLOCK_BYTES, Structure, structures};
use crate::Choices;

const SAMPLES: [&[u8]; 3] = [
    include_bytes!("../../../samples/xfs-5.sample"),
    include_bytes!("../../../samples/xfs-4.sample"),
    include_bytes!("../../../samples/xfs-parents.sample"),
];
/// Numbers at limits.
const EDGES: [u64; 14] = [
    0,
    1,
    2,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 54,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX,
];
/// Maximum number of files of which everything is read.
const FILES_MAX: usize = 400;
/// Maximum number of bytes to read of a file.
const CONTENT_BYTES_MAX: usize = 5_000;

/// A sample with its structures.
struct Sample {
    image: Image,
    structures: Vec<Vec<Structure>>,
}

fn samples() -> &'static [Sample; 3] {
    static DECODED: OnceLock<[Sample; 3]> = OnceLock::new();
    DECODED.get_or_init(|| {
        SAMPLES.map(|sample| {
            let image = Image::decode(sample);
            let structures = structures(&image);
            Sample { image, structures }
        })
    })
}

pub(super) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let sample = choices.one_of(samples());
    let whole = sample.image.size_bytes;
    let size_bytes = *choices.one_of(&[whole, whole, whole, whole, whole, whole, whole, whole + 700, whole / 2, 5000]);
    let mut disk = ChangedDisk::new(&sample.image, size_bytes);
    for _ in 0..=choices.below(6) {
        change(&mut choices, sample, &mut disk);
    }
    let ranges = vec![DiskRange { start_bytes: 0, length_bytes: size_bytes }];
    let reader = VolumeReader::new(&disk, &Volume { origin: VolumeOrigin::WholeDisk, ranges });
    match xfs::open(reader) {
        Ok(Some(found)) => {
            read_all(&found, size_bytes);
            a_failed_read_is_told(&mut choices, &found, &disk);
        }
        Ok(None) => {}
        Err(error) => must_be_of_the_guest(&error),
    }
}

/// Checks that an error of the disk is passed on, whichever read fails.
fn a_failed_read_is_told(choices: &mut Choices<'_>, found: &dyn FileSystem, disk: &ChangedDisk<'_>) {
    disk.fail_after(1 + choices.below(400));
    let outcomes = [
        found.each_file(&mut |_, _| ControlFlow::Continue(())).err(),
        found.allocation().err(),
        found.each_entry(found.root(), &mut |_| ControlFlow::Continue(())).err(),
    ];
    // A folder may be damaged, too.
    let is_told = outcomes.into_iter().flatten().any(|error| error.to_string() == GONE);
    assert_eq!(is_told, disk.has_failed());
}

/// Asserts that the disk caused no failure: it never fails here.
fn must_be_of_the_guest(error: &GuestError) {
    assert!(!matches!(error, GuestError::Disk(_)), "{error}");
}

/// Changes a structure in one place, or replaces it by another one.
fn change(choices: &mut Choices<'_>, sample: &Sample, disk: &mut ChangedDisk<'_>) {
    // Each kind is equally likely, however many structures it has.
    let mut any = || {
        let kind: &Vec<Structure> = choices.one_of(&sample.structures);
        *choices.one_of(kind)
    };
    let (structure, target) = (any(), any());
    match choices.below(8) {
        0 => {
            let bytes = disk.bytes(structure.place, structure.length.min(target.length));
            disk.put(target.place, &bytes);
        }
        1 => {
            // Two parts of it swap places.
            let (from, to) = (choices.index(target.length - 16), choices.index(target.length - 16));
            let part = disk.bytes(target.place + from as u64, 16);
            disk.put(target.place + to as u64, &part);
        }
        _ => {
            let width = *choices.one_of(&[1, 2, 4, 8]);
            // Most fields lie in the first part.
            let reach = *choices.one_of(&[64, 200, target.length]);
            let at = choices.index(reach.min(target.length) / width) * width;
            let place = target.place + at as u64;
            let old = disk.bytes(place, width).iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
            let new = number(choices, old);
            disk.put(place, &new.to_be_bytes()[8 - width..]);
        }
    }
    // Sometimes a wrong checksum remains.
    if choices.below(16) != 1 {
        target.seal(disk);
    }
}

fn number(choices: &mut Choices<'_>, old: u64) -> u64 {
    match choices.below(5) {
        0 => old.wrapping_add(1),
        1 => old.wrapping_sub(1),
        2 => *choices.one_of(&EDGES),
        3 => choices.below(1 << 16),
        _ => old ^ 1 << choices.below(64),
    }
}

/// Reads everything, and checks what callers rely on.
fn read_all(found: &dyn FileSystem, size_bytes: u64) {
    let mut files = vec![found.root()];
    let outcome = found.each_file(&mut |file, _| {
        files.push(file);
        if files.len() < FILES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    outcome.expect("the disk does not fail");
    for file in files {
        for outcome in [read_file(found, file, size_bytes), read_folder(found, file)] {
            if let Err(error) = outcome {
                must_be_of_the_guest(&error);
            }
        }
    }
    let map = found.allocation().expect("the disk does not fail");
    let mut at = 0;
    for run in &map {
        assert!(run.start_bytes == at && run.length_bytes > 0, "{map:?}");
        at = run.end_bytes();
    }
    assert_eq!(at, size_bytes, "{map:?}");
    if *found.state() != State::Certain {
        assert!(map.iter().all(|run| run.class == AllocationClass::Doubtful), "{map:?}");
    }
}

/// Reads all parts of a file. Each part may be damaged.
fn read_file(found: &dyn FileSystem, file: FileNumber, size_bytes: u64) -> Result<(), GuestError> {
    let stat = found.stat(file)?;
    let fits = size_bytes >= found.facts().size_bytes;
    let mut end = 0;
    let outcome = found.each_extent(file, &mut |extent| {
        let length = extent.length_bytes;
        assert!(length > 0 && extent.offset >= end, "{extent:?}");
        end = extent.offset.checked_add(length).expect("no file is longer");
        assert!(extent.place.checked_add(length).is_some_and(|end| !fits || end <= size_bytes), "{extent:?}");
        ControlFlow::Continue(())
    });
    let mut content = vec![0; CONTENT_BYTES_MAX];
    for offset in [0, stat.size_bytes / 2, stat.size_bytes.saturating_sub(1), u64::MAX] {
        let length = found.read(file, offset, &mut content).inspect_err(must_be_of_the_guest).unwrap_or(0);
        assert!(length as u64 <= stat.size_bytes.saturating_sub(offset), "{length} at {offset}");
    }
    if let Ok(target) = found.read_link(file) {
        assert!(!target.is_empty() && target.len() <= 4096);
    }
    for attribute in found.attributes(file).inspect_err(must_be_of_the_guest).unwrap_or_default() {
        assert!(attribute.name.contains(&b'.') && !attribute.name.contains(&0));
    }
    outcome
}

/// Lists a folder, and looks up some of its names.
fn read_folder(found: &dyn FileSystem, folder: FileNumber) -> Result<(), GuestError> {
    let mut names = Vec::new();
    found.each_entry(folder, &mut |entry| {
        let is_name = !entry.name.is_empty() && !entry.name.contains(&b'/') && !entry.name.contains(&0);
        assert!(is_name && entry.name != b"." && entry.name != b"..", "{entry:?}");
        names.push(entry.name);
        // A few blocks of names are enough.
        if names.len() < BLOCK_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    names.push(b"no such name".to_vec());
    for name in names.iter().rev().step_by(53) {
        found.look_up(folder, name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sound_samples_are_read_without_damage_and_have_every_structure() {
        for (sample, kinds) in samples().iter().zip([20, 12, 14]) {
            assert!(sample.structures.len() >= kinds, "{} kinds of structures", sample.structures.len());
            let size_bytes = sample.image.size_bytes;
            let disk = ChangedDisk::new(&sample.image, size_bytes);
            let ranges = vec![DiskRange { start_bytes: 0, length_bytes: size_bytes }];
            let reader = VolumeReader::new(&disk, &Volume { origin: VolumeOrigin::WholeDisk, ranges });
            let found = xfs::open(reader).expect("a sound sample").expect("a sample of XFS");
            read_all(&found, size_bytes);
            assert_eq!((found.state(), found.damage().first()), (&State::Certain, vec![]));
            assert!(found.allocation().unwrap().iter().any(|run| run.class == AllocationClass::Free));
        }
    }
}
