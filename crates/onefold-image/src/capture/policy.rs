//! Decides which sectors of a disk are captured: all except those that the allocation maps certainly mark as free.

use onefold_guest::content::VolumeContent;
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::AllocationClass;
use onefold_guest::guest::{DiskRun, DiskUse, Guest};
use onefold_guest::volume::DiskRange;

use crate::format::manifest::{CaptureWay, CapturedVolume};
use crate::{SECTOR_BYTES, SectorRun};

/// The bytes of a disk to capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// All except those that an allocation map certainly marks as free.
    #[default]
    Allocated,
    /// All bytes.
    All,
}

/// A run of captured sectors, all of one volume or of none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TakenRun {
    /// Place on the disk.
    pub(crate) sectors: SectorRun,
    /// Index of their volume in the guest; `None` between volumes.
    pub(crate) volume: Option<usize>,
    /// Offset to add to a sector of the run, so that a multiple of 32 KiB in the volume becomes one in the sum.
    pub(crate) phase: u64,
}

/// Result of a pass over the maps of a disk.
#[derive(Debug)]
pub(crate) struct MapSurvey {
    /// Bytes that are certainly free and are not captured.
    pub(crate) free_bytes: u64,
    /// The volume of each sector, in order. Sectors between volumes are left out.
    spans: Vec<Span>,
    /// For each volume, the bytes whose use is in doubt.
    doubtful_bytes: Vec<u64>,
}

/// A run of sectors of one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    sectors: SectorRun,
    volume: usize,
}

/// Sectors of the grid on which blocks of no file form units.
pub(crate) const GRID_SECTORS: u64 = (32 << 10) / SECTOR_BYTES;

/// Reason for a raw capture regardless of the map.
const ALL_WANTED: &str = "all bytes were wanted";
const DISK_IN_DOUBT: &str = "the disk may be something else than its partitions";
const OVERLAPS: &str = "it overlaps another volume";
const GROUP_UNSURE: &str = "its volume group is not sure of it";
const NO_MAP: &str = "its allocation map cannot be made";
const NOT_OPENED: &str = "it cannot be opened";

/// Maximum length of the name of a content in a manifest, and of a reason, in bytes.
const CONTENT_BYTES_MAX: usize = 64;
const REASON_BYTES_MAX: usize = 256;

/// Calls `visit` with each run of sectors to capture, in the order of the disk. A sector is free only if all its bytes
/// are.
///
/// # Errors
/// Those of the disk and of `visit`. The first error of `visit` ends the visits.
pub(crate) fn each_taken(
    guest: &Guest<'_>,
    scope: Scope,
    visit: &mut dyn FnMut(TakenRun) -> Result<(), GuestError>,
) -> Result<MapSurvey, GuestError> {
    let volumes = guest.volumes().iter().map(|volume| pieces(&volume.volume.ranges)).collect();
    let found = MapSurvey::new(0, guest.volumes().len());
    let size_bytes = guest.disk().size_bytes();
    let mut sweep = Sweep { scope, size_bytes, reached_bytes: 0, next: 0, volumes, found, visit };
    guest.each_run(&mut |run| sweep.add(run))?;
    sweep.take_gap(size_bytes)?;
    Ok(sweep.found)
}

/// The ranges of a volume in the order of the disk, each with its first byte in the volume.
type Pieces = Vec<(DiskRange, u64)>;

fn pieces(ranges: &[DiskRange]) -> Pieces {
    let mut offset = 0;
    let with_offset = |range: &DiskRange| {
        let piece = (*range, offset);
        offset += range.length_bytes;
        piece
    };
    let mut pieces: Pieces = ranges.iter().map(with_offset).collect();
    pieces.sort_unstable();
    pieces
}

/// A pass over the runs of a disk that converts bytes to sectors.
struct Sweep<'v> {
    scope: Scope,
    size_bytes: u64,
    /// The end of all runs so far.
    reached_bytes: u64,
    /// The first sector that is neither free nor visited.
    next: u64,
    volumes: Vec<Pieces>,
    found: MapSurvey,
    visit: &'v mut dyn FnMut(TakenRun) -> Result<(), GuestError>,
}

