//! Merges segments of the index, so that readers open few of them.

use std::collections::HashMap;

use super::Collection;
use super::listing::StoredObjects;
use crate::ObjectId;
use crate::archive::index::read_segment;
use crate::archive::objects::{Folder, new_id};
use crate::archive::state::{Part, State};
use crate::archive::tables::is_broken;
use crate::archive::{Archive, ArchiveError};
use crate::format::ledger::Change;
use crate::format::segment::{IndexEntry, SEGMENT_BYTES_MAX, Segment};

/// Minimum number of segments that are merged. More are, as long as none is longer than those before it together: so an
/// entry of the index is copied only as often as its segment's length doubles.
const SEGMENTS_MIN: usize = 8;
/// Share of the memory that merged segments may take. Beside them, there is the object that is encoded.
const MEMORY_SHARE: u64 = 4;

impl Collection<'_> {
    /// Merges the shortest segments, if there are many.
    pub(super) fn merge_segments(&mut self, listing: &StoredObjects) -> Result<(), ArchiveError> {
        if self.options.dry_run {
            return Ok(());
        }
        self.archive.refresh()?;
        let state = self.archive.state.read().clone();
        let bytes_max = (self.memory_bytes() as u64 / MEMORY_SHARE).min(SEGMENT_BYTES_MAX / 2);
        let chosen = chosen(&state.live_parts(), &listing.segments(), bytes_max);
        let parts = readable(self.archive, chosen)?;
        if parts.len() < SEGMENTS_MIN {
            return Ok(());
        }
        let segment = merged(&parts, &state);
        let writer = self.writer()?.id();
        let new = new_id(writer, self.random)?;
        let object = segment.encode(self.archive.descriptor().archive, new)?;
        self.archive.store().put(&Folder::Segments.object(new), &[&object])?;
        let old: Vec<ObjectId> = parts.iter().map(|(part, _)| part.segment).collect();
        loop {
            self.archive.refresh()?;
            let position = {
                let now = self.archive.state.read();
                // The new segment has to list exactly the packs that the state gives to it.
                let is_same =
                    |(part, _): &(Part, Segment)| now.holds_part(part) && live(part, &now) == live(part, &state);
                if !parts.iter().all(is_same) {
                    break;
                }
                now.position
            };
            let change = Change::SegmentsMerged { old: old.clone(), new };
            if self.archive.append(position, writer, self.clock, self.random, change)? {
                self.report.merged += old.len() as u64;
                return Ok(());
            }
        }
        // No entry names it, and none will.
        Ok(self.archive.store().delete(&Folder::Segments.object(new))?)
    }
}

/// Chooses the parts whose segments are merged.
fn chosen(parts: &[Part], lengths: &HashMap<ObjectId, u64>, bytes_max: u64) -> Vec<Part> {
    let mut by_length: Vec<(u64, &Part)> =
        parts.iter().filter_map(|part| Some((*lengths.get(&part.segment)?, part))).collect();
    by_length.sort_unstable_by_key(|(bytes, part)| (*bytes, part.segment));
    by_length.dedup_by_key(|(_, part)| part.segment);
    let mut sum = 0_u64;
    let mut chosen = Vec::new();
    for (bytes, part) in by_length {
        let is_long = chosen.len() >= SEGMENTS_MIN && bytes > sum;
        sum = sum.saturating_add(bytes);
        if is_long || sum > bytes_max {
            break;
        }
        chosen.push(part.clone());
    }
    chosen
}

/// Returns the parts with their segments. A part whose segment is damaged or newer is left out.
fn readable(archive: &Archive, parts: Vec<Part>) -> Result<Vec<(Part, Segment)>, ArchiveError> {
    let mut read = Vec::new();
    if parts.len() < SEGMENTS_MIN {
        return Ok(read);
    }
    for part in parts {
        match read_segment(archive.store(), archive.descriptor().archive, &part) {
            Ok(segment) => read.push((part, segment)),
            Err(error) if is_broken(&error) || matches!(error, ArchiveError::Newer { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

fn live(part: &Part, state: &State) -> Vec<ObjectId> {
    part.packs.iter().copied().filter(|pack| state.is_live(*pack)).collect()
}

/// Returns one segment for the live packs of all parts.
fn merged(parts: &[(Part, Segment)], state: &State) -> Segment {
    let mut segment = Segment::default();
    for (_, part) in parts {
        let mut number = |pack: &ObjectId| {
            state.is_live(*pack).then(|| {
                segment.packs.push(*pack);
                u32::try_from(segment.packs.len() - 1).expect("fewer packs than units")
            })
        };
        let numbers: Vec<Option<u32>> = part.packs.iter().map(&mut number).collect();
        let renumbered = |entry: &IndexEntry| numbers[entry.pack as usize].map(|pack| IndexEntry { pack, ..*entry });
        segment.entries.extend(part.entries.iter().filter_map(renumbered));
    }
    segment.entries.sort_unstable_by_key(|entry| (entry.prefix, entry.pack, entry.offset));
    segment
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WriterId;

    #[test]
    fn short_segments_are_merged_and_long_ones_stay() {
        let id = |number: u8| ObjectId { writer: WriterId([1; 16]), random: [number; 8] };
        let parts: Vec<Part> = (0..30).map(|number| Part::new(id(number), vec![id(number)])).collect();
        let count = |lengths: &[u64], bytes_max| {
            let lengths = (0_u8..).zip(lengths).map(|(number, bytes)| (id(number), *bytes)).collect();
            chosen(&parts, &lengths, bytes_max).len()
        };
        assert_eq!(count(&[100; 20], 1 << 20), 20);
        assert_eq!(count(&[100; 20], 1000), 10, "within memory");
        assert_eq!(count(&[1; 7], 1 << 20), 7, "too few, which the caller sees");
        assert_eq!(count(&[1, 1, 1, 1, 1, 1, 1, 1, 500, 900], 1 << 20), 8);
        assert_eq!(count(&[1, 1, 1, 1, 1, 1, 1, 1, 8, 16, 32, 65], 1 << 20), 11);
    }
}
