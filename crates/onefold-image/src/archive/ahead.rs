//! Reads ahead: many units of a pack come by one read, although they are asked for one after the other.
//!
//! Units lie in their packs in the order of capture, and headers of chunks in runs of their own. So a reader
//! of an image in the order of the disk plans the reads of the next chunks at once. It reads only planned bytes and the
//! small gaps between them, each byte once. A plan is a hint: a unit that it does not return is read by itself.

use super::index::ClaimedPlace;
use super::objects::Folder;
use super::{Archive, ArchiveError, WantedUnit};
use crate::format::chunk_header::ChunkHeader;
use crate::format::pack::{UNIT_HEADER_BYTES, UnitHeader};
use crate::store::{ByteRange, Store, StoreError};
use crate::{ObjectId, UnitName};

/// Maximum gap between two units that one planned read spans, in bytes. An object store takes about as long for a
/// request as for these bytes. A run of headers is shorter.
const GAP_BYTES: u64 = 1 << 20;
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
    start: u64,
    end: u64,
    /// Number of units that were not asked for yet.
    left: usize,
    bytes: Option<Vec<u8>>,
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
        let mut places = Vec::new();
        for unit in units.take(UNITS_MAX) {
            places.extend(self.places(unit)?.first().copied());
        }
        Ok(PlannedReads::of(places, bytes_max))
    }
}

impl PlannedReads {
    /// Plans the reads of what lies at these places.
    fn of(mut places: Vec<ClaimedPlace>, bytes_max: u64) -> PlannedReads {
        places.sort_unstable_by_key(|place| (place.pack, place.offset));
        let mut reads: Vec<PlannedRead> = Vec::new();
        let mut bytes = 0_u64;
        for place in places {
            let (start, end) = (u64::from(place.offset), end(place));
            let joined = reads.last_mut().filter(|last| {
                last.pack == place.pack && start <= last.end + GAP_BYTES && end.max(last.end) - last.start <= READ_BYTES
            });
            let added = joined.as_ref().map_or(end - start, |last| end.saturating_sub(last.end));
            // The index may name any length.
            if end - start > READ_BYTES || bytes + added > bytes_max {
                continue;
            }
            bytes += added;
            match joined {
                Some(last) => (last.end, last.left) = (last.end.max(end), last.left + 1),
                None => reads.push(PlannedRead { pack: place.pack, start, end, left: 1, bytes: None }),
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
        let until = self.reads.partition_point(|read| (read.pack, read.start) <= (place.pack, start));
        let Some(read) = until.checked_sub(1).map(|last| &mut self.reads[last]) else {
            return Ok(Ok(false));
        };
        if read.pack != place.pack || end(place) > read.end || read.left == 0 {
            return Ok(Ok(false));
        }
        let bytes = match &mut read.bytes {
            Some(bytes) => bytes,
            none => match fetch(store, read.pack, read.start, read.end) {
                Ok(bytes) => none.insert(bytes),
                Err(error) => {
                    read.left = 0;
                    return if error.is_final() { Err(error) } else { Ok(Ok(false)) };
                }
            },
        };
        let accepted = match unit_in(bytes, read.start, place) {
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

fn fetch(store: &dyn Store, pack: ObjectId, start: u64, end: u64) -> Result<Vec<u8>, StoreError> {
    store.get(&Folder::Packs.object(pack), ByteRange::From { offset: start, length_bytes: end - start })
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

    fn place(pack: u8, offset: u32, stored_bytes: u32) -> ClaimedPlace {
        ClaimedPlace { pack: ObjectId { writer: WriterId([1; 16]), random: [pack; 8] }, offset, stored_bytes }
    }

    fn planned(places: &[ClaimedPlace], bytes_max: u64) -> Vec<(u64, u64, usize)> {
        let ahead = PlannedReads::of(places.to_vec(), bytes_max);
        ahead.reads.iter().map(|read| (read.start, read.end - read.start, read.left)).collect()
    }

    #[test]
    fn reads_span_small_gaps_and_are_bounded() {
        let header = u64::from(UNIT_HEADER_BYTES);
        let near = [place(1, 100, 50), place(1, 800_000, 50), place(1, 3_600_000, 50), place(2, 900_100, 50)];
        let one = 50 + header;
        let expected = [(100, 799_900 + one, 2), (3_600_000, one, 1), (900_100, one, 1)];
        assert_eq!(planned(&near, 1 << 30), expected);
        assert_eq!(planned(&near, 799_900 + one), expected[..1], "the rest is beyond the memory");
        let mib: Vec<ClaimedPlace> = (0..20).map(|at| place(1, at << 20, (1 << 20) - 100)).collect();
        let counts: Vec<usize> = planned(&mib, 1 << 30).iter().map(|(_, _, units)| *units).collect();
        assert_eq!(counts, [16, 4]);
        assert_eq!(planned(&[place(1, 0, u32::MAX), place(1, 5, 10)], u64::MAX), [(5, 10 + header, 1)]);
    }
}
