//! Reads ahead: many units of a pack come by one read, although they are asked for one after the other.
//!
//! Units lie in their packs in the order of capture, and headers of chunks in runs of their own. So a reader
//! of an image in the order of the disk plans the reads of the next chunks at once. A planned read spans small gaps
//! between its units, and forgets their bytes as soon as it has returned. The gaps of a plan have at most as many bytes
//! as its units, except between headers, which are short. A plan is a hint: a unit that it does not return, or that is
//! asked for more often than it was planned, is read by itself.

use std::ops::Range;

use super::index::ClaimedPlace;
use super::objects::Folder;
use super::{Archive, ArchiveError, WantedUnit};
use crate::format::chunk_header::ChunkHeader;
use crate::format::pack::{UNIT_HEADER_BYTES, UnitHeader};
use crate::store::{ByteRange, Store, StoreError};
use crate::{ObjectId, UnitName};

/// Maximum gap between two units that one planned read spans, in bytes. An object store takes about as long for a
/// request as for these bytes.
const GAP_BYTES: u64 = 1 << 20;
/// Maximum gap between two headers of chunks. Most lie in runs. Where each lies behind its chunk, the gap is a chunk.
const HEADER_GAP_BYTES: u64 = 64 << 10;
/// Divisor for the share of a plan's memory that the gaps of one read may take while it returns.
const GAPS_SHARE: u64 = 4;
/// Maximum length of a planned read, in bytes.
const READ_BYTES: u64 = 16 << 20;
/// Maximum number of units in a plan. Hostile headers name any number.
const UNITS_MAX: usize = 64 << 10;

/// Planned reads. Each is made when the first of its units is asked for, and its bytes are dropped after the last.
#[derive(Debug, Default)]
pub struct PlannedReads {
    /// In the order of packs and offsets.
    reads: Vec<PlannedRead>,
}

/// One read.
#[derive(Debug)]
struct PlannedRead {
    pack: ObjectId,
    /// The pieces that it keeps, in the order of offsets. It reads the gaps between them, too.
    pieces: Vec<KeptPiece>,
    /// Number of units that were not asked for yet.
    left: usize,
    /// The bytes of the pieces, one behind the other.
    bytes: Option<Vec<u8>>,
}

/// A piece of a pack that a read keeps.
#[derive(Clone, Debug)]
struct KeptPiece {
    range: Range<u64>,
    /// Number of bytes of earlier pieces that the read keeps.
    at: u64,
}

/// Consecutive units of a pack, without a gap.
struct Piece {
    pack: ObjectId,
    range: Range<u64>,
    units: usize,
}

/// Bounds of a plan.
#[derive(Clone, Copy, Debug)]
struct PlanBounds {
    /// Bytes of all units.
    bytes_max: u64,
    /// Bytes of one gap.
    gap_bytes_max: u64,
    /// Bytes of all gaps. `None` stands for the number of bytes of all units.
    gaps_bytes_max: Option<u64>,
}

/// The headers of some chunks as they are stored, which takes far less memory than their decoded form.
#[derive(Clone, Debug)]
pub struct Headers {
    names: Vec<UnitName>,
    plain: Vec<Vec<u8>>,
}

impl Headers {
    /// Returns the headers with these names, in their plain form.
    pub(crate) fn of(names: &[UnitName], plain: Vec<Vec<u8>>) -> Headers {
        Headers { names: names.to_vec(), plain }
    }

    /// Returns one header.
    ///
    /// # Errors
    /// When it is invalid.
    ///
    /// # Panics
    /// When there are fewer headers.
    pub fn get(&self, index: usize) -> Result<ChunkHeader, ArchiveError> {
        let invalid = |source| ArchiveError::refused(format!("unit {}", self.names[index]), source);
        ChunkHeader::decode(&self.plain[index]).map_err(invalid)
    }
}

impl Archive {
    /// Returns the headers of chunks, in few reads if their chunks are neighbours.
    ///
    /// # Errors
    /// When one is lost or damaged, or the store fails.
    pub fn headers(&self, names: &[UnitName]) -> Result<Headers, ArchiveError> {
        let wanted: Vec<WantedUnit> = names.iter().map(|name| WantedUnit { name: *name, plain_bytes: None }).collect();
        let mut plain = vec![Vec::new(); names.len()];
        self.read_units::<ArchiveError>(&wanted, &mut |index, bytes| {
            plain[index] = bytes.to_vec();
            Ok(())
        })?;
        Ok(Headers::of(names, plain))
    }

