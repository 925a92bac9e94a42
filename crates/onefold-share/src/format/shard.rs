//! A part of the index: entries in order of their digests.
//!
//! The subject is the generation, its top bit set where the shard is split: its entries belong to its two halves from then
//! on, and each half has them until it has a generation of its own. Each frame but the last holds whole entries (`entry`),
//! those of all frames in one order. The last frame holds the number of unique and of shared entries, 8 bytes each.

use std::io;
use std::ops::AddAssign;

use onefold_block::Substrate;

use super::entry::{ENTRY_BYTES_MAX, Entry, Place};
use super::record::{Frame, PAYLOAD_BYTES_MAX, RecordHeader, RecordKind, RecordReader, RecordWriter};
use super::{Digest, FormatError};

/// In the subject: the shard is split.
const SPLIT: u64 = 1 << 63;

/// The highest number of a generation.
pub const GENERATION_MAX: u64 = SPLIT - 1;

/// How many entries of each kind there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryCounts {
    /// Contents that are at one place.
    pub unique: u64,
    /// Contents that have an arena slot.
    pub shared: u64,
}

impl EntryCounts {
    /// Returns how many there are in all.
    #[must_use]
    pub fn all(self) -> u64 {
        self.unique + self.shared
    }

    /// Counts one more.
    pub fn count(&mut self, entry: &Entry) {
        match entry.place {
            Place::Unique(..) => self.unique += 1,
            Place::Shared(_) => self.shared += 1,
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
    last: Option<Digest>,
    counts: EntryCounts,
}

impl<'a, S: Substrate> ShardWriter<'a, S> {
    /// Begins a generation in an empty file; `is_split` where its entries are to belong to its halves.
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

    /// Adds an entry.
    ///
    /// # Errors
    /// No space; those of the device.
    ///
    /// # Panics
    /// When its digest is not above the one before.
    pub fn push(&mut self, entry: &Entry) -> io::Result<()> {
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

    /// Ends the shard and makes it durable. Returns what it holds, and its length in bytes.
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

/// Reads a shard, one entry after the other.
pub struct ShardReader<'a, S: Substrate> {
    record: RecordReader<'a, S>,
    /// The frame that is being read.
    payload: Vec<u8>,
    taken: usize,
    last: Option<Digest>,
    counts: EntryCounts,
    is_ended: bool,
    length: u64,
}

impl<'a, S: Substrate> ShardReader<'a, S> {
    /// Begins to read a shard.
    ///
    /// # Errors
    /// As [`FormatError`] says.
    pub fn open(substrate: &'a S, file: S::File, identity: &[u8; 16]) -> Result<ShardReader<'a, S>, FormatError> {
        let length = substrate.stat(&file)?.length;
        let record = RecordReader::open(substrate, file, RecordKind::Shard, Some(identity))?;
        let counts = EntryCounts::default();
        Ok(ShardReader { record, payload: Vec::new(), taken: 0, last: None, counts, is_ended: false, length })
    }

    /// Returns which generation it is.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.record.subject() & !SPLIT
    }

    /// Returns its length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Tells whether its entries belong to its halves.
    #[must_use]
    pub fn is_split(&self) -> bool {
        self.record.subject() & SPLIT != 0
    }

    /// Returns the next entry; none behind the last.
    ///
    /// # Errors
    /// As [`FormatError`] says. What was returned before was in the shard.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, FormatError> {
        loop {
            if let Some((entry, length)) = Entry::decode(&self.payload[self.taken..])? {
                self.taken += length;
                if self.last.is_some_and(|last| last >= entry.digest) {
                    return Err(FormatError::Damaged("its entries are out of order"));
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
