//! How far an image file is read: two fields of its mark.
//!
//! The field of kind 2, if any part of it is not zero:
//!
//! | bytes  | field      | notes                                                                   |
//! |--------|------------|-------------------------------------------------------------------------|
//! | 0      | state      | bit 0: the file was read to its end once; bit 1: `generation` counts; bit 2: the round counts |
//! | 1..8   | -          | zero                                                                    |
//! | 8..16  | generation | of the file system at the last look ([`onefold_substrate::Sharing::generation`]) |
//! | 16..24 | cursor     | start of the next turn, in bytes                                        |
//! | 24..32 | left       | bytes from the cursor on, with wrap-around, that complete the round     |
//! | 32..64 | stamp      | length and times of the file when the round began, as in the mark       |
//!
//! The field of kind 3, if any range is to be read again: up to 256 disjoint entries, in order
//!
//! | bytes  | field      | notes                                                                   |
//! |--------|------------|-------------------------------------------------------------------------|
//! | 0..8   | offset     | in bytes, of a block                                                    |
//! | 8..16  | length     | in bytes, whole blocks                                                  |
//! | 16..24 | due        | when the range is read again: seconds since 1970, signed                |
//! | 24..28 | pause      | in seconds; the next one is twice as long; 0 if nothing failed          |
//! | 28     | state      | 1: the range was read since, and the entry is forgotten at `due`        |
//! | 29..32 | -          | zero                                                                    |

use std::ops::Range;

use onefold_block::{BLOCK_BYTES_U64, Timestamp};

use super::stamp::Stamp;
use super::{FileBlock, FormatError};

/// Kinds of the fields.
pub(super) const READING_FIELD: u16 = 2;
pub(super) const AGAIN_FIELD: u16 = 3;

const READING_BYTES: usize = 64;
const AGAIN_BYTES: usize = 32;
/// Maximum number of entries of a file. Beyond it, the nearest are merged.
pub(crate) const AGAIN_MAX: usize = 256;
/// The first pause after a failure, in seconds.
pub(crate) const PAUSE_MIN: u32 = 60;
/// The longest pause after a failure, in seconds.
pub(crate) const PAUSE_MAX: u32 = 24 * 3600;
const FILE_BYTES_MAX: u64 = FileBlock::LIMIT * BLOCK_BYTES_U64;

/// How far a file is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadingState {
    /// Whether the file was read to its end once. Otherwise it was read up to the cursor.
    pub is_known: bool,
    /// The file system's generation at the last look; `None` if it reports none, or no look was made.
    pub generation: Option<u64>,
    /// Where the next turn goes on, in bytes.
    pub cursor: u64,
    /// The current round: the part that has to be read before the whole file is known as it was at one moment.
    pub round: Option<Round>,
    /// Ranges to be read again, disjoint and in order.
    pub again: Vec<RereadRange>,
}

/// A way round a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// The stamp of the file when it began.
    pub stamp: Stamp,
    /// Bytes that are still to be read, from the cursor to the file's end and on from its beginning.
    pub left: u64,
}

/// A range that is to be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RereadRange {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// When it is read again, in seconds since 1970.
    pub due: i64,
    /// The pause before that, in seconds; 0 if nothing has failed.
    pub pause: u32,
    /// The range was read since. Only the pause is remembered, until `due`.
    pub is_read: bool,
}

impl RereadRange {
    /// Returns the range, in bytes.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.length
    }

    fn encode(&self) -> [u8; AGAIN_BYTES] {
        let mut bytes = [0; AGAIN_BYTES];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.due.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.pause.to_le_bytes());
        bytes[28] = self.is_read.into();
        bytes
    }

    fn decode(bytes: &[u8; AGAIN_BYTES]) -> Option<RereadRange> {
        let long = |at: usize| bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let (offset, length) = (long(0), long(8));
        let is_aligned = offset.is_multiple_of(BLOCK_BYTES_U64) && length.is_multiple_of(BLOCK_BYTES_U64);
        let is_within = length > 0 && offset.checked_add(length).is_some_and(|end| end <= FILE_BYTES_MAX);
        let again = RereadRange {
            offset,
            length,
            due: long(16).cast_signed(),
            pause: bytes[24..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)),
            is_read: bytes[28] == 1,
        };
        let is_sound = bytes[28] <= 1 && bytes[29..] == [0; 3] && again.pause <= PAUSE_MAX;
        (is_aligned && is_within && is_sound).then_some(again)
    }
}

