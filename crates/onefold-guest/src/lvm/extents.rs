//! The extents of a volume group: the places of a logical volume's extents on the disk, and the free extents.

use super::PhysicalVolume;
use super::description::{Description, Logical, Segment};
use crate::volume::{DiskRange, VolumeReader};

/// Maximum number of pieces of a striped volume.
const PIECES_MAX: u64 = 1 << 20;
/// Maximum number of pieces of all logical volumes of a disk. Each takes about 60 bytes of memory.
pub(super) const PIECES_OF_DISK_MAX: u64 = 2 << 20;

/// The extents of a volume group with all its physical volumes. All extents lie within their physical volume and
/// outside of its metadata, and no two parts of logical volumes share one.
pub(super) struct Extents<'g, 'd> {
    description: &'g Description,
    /// The physical volumes, in the order of the description.
    volumes: &'g [&'g (VolumeReader<'d>, PhysicalVolume)],
    /// The extents in use: physical volume, first extent, and the extent after the last one; in order.
    used: Vec<(usize, u64, u64)>,
}

impl<'g, 'd> Extents<'g, 'd> {
    /// Checks the extents of a group. `volumes` are its physical volumes in the order of the description.
    ///
    /// # Errors
    /// The reason why they are invalid.
    pub(super) fn new(
        description: &'g Description,
        volumes: &'g [&'g (VolumeReader<'d>, PhysicalVolume)],
    ) -> Result<Extents<'g, 'd>, String> {
        for (physical, (reader, found)) in description.physical.iter().zip(volumes) {
            let end = physical.extents.checked_mul(description.extent_bytes);
            let end = end.and_then(|length| length.checked_add(physical.start_bytes));
            let Some(end) = end.filter(|end| *end <= reader.size_bytes()) else {
                return Err(format!("its disk {} is longer than the volume that it lies on", physical.uuid));
            };
            if physical.extents > 0 && found.has_metadata_in(physical.start_bytes, end) {
                return Err(format!("the extents of its disk {} meet its metadata", physical.uuid));
            }
        }
        let mut used = Vec::new();
        for logical in &description.logical {
            for segment in &logical.segments {
                add_used(&mut used, description, logical, segment)?;
            }
        }
        used.sort_unstable();
        let overlaps = |pair: &[(usize, u64, u64)]| match pair {
            [(one, _, end), (next, start, _)] => one == next && start < end,
            _ => false,
        };
        if used.windows(2).any(overlaps) {
            return Err("two of its volumes share extents".to_owned());
        }
        Ok(Extents { description, volumes, used })
    }

    /// Returns the places of a logical volume's content, in the volume's order. All its segments must be striped. Its
    /// pieces are subtracted from `pieces_left`.
    ///
    /// # Errors
    /// The reason why the places are unknown.
    pub(super) fn ranges(&self, logical: &Logical, pieces_left: &mut u64) -> Result<Vec<DiskRange>, &'static str> {
        let mut ranges = Vec::new();
        let mut next = 0;
        for segment in &logical.segments {
            if segment.first != next || segment.extents == 0 {
                return Err("its segments leave a gap or overlap");
            }
            next += segment.extents;
            self.add_segment(&mut ranges, segment, pieces_left)?;
        }
        if ranges.is_empty() { Err("it has no segment") } else { Ok(ranges) }
    }

    fn add_segment(
        &self,
        ranges: &mut Vec<DiskRange>,
        segment: &Segment,
        pieces_left: &mut u64,
    ) -> Result<(), &'static str> {
        let extent_bytes = self.description.extent_bytes;
        let length = segment.extents_per_area().and_then(|extents| extents.checked_mul(extent_bytes));
        let length = length.ok_or("its stripes differ in length")?;
        let stripe_bytes = if let [_] = segment.areas[..] { length } else { segment.stripe_bytes };
        if stripe_bytes == 0 || !length.is_multiple_of(stripe_bytes) {
            return Err("its extents are no whole stripes");
        }
        let rows = length / stripe_bytes;
        let pieces = rows.saturating_mul(segment.areas.len() as u64);
        if pieces > PIECES_MAX - ranges.len() as u64 {
            return Err("it has too many stripes");
        }
        *pieces_left = pieces_left.checked_sub(pieces).ok_or("the volumes of its disk have too many stripes")?;
        for row in 0..rows {
            for area in &segment.areas {
                self.add_range(ranges, *area, row * stripe_bytes, stripe_bytes)?;
            }
        }
        Ok(())
    }

    /// Adds `length` bytes from byte `offset` of the area that begins at an extent of a physical volume.
    fn add_range(
        &self,
        ranges: &mut Vec<DiskRange>,
        (physical, first): (usize, u64),
        offset: u64,
        length: u64,
    ) -> Result<(), &'static str> {
        let place = self.description.physical.get(physical).zip(self.volumes.get(physical));
        let (place, (reader, _)) = place.ok_or("its disk is missing")?;
        // It lies within the physical volume, as the constructor has checked.
        let at = place.start_bytes + first * self.description.extent_bytes + offset;
        reader.each_on_disk(at, length, &mut |range| match ranges.last_mut() {
            Some(last) if last.end_bytes() == range.start_bytes => last.length_bytes += range.length_bytes,
            _ => ranges.push(range),
        });
        if ranges.len() as u64 > PIECES_MAX { Err("it has too many pieces") } else { Ok(()) }
    }

    /// Returns the places of the free extents on the disk, in order.
    pub(super) fn free(&self) -> Vec<DiskRange> {
        let mut free = Vec::new();
        for (at, (physical, (reader, _))) in self.description.physical.iter().zip(self.volumes).enumerate() {
            let from = self.used.partition_point(|(volume, ..)| *volume < at);
            let used = self.used.iter().skip(from).take_while(|(volume, ..)| *volume == at);
            let mut next = 0;
            let ends = used.map(|(_, start, end)| (*start, *end)).chain([(physical.extents, physical.extents)]);
            for (start, end) in ends {
                let (place, length) = (next * self.description.extent_bytes, start.saturating_sub(next));
                let length = length * self.description.extent_bytes;
                reader.each_on_disk(physical.start_bytes + place, length, &mut |range| free.push(range));
                next = end;
            }
        }
        free.sort_unstable();
        free
    }
}

/// Adds the extents of a segment.
fn add_used(
    used: &mut Vec<(usize, u64, u64)>,
    description: &Description,
    logical: &Logical,
    segment: &Segment,
) -> Result<(), String> {
    let Some(length) = segment.extents_per_area() else {
        return Err(format!("it is not known which extents {} takes", logical.name));
    };
    for (physical, first) in &segment.areas {
        let end = first.checked_add(length);
        let room = description.physical.get(*physical).map_or(0, |physical| physical.extents);
        let Some(end) = end.filter(|end| *end <= room) else {
            return Err(format!("{} takes extents that do not exist", logical.name));
        };
        if length > 0 {
            used.push((*physical, *first, end));
        }
    }
    Ok(())
}
