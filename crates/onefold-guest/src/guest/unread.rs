//! Places of a disk that nothing reads, though maps call them allocated.

use super::{Guest, GuestVolume};
use crate::error::GuestError;
use crate::volume::DiskRange;

/// Maximum number of ranges before they are joined, enough for a volume of 16 TiB. Those beyond count as read.
const RANGES_MAX: usize = 1 << 17;

impl Guest<'_> {
    /// Returns the places of all certain volumes that nothing reads, as [`crate::filesystem::FileSystem::each_unread`]
    /// tells them: in order, and neither overlapping nor adjacent. Each comes with the index of its volume.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn unread(&self) -> Result<Vec<(DiskRange, usize)>, GuestError> {
        let mut ranges: Vec<(DiskRange, usize)> = Vec::new();
        for (at, volume) in self.volumes().iter().enumerate() {
            let Some(system) = volume.file_system().filter(|_| !self.counts_whole(at) && has_each_place_once(volume))
            else {
                continue;
            };
            let (first, mut left) = (ranges.len(), RANGES_MAX.saturating_sub(ranges.len()));
            let outcome = system.each_unread(&mut |range| {
                volume.reader.each_on_disk(range.start, range.end.saturating_sub(range.start), &mut |place| {
                    if left > 0 {
                        ranges.push((place, at));
                        left -= 1;
                    }
                });
            });
            match outcome {
                Ok(()) => {}
                Err(error @ GuestError::Disk(_)) => return Err(error),
                // Something is wrong with the volume: all of it counts as read.
                Err(_) => ranges.truncate(first),
            }
        }
        ranges.sort_unstable();
        Ok(joined(ranges))
    }
}

/// Returns whether no place of the disk is in a volume twice.
fn has_each_place_once(volume: &GuestVolume<'_>) -> bool {
    let mut ranges = volume.volume.ranges.clone();
    ranges.sort_unstable();
    ranges.array_windows().all(|[one, next]| one.end_bytes() <= next.start_bytes)
}

/// Joins sorted ranges that overlap or touch. Those of different volumes do not overlap.
fn joined(ranges: Vec<(DiskRange, usize)>) -> Vec<(DiskRange, usize)> {
    let mut joined: Vec<(DiskRange, usize)> = Vec::new();
    for (range, volume) in ranges {
        match joined.last_mut() {
            Some((last, of)) if *of == volume && range.start_bytes <= last.end_bytes() => {
                last.length_bytes = last.length_bytes.max(range.end_bytes() - last.start_bytes);
            }
            _ => joined.push((range, volume)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_one_volume_are_joined() {
        let range = |start_bytes, end: u64| DiskRange { start_bytes, length_bytes: end - start_bytes };
        let ranges =
            vec![(range(0, 10), 0), (range(5, 8), 0), (range(10, 20), 0), (range(20, 30), 1), (range(40, 41), 1)];
        assert_eq!(joined(ranges), [(range(0, 20), 0), (range(20, 30), 1), (range(40, 41), 1)]);
    }
}