impl Sweep<'_> {
    fn add(&mut self, run: DiskRun) -> Result<(), GuestError> {
        self.take_gap(run.range.start_bytes)?;
        self.reached_bytes = self.reached_bytes.max(run.range.end_bytes());
        self.take(run)
    }

    /// Takes what no run has, up to a byte of the disk: nobody says that it is free.
    fn take_gap(&mut self, end_bytes: u64) -> Result<(), GuestError> {
        let start_bytes = self.reached_bytes;
        let Some(length_bytes) = end_bytes.checked_sub(start_bytes).filter(|bytes| *bytes > 0) else { return Ok(()) };
        self.reached_bytes = end_bytes;
        self.take(DiskRun { range: DiskRange { start_bytes, length_bytes }, use_: DiskUse::Gap })
    }

    fn take(&mut self, run: DiskRun) -> Result<(), GuestError> {
        let end_bytes = run.range.end_bytes();
        let is_free = self.scope == Scope::Allocated && run.use_.is_free();
        // The last sector of a disk may be truncated. If two runs share a sector, the run that is not free gets all of
        // it.
        let is_rounded_up = !is_free || end_bytes >= self.size_bytes;
        let end = if is_rounded_up { end_bytes.div_ceil(SECTOR_BYTES) } else { end_bytes / SECTOR_BYTES };
        let Some(count) = end.checked_sub(self.next).filter(|count| *count > 0) else { return Ok(()) };
        let sectors = SectorRun { start: self.next, count };
        self.next = end;
        let volume = match run.use_ {
            DiskUse::Volume(at, class) => {
                self.note(sectors, at, class, run.range.length_bytes);
                Some(at)
            }
            DiskUse::Gap => None,
        };
        if is_free {
            self.found.free_bytes += bytes_of(sectors, self.size_bytes);
            return Ok(());
        }
        let phase = volume.map_or(0, |at| self.phase(at, run.range.start_bytes));
        (self.visit)(TakenRun { sectors, volume, phase })
    }

    fn note(&mut self, sectors: SectorRun, volume: usize, class: AllocationClass, length_bytes: u64) {
        if class == AllocationClass::Doubtful
            && let Some(doubtful_bytes) = self.found.doubtful_bytes.get_mut(volume)
        {
            *doubtful_bytes += length_bytes;
        }
        match self.found.spans.last_mut() {
            Some(last) if last.volume == volume && last.sectors.end() == sectors.start => {
                last.sectors.count += sectors.count;
            }
            _ => self.found.spans.push(Span { sectors, volume }),
        }
    }

    /// Returns the offset to add to sectors from byte `place` of the disk on; see [`TakenRun::phase`].
    fn phase(&self, volume: usize, place: u64) -> u64 {
        let Some(pieces) = self.volumes.get(volume) else { return 0 };
        let after = pieces.partition_point(|(range, _)| range.start_bytes <= place);
        let Some((range, offset)) = after.checked_sub(1).and_then(|at| pieces.get(at)) else { return 0 };
        let in_volume = (offset / SECTOR_BYTES) % GRID_SECTORS;
        let on_disk = (range.start_bytes / SECTOR_BYTES) % GRID_SECTORS;
        (in_volume + GRID_SECTORS - on_disk) % GRID_SECTORS
    }
}

/// Returns the length of a run on a disk of `size_bytes`, whose last sector may be truncated.
pub(crate) fn bytes_of(sectors: SectorRun, size_bytes: u64) -> u64 {
    let end_bytes = sectors.end().saturating_mul(SECTOR_BYTES).min(size_bytes);
    end_bytes.saturating_sub(sectors.start_bytes())
}

impl MapSurvey {
    /// Returns the initial result for a disk with `volumes` volumes.
    pub(crate) fn new(free_bytes: u64, volumes: usize) -> MapSurvey {
        MapSurvey { free_bytes, spans: Vec::new(), doubtful_bytes: vec![0; volumes] }
    }

    /// Returns the number of volumes of the guest.
    pub(crate) fn volume_count(&self) -> usize {
        self.doubtful_bytes.len()
    }

