//! A part of the index: entries in order of their digests.
//!
//! The subject is the generation. Its top bit is set if the shard is split: its entries belong to its two halves from
//! then on, and each half has them until it has a generation of its own. Each frame but the last holds whole entries
//! (`entry`); the entries of all frames are in one order. The last frame holds the number of unique and of shared
//! entries, 8 bytes each.
//!
//! A batch, which a pass publishes before its end, has the same format. Its subject is its number, and all of its
//! entries are shared ones, of any digests.

use std::io;
use std::ops::AddAssign;

use onefold_substrate::Substrate;

use super::entry::{ContentEntry, ContentPlace, ENTRY_BYTES_MAX};
use super::record::{
    FRAME_HEADER_BYTES, Frame, HEADER_BYTES, PAYLOAD_BYTES_MAX, RecordHeader, RecordKind, RecordReader, RecordWriter,
};
use super::{FingerprintPrefix, FormatError};

/// Flag in the subject: the shard is split.
const SPLIT: u64 = 1 << 63;

const OUT_OF_ORDER: FormatError = FormatError::Damaged("its entries are out of order");

/// Length of a shard, or a batch, without entries.
pub(crate) const EMPTY_BYTES: u64 = (HEADER_BYTES + 2 * FRAME_HEADER_BYTES + 16) as u64;

/// The highest number of a generation.
pub const GENERATION_MAX: u64 = SPLIT - 1;

/// Counts of entries of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryCounts {
    /// Contents at one place.
    pub unique: u64,
    /// Contents that have an arena slot.
    pub shared: u64,
}

impl EntryCounts {
    /// Returns the total.
    #[must_use]
    pub fn all(self) -> u64 {
        self.unique + self.shared
    }

    /// Counts one more entry.
    pub fn count(&mut self, entry: &ContentEntry) {
        match entry.place {
            ContentPlace::Unique(..) => self.unique += 1,
            ContentPlace::Shared(_) => self.shared += 1,
        }
    }
}

impl AddAssign for EntryCounts {
    fn add_assign(&mut self, other: EntryCounts) {
        self.unique += other.unique;
        self.shared += other.shared;
    }
}

/// Writes a shard.
pub struct ShardWriter<'a, S: Substrate> {
    record: RecordWriter<'a, S>,
    payload: Vec<u8>,
    last: Option<FingerprintPrefix>,
    counts: EntryCounts,
}

impl<'a, S: Substrate> ShardWriter<'a, S> {
    /// Begins a generation in an empty file; `is_split` if its entries are to belong to its halves.
    #[must_use]
    pub fn new(
        substrate: &'a S,
        file: S::File,
        identity: [u8; 16],
        generation: u64,
        is_split: bool,
    ) -> ShardWriter<'a, S> {
        let subject = generation | if is_split { SPLIT } else { 0 };
        let header = RecordHeader { kind: RecordKind::Shard, identity, subject };
        let record = RecordWriter::new(substrate, file, &header);
        let payload = Vec::with_capacity(PAYLOAD_BYTES_MAX);
        ShardWriter { record, payload, last: None, counts: EntryCounts::default() }
    }

    /// Begins a batch in an empty file.
    #[must_use]
    pub(crate) fn of_batch(substrate: &'a S, file: S::File, identity: [u8; 16], number: u64) -> ShardWriter<'a, S> {
        let header = RecordHeader { kind: RecordKind::Batch, identity, subject: number };
        let record = RecordWriter::new(substrate, file, &header);
        ShardWriter { record, payload: Vec::new(), last: None, counts: EntryCounts::default() }
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// No space; errors of the device.
    ///
    /// # Panics
    /// If its digest is not above the previous one.
    pub fn push(&mut self, entry: &ContentEntry) -> io::Result<()> {
        assert!(self.last.is_none_or(|last| last < entry.digest), "{} after {:?}", entry.digest, self.last);
        self.last = Some(entry.digest);
        if self.payload.len() + ENTRY_BYTES_MAX > PAYLOAD_BYTES_MAX {
            self.record.frame(&self.payload)?;
            self.payload.clear();
        }
        self.counts.count(entry);
        entry.encode(&mut self.payload);
        Ok(())
    }

    /// Adds encoded entries of another shard, which is many times as fast as one by one.
    ///
    /// # Errors
    /// No space; errors of the device.
    ///
    /// # Panics
    /// If the digest of the first is not above the previous one.
    pub(crate) fn push_stretch(&mut self, stretch: &Stretch<'_>) -> io::Result<()> {
        let Some((first, last)) = stretch.ends else { return Ok(()) };
        assert!(self.last.is_none_or(|before| before < first), "{first} after {:?}", self.last);
        self.last = Some(last);
        // It is part of one frame, so it fits into an empty one. This may make some frames very short.
        if self.payload.len() + stretch.bytes.len() > PAYLOAD_BYTES_MAX {
            self.record.frame(&self.payload)?;
            self.payload.clear();
        }
        self.counts += stretch.counts;
        self.payload.extend_from_slice(stretch.bytes);
        Ok(())
    }

    /// Ends the shard and makes it durable. Returns its counts, and its length in bytes.
    ///
    /// # Errors
    /// As [`ShardWriter::push`].
    pub fn finish(mut self) -> io::Result<(EntryCounts, u64)> {
        self.record.frame(&self.payload)?;
        let mut last = self.counts.unique.to_le_bytes().to_vec();
        last.extend_from_slice(&self.counts.shared.to_le_bytes());
        let (_, length) = self.record.finish(&last)?;
        Ok((self.counts, length))
    }
}

/// Consecutive entries of a shard, in their encoded form.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stretch<'a> {
    /// At most the payload of a frame.
    bytes: &'a [u8],
    counts: EntryCounts,
    /// The first digest and the last one.
    ends: Option<(FingerprintPrefix, FingerprintPrefix)>,
}

