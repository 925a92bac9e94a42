//! NTFS volumes: small real images, changed where a reader believes them. The check values of NTFS (fix-ups) are the
//! last two bytes of each 512 of a structure; a change spares them, unless it is meant for them.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_disk::{Disk, DiskError};
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::{Allocation, AllocationClass, Extent, FileKind, FileNumber, FileStat, FileSystem};
use onefold_guest::ntfs::{self, Ntfs};
use onefold_guest::volume::{DiskRange, Volume, VolumeOrigin, VolumeReader};

use crate::Choices;

const SECTOR_BYTES: u64 = 512;
const SECTOR_LENGTH: usize = 512;
/// Maximum number of bytes that all reads for one input may have. A sound seed takes a hundredth of it.
const READ_BYTES_MAX: u64 = 1 << 30;
/// Maximum number of names that a walk visits. A seed has fewer than a hundred.
const NAMES_MAX: usize = 2000;
const DEPTH_MAX: usize = 20;
/// Maximum number of bytes to read of a file.
const READ_LENGTH: usize = 6_000;

/// The images: clusters of 512 and of 4096 bytes, records of 1 and 4 KiB. `seeds/make-ntfs.sh` makes them.
static SEEDS: LazyLock<[Seed; 2]> = LazyLock::new(|| {
    [include_bytes!("../../seeds/ntfs-512.seed").as_slice(), include_bytes!("../../seeds/ntfs-4096.seed")]
        .map(Seed::decode)
});

/// A sound image.
struct Seed {
    image: Vec<u8>,
    /// The sectors that are not zero.
    used: Vec<u64>,
}

impl Seed {
    /// Returns the image of a seed, with a table of upper case for ASCII and an empty log.
    fn decode(mut packed: &[u8]) -> Seed {
        let number =
            |bytes: &[u8]| usize::try_from(u32::from_le_bytes(bytes.try_into().expect("four bytes"))).expect("32 bits");
        let mut image = vec![0; number(&packed[..4])];
        let mut at = 0;
        packed = &packed[8..];
        while !packed.is_empty() {
            let length = number(&packed[4..8]);
            at += number(&packed[..4]);
            image[at..at + length].copy_from_slice(&packed[8..8 + length]);
            at += length;
            packed = &packed[8 + length..];
        }
        let upper: Vec<u8> = (0..=u16::MAX).flat_map(|unit| upper_case(unit).to_le_bytes()).collect();
        fill(&mut image, FileNumber(10), &upper);
        fill(&mut image, FileNumber(2), &[0xff; 4096].repeat(2048));
        let is_used = |sector: &&[u8]| sector.iter().any(|byte| *byte != 0 && *byte != 0xff);
        let used = (0..).zip(image.chunks_exact(SECTOR_LENGTH)).filter(|(_, sector)| is_used(sector));
        let used = used.map(|(number, _)| number).collect();
        Seed { image, used }
    }
}

fn upper_case(unit: u16) -> u16 {
    u8::try_from(unit).map_or(unit, |byte| u16::from(byte.to_ascii_uppercase()))
}

/// Fills the clusters of a file with the beginning of `content`.
fn fill(image: &mut [u8], file: FileNumber, content: &[u8]) {
    let mut places = Vec::new();
    let disk = OverlaidDisk::new(image);
    let reader = disk.reader();
    let found = ntfs::open(&reader).expect("a sound image").expect("an NTFS");
    found
        .each_extent(file, &mut |extent| {
            places.push(extent);
            ControlFlow::Continue(())
        })
        .expect("a sound file");
    for Extent { offset, length_bytes, place, .. } in places {
        let [offset, length, place] =
            [offset, length_bytes, place].map(|number| usize::try_from(number).expect("small"));
        image[place..place + length].copy_from_slice(&content[offset..offset + length]);
    }
}

/// A disk with changes over an image, which itself stays unchanged.
struct OverlaidDisk<'s> {
    image: &'s [u8],
    /// The length of the disk, which may be less than the image's.
    size_bytes: u64,
    changed: BTreeMap<u64, [u8; SECTOR_LENGTH]>,
    read_bytes: AtomicU64,
    /// Number of bytes after which reads fail.
    fails_after: u64,
}