    /// Plans reads of units whose bytes take at most `bytes_max` together. Units beyond that are not planned.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn read_ahead(
        &self,
        units: impl Iterator<Item = UnitName>,
        bytes_max: u64,
    ) -> Result<PlannedReads, ArchiveError> {
        self.plan(units, PlanBounds { bytes_max, gap_bytes_max: GAP_BYTES, gaps_bytes_max: None })
    }

    /// As [`Archive::read_ahead`], for headers of chunks. Units are not read because they lie between two headers.
    ///
    /// # Errors
    /// As [`Archive::read_ahead`].
    pub(crate) fn read_headers_ahead(
        &self,
        chunks: impl Iterator<Item = UnitName>,
        bytes_max: u64,
    ) -> Result<PlannedReads, ArchiveError> {
        let gaps_bytes_max = Some(u64::MAX);
        self.plan(chunks, PlanBounds { bytes_max, gap_bytes_max: HEADER_GAP_BYTES, gaps_bytes_max })
    }

    fn plan(&self, units: impl Iterator<Item = UnitName>, bounds: PlanBounds) -> Result<PlannedReads, ArchiveError> {
        let mut places = Vec::new();
        for unit in units.take(UNITS_MAX) {
            places.extend(self.places(unit)?.first().copied());
        }
        Ok(PlannedReads::of(places, bounds))
    }
}

impl PlannedReads {
    /// Plans the reads of what lies at these places.
    fn of(places: Vec<ClaimedPlace>, bounds: PlanBounds) -> PlannedReads {
        let pieces = pieces_of(places, bounds.bytes_max);
        let gap_after = |at: usize| {
            let (one, next) = (&pieces[at], pieces.get(at + 1)?);
            let gap = next.range.start.checked_sub(one.range.end).filter(|gap| *gap <= bounds.gap_bytes_max)?;
            (one.pack == next.pack).then_some(gap)
        };
        // The shortest gaps save as many requests as the longest.
        let mut gaps: Vec<(u64, usize)> =
            (0..pieces.len()).filter_map(|at| gap_after(at).map(|gap| (gap, at))).collect();
        gaps.sort_unstable();
        let units_bytes = pieces.iter().map(|piece| piece.range.end - piece.range.start).sum();
        let mut left = bounds.gaps_bytes_max.unwrap_or(units_bytes);
        let mut is_spanned = vec![false; pieces.len()];
        for (gap, at) in gaps {
            let Some(rest) = left.checked_sub(gap) else { break };
            (left, is_spanned[at]) = (rest, true);
        }
        let mut reads: Vec<PlannedRead> = Vec::new();
        let mut gaps_bytes = 0;
        for (at, Piece { pack, range, units }) in pieces.into_iter().enumerate() {
            let spanning = reads.last_mut().filter(|_| at > 0 && is_spanned[at - 1]).and_then(|read| {
                let gap = range.start - read.end();
                let fits = range.end - read.start() <= READ_BYTES && gaps_bytes + gap <= bounds.bytes_max / GAPS_SHARE;
                fits.then_some((read, gap))
            });
            match spanning {
                Some((read, gap)) => {
                    gaps_bytes += gap;
                    read.left += units;
                    let at = read.kept_bytes();
                    read.pieces.push(KeptPiece { range, at });
                }
                None => {
                    gaps_bytes = 0;
                    let pieces = vec![KeptPiece { range, at: 0 }];
                    reads.push(PlannedRead { pack, pieces, left: units, bytes: None });
                }
            }
        }
        PlannedReads { reads }
    }