impl Stretch<'_> {
    /// Returns its counts of entries of each kind.
    #[must_use]
    pub(crate) fn counts(&self) -> EntryCounts {
        self.counts
    }

    /// Returns its entries.
    pub fn entries(&self) -> impl Iterator<Item = ContentEntry> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            // They were decoded before, to find their end.
            let (entry, length) = ContentEntry::decode(rest).ok()??;
            rest = &rest[length..];
            Some(entry)
        })
    }
}

/// Reads a shard, one entry after the other.
pub struct ShardReader<'a, S: Substrate> {
    record: RecordReader<'a, S>,
    /// The frame that is being read.
    payload: Vec<u8>,
    taken: usize,
    last: Option<FingerprintPrefix>,
    counts: EntryCounts,
    is_ended: bool,
    length: u64,
    is_batch: bool,
}

impl<'a, S: Substrate> ShardReader<'a, S> {
    /// Begins to read a shard.
    ///
    /// # Errors
    /// See [`FormatError`].
    pub fn open(substrate: &'a S, file: S::File, identity: &[u8; 16]) -> Result<ShardReader<'a, S>, FormatError> {
        ShardReader::open_kind(substrate, file, identity, RecordKind::Shard)
    }

    /// Begins to read a batch.
    ///
    /// # Errors
    /// See [`FormatError`].
    pub(crate) fn open_batch(
        substrate: &'a S,
        file: S::File,
        identity: &[u8; 16],
    ) -> Result<ShardReader<'a, S>, FormatError> {
        ShardReader::open_kind(substrate, file, identity, RecordKind::Batch)
    }