impl<'s> OverlaidDisk<'s> {
    fn new(image: &'s [u8]) -> OverlaidDisk<'s> {
        let size_bytes = image.len() as u64;
        OverlaidDisk {
            image,
            size_bytes,
            changed: BTreeMap::new(),
            read_bytes: AtomicU64::new(0),
            fails_after: u64::MAX,
        }
    }

    fn reader(&self) -> VolumeReader<'_> {
        let ranges = vec![DiskRange { start_bytes: 0, length_bytes: self.size_bytes }];
        VolumeReader::new(self, &Volume { origin: VolumeOrigin::WholeDisk, ranges })
    }

    fn sector(&self, number: u64) -> [u8; SECTOR_LENGTH] {
        let at = usize::try_from(number * SECTOR_BYTES).expect("within the image");
        let unchanged = || self.image[at..at + SECTOR_LENGTH].try_into().expect("a sector");
        self.changed.get(&number).copied().unwrap_or_else(unchanged)
    }

    fn change(&mut self, number: u64, at: usize, bytes: &[u8]) {
        let mut sector = self.sector(number);
        let length = bytes.len().min(SECTOR_LENGTH - at);
        sector[at..at + length].copy_from_slice(&bytes[..length]);
        self.changed.insert(number, sector);
    }
}

impl Disk for OverlaidDisk<'_> {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        Ok((offset < self.size_bytes).then_some(offset..self.size_bytes))
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let end = offset.checked_add(into.len() as u64).expect("an offset that can be");
        assert!(end <= self.size_bytes, "{offset} to {end} of a disk of {} bytes", self.size_bytes);
        let before = self.read_bytes.fetch_add(into.len() as u64, Ordering::Relaxed);
        assert!(before < READ_BYTES_MAX, "reads without end");
        if before >= self.fails_after {
            return Err(DiskError::Other("the disk is gone".into()));
        }
        let at = usize::try_from(offset).expect("within the image");
        into.copy_from_slice(&self.image[at..at + into.len()]);
        for (number, sector) in self.changed.range(offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES)) {
            let start = number * SECTOR_BYTES;
            let (from, to) = (start.max(offset), (start + SECTOR_BYTES).min(end));
            let part = |from: u64, of: u64| usize::try_from(from - of).expect("within the read");
            into[part(from, offset)..part(to, offset)].copy_from_slice(&sector[part(from, start)..part(to, start)]);
        }
        Ok(())
    }
}

pub(super) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let seed = choices.one_of(&*SEEDS);
    let mut disk = OverlaidDisk::new(&seed.image);
    if choices.below(16) == 0 {
        disk.size_bytes = choices.below(disk.size_bytes);
    }
    for _ in 0..1 + choices.below(6) {
        damage(&mut choices, seed, &mut disk);
    }
    let reader = disk.reader();
    let part = *choices.one_of(&[Part::Names, Part::Names, Part::Files, Part::Files, Part::Map, Part::All]);
    if let Ok(Some(ntfs)) = ntfs::open(&reader) {
        use_part(&ntfs, disk.size_bytes, part).expect("the disk does not fail");
    }
    if choices.below(4) == 0 {
        a_failed_read_is_told(&mut choices, disk, part);
    }
}

/// The part of the reader that an input exercises. Exercising everything takes several times as long.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Names,
    Files,
    Map,
    All,
}

/// Changes a number in a random place of the structures.
fn damage(choices: &mut Choices<'_>, seed: &Seed, disk: &mut OverlaidDisk<'_>) {
    let sector = *choices.one_of(&seed.used);
    let at = match choices.below(8) {
        0 => 510,
        1 => choices.index(SECTOR_LENGTH - 2),
        _ => choices.index(SECTOR_LENGTH / 2 - 1) * 2,
    };
    let number = match choices.below(4) {
        0 => choices.number(),
        1 => *choices.one_of(&[0, 1, 5, 0xff, 0xffff, 0x7fff_ffff, u64::MAX >> 1, u64::MAX]),
        // Structures hold offsets, lengths and record numbers, which are small.
        _ => choices.below(256),
    };
    let length = *choices.one_of(&[1, 2, 2, 4, 8]);
    disk.change(sector, at, &number.to_le_bytes()[..length.min(SECTOR_LENGTH - at)]);
}

/// Checks that an error of the disk is passed on, or its structure counts as damaged, and nothing else happens.
fn a_failed_read_is_told(choices: &mut Choices<'_>, mut disk: OverlaidDisk<'_>, part: Part) {
    disk.fails_after = choices.below(disk.read_bytes.swap(0, Ordering::Relaxed).max(1));
    let reader = disk.reader();
    if let Ok(Some(ntfs)) = ntfs::open(&reader) {
        let outcome = use_part(&ntfs, disk.size_bytes, part);
        assert!(outcome.is_ok() || disk.read_bytes.load(Ordering::Relaxed) > disk.fails_after, "{outcome:?}");
    }
}