    /// Calls `visit` with each part of a run that lies in a volume, and the volume.
    pub(crate) fn each_share(&self, sectors: SectorRun, visit: &mut dyn FnMut(SectorRun, usize)) {
        let first = self.spans.partition_point(|span| span.sectors.end() <= sectors.start);
        for span in self.spans.iter().skip(first) {
            let start = span.sectors.start.max(sectors.start);
            let end = span.sectors.end().min(sectors.end());
            if start >= end {
                break;
            }
            visit(SectorRun { start, count: end - start }, span.volume);
        }
    }

    /// Returns whether a part of a volume's use is in doubt.
    pub(crate) fn is_in_doubt(&self, volume: usize) -> bool {
        self.doubtful_bytes.get(volume).is_none_or(|bytes| *bytes > 0)
    }

    /// Returns how each volume was captured, in the order of the disk. `taken_bytes` has the bytes of each volume that
    /// are not zero, and `unread_bytes` those that count as zero because nothing reads them.
    pub(crate) fn volumes(
        &self,
        guest: &Guest<'_>,
        scope: Scope,
        taken_bytes: &[u64],
        unread_bytes: &[u64],
    ) -> Vec<CapturedVolume> {
        let size_bytes = guest.disk().size_bytes();
        let mut volumes: Vec<CapturedVolume> = Vec::with_capacity(guest.volumes().len());
        for (at, volume) in guest.volumes().iter().enumerate() {
            let length_bytes = volume.volume.size_bytes();
            let doubtful_bytes = self.doubtful_bytes.get(at).copied().unwrap_or(0);
            let has_no_map = doubtful_bytes >= length_bytes && !volume.is_physical();
            let reason = match scope {
                Scope::All => Some(ALL_WANTED.to_owned()),
                Scope::Allocated => raw_because(guest, at).or_else(|| has_no_map.then(|| NO_MAP.to_owned())),
            };
            let start_bytes = volume.volume.ranges.iter().map(|range| range.start_bytes).min().unwrap_or(0);
            volumes.push(CapturedVolume {
                start_bytes,
                // A hostile logical volume may contain a place of the disk several times.
                length_bytes: length_bytes.min(size_bytes.saturating_sub(start_bytes)),
                content: shortened(content(&volume.content), CONTENT_BYTES_MAX),
                way: reason.map_or(CaptureWay::Map, |why| CaptureWay::Raw(shortened(&why, REASON_BYTES_MAX))),
                taken_bytes: taken_bytes.get(at).copied().unwrap_or(0),
                unread_bytes: unread_bytes.get(at).copied().unwrap_or(0),
            });
        }
        volumes.sort_by_key(|volume| volume.start_bytes);
        volumes
    }
}

/// Returns the reason for a volume's raw capture, in words without names from the guest; `None` if it has a map.
fn raw_because(guest: &Guest<'_>, at: usize) -> Option<String> {
    let volume = guest.volumes().get(at)?;
    if guest.doubt().is_some() {
        return Some(DISK_IN_DOUBT.to_owned());
    }
    if guest.overlaps(at) {
        return Some(OVERLAPS.to_owned());
    }
    match &volume.content {
        // The map of the group contains its free extents.
        VolumeContent::PhysicalVolume(_) => guest.whole_because(at).map(|_| GROUP_UNSURE.to_owned()),
        // The error may name a file of the host.
        VolumeContent::Failed(GuestError::Damaged(damage)) => Some(format!("{NOT_OPENED}: {damage}")),
        VolumeContent::Failed(_) => Some(NOT_OPENED.to_owned()),
        content => content.whole_because().or_else(|| guest.counts_whole(at).then(|| GROUP_UNSURE.to_owned())),
    }
}