    fn open_kind(
        substrate: &'a S,
        file: S::File,
        identity: &[u8; 16],
        kind: RecordKind,
    ) -> Result<ShardReader<'a, S>, FormatError> {
        let length = substrate.stat(&file)?.length;
        let record = RecordReader::open(substrate, file, kind, Some(identity))?;
        let (counts, is_batch) = (EntryCounts::default(), kind == RecordKind::Batch);
        Ok(ShardReader { record, payload: Vec::new(), taken: 0, last: None, counts, is_ended: false, length, is_batch })
    }

    /// Returns the number of a batch.
    #[must_use]
    pub(crate) fn batch_number(&self) -> u64 {
        self.record.subject()
    }

    /// Returns its generation.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.record.subject() & !SPLIT
    }

    /// Returns its length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns whether its entries belong to its halves.
    #[must_use]
    pub fn is_split(&self) -> bool {
        self.record.subject() & SPLIT != 0
    }

    /// Returns the digest of the entry that was returned last.
    #[must_use]
    pub fn last(&self) -> Option<FingerprintPrefix> {
        self.last
    }

    /// Returns the next entries, as long as their digests, as numbers, are below `limit`, and only those in memory. An
    /// empty result has no meaning: [`ShardReader::next_entry`] goes on.
    ///
    /// # Errors
    /// As [`ShardReader::next_entry`].
    pub fn take_below(&mut self, limit: u128) -> Result<Stretch<'_>, FormatError> {
        let (from, mut counts, mut ends) = (self.taken, EntryCounts::default(), None);
        let mut last = self.last.map(FingerprintPrefix::number);
        while let Some((entry, length)) = ContentEntry::decode(&self.payload[self.taken..])? {
            let number = entry.digest.number();
            if number >= limit {
                break;
            }
            if last.is_some_and(|last| last >= number) {
                return Err(OUT_OF_ORDER);
            }
            last = Some(number);
            counts.count(&entry);
            ends = Some((ends.map_or(entry.digest, |(first, _)| first), entry.digest));
            self.taken += length;
        }
        self.counts += counts;
        self.last = ends.map(|(_, last)| last).or(self.last);
        Ok(Stretch { bytes: &self.payload[from..self.taken], counts, ends })
    }

    /// Returns the next entry; `None` behind the last.
    ///
    /// # Errors
    /// See [`FormatError`]. The entries returned before were in the shard.
    pub fn next_entry(&mut self) -> Result<Option<ContentEntry>, FormatError> {
        loop {
            if let Some((entry, length)) = ContentEntry::decode(&self.payload[self.taken..])? {
                self.taken += length;
                if self.last.is_some_and(|last| last >= entry.digest) {
                    return Err(OUT_OF_ORDER);
                }
                if self.is_batch && matches!(entry.place, ContentPlace::Unique(..)) {
                    return Err(FormatError::Damaged("a batch holds what is in no arena slot"));
                }
                self.last = Some(entry.digest);
                self.counts.count(&entry);
                return Ok(Some(entry));
            }
            if self.is_ended {
                return Ok(None);
            }
            self.payload.clear();
            self.taken = 0;
            match self.record.next_frame()? {
                Some(Frame::Inner(payload)) => self.payload.extend_from_slice(payload),
                Some(Frame::Last(counts)) => {
                    let (unique, shared) = (self.counts.unique.to_le_bytes(), self.counts.shared.to_le_bytes());
                    if counts != [unique, shared].as_flattened() {
                        return Err(FormatError::Damaged("it has not as many entries as it says"));
                    }
                    self.is_ended = true;
                }
                None => self.is_ended = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{FileBlock, FileNo, Slot};
    use onefold_block::random::SeededRandom;
    use onefold_substrate::{Access, Files};
    use onefold_testing::simulated::{SimulatedFileSystem, SimulatedSubstrate, SimulationOptions};
    use std::path::Path;

    const UUID: [u8; 16] = [7; 16];

    fn entries(count: u64, random: &SeededRandom) -> Vec<ContentEntry> {
        let mut number = 0;
        let entry = |_| {
            number += 1 + random.below(3);
            let mut bytes = [0; FingerprintPrefix::BYTES];
            bytes[4..].copy_from_slice(&u64::to_be_bytes(number));
            let place = match random.below(3) {
                0 => ContentPlace::Shared(Slot::from_number(random.below(Slot::LIMIT)).unwrap()),
                _ => ContentPlace::Unique(FileNo(5), FileBlock(random.below(FileBlock::LIMIT))),
            };
            ContentEntry { digest: FingerprintPrefix(bytes), place }
        };
        (0..count).map(entry).collect()
    }

    fn write<'a, S: Substrate>(
        substrate: &'a S,
        name: &str,
        fill: impl FnOnce(&mut ShardWriter<'a, S>),
    ) -> EntryCounts {
        let mut writer = ShardWriter::new(substrate, substrate.create(Path::new(name)).unwrap(), UUID, 1, false);
        fill(&mut writer);
        writer.finish().unwrap().0
    }

    fn open<'a>(substrate: &'a SimulatedSubstrate<'a>, name: &str) -> ShardReader<'a, SimulatedSubstrate<'a>> {
        ShardReader::open(substrate, substrate.open(Path::new(name), Access::Read).unwrap(), &UUID).unwrap()
    }

    #[test]
    fn stretches_and_single_entries_are_the_same_entries() {
        let random = SeededRandom::new(5);
        for (round, count) in [0, 1, 2, 5000, 20_000].into_iter().enumerate() {
            let file_system = SimulatedFileSystem::new(&SimulationOptions::default());
            let substrate = file_system.observe().substrate;
            let expected = entries(count, &random);
            let counts = write(&substrate, "one", |shard| expected.iter().for_each(|entry| shard.push(entry).unwrap()));
            let (mut one, mut found) = (open(&substrate, "one"), Vec::new());
            let copied = write(&substrate, "other", |shard| {
                while let Some(entry) = one.next_entry().unwrap() {
                    shard.push(&entry).unwrap();
                    found.push(entry);
                    // Often none, often within a frame, sometimes the rest of the frame.
                    let limit =
                        entry.digest.number() + u128::from(random.below(20) * random.below(20) * random.below(60));
                    let stretch = one.take_below(limit).unwrap();
                    assert_eq!(stretch.entries().count() as u64, stretch.counts().all());
                    assert!(stretch.entries().all(|entry| entry.digest.number() < limit));
                    found.extend(stretch.entries());
                    shard.push_stretch(&stretch).unwrap();
                }
            });
            assert_eq!(copied, counts);
            assert!(found == expected, "round {round}");
            let mut other = open(&substrate, "other");
            let again: Vec<ContentEntry> = std::iter::from_fn(|| other.next_entry().unwrap()).collect();
            assert!(again == expected, "round {round}");
        }
    }

    /// The bytes of a batch do not change: other versions read them.
    #[test]
    fn a_batch_has_these_bytes() {
        let file_system = SimulatedFileSystem::new(&SimulationOptions::default());
        let substrate = file_system.observe().substrate;
        let file = substrate.create(Path::new("batch")).unwrap();
        let mut writer = ShardWriter::of_batch(&substrate, file, UUID, 0x0102);
        let shared = |first: u8, slot| ContentEntry {
            digest: FingerprintPrefix([first; FingerprintPrefix::BYTES]),
            place: ContentPlace::Shared(Slot::from_number(slot).unwrap()),
        };
        [shared(1, 5), shared(0xfe, 0x12_3456_789a)].iter().for_each(|entry| writer.push(entry).unwrap());
        assert_eq!(writer.finish().unwrap().1, 64 + 8 + 34 + 8 + 16);
        let mut bytes = [0; 130];
        let file = substrate.open(Path::new("batch"), Access::Read).unwrap();
        substrate.read_at(&file, 0, &mut bytes).unwrap();
        assert_eq!(bytes[..12], *b"onefold\x1a\x08\0\x01\0");
        assert_eq!((&bytes[16..32], &bytes[32..40]), (&UUID[..], &[2, 1, 0, 0, 0, 0, 0, 0][..]));
        assert_eq!((&bytes[64..68], bytes[72], bytes[84]), (&[34, 0, 0, 0][..], 1, 0x80));
        assert_eq!(bytes[101..106], [0x92, 0x34, 0x56, 0x78, 0x9a]);
        assert_eq!(bytes[114..], [0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_batch_with_something_else_than_slots_is_refused() {
        let file_system = SimulatedFileSystem::new(&SimulationOptions::default());
        let substrate = file_system.observe().substrate;
        let file = substrate.create(Path::new("batch")).unwrap();
        let mut writer = ShardWriter::of_batch(&substrate, file, UUID, 1);
        let place = ContentPlace::Unique(FileNo(1), FileBlock(1));
        writer.push(&ContentEntry { digest: FingerprintPrefix([1; FingerprintPrefix::BYTES]), place }).unwrap();
        writer.finish().unwrap();
        let open = || substrate.open(Path::new("batch"), Access::Read).unwrap();
        assert!(ShardReader::open_batch(&substrate, open(), &UUID).unwrap().next_entry().is_err());
        assert!(ShardReader::open(&substrate, open(), &UUID).is_err(), "it is no shard");
    }

    #[test]
    fn stretches_out_of_order_are_refused() {
        let file_system = SimulatedFileSystem::new(&SimulationOptions::default());
        let substrate = file_system.observe().substrate;
        let entries = entries(3, &SeededRandom::new(6));
        write(&substrate, "one", |shard| {
            shard.push(&entries[0]).unwrap();
            entries[2].encode(&mut shard.payload);
            entries[1].encode(&mut shard.payload);
        });
        let mut one = open(&substrate, "one");
        assert_eq!(one.next_entry().unwrap(), Some(entries[0]));
        assert!(one.take_below(u128::MAX).is_err());
    }
}