/// Makes all queries of a volume. Fails if the disk does, and only then.
fn use_part(ntfs: &Ntfs<'_>, disk_bytes: u64, part: Part) -> Result<(), GuestError> {
    if [Part::Names, Part::All].contains(&part) {
        walk(ntfs)?;
    }
    let mut map = Vec::new();
    if [Part::Map, Part::All].contains(&part) {
        let facts = ntfs.facts();
        assert!(facts.free_bytes.is_none_or(|free_bytes| free_bytes <= facts.size_bytes));
        map = ntfs.allocation()?;
        must_cover(&map, disk_bytes);
    }
    if ![Part::Files, Part::All].contains(&part) {
        return Ok(());
    }
    let mut outcome = Ok(());
    ntfs.each_file(&mut |file, stat| {
        outcome = use_file(ntfs, file, stat, &map);
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome
}

/// Passes on an error of the disk; accepts every other one, as damaged volumes may cause it.
fn unless_damaged<T>(outcome: Result<T, GuestError>) -> Result<Option<T>, GuestError> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error @ GuestError::Disk(_)) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Walks through all directories, as deep and as far as a caller would.
fn walk(ntfs: &Ntfs<'_>) -> Result<(), GuestError> {
    let (mut ahead, mut visited) = (vec![(ntfs.root(), 0)], 0);
    while let Some((directory, depth)) = ahead.pop() {
        let mut names = Vec::new();
        unless_damaged(ntfs.each_entry(directory, &mut |entry| {
            assert!(!entry.name.is_empty() && !entry.name.iter().any(|byte| [b'/', 0].contains(byte)));
            assert!(entry.file != directory, "a directory in itself");
            names.push(entry);
            visited += 1;
            if visited < NAMES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }))?;
        for entry in names.iter().take(100) {
            unless_damaged(ntfs.look_up(directory, &entry.name))?;
            let stat = unless_damaged(ntfs.stat(entry.file))?;
            if depth < DEPTH_MAX && visited < NAMES_MAX && stat.is_some_and(|stat| stat.kind == FileKind::Directory) {
                ahead.push((entry.file, depth + 1));
            }
        }
    }
    Ok(())
}

/// Checks what callers rely on: runs follow one another and cover the disk.
fn must_cover(map: &[Allocation], disk_bytes: u64) {
    let mut at = 0;
    for run in map {
        assert!(run.start_bytes == at && run.length_bytes > 0, "{run:?} at {at}");
        at = run.end_bytes();
    }
    assert_eq!(at, disk_bytes);
}

/// Reads and maps a file; checks that none of its bytes is free in `map`, which may be empty.
fn use_file(ntfs: &Ntfs<'_>, file: FileNumber, stat: &FileStat, map: &[Allocation]) -> Result<(), GuestError> {
    let mut last_end = 0;
    unless_damaged(ntfs.each_extent(file, &mut |extent: Extent| {
        let end = extent.place.checked_add(extent.length_bytes).expect("a place that can be");
        assert!(extent.length_bytes > 0 && end <= ntfs.facts().size_bytes, "{file:?}: {extent:?}");
        assert!(extent.offset >= last_end, "{file:?}: {extent:?} after {last_end}");
        last_end = extent.offset + extent.length_bytes;
        let first = map.partition_point(|run| run.end_bytes() <= extent.place);
        let mut reached = map[first..].iter().take_while(|run| run.start_bytes < end);
        assert!(reached.all(|run| run.class != AllocationClass::Free), "{file:?}: {extent:?} is free");
        ControlFlow::Continue(())
    }))?;
    let mut bytes = vec![0; READ_LENGTH];
    for offset in [0, stat.size_bytes / 2, stat.size_bytes.saturating_sub(1), u64::MAX] {
        let read = unless_damaged(ntfs.read(file, offset, &mut bytes))?;
        assert!(read.is_none_or(|read| read as u64 <= stat.size_bytes.max(1 << 20).saturating_sub(offset)), "{read:?}");
    }
    unless_damaged(ntfs.belongs_to(file))?;
    if stat.kind == FileKind::SymbolicLink {
        unless_damaged(ntfs.read_link(file))?;
    }
    unless_damaged(ntfs.attributes(file)).map(|_| ())
}
