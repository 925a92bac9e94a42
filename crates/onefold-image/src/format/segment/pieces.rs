//! Decodes a segment that comes in pieces: a long one does not fit into memory.

use super::{ENTRY_BYTES, IndexEntry, NOWHERE, SEGMENT_BYTES_MAX, UNSORTED};
use crate::format::FormatError;
use crate::format::bytes::Decoder;
use crate::format::fields::{ID_BYTES, decode_id};
use crate::format::frame::{DIGEST_BYTES, FRAME_BYTES, Kind, Needs, check_start};
use crate::{ArchiveId, ObjectId};

/// Length of the frame with the numbers of packs and entries.
const HEAD_BYTES: usize = FRAME_BYTES + 8;

/// A decoder that takes the pieces of a segment in order. It accepts the same bytes as [`super::Segment::decode`]. The
/// entries count only if [`SegmentDecoder::finish`] succeeds, because the digest comes last.
#[derive(Debug)]
pub struct SegmentDecoder {
    archive: ArchiveId,
    id: ObjectId,
    packs_max: usize,
    /// Bytes at the end of the last piece that do not make a whole field.
    rest: Vec<u8>,
    hasher: blake3::Hasher,
    stage: Stage,
    /// Bytes of the object that no piece had.
    left: u64,
    packs: Vec<ObjectId>,
    last: Option<IndexEntry>,
}

/// The field that comes next.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Head,
    Packs {
        left: u64,
        count: u64,
    },
    Entries {
        left: u64,
    },
    /// The body of a newer version, of this many bytes, which nobody here understands.
    Newer {
        left: u64,
        needs: Needs,
    },
    Digest {
        needs: Needs,
    },
    End,
}

impl SegmentDecoder {
    /// Returns a decoder of the segment with this name, which has at most `packs_max` packs.
    #[must_use]
    pub fn new(archive: ArchiveId, id: ObjectId, packs_max: usize) -> SegmentDecoder {
        let (rest, packs, hasher) = (Vec::new(), Vec::new(), blake3::Hasher::new());
        SegmentDecoder { archive, id, packs_max, rest, hasher, stage: Stage::Head, left: 0, packs, last: None }
    }

    /// Takes the next bytes, and returns the entries that are complete with them.
    ///
    /// # Errors
    /// When the bytes are not those of the segment.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<IndexEntry>, FormatError> {
        let mut pending = std::mem::take(&mut self.rest);
        pending.extend_from_slice(bytes);
        let is_begun = !matches!(self.stage, Stage::Head);
        self.left = self.left.saturating_sub(if is_begun { bytes.len() as u64 } else { 0 });
        let mut entries = Vec::new();
        let mut at = 0;
        loop {
            let used = self.take(&pending[at..], &mut entries)?;
            if used == 0 {
                break;
            }
            at += used;
        }
        pending.drain(..at);
        if matches!(self.stage, Stage::End) && !pending.is_empty() {
            return Err(wrong_length());
        }
        self.rest = pending;
        Ok(entries)
    }

    /// Returns how many bytes of the segment no piece had, as far as that is known.
    #[must_use]
    pub fn left_bytes(&self) -> u64 {
        self.left
    }

    /// Returns the packs of the segment. They are complete before the first entry comes.
    #[must_use]
    pub fn packs(&self) -> &[ObjectId] {
        &self.packs
    }

    /// Checks that the segment was complete, and returns its packs.
    ///
    /// # Errors
    /// When bytes of it are missing.
    pub fn finish(self) -> Result<Vec<ObjectId>, FormatError> {
        match self.stage {
            Stage::End => Ok(self.packs),
            _ => Err(wrong_length()),
        }
    }

    /// Takes fields from the beginning of `bytes`. Returns their length, which is zero if more bytes are needed.
    fn take(&mut self, bytes: &[u8], entries: &mut Vec<IndexEntry>) -> Result<usize, FormatError> {
        let used = match self.stage {
            Stage::Head if bytes.len() < HEAD_BYTES => return Ok(0),
            Stage::Head => self.head(bytes)?,
            Stage::Packs { left: 0, count } => {
                self.stage = Stage::Entries { left: count };
                return self.take(bytes, entries);
            }
            Stage::Packs { left, count } => {
                let (ids, used) = whole::<ID_BYTES>(bytes, left);
                for id in ids {
                    self.packs.push(decode_id(&mut Decoder::new(STRUCTURE, id))?);
                }
                self.stage = Stage::Packs { left: left - ids.len() as u64, count };
                used
            }
            Stage::Entries { left: 0 } => {
                self.stage = Stage::Digest { needs: Needs::KNOWN };
                return self.digest(bytes, Needs::KNOWN);
            }
            Stage::Entries { left } => {
                let (found, used) = whole::<ENTRY_BYTES>(bytes, left);
                for entry in found {
                    entries.push(self.entry(IndexEntry::of_bytes(entry))?);
                }
                self.stage = Stage::Entries { left: left - found.len() as u64 };
                used
            }
            Stage::Newer { left: 0, needs } => {
                self.stage = Stage::Digest { needs };
                return self.digest(bytes, needs);
            }
            Stage::Newer { left, needs } => {
                let used = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
                self.stage = Stage::Newer { left: left - used as u64, needs };
                used
            }
            Stage::Digest { needs } => return self.digest(bytes, needs),
            Stage::End => return Ok(0),
        };
        self.hasher.update(&bytes[..used]);
        Ok(used)
    }

    /// Takes the frame and the two numbers. The body of a newer version is only hashed: a changed bit is no newer
    /// version, and the digest tells.
    fn head(&mut self, bytes: &[u8]) -> Result<usize, FormatError> {
        let (archive, needs, length) = check_start(Kind::Segment, self.id, bytes)?;
        if archive != self.archive {
            return Err(FormatError::Other { structure: STRUCTURE, what: "its archive" });
        }
        let body_bytes = length.checked_sub((HEAD_BYTES + DIGEST_BYTES) as u64).ok_or(wrong_length())?;
        // The same bound as that of the encoder: 1024 bytes are for frame and digest.
        if body_bytes > SEGMENT_BYTES_MAX - 1024 {
            return Err(wrong_length());
        }
        self.left = length.saturating_sub(bytes.len() as u64);
        if needs.check(STRUCTURE).is_err() {
            self.stage = Stage::Newer { left: body_bytes, needs };
            return Ok(HEAD_BYTES);
        }
        let mut decoder = Decoder::new(STRUCTURE, &bytes[FRAME_BYTES..HEAD_BYTES]);
        let (packs, entries) = (u64::from(decoder.u32()?), u64::from(decoder.u32()?));
        if packs > self.packs_max as u64 || packs * ID_BYTES as u64 + entries * ENTRY_BYTES as u64 != body_bytes {
            return Err(wrong_length());
        }
        self.stage = Stage::Packs { left: packs, count: entries };
        Ok(HEAD_BYTES)
    }

    fn entry(&mut self, entry: IndexEntry) -> Result<IndexEntry, FormatError> {
        let wrong = |what| FormatError::Value { structure: STRUCTURE, what };
        if self.last.is_some_and(|last| last.key() >= entry.key()) {
            return Err(wrong(UNSORTED));
        }
        if !entry.is_valid(self.packs.len()) {
            return Err(wrong(NOWHERE));
        }
        self.last = Some(entry);
        Ok(entry)
    }

    fn digest(&mut self, bytes: &[u8], needs: Needs) -> Result<usize, FormatError> {
        let Some(digest) = bytes.first_chunk::<DIGEST_BYTES>() else {
            return Ok(0);
        };
        if self.hasher.finalize().as_bytes() != digest {
            return Err(FormatError::Digest { structure: STRUCTURE });
        }
        needs.check(STRUCTURE)?;
        self.stage = Stage::End;
        Ok(DIGEST_BYTES)
    }
}

