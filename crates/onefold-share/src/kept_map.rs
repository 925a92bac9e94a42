//! The places of a file's data at a moment, for a comparison with later places. New, punched and moved ranges show;
//! data that was overwritten in place does not.

use std::io;

use onefold_substrate::{AgedExtent, Substrate};

use crate::format::map::{EXTENTS_MAX, KeptExtent};
use crate::pace::Pace;
use crate::ranges::Ranges;

/// Cost of looking at an extent, in bytes read: the file system reads its own records for it.
pub(crate) const LOOK_BYTES: u64 = 64;

/// The map of a whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptMap {
    /// Disjoint and in order.
    extents: Vec<KeptExtent>,
}

/// Differences of a later map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Differences {
    /// Ranges that hold data now, but held none, or had it at another place.
    pub(crate) changed: Ranges,
    /// Ranges that held data, but hold none now.
    pub(crate) emptied: Ranges,
}

/// The map of a stretch of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MapState {
    Nothing,
    Data(Option<u64>),
}

impl KeptMap {
    /// Returns the map of these extents, which have to be disjoint and in order.
    pub(crate) fn of(extents: Vec<KeptExtent>) -> KeptMap {
        KeptMap { extents }
    }

    pub(crate) fn extents(&self) -> &[KeptExtent] {
        &self.extents
    }

    /// Returns its extents, disjoint and in order.
    pub(crate) fn into_extents(self) -> Vec<KeptExtent> {
        self.extents
    }

    /// Asks the file system for the map of a file. `None` if it has more extents than are kept, or no map.
    ///
    /// # Errors
    /// Errors of the device; `Interrupted` if the work is to end.
    pub(crate) fn load<S: Substrate>(substrate: &S, file: &S::File, pace: &Pace<'_>) -> io::Result<Option<KeptMap>> {
        let mut map = KeptMap::default();
        loop {
            let end = map.extents.last().map_or(0, KeptExtent::end);
            let more = match substrate.extents(file, end) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(None),
                more => more?,
            };
            looked(pace, more.len())?;
            // A map that does not advance has ended.
            if more.last().is_none_or(|last| last.end() <= end) {
                return Ok(Some(map));
            }
            for extent in more {
                map.push(KeptExtent {
                    offset: extent.offset,
                    length: extent.length,
                    place: extent.place,
                    is_unwritten: extent.is_unwritten,
                });
            }
            if map.extents.len() > EXTENTS_MAX {
                return Ok(None);
            }
        }
    }

    /// Adds an extent behind the others. A part of it before their end is left out.
    fn push(&mut self, extent: KeptExtent) {
        let end = self.extents.last().map_or(0, KeptExtent::end);
        let Some(cut) = Some(extent.offset.max(end)).filter(|start| *start < extent.end()) else { return };
        let extent = KeptExtent { offset: cut, length: extent.end() - cut, place: extent.place_of(cut), ..extent };
        match self.extents.last_mut() {
            Some(last)
                if last.end() == extent.offset
                    && last.is_unwritten == extent.is_unwritten
                    && last.place.map(|place| place.wrapping_add(last.length)) == extent.place =>
            {
                last.length += extent.length;
            }
            _ => self.extents.push(extent),
        }
    }

    /// Returns whether there is a hole before an end. Unwritten space is not a hole.
    pub(crate) fn has_gap(&self, end: u64) -> bool {
        let covered = Ranges::of(self.extents.iter().map(|extent| extent.offset..extent.end()));
        !covered.gaps_in(0..end).is_empty()
    }

    /// Returns the differences of a later map, up to an end, in whole blocks. Data without a place may have changed.
    pub(crate) fn differences(&self, now: &KeptMap, end: u64) -> Differences {
        let (mut changed, mut emptied) = (Vec::new(), Vec::new());
        let (mut before, mut after) = (Walk::of(self), Walk::of(now));
        let mut at = 0;
        while at < end {
            let (old, old_end) = before.at(at);
            let (new, new_end) = after.at(at);
            let next = old_end.min(new_end).min(end);
            match (old, new) {
                (MapState::Data(Some(old)), MapState::Data(Some(new))) if old == new => {}
                (_, MapState::Data(_)) => changed.push(at..next),
                (MapState::Data(_), MapState::Nothing) => emptied.push(at..next),
                (MapState::Nothing, MapState::Nothing) => {}
            }
            at = next;
        }
        let changed = Ranges::around(changed);
        Differences { emptied: Ranges::within(emptied).minus(&changed), changed }
    }

    /// Returns whether an extent is at its previous place.
    pub(crate) fn has(&self, extent: &KeptExtent) -> bool {
        let other = KeptMap { extents: vec![*extent] };
        let around = self.part(extent.offset, extent.end());
        around.differences(&other, extent.end()).changed.is_empty()
    }

    /// Returns the extents that overlap a range.
    fn part(&self, start: u64, end: u64) -> KeptMap {
        let first = self.extents.partition_point(|extent| extent.end() <= start);
        let count = self.extents[first..].partition_point(|extent| extent.offset < end);
        KeptMap { extents: self.extents[first..first + count].to_vec() }
    }

    /// Sets the places of these extents, without other changes. Of two overlapping ones, the later one counts.
    pub(crate) fn lay(&mut self, extents: Vec<KeptExtent>) {
        let mut laid: Vec<KeptExtent> = Vec::with_capacity(extents.len());
        let is_in_order = extents.windows(2).all(|pair| pair[0].end() <= pair[1].offset);
        if is_in_order {
            laid = extents;
        } else {
            for extent in extents {
                let mut map = KeptMap { extents: laid };
                map.lay(vec![extent]);
                laid = map.extents;
            }
        }
        let covered = Ranges::of(laid.iter().map(|extent| extent.offset..extent.end()));
        let mut kept: Vec<KeptExtent> = Vec::with_capacity(self.extents.len() + laid.len());
        for extent in &self.extents {
            for part in covered.gaps_in(extent.offset..extent.end()) {
                let length = part.end - part.start;
                kept.push(KeptExtent { offset: part.start, length, place: extent.place_of(part.start), ..*extent });
            }
        }
        kept.extend(laid);
        kept.sort_unstable_by_key(|extent| extent.offset);
        self.extents.clear();
        // `push` joins adjacent extents.
        kept.into_iter().for_each(|extent| self.push(extent));
    }

    /// Drops the map from an offset on.
    pub(crate) fn cut(&mut self, end: u64) {
        self.extents.truncate(self.extents.partition_point(|extent| extent.offset < end));
        if let Some(last) = self.extents.last_mut() {
            last.length = last.length.min(end - last.offset);
        }
    }

    /// Makes ranges holes.
    pub(crate) fn empty(&mut self, ranges: &Ranges) {
        let parts = self.extents.iter().flat_map(|extent| {
            let parts = ranges.gaps_in(extent.offset..extent.end());
            parts.into_iter().map(|part| KeptExtent {
                offset: part.start,
                length: part.end - part.start,
                place: extent.place_of(part.start),
                ..*extent
            })
        });
        self.extents = parts.collect();
    }
}