/// Returns the kind of a volume's content, in a few words.
fn content(content: &VolumeContent<'_>) -> &'static str {
    match content {
        VolumeContent::FileSystem(system) => system.facts().kind.name(),
        VolumeContent::Swap(_) => "swap",
        VolumeContent::PhysicalVolume(_) => "LVM2 physical volume",
        VolumeContent::NotRead(found) => found.name,
        VolumeContent::Unknown => "unknown",
        VolumeContent::Failed(_) => "not readable",
    }
}

/// Truncates a text to a maximum length in bytes, at a character boundary.
fn shortened(text: &str, bytes_max: usize) -> String {
    text[..text.floor_char_boundary(bytes_max)].to_owned()
}

#[cfg(test)]
mod tests {
    use onefold_block::random::SeededRandom;

    use super::*;

    const DATA: AllocationClass = AllocationClass::Data;
    const FREE: AllocationClass = AllocationClass::Free;

    /// Returns the result of a sweep over runs that end at these bytes and have these uses.
    fn sweep(scope: Scope, volumes: &[&[(u64, u64)]], runs: &[(u64, DiskUse)]) -> (Vec<TakenRun>, MapSurvey) {
        let range = |&(start_bytes, length_bytes): &(u64, u64)| DiskRange { start_bytes, length_bytes };
        let volumes: Vec<Pieces> =
            volumes.iter().map(|ranges| pieces(&ranges.iter().map(range).collect::<Vec<_>>())).collect();
        let found = MapSurvey::new(0, volumes.len());
        let size_bytes = runs.last().map_or(0, |run| run.0);
        let mut taken = Vec::new();
        let mut visit = |run| {
            taken.push(run);
            Ok(())
        };
        let mut sweep = Sweep { scope, size_bytes, reached_bytes: 0, next: 0, volumes, found, visit: &mut visit };
        let mut start_bytes = 0;
        for &(end, use_) in runs {
            let range = DiskRange { start_bytes, length_bytes: end - start_bytes };
            sweep.add(DiskRun { range, use_ }).unwrap();
            start_bytes = end;
        }
        let found = sweep.found;
        (taken, found)
    }

    fn sectors(start: u64, end: u64) -> SectorRun {
        SectorRun { start, count: end - start }
    }

    fn places(taken: &[TakenRun]) -> Vec<SectorRun> {
        taken.iter().map(|run| run.sectors).collect()
    }

    #[test]
    fn a_sector_is_free_only_if_all_its_bytes_are() {
        let free = DiskUse::Volume(0, FREE);
        let data = DiskUse::Volume(0, DATA);
        let other = DiskUse::Volume(1, FREE);
        let runs = [(700, DiskUse::Gap), (3000, free), (3001, data), (3070, free), (3073, other), (5130, free)];
        let (taken, found) = sweep(Scope::Allocated, &[&[(0, 1)], &[(0, 1)]], &runs);
        // Bytes 0 to 700 take two sectors, byte 3000 one, and bytes from 3070 to 3073 are free in two volumes.
        assert_eq!(places(&taken), [sectors(0, 2), sectors(5, 6)]);
        assert_eq!(found.free_bytes, 5130 - 3 * 512, "the last sector has ten bytes");
        let (taken, found) = sweep(Scope::All, &[&[(0, 1)], &[(0, 1)]], &runs);
        assert_eq!(places(&taken).iter().map(|run| run.count).sum::<u64>(), 11);
        assert_eq!(found.free_bytes, 0);
        let (taken, found) = sweep(Scope::Allocated, &[&[(0, 1)]], &[(1024, free), (1030, data)]);
        assert_eq!((places(&taken), found.free_bytes), (vec![sectors(2, 3)], 1024));
    }

    #[test]
    fn what_no_run_has_is_taken_whatever_comes_next() {
        let free = DiskUse::Volume(0, FREE);
        let mut taken = Vec::new();
        let mut visit = |run: TakenRun| {
            taken.push(run);
            Ok(())
        };
        let (volumes, found) = (vec![Vec::new()], MapSurvey::new(0, 1));
        let size_bytes = 20 * SECTOR_BYTES;
        let scope = Scope::Allocated;
        let mut sweep = Sweep { scope, size_bytes, reached_bytes: 0, next: 0, volumes, found, visit: &mut visit };
        for (start, end) in [(1024, 2048), (5 * 512 + 100, 5120), (6 * 1024, 8 * 1024)] {
            let range = DiskRange { start_bytes: start, length_bytes: end - start };
            sweep.add(DiskRun { range, use_: free }).unwrap();
        }
        sweep.take_gap(size_bytes).unwrap();
        let free_bytes = sweep.found.free_bytes;
        assert_eq!(places(&taken), [sectors(0, 2), sectors(4, 6), sectors(10, 12), sectors(16, 20)]);
        assert!(taken.iter().all(|run| run.volume.is_none()));
        assert_eq!(free_bytes, 10 * SECTOR_BYTES);
    }

    #[test]
    fn each_byte_that_is_not_free_is_in_a_taken_sector() {
        for seed in 0..200 {
            let random = SeededRandom::new(seed);
            let mut end = 0;
            let mut runs: Vec<(u64, DiskUse)> = Vec::new();
            for _ in 0..40 {
                end += 1 + random.below(1500);
                let at = usize::try_from(random.below(2)).unwrap();
                let use_ = [DiskUse::Gap, DiskUse::Volume(at, DATA), DiskUse::Volume(at, FREE)];
                runs.push((end, use_[usize::try_from(random.below(3)).unwrap()]));
            }
            let (taken, found) = sweep(Scope::Allocated, &[&[(0, end)], &[(0, end)]], &runs);
            let taken = places(&taken);
            assert!(taken.is_sorted_by(|one, next| one.end() <= next.start), "seed {seed}");
            let is_free = |byte: u64| runs.iter().find(|run| byte < run.0).is_some_and(|run| run.1.is_free());
            let mut free_bytes = 0;
            for sector in 0..end.div_ceil(SECTOR_BYTES) {
                let bytes = sector * SECTOR_BYTES..end.min((sector + 1) * SECTOR_BYTES);
                let length_bytes = bytes.end - bytes.start;
                let is_taken = taken.iter().any(|run| (run.start..run.end()).contains(&sector));
                assert_eq!(is_taken, !bytes.into_iter().all(is_free), "sector {sector} of seed {seed}");
                free_bytes += if is_taken { 0 } else { length_bytes };
            }
            assert_eq!(found.free_bytes, free_bytes, "seed {seed}");
        }
    }

    #[test]
    fn the_grid_begins_with_the_volume() {
        let data = DiskUse::Volume(0, DATA);
        let free = DiskUse::Volume(0, FREE);
        let sector = |sector: u64| sector * SECTOR_BYTES;
        // A volume of two ranges, the second of which comes first on the disk.
        let volume: &[(u64, u64)] = &[(sector(163), sector(100)), (sector(63), sector(70))];
        let runs = [
            (sector(63), DiskUse::Gap),
            (sector(80), data),
            (sector(100), free),
            (sector(133), data),
            (sector(163), DiskUse::Gap),
            (sector(263), data),
        ];
        let (taken, _) = sweep(Scope::Allocated, &[volume], &runs);
        let found: Vec<(u64, u64)> =
            taken.iter().map(|run| (run.sectors.start, (run.sectors.start + run.phase) % GRID_SECTORS)).collect();
        // Sector 63 is sector 100 of the volume, and sector 163 its first one.
        assert_eq!(found, [(0, 0), (63, 100 % 64), (100, 137 % 64), (133, 133 % 64), (163, 0)]);
    }

    #[test]
    fn sectors_know_their_volumes() {
        let volume = |at| DiskUse::Volume(at, DATA);
        let runs = [(1000, DiskUse::Gap), (4096, volume(1)), (5120, DiskUse::Volume(1, FREE)), (9000, volume(0))];
        let (_, found) = sweep(Scope::Allocated, &[&[(5120, 3880)], &[(1000, 4120)]], &runs);
        let mut shares = Vec::new();
        found.each_share(sectors(0, 18), &mut |run, volume| shares.push((run, volume)));
        assert_eq!(shares, [(sectors(2, 10), 1), (sectors(10, 18), 0)]);
        shares.clear();
        found.each_share(sectors(9, 11), &mut |run, volume| shares.push((run, volume)));
        assert_eq!(shares, [(sectors(9, 10), 1), (sectors(10, 11), 0)]);
        assert_eq!(bytes_of(sectors(17, 18), 9000), 9000 - 17 * 512);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(shortened("äöü", 3), "ä");
        assert_eq!(shortened("abc", 3), "abc");
    }
}