    /// Passes the unit at a place to `accept`, and returns its answer; false if the plan does not have the unit, or its
    /// read fails: one unit of the read may be to blame, and the others are intact.
    ///
    /// # Errors
    /// When the store fails for good, or `accept` fails.
    pub(super) fn pass<E>(
        &mut self,
        store: &dyn Store,
        place: ClaimedPlace,
        accept: &mut impl FnMut(UnitHeader, &[u8]) -> Result<bool, E>,
    ) -> Result<Result<bool, E>, StoreError> {
        let start = u64::from(place.offset);
        let until = self.reads.partition_point(|read| (read.pack, read.start()) <= (place.pack, start));
        let Some(read) = until.checked_sub(1).map(|last| &mut self.reads[last]) else {
            return Ok(Ok(false));
        };
        let Some((piece, at)) = read.piece_of(place).filter(|_| read.pack == place.pack && read.left > 0) else {
            return Ok(Ok(false));
        };
        let bytes = match &mut read.bytes {
            Some(bytes) => bytes,
            none => match fetch(store, read.pack, &read.pieces) {
                Ok(bytes) => none.insert(bytes),
                Err(error) => {
                    read.left = 0;
                    return if error.is_final() { Err(error) } else { Ok(Ok(false)) };
                }
            },
        };
        // An object that was cut may end before the piece.
        let accepted = match bytes.get(at..).and_then(|bytes| unit_in(bytes, piece, place)) {
            Some((header, stored)) => accept(header, stored),
            None => Ok(false),
        };
        read.left -= 1;
        if read.left == 0 {
            read.bytes = None;
        }
        Ok(accepted)
    }
}

impl PlannedRead {
    fn start(&self) -> u64 {
        self.pieces.first().map_or(0, |piece| piece.range.start)
    }

    fn end(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.range.end)
    }

    fn kept_bytes(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.at + (piece.range.end - piece.range.start))
    }

    /// Returns the offset of the piece that has the unit at a place, and where its bytes begin in those of the read.
    fn piece_of(&self, place: ClaimedPlace) -> Option<(u64, usize)> {
        let until = self.pieces.partition_point(|piece| piece.range.start <= u64::from(place.offset));
        let KeptPiece { range, at } = self.pieces[..until].last()?;
        (end(place) <= range.end).then_some((range.start, usize::try_from(*at).ok()?))
    }
}

/// Returns what lies at these places without a gap, in the order of packs and offsets: at most `bytes_max` in all, and
/// at most the length of a read each.
fn pieces_of(mut places: Vec<ClaimedPlace>, bytes_max: u64) -> Vec<Piece> {
    places.sort_unstable_by_key(|place| (place.pack, place.offset));
    let mut pieces: Vec<Piece> = Vec::new();
    let mut bytes = 0_u64;
    for place in places {
        let (start, end) = (u64::from(place.offset), end(place));
        let joined = pieces.last_mut().filter(|Piece { pack, range, .. }| {
            *pack == place.pack && start <= range.end && end.max(range.end) - range.start <= READ_BYTES
        });
        let added = joined.as_ref().map_or(end - start, |last| end.saturating_sub(last.range.end));
        // The index may name any length.
        if end - start > READ_BYTES || bytes + added > bytes_max {
            continue;
        }
        bytes += added;
        match joined {
            Some(last) => (last.range.end, last.units) = (last.range.end.max(end), last.units + 1),
            None => pieces.push(Piece { pack: place.pack, range: start..end, units: 1 }),
        }
    }
    pieces
}

/// Reads pieces of a pack and the gaps between them, and returns the bytes of the pieces, one behind the other.
fn fetch(store: &dyn Store, pack: ObjectId, pieces: &[KeptPiece]) -> Result<Vec<u8>, StoreError> {
    let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else {
        return Ok(Vec::new());
    };
    let (first, last) = (&first.range, &last.range);
    let range = ByteRange::From { offset: first.start, length_bytes: last.end - first.start };
    let mut bytes = store.get(&Folder::Packs.object(pack), range)?;
    let mut kept = 0;
    for piece in pieces {
        let in_read = |offset: u64| usize::try_from(offset - first.start).map_or(bytes.len(), |at| at.min(bytes.len()));
        let (start, end) = (in_read(piece.range.start), in_read(piece.range.end));
        bytes.copy_within(start..end, kept);
        kept += end - start;
    }
    bytes.truncate(kept);
    bytes.shrink_to_fit();
    Ok(bytes)
}

/// Returns the offset behind a unit.
pub(super) fn end(place: ClaimedPlace) -> u64 {
    u64::from(place.offset) + u64::from(UNIT_HEADER_BYTES) + u64::from(place.stored_bytes)
}