impl ReadingState {
    /// Returns the field of kind 2; `None` if all of it would be zero.
    pub(super) fn encode(&self) -> Option<[u8; READING_BYTES]> {
        let mut bytes = [0; READING_BYTES];
        let bits = [self.is_known, self.generation.is_some(), self.round.is_some()];
        bytes[0] = bits.iter().rev().fold(0, |state, bit| state << 1 | u8::from(*bit));
        bytes[8..16].copy_from_slice(&self.generation.unwrap_or(0).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.cursor.to_le_bytes());
        if let Some(Round { stamp, left }) = self.round {
            bytes[24..32].copy_from_slice(&left.to_le_bytes());
            bytes[32..].copy_from_slice(&stamp.encode());
        }
        (bytes != [0; READING_BYTES]).then_some(bytes)
    }

    /// Decodes the field of kind 2 into this.
    pub(super) fn decode(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        let bytes: &[u8; READING_BYTES] =
            bytes.try_into().map_err(|_| FormatError::Damaged("how far it is read has a wrong length"))?;
        let long = |at: usize| bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let (cursor, left, state) = (long(16), long(24), bytes[0]);
        if state > 7 || bytes[1..8] != [0; 7] || cursor > FILE_BYTES_MAX || left > FILE_BYTES_MAX {
            return Err(FormatError::Damaged("it is read as far as no file can be"));
        }
        self.is_known = state & 1 != 0;
        self.generation = (state & 2 != 0).then(|| long(8));
        self.cursor = cursor;
        let stamp = Stamp::decode(bytes[32..].first_chunk().expect("32 bytes are left"));
        self.round = (state & 4 != 0).then_some(Round { stamp, left });
        Ok(())
    }

    /// Returns the field of kind 3; `None` if nothing is to be read again.
    ///
    /// # Panics
    /// If there are more than [`AGAIN_MAX`] ranges.
    pub(super) fn encode_again(&self) -> Option<Vec<u8>> {
        assert!(self.again.len() <= AGAIN_MAX, "{} ranges to be read again", self.again.len());
        (!self.again.is_empty()).then(|| self.again.iter().flat_map(RereadRange::encode).collect())
    }

    /// Decodes the field of kind 3 into this.
    pub(super) fn decode_again(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        const ODD: FormatError = FormatError::Damaged("a range that is to be read again is none");
        let (entries, rest) = bytes.as_chunks();
        if !rest.is_empty() || entries.is_empty() || entries.len() > AGAIN_MAX {
            return Err(ODD);
        }
        let mut end = 0;
        for entry in entries {
            let again = RereadRange::decode(entry).filter(|again| again.offset >= end).ok_or(ODD)?;
            end = again.range().end;
            self.again.push(again);
        }
        Ok(())
    }