impl From<&AgedExtent> for KeptExtent {
    fn from(aged: &AgedExtent) -> KeptExtent {
        let AgedExtent { offset, length, place, is_unwritten, .. } = *aged;
        KeptExtent { offset, length, place, is_unwritten }
    }
}

/// Accounts for looking at extents, and asks whether to go on.
pub(crate) fn looked(pace: &Pace<'_>, extents: usize) -> io::Result<()> {
    pace.read(extents as u64 * LOOK_BYTES);
    pace.go_on().map_err(|_| io::ErrorKind::Interrupted.into())
}

/// A walk along a map. Offsets only rise.
struct Walk<'a> {
    extents: &'a [KeptExtent],
}

impl<'a> Walk<'a> {
    fn of(map: &'a KeptMap) -> Walk<'a> {
        Walk { extents: &map.extents }
    }

    /// Returns the map at an offset, and its end.
    fn at(&mut self, offset: u64) -> (MapState, u64) {
        while let Some((_, rest)) = self.extents.split_first().filter(|(first, _)| first.end() <= offset) {
            self.extents = rest;
        }
        match self.extents.first() {
            None => (MapState::Nothing, u64::MAX),
            Some(next) if next.offset > offset => (MapState::Nothing, next.offset),
            Some(extent) if extent.is_unwritten => (MapState::Nothing, extent.end()),
            Some(extent) => (MapState::Data(extent.place_of(offset)), extent.end()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::num::NonZeroU64;
    use std::time::Duration;

    use super::*;
    use crate::pace::{Limits, Wish};
    use onefold_block::BLOCK_BYTES_U64 as K;
    use onefold_block::Clock;
    use onefold_block::clock::ManualClock;
    use onefold_block::random::SeededRandom;
    use onefold_linux::ProcessCpu;

    fn extent(first: u64, count: u64, place: Option<u64>) -> KeptExtent {
        KeptExtent { offset: first * K, length: count * K, place: place.map(|place| place * K), is_unwritten: false }
    }

    fn map(extents: &[KeptExtent]) -> KeptMap {
        let mut map = KeptMap::default();
        extents.iter().for_each(|extent| map.push(*extent));
        map
    }

    fn ranges(ranges: &[(u64, u64)]) -> Ranges {
        Ranges::of(ranges.iter().map(|(first, end)| first * K..end * K))
    }

    #[test]
    fn moved_new_and_punched_ranges_show_and_others_do_not() {
        let before = map(&[extent(0, 10, Some(100)), extent(20, 4, None), extent(30, 5, Some(50))]);
        let now =
            map(&[extent(0, 3, Some(100)), extent(3, 2, Some(7)), extent(5, 1, Some(105)), extent(8, 4, Some(108))]);
        let differences = before.differences(&now, 40 * K);
        assert_eq!(differences.changed, ranges(&[(3, 5), (10, 12)]));
        assert_eq!(differences.emptied, ranges(&[(6, 8), (20, 24), (30, 35)]));
        assert_eq!(before.differences(&now, 4 * K).changed, ranges(&[(3, 4)]));
        // Data without a place may have changed.
        assert_eq!(before.differences(&before, 40 * K).changed, ranges(&[(20, 24)]));
        let unwritten = map(&[KeptExtent { is_unwritten: true, ..extent(0, 10, Some(100)) }]);
        assert_eq!(unwritten.differences(&before, 10 * K).changed, ranges(&[(0, 10)]));
        assert_eq!(before.differences(&unwritten, 10 * K).emptied, ranges(&[(0, 10)]));
        assert!(before.has(&extent(2, 5, Some(102))) && !before.has(&extent(2, 5, Some(103))));
        assert!(!before.has(&extent(8, 5, Some(108))) && !before.has(&extent(20, 1, None)));
    }

    /// Reading a map counts as reading, and ends when the work is to end.
    #[test]
    fn reading_maps_keeps_to_the_rate_of_reading() {
        let limits = Limits { read_bytes_per_second: NonZeroU64::new(1 << 20), ..Limits::default() };
        let (clock, asked) = (ManualClock::default(), Cell::new(0));
        let wish = || {
            asked.set(asked.get() + 1);
            Wish::GoOn
        };
        let pace = Pace::new(limits, &clock, &ProcessCpu, &wish);
        let extents = 1 << 20;
        for _ in 0..16 {
            looked(&pace, extents / 16).unwrap();
        }
        let (took, expected) = (clock.monotonic(), Duration::from_secs((LOOK_BYTES * extents as u64) >> 20));
        assert!(took.abs_diff(expected) <= expected / 10, "{took:?}, not {expected:?}");
        assert!(asked.get() > 0);
        let pace = Pace::new(limits, &clock, &ProcessCpu, &|| Wish::StopNow);
        assert_eq!(looked(&pace, 1).unwrap_err().kind(), io::ErrorKind::Interrupted);
    }

    /// Compares with a plain array of places.
    #[test]
    fn what_is_laid_lies_there_and_nothing_else_moves() {
        let random = SeededRandom::new(11);
        for _ in 0..300 {
            let (mut map, mut plain) = (KeptMap::default(), [None; 64]);
            for _ in 0..6 {
                let mut laid = Vec::new();
                for _ in 0..random.below(5) {
                    let (first, place) = (random.below(60), random.below(1000));
                    let count = 1 + random.below(64 - first);
                    laid.push(extent(first, count, Some(place)));
                    (0..count).for_each(|at| plain[usize::try_from(first + at).unwrap()] = Some(place + at));
                }
                map.lay(laid);
                let (first, count) = (random.below(60), random.below(4));
                map.empty(&ranges(&[(first, first + count)]));
                (first..first + count).for_each(|at| plain[usize::try_from(at).unwrap()] = None);
                let found: Vec<_> = map
                    .extents
                    .iter()
                    .flat_map(|extent| {
                        (0..extent.length / K).map(|at| (extent.offset / K + at, extent.place.unwrap() / K + at))
                    })
                    .collect();
                let expected: Vec<_> = (0..).zip(plain).filter_map(|(at, place)| Some((at, place?))).collect();
                assert_eq!(found, expected);
            }
        }
    }
}