/// Returns the header and the stored bytes of a unit from `bytes`, which were read from offset `start` on.
pub(super) fn unit_in(bytes: &[u8], start: u64, place: ClaimedPlace) -> Option<(UnitHeader, &[u8])> {
    let at = usize::try_from(u64::from(place.offset).checked_sub(start)?).ok()?;
    let body = at + UNIT_HEADER_BYTES as usize;
    let header = UnitHeader::decode(bytes.get(at..body)?).ok()?;
    let stored = bytes.get(body..body + place.stored_bytes as usize)?;
    (header.stored_bytes == place.stored_bytes).then_some((header, stored))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WriterId;
    use crate::format::pack::Codec;

    fn place(pack: u8, offset: u32, stored_bytes: u32) -> ClaimedPlace {
        ClaimedPlace { pack: ObjectId { writer: WriterId([1; 16]), random: [pack; 8] }, offset, stored_bytes }
    }

    /// Returns start, length and number of units of each read.
    fn planned(places: &[ClaimedPlace], bytes_max: u64, gaps_bytes_max: Option<u64>) -> Vec<(u64, u64, usize)> {
        let bounds = PlanBounds { bytes_max, gap_bytes_max: GAP_BYTES, gaps_bytes_max };
        let ahead = PlannedReads::of(places.to_vec(), bounds);
        ahead.reads.iter().map(|read| (read.start(), read.end() - read.start(), read.left)).collect()
    }

    #[test]
    fn reads_span_small_gaps_and_are_bounded() {
        let header = u64::from(UNIT_HEADER_BYTES);
        let all = Some(u64::MAX);
        let near = [place(1, 100, 50), place(1, 800_000, 50), place(1, 3_600_000, 50), place(2, 900_100, 50)];
        let one = 50 + header;
        let expected = [(100, 799_900 + one, 2), (3_600_000, one, 1), (900_100, one, 1)];
        assert_eq!(planned(&near, 1 << 30, all), expected);
        assert_eq!(
            planned(&near, 3 * one, all).len(),
            3,
            "the gap does not fit, and the last unit is beyond the memory"
        );
        let mib: Vec<ClaimedPlace> = (0..20).map(|at| place(1, at << 20, (1 << 20) - 100)).collect();
        let counts: Vec<usize> = planned(&mib, 1 << 30, all).iter().map(|(_, _, units)| *units).collect();
        assert_eq!(counts, [16, 4]);
        assert_eq!(planned(&[place(1, 0, u32::MAX), place(1, 5, 10)], u64::MAX, all), [(5, 10 + header, 1)]);
    }

    /// Regression: a unit behind a gap that did not fit was not planned at all.
    #[test]
    fn gaps_take_no_more_bytes_than_units_and_the_shortest_are_spanned() {
        let unit = 1000 - UNIT_HEADER_BYTES;
        // Gaps of 3000, 1000, 4000, 999 and 2000 bytes.
        let places = [0, 4000, 6000, 11_000, 12_999, 15_999].map(|offset| place(1, offset, unit));
        let expected = [(0, 1000, 1), (4000, 3000, 2), (11_000, 5999, 3)];
        assert_eq!(planned(&places, 1 << 20, None), expected);
        assert_eq!(planned(&places, 6000, None).iter().map(|(_, _, units)| units).sum::<usize>(), 6, "all are planned");
    }

    #[test]
    fn a_read_forgets_its_gaps_and_returns_each_unit() {
        let store = crate::store::MemoryStore::default();
        let (mut pack, mut places) = (vec![0xee; 100], Vec::new());
        for number in 0..5_u8 {
            places.push(place(1, u32::try_from(pack.len()).unwrap(), 30));
            pack.extend(UnitHeader { codec: Codec::Plain, stored_bytes: 30, plain_bytes: 30 }.encode());
            pack.extend([number; 30]);
            pack.extend(vec![0xee; usize::from(number % 2) * 40]);
        }
        store.put(&Folder::Packs.object(places[0].pack), &[&pack]).unwrap();
        let bounds = PlanBounds { bytes_max: 1000, gap_bytes_max: GAP_BYTES, gaps_bytes_max: None };
        let mut ahead = PlannedReads::of(places.clone(), bounds);
        assert_eq!(ahead.reads.len(), 1);
        for (number, place) in (0_u8..).zip(places) {
            let mut accept = |_: UnitHeader, stored: &[u8]| Ok::<bool, StoreError>(stored == [number; 30]);
            assert!(ahead.pass(&store, place, &mut accept).unwrap().unwrap(), "{number}");
            let kept = ahead.reads[0].bytes.as_ref().map(Vec::len);
            assert_eq!(kept, (number < 4).then_some(5 * (30 + UNIT_HEADER_BYTES as usize)));
        }
    }
}