    /// Returns whether a range is due to be read, whether the file changes or not.
    #[must_use]
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.again.iter().any(|again| !again.is_read && again.due <= now.seconds)
    }

    /// Returns the ranges that could not be read, or shared, at the last attempt.
    pub fn failed(&self) -> impl Iterator<Item = &RereadRange> {
        self.again.iter().filter(|again| !again.is_read && again.pause > 0)
    }

    /// Schedules another reading of a range: at once, or after a pause if it failed. The pause is twice that of the
    /// last failure. Returns whether the failure is new.
    pub fn read_again(&mut self, range: Range<u64>, has_failed: bool, now: Timestamp) -> bool {
        if range.is_empty() {
            return false;
        }
        let before =
            self.again.iter().filter(|again| again.range().start < range.end && range.start < again.range().end);
        let last = before.map(|again| again.pause).max().filter(|pause| *pause > 0);
        self.remove(&range);
        let pause = match (has_failed, last) {
            (false, _) => 0,
            (true, None) => PAUSE_MIN,
            (true, Some(last)) => last.saturating_mul(2).min(PAUSE_MAX),
        };
        let due = now.seconds.saturating_add(i64::from(pause));
        self.insert(RereadRange { offset: range.start, length: range.end - range.start, due, pause, is_read: false });
        self.bound();
        has_failed && last.is_none()
    }

    /// Notes that a range was read. Pauses are remembered for the same time again plus a day, in case the range fails
    /// once more.
    pub(crate) fn was_read(&mut self, range: &Range<u64>, now: Timestamp) {
        let remembered = |again: &RereadRange| {
            let (start, end) = (again.offset.max(range.start), again.range().end.min(range.end));
            let due = now.seconds.saturating_add(i64::from(again.pause) + i64::from(PAUSE_MAX));
            (start < end && again.pause > 0 && !again.is_read).then(|| RereadRange {
                offset: start,
                length: end - start,
                due,
                is_read: true,
                ..*again
            })
        };
        let remembered: Vec<RereadRange> = self.again.iter().filter_map(remembered).collect();
        if !remembered.is_empty() || self.again.iter().any(|again| again.pause == 0) {
            let old: Vec<Range<u64>> = self
                .again
                .iter()
                .filter(|again| !again.is_read)
                .map(|again| again.offset.max(range.start)..again.range().end.min(range.end))
                .filter(|range| !range.is_empty())
                .collect();
            old.iter().for_each(|range| self.remove(range));
        }
        remembered.into_iter().for_each(|again| self.insert(again));
        self.again.retain(|again| !again.is_read || again.due > now.seconds);
        self.bound();
    }

    /// Drops the parts behind the end of the file, in bytes.
    pub fn cut(&mut self, end: u64) {
        self.remove(&(end..FILE_BYTES_MAX));
    }

    fn remove(&mut self, range: &Range<u64>) {
        let parts = |again: &RereadRange| {
            let before = again.offset..again.range().end.min(range.start);
            let behind = again.offset.max(range.end)..again.range().end;
            let part = |range: Range<u64>| {
                (!range.is_empty()).then(|| RereadRange {
                    offset: range.start,
                    length: range.end - range.start,
                    ..*again
                })
            };
            [part(before), part(behind)].into_iter().flatten().collect::<Vec<_>>()
        };
        self.again = self.again.iter().flat_map(parts).collect();
    }

    fn insert(&mut self, again: RereadRange) {
        let place = self.again.partition_point(|other| other.offset < again.offset);
        self.again.insert(place, again);
        let mut merged: Vec<RereadRange> = Vec::with_capacity(self.again.len());
        for again in &self.again {
            match merged.last_mut() {
                Some(last) if last.range().end == again.offset && Self::is_like(last, again) => {
                    last.length += again.length
                }
                _ => merged.push(*again),
            }
        }
        self.again = merged;
    }

    fn is_like(one: &RereadRange, other: &RereadRange) -> bool {
        (one.due, one.pause, one.is_read) == (other.due, other.pause, other.is_read)
    }

    /// Merges the nearest ranges as long as there are too many. The gaps between them are read without need.
    fn bound(&mut self) {
        while self.again.len() > AGAIN_MAX {
            let gap = |place: &usize| self.again[place + 1].offset - self.again[*place].range().end;
            let Some(place) = (0..self.again.len() - 1).min_by_key(gap) else { return };
            let next = self.again.remove(place + 1);
            let first = &mut self.again[place];
            first.length = next.range().end - first.offset;
            (first.due, first.pause) = (first.due.min(next.due), first.pause.max(next.pause));
            first.is_read &= next.is_read;
        }
    }

    /// Readings of every kind, for tests.
    #[cfg(test)]
    pub(super) fn samples() -> Vec<ReadingState> {
        let time = Timestamp { seconds: -5, nanoseconds: 999_999_999 };
        let stamp = Stamp { length: u64::MAX, modified: time, changed: Timestamp::default() };
        let again = |offset, is_read| RereadRange { offset, length: 8192, due: -1, pause: PAUSE_MAX, is_read };
        vec![
            ReadingState::default(),
            ReadingState { is_known: true, ..ReadingState::default() },
            ReadingState { generation: Some(0), cursor: FILE_BYTES_MAX, ..ReadingState::default() },
            ReadingState { round: Some(Round { stamp, left: 5 }), ..ReadingState::default() },
            ReadingState {
                is_known: true,
                generation: Some(u64::MAX),
                cursor: 4096,
                round: Some(Round { stamp, left: FILE_BYTES_MAX }),
                again: vec![again(0, false), again(8192, true), again(FILE_BYTES_MAX - 8192, false)],
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_block::random::SeededRandom;

    const K: u64 = BLOCK_BYTES_U64;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanoseconds: 0 }
    }

    #[test]
    fn a_failing_range_is_tried_after_pauses_that_double_up_to_a_day() {
        let (mut reading, mut now, mut pauses) = (ReadingState::default(), 1000, Vec::new());
        for _ in 0..14 {
            let is_new = reading.read_again(8 * K..9 * K, true, at(now));
            assert_eq!(is_new, pauses.is_empty());
            let due = reading.again[0].due;
            assert!(!reading.is_due(at(due - 1)) && reading.is_due(at(due)));
            pauses.push(due - now);
            now = due;
        }
        assert_eq!(pauses[..4], [60, 120, 240, 480]);
        assert_eq!(pauses[11..], [86_400; 3]);
        reading.was_read(&(0..100 * K), at(now));
        assert!(!reading.is_due(at(i64::MAX)) && reading.failed().count() == 0);
        // A range that fails again soon continues with its last pause; one that fails late begins anew.
        let mut later = reading.clone();
        assert!(!reading.read_again(8 * K..9 * K, true, at(now + 100)));
        later.was_read(&(0..K), at(now + 3 * 86_400));
        assert!(later.again.is_empty() && later.read_again(8 * K..9 * K, true, at(now)));
    }

    #[test]
    fn what_did_not_fail_is_read_at_once_and_then_forgotten() {
        let mut reading = ReadingState::default();
        assert!(!reading.read_again(K..3 * K, false, at(5)));
        assert!(reading.is_due(at(5)) && reading.failed().count() == 0);
        reading.was_read(&(0..2 * K), at(6));
        assert_eq!(reading.again.len(), 1);
        assert_eq!(reading.again[0].range(), 2 * K..3 * K);
        reading.was_read(&(2 * K..3 * K), at(6));
        assert_eq!(reading, ReadingState::default());
    }

    /// Compares with a set of blocks.
    #[test]
    fn ranges_stay_in_order_apart_and_few() {
        let random = SeededRandom::new(7);
        for few in [true, false] {
            let mut reading = ReadingState::default();
            let mut blocks = std::collections::BTreeSet::new();
            for step in 0..2000 {
                let first = random.below(if few { 60 } else { 4000 });
                let count = 1 + random.below(4);
                let range = first * K..(first + count) * K;
                if random.below(3) == 0 {
                    reading.was_read(&range, at(step));
                    blocks.retain(|block| !(first..first + count).contains(block));
                } else {
                    reading.read_again(range, false, at(step));
                    blocks.extend(first..first + count);
                }
                assert!(reading.again.len() <= AGAIN_MAX);
                assert!(reading.again.windows(2).all(|pair| pair[0].range().end <= pair[1].offset));
                let covers = |block: u64| reading.again.iter().any(|again| again.range().contains(&(block * K)));
                assert!(blocks.iter().all(|block| covers(*block)));
                assert!(!few || (0..64).all(|block| covers(block) == blocks.contains(&block)));
                let mut again = ReadingState::default();
                if let Some(bytes) = reading.encode_again() {
                    again.decode_again(&bytes).unwrap();
                }
                assert_eq!(again.again, reading.again);
            }
        }
    }

    #[test]
    fn entries_that_cannot_be_are_refused() {
        let sound = RereadRange { offset: K, length: K, due: 1, pause: 60, is_read: false };
        let refused = |entries: &[[u8; AGAIN_BYTES]]| ReadingState::default().decode_again(&entries.concat()).is_err();
        assert!(!refused(&[sound.encode()]));
        assert!(refused(&[]) && refused(&[sound.encode(), sound.encode()]));
        for odd in [
            RereadRange { length: 0, ..sound },
            RereadRange { length: K + 1, ..sound },
            RereadRange { offset: 1, ..sound },
            RereadRange { offset: FILE_BYTES_MAX, ..sound },
            RereadRange { offset: K * (u64::MAX / K), length: K, ..sound },
            RereadRange { pause: PAUSE_MAX + 1, ..sound },
        ] {
            assert!(refused(&[odd.encode()]), "{odd:?}");
        }
        let mut bytes = sound.encode();
        bytes[28] = 2;
        assert!(refused(&[bytes]));
    }

    /// These bytes are on disk: they never change.
    #[test]
    fn the_fields_match_their_stored_vectors() {
        let reading = &ReadingState::samples()[4];
        let bytes = reading.encode().unwrap();
        let ones = [0xff; 8];
        assert_eq!(bytes[..16], [&[7, 0, 0, 0, 0, 0, 0, 0][..], &ones].concat());
        assert_eq!(bytes[16..32], [0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0]);
        assert_eq!(
            bytes[32..56],
            [&ones[..], &[0xfb, 255, 255, 255, 255, 255, 255, 255, 0xff, 0xc9, 0x9a, 0x3b, 0, 0, 0, 0]].concat()
        );
        let entry = [0, 32, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0];
        let bytes = reading.encode_again().unwrap();
        assert_eq!(bytes[32..48], entry);
        assert_eq!(bytes[48..64], [&ones[..], &[0x80, 0x51, 1, 0, 1, 0, 0, 0]].concat());
    }
}
