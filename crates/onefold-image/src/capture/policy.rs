//! What of a disk is captured: everything except what its allocation maps call free with certainty.

use onefold_guest::content::VolumeContent;
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::AllocationClass;
use onefold_guest::guest::{DiskRun, DiskUse, Guest};
use onefold_guest::volume::DiskRange;

use crate::format::manifest::{CaptureWay, CapturedVolume};
use crate::{SECTOR_BYTES, SectorRun};

/// Which bytes of a disk are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Those that no allocation map calls free with certainty.
    #[default]
    Allocated,
    /// All.
    All,
}

/// A run of sectors that are captured, all of one volume or of none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TakenRun {
    /// Where they lie.
    pub(crate) sectors: SectorRun,
    /// Their volume by its place in the guest; `None` between volumes.
    pub(crate) volume: Option<usize>,
    /// What to add to a sector of the run so that a multiple of 32 KiB in the volume is one in the sum, too.
    pub(crate) phase: u64,
}

/// What a pass over the maps of a disk found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Bytes that are free with certainty, and were not wanted.
    pub(crate) free_bytes: u64,
    /// Which volume each sector belongs to; in order. Sectors between volumes are left out.
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

/// Why an area is captured raw, whatever its map says.
const ALL_WANTED: &str = "all bytes were wanted";
const DISK_IN_DOUBT: &str = "the disk may be something else than its partitions";
const OVERLAPS: &str = "it overlaps another volume";
const GROUP_UNSURE: &str = "its volume group is not sure of it";
const NO_MAP: &str = "its allocation map cannot be made";
const NOT_OPENED: &str = "it cannot be opened";

/// Maximum length of a name of a content and of a reason in a manifest, in bytes.
const CONTENT_BYTES_MAX: usize = 64;
const REASON_BYTES_MAX: usize = 256;

/// Calls `visit` with each run of sectors to capture, in the order of the disk. A sector counts as free only if all its
/// bytes are.
///
/// # Errors
/// Those of the disk and of `visit`, whose first one ends the visits.
pub(crate) fn each_taken(
    guest: &Guest<'_>,
    scope: Scope,
    visit: &mut dyn FnMut(TakenRun) -> Result<(), GuestError>,
) -> Result<Found, GuestError> {
    let volumes = guest.volumes().iter().map(|volume| pieces(&volume.volume.ranges)).collect();
    let found = Found { doubtful_bytes: vec![0; guest.volumes().len()], ..Found::default() };
    let size_bytes = guest.disk().size_bytes();
    let mut sweep = Sweep { scope, size_bytes, next: 0, volumes, found, visit };
    guest.each_run(&mut |run| sweep.add(run))?;
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

/// A pass over the runs of a disk, on its way from bytes to sectors.
struct Sweep<'v> {
    scope: Scope,
    size_bytes: u64,
    /// The first sector that is neither free nor visited.
    next: u64,
    volumes: Vec<Pieces>,
    found: Found,
    visit: &'v mut dyn FnMut(TakenRun) -> Result<(), GuestError>,
}

impl Sweep<'_> {
    fn add(&mut self, run: DiskRun) -> Result<(), GuestError> {
        let end_bytes = run.range.end_bytes();
        let is_free = self.scope == Scope::Allocated && run.use_.is_free();
        // The last sector of a disk may be cut off. Of a sector that two runs share, a run that is not free takes all.
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

    /// Returns what to add to sectors from byte `place` of the disk on; see [`TakenRun::phase`].
    fn phase(&self, volume: usize, place: u64) -> u64 {
        let Some(pieces) = self.volumes.get(volume) else { return 0 };
        let after = pieces.partition_point(|(range, _)| range.start_bytes <= place);
        let Some((range, offset)) = after.checked_sub(1).and_then(|at| pieces.get(at)) else { return 0 };
        let in_volume = (offset / SECTOR_BYTES) % GRID_SECTORS;
        let on_disk = (range.start_bytes / SECTOR_BYTES) % GRID_SECTORS;
        (in_volume + GRID_SECTORS - on_disk) % GRID_SECTORS
    }
}

/// Returns the length of a run on a disk of `size_bytes`, whose last sector may be cut off.
pub(crate) fn bytes_of(sectors: SectorRun, size_bytes: u64) -> u64 {
    let end_bytes = sectors.end().saturating_mul(SECTOR_BYTES).min(size_bytes);
    end_bytes.saturating_sub(sectors.start_bytes())
}

impl Found {
    /// Calls `visit` with the parts of a run that lie in volumes, and their volumes.
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

    /// Returns how each volume was captured, in the order of the disk. `taken_bytes` has for each of them the bytes that are
    /// not zero.
    pub(crate) fn volumes(&self, guest: &Guest<'_>, scope: Scope, taken_bytes: &[u64]) -> Vec<CapturedVolume> {
        let mut volumes: Vec<CapturedVolume> = Vec::with_capacity(guest.volumes().len());
        for (at, volume) in guest.volumes().iter().enumerate() {
            let length_bytes = volume.volume.size_bytes();
            let doubtful_bytes = self.doubtful_bytes.get(at).copied().unwrap_or(0);
            let has_no_map = doubtful_bytes >= length_bytes && !volume.is_physical();
            let reason = match scope {
                Scope::All => Some(ALL_WANTED.to_owned()),
                Scope::Allocated => raw_because(guest, at).or_else(|| has_no_map.then(|| NO_MAP.to_owned())),
            };
            volumes.push(CapturedVolume {
                start_bytes: volume.volume.ranges.iter().map(|range| range.start_bytes).min().unwrap_or(0),
                length_bytes,
                content: shortened(content(&volume.content), CONTENT_BYTES_MAX),
                way: reason.map_or(CaptureWay::Map, |why| CaptureWay::Raw(shortened(&why, REASON_BYTES_MAX))),
                taken_bytes: taken_bytes.get(at).copied().unwrap_or(0),
            });
        }
        volumes.sort_by_key(|volume| volume.start_bytes);
        volumes
    }
}

/// Returns why a volume is captured raw, in words that have no names of the guest; `None` where it has a map.
fn raw_because(guest: &Guest<'_>, at: usize) -> Option<String> {
    let volume = guest.volumes().get(at)?;
    if guest.doubt().is_some() {
        return Some(DISK_IN_DOUBT.to_owned());
    }
    if guest.overlaps(at) {
        return Some(OVERLAPS.to_owned());
    }
    match &volume.content {
        // The map of the group has its free extents.
        VolumeContent::PhysicalVolume(_) => guest.whole_because(at).map(|_| GROUP_UNSURE.to_owned()),
        // The error may name a file of the host.
        VolumeContent::Failed(GuestError::Damaged(damage)) => Some(format!("{NOT_OPENED}: {damage}")),
        VolumeContent::Failed(GuestError::Unsupported(what)) => Some(format!("{NOT_OPENED}: {what} cannot be read")),
        VolumeContent::Failed(_) => Some(NOT_OPENED.to_owned()),
        content => content.whole_because().or_else(|| guest.counts_whole(at).then(|| GROUP_UNSURE.to_owned())),
    }
}

/// Returns what a volume holds, in one or two words.
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

/// Returns a text cut to a length in bytes, at the end of a character.
fn shortened(text: &str, bytes_max: usize) -> String {
    text[..text.floor_char_boundary(bytes_max)].to_owned()
}
