//! Maps in reverse: finds the blocks at a place of the device.

use std::io;

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::{MappedExtent, Substrate};

/// Maximum number of extents of a file that are kept at once: 256 MiB of them. Files in more pieces are not handled.
const EXTENTS_MAX: usize = 1 << 22;

/// Extents, by place.
pub(crate) struct Places {
    extents: Vec<(u64, MappedExtent)>,
    /// For each extent, the highest end of the extents up to it: several may be at one place.
    ends: Vec<u64>,
}

impl Places {
    /// Returns the places of a file's data. `None` if the file is in too many pieces.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn of<S: Substrate>(substrate: &S, file: &S::File) -> io::Result<Option<Places>> {
        let (mut extents, mut next) = (Vec::new(), 0);
        loop {
            let more = substrate.extents(file, next)?;
            // A map that does not advance has ended.
            let Some(end) = more.last().map(MappedExtent::end).filter(|end| *end > next) else { break };
            let written = more.into_iter().filter(|extent| !extent.is_unwritten);
            extents.extend(written.filter_map(|extent| Some((extent.place?, extent))));
            next = end;
            if extents.len() > EXTENTS_MAX {
                return Ok(None);
            }
        }
        Ok(Some(Places::new(extents)))
    }

    /// Returns the places of extents, which may belong to several files, each with its own offsets.
    pub(crate) fn new(mut extents: Vec<(u64, MappedExtent)>) -> Places {
        extents.sort_unstable_by_key(|(place, _)| *place);
        let mut highest = 0;
        let ends = extents.iter().map(|(place, extent)| {
            highest = highest.max(place.saturating_add(extent.length));
            highest
        });
        Places { ends: ends.collect(), extents }
    }

    /// Returns the blocks that another file's extent and this map have at one place, as offsets in both.
    pub(crate) fn within(&self, extent: &MappedExtent) -> impl Iterator<Item = (u64, u64)> {
        let place = extent.place.unwrap_or(u64::MAX);
        let end = place.saturating_add(if extent.is_unwritten { 0 } else { extent.length });
        let (offset, first) = (extent.offset, self.ends.partition_point(|end| *end <= place));
        let near = self.extents[first.min(self.extents.len())..].iter().take_while(move |(own, _)| *own < end);
        near.flat_map(move |(own, extent)| {
            let (from, to) = (place.max(*own), end.min(own.saturating_add(extent.length)));
            let blocks = to.saturating_sub(from) / BLOCK_BYTES_U64;
            let (theirs, ours) = (offset + (from - place), extent.offset + (from - own));
            (0..blocks).map(move |block| (theirs + block * BLOCK_BYTES_U64, ours + block * BLOCK_BYTES_U64))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = BLOCK_BYTES_U64;

    fn extent(offset: u64, place: u64, blocks: u64) -> MappedExtent {
        let place = Some(place * K);
        MappedExtent { offset: offset * K, place, length: blocks * K, is_shared: false, is_unwritten: false }
    }

    #[test]
    fn blocks_at_one_place_are_found_also_where_several_lie_there() {
        // A long extent over two short ones, one of which is there twice.
        let own = [extent(0, 100, 10), extent(20, 103, 1), extent(30, 103, 1), extent(40, 200, 4)];
        let places = Places::new(own.iter().map(|extent| (extent.place.unwrap(), *extent)).collect());
        let at = |other| {
            let mut found: Vec<_> = places.within(&other).map(|(theirs, ours)| (theirs / K, ours / K)).collect();
            found.sort_unstable();
            found
        };
        assert_eq!(at(extent(7, 103, 1)), [(7, 3), (7, 20), (7, 30)]);
        assert_eq!(at(extent(0, 108, 5)), [(0, 8), (1, 9)]);
        assert_eq!(at(extent(0, 202, 9)), [(0, 42), (1, 43)]);
        assert_eq!(at(extent(0, 110, 90)), []);
        assert_eq!(at(extent(0, 300, 9)), []);
        assert_eq!(at(MappedExtent { place: None, ..extent(0, 0, 5) }), []);
    }
}