const STRUCTURE: &str = "segment of the index";

fn wrong_length() -> FormatError {
    FormatError::Length { structure: STRUCTURE }
}

/// Returns the whole fields of N bytes at the beginning of `bytes`, at most `count`, and their length.
fn whole<const N: usize>(bytes: &[u8], count: u64) -> (&[[u8; N]], usize) {
    let fields = bytes.as_chunks::<N>().0;
    let fields = &fields[..usize::try_from(count).map_or(fields.len(), |count| count.min(fields.len()))];
    (fields, fields.len() * N)
}

#[cfg(test)]
mod tests {
    use super::super::Segment;
    use super::*;
    use crate::WriterId;

    const ARCHIVE: ArchiveId = ArchiveId([7; 16]);

    fn id(number: u8) -> ObjectId {
        ObjectId { writer: WriterId([3; 16]), random: [number; 8] }
    }

    fn segment() -> Segment {
        let entry = |number: u32| IndexEntry {
            prefix: u64::from(number / 2),
            pack: number % 2,
            offset: 64 + number,
            stored_bytes: 9,
        };
        Segment { packs: vec![id(1), id(2)], entries: (0..500).map(entry).collect() }
    }

    fn decode(object: &[u8], piece_bytes: usize, packs_max: usize) -> Result<Segment, FormatError> {
        let mut decoder = SegmentDecoder::new(ARCHIVE, id(9), packs_max);
        let mut entries = Vec::new();
        let mut read = 0;
        for piece in object.chunks(piece_bytes) {
            entries.extend(decoder.push(piece)?);
            read += piece.len();
            assert!(read < 72 || decoder.left_bytes() >= (object.len() - read) as u64);
            assert!(entries.is_empty() || decoder.packs().len() == 2);
        }
        Ok(Segment { packs: decoder.finish()?, entries })
    }

    #[test]
    fn pieces_of_any_length_give_the_segment_and_no_changed_byte_is_accepted() {
        let object = segment().encode(ARCHIVE, id(9)).unwrap();
        for piece_bytes in [1, 7, 71, 72, 120, 4096, object.len()] {
            assert_eq!(decode(&object, piece_bytes, 2), Ok(segment()));
        }
        assert!(decode(&object, 1000, 1).is_err(), "more packs than expected");
        let longer = [&object[..], &[0]].concat();
        assert!(
            decode(&object[..object.len() - 1], 1000, 2).is_err() && Segment::decode(ARCHIVE, id(9), &longer).is_err()
        );
        for at in 0..object.len() {
            let mut changed = object.clone();
            changed[at] ^= 1;
            let error = decode(&changed, 1 << 20, 2).unwrap_err();
            assert!(!matches!(error, FormatError::Newer { .. }), "byte {at}: a changed byte is no newer version");
        }
    }

    #[test]
    fn a_newer_segment_is_called_newer() {
        let mut object = segment().encode(ARCHIVE, id(9)).unwrap();
        object[10] = 2;
        let end = object.len() - DIGEST_BYTES;
        let digest = blake3::hash(&object[..end]);
        object[end..].copy_from_slice(digest.as_bytes());
        for piece_bytes in [1, 100, 1 << 20] {
            assert!(matches!(decode_any(&object, piece_bytes), Err(FormatError::Newer { version: 2, .. })));
        }
    }

    fn decode_any(object: &[u8], piece_bytes: usize) -> Result<(), FormatError> {
        let mut decoder = SegmentDecoder::new(ARCHIVE, id(9), 2);
        object.chunks(piece_bytes).try_for_each(|piece| decoder.push(piece).map(|_| ()))?;
        decoder.finish().map(|_| ())
    }
}
