//! A run: a sorted part of the index in a file, which is read block by block.
//!
//! | part    | length                    | holds                                                                    |
//! |---------|---------------------------|--------------------------------------------------------------------------|
//! | head    | 4096 bytes                | magic, archive, the four lengths, checksums of filter and tail, version  |
//! | filter  | 64 bytes for each line    | see [`super::filter`]                                                    |
//! | blocks  | 4096 bytes each           | checksum u32, number of entries u32, entries as in a segment             |
//! | tail    | 8 for each block, 52 for each pack | first prefix of each block; of each pack its name, segment and number of units |
//!
//! A run of another version counts as a damaged one: the index is read again.
//!
//! A file may be anything: it lies in a cache that others may have damaged. Every checksum is compared before its part
//! is used, every length is bounded by that of the file, and an entry that leads nowhere makes its block a damaged one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::filter::{Filter, LINE_BYTES, Line};
use crate::format::segment::{ENTRY_BYTES, IndexEntry};
use crate::{ArchiveId, ObjectId, WriterId};

pub(super) const MAGIC: [u8; 8] = *b"1foldrun";
/// Version of the layout. It changes with the layout, and with what a part means.
pub(super) const VERSION: u32 = 1;
/// Length of head and blocks in bytes.
pub(super) const BLOCK_BYTES: usize = 4096;
/// Bytes of a block before its entries.
pub(super) const BLOCK_HEAD_BYTES: usize = 8;
/// Maximum number of entries in a block.
pub(super) const BLOCK_ENTRIES: usize = (BLOCK_BYTES - BLOCK_HEAD_BYTES) / ENTRY_BYTES;
/// Bytes of a pack in the tail.
pub(super) const PACK_BYTES: usize = 52;
/// Number of blocks, and of bytes of the filter in blocks, that are read at once from first to last.
const BATCH_BLOCKS: usize = 64;
/// Maximum number of blocks in which one unit is looked for. A hostile segment may place a unit anywhere.
const LOOKED_MAX: usize = 64;

/// Why a run cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("it is damaged")]
    Damaged,
}

/// A pack of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunPack {
    pub(super) id: ObjectId,
    /// The segment that named its units. `None` if they come from elsewhere; then only this process uses them.
    pub(super) segment: Option<ObjectId>,
    /// Number of its units.
    pub(super) units: u32,
    /// Whether places in it count: the pack holds units, and no other run has them.
    pub(super) is_used: bool,
}

/// Lengths and checksums of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) archive: ArchiveId,
    pub(super) lines: u64,
    pub(super) blocks: u64,
    pub(super) packs: u64,
    pub(super) units: u64,
    pub(super) filter_sum: u32,
    pub(super) tail_sum: u32,
}

/// A run that is looked into.
#[derive(Debug)]
pub(super) struct IndexRun {
    file: File,
    head: Head,
    /// First prefix of each block.
    firsts: Vec<u64>,
    packs: Vec<RunPack>,
    filter: Filter,
    /// Where the file lies, if the cache has it.
    pub(super) path: Option<PathBuf>,
}

/// Which of a run's entries for a prefix a look-up has seen.
pub(super) enum LookupScope {
    All,
    /// There are more than a look-up may read.
    Part,
}

impl Head {
    pub(super) fn encode(&self) -> [u8; BLOCK_BYTES] {
        let mut bytes = Vec::with_capacity(BLOCK_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&self.archive.0);
        for number in [self.lines, self.blocks, self.packs, self.units] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.filter_sum, self.tail_sum, VERSION] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.resize(BLOCK_BYTES - 4, 0);
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes.try_into().expect("a block")
    }

    /// Returns the head of a file of this length.
    fn decode(bytes: &[u8; BLOCK_BYTES], length_bytes: u64) -> Result<Head, RunError> {
        let (content, sum) = bytes.split_last_chunk::<4>().expect("a block is longer");
        if crc32c::crc32c(content) != u32::from_le_bytes(*sum) || !content.starts_with(&MAGIC) {
            return Err(RunError::Damaged);
        }
        let number = |at: usize| u64::from_le_bytes(content[at..at + 8].try_into().expect("eight bytes"));
        let sum = |at: usize| u32::from_le_bytes(content[at..at + 4].try_into().expect("four bytes"));
        if sum(64) != VERSION {
            return Err(RunError::Damaged);
        }
        let head = Head {
            archive: ArchiveId(content[8..24].try_into().expect("sixteen bytes")),
            lines: number(24),
            blocks: number(32),
            packs: number(40),
            units: number(48),
            filter_sum: sum(56),
            tail_sum: sum(60),
        };
        // Every count is at most the length, so that the sum below cannot overflow.
        let counts = [head.lines, head.blocks, head.packs];
        if counts.iter().any(|count| *count > length_bytes) || length_bytes > i64::MAX as u64 / 256 {
            return Err(RunError::Damaged);
        }
        if head.end() != length_bytes || head.units > head.blocks * BLOCK_ENTRIES as u64 {
            return Err(RunError::Damaged);
        }
        Ok(head)
    }

    pub(super) fn blocks_at(&self) -> u64 {
        BLOCK_BYTES as u64 + self.lines * LINE_BYTES as u64
    }

    pub(super) fn tail_at(&self) -> u64 {
        self.blocks_at() + self.blocks * BLOCK_BYTES as u64
    }

    fn end(&self) -> u64 {
        self.tail_at() + self.blocks * 8 + self.packs * PACK_BYTES as u64
    }
}

impl RunPack {
    pub(super) fn encode(&self) -> [u8; PACK_BYTES] {
        let mut bytes = [0; PACK_BYTES];
        let none = ObjectId { writer: WriterId([0; 16]), random: [0; 8] };
        for (at, id) in [(0, self.id), (24, self.segment.unwrap_or(none))] {
            bytes[at..at + 16].copy_from_slice(&id.writer.0);
            bytes[at + 16..at + 24].copy_from_slice(&id.random);
        }
        bytes[48..].copy_from_slice(&self.units.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; PACK_BYTES]) -> RunPack {
        let id = |at: usize| ObjectId {
            writer: WriterId(bytes[at..at + 16].try_into().expect("sixteen bytes")),
            random: bytes[at + 16..at + 24].try_into().expect("eight bytes"),
        };
        let segment = Some(id(24)).filter(|id| id.writer.0 != [0; 16]);
        let units = u32::from_le_bytes(bytes[48..].try_into().expect("four bytes"));
        RunPack { id: id(0), segment, units, is_used: false }
    }
}

impl IndexRun {
    /// Reads what is kept in memory of a run, except its filter. No pack of it is used yet.
    pub(super) fn open(file: File, archive: ArchiveId) -> Result<IndexRun, RunError> {
        let mut bytes = [0; BLOCK_BYTES];
        file.read_exact_at(&mut bytes, 0)?;
        let head = Head::decode(&bytes, file.metadata()?.len())?;
        if head.archive != archive {
            return Err(RunError::Damaged);
        }
        let mut at = head.tail_at();
        let mut sum = 0;
        let firsts = read_fields(&file, &mut at, head.blocks, &mut sum, |bytes| u64::from_le_bytes(*bytes))?;
        let packs = read_fields(&file, &mut at, head.packs, &mut sum, RunPack::decode)?;
        if sum != head.tail_sum {
            return Err(RunError::Damaged);
        }
        Ok(IndexRun { file, head, firsts, packs, filter: Filter::default(), path: None })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn packs(&self) -> &[RunPack] {
        &self.packs
    }

    pub(super) fn packs_mut(&mut self) -> &mut [RunPack] {
        &mut self.packs
    }

    /// Returns the number of units in used packs.
    pub(super) fn used(&self) -> usize {
        let units = |pack: &RunPack| if pack.is_used { pack.units as usize } else { 0 };
        self.packs.iter().map(units).sum()
    }

    /// Returns the number of all entries.
    pub(super) fn entries(&self) -> u64 {
        self.head.units
    }

    /// Returns the number of lines of the complete filter.
    pub(super) fn lines(&self) -> u64 {
        self.head.lines
    }

    /// Returns the length of the file.
    pub(super) fn length_bytes(&self) -> u64 {
        self.head.end()
    }

    /// Returns the memory that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.filter.bytes() + self.firsts.len() * 8 + self.packs.len() * size_of::<RunPack>()
    }

    /// Frees the filter. Each look-up needs a read then.
    pub(super) fn drop_filter(&mut self) {
        self.filter = Filter::default();
    }

    /// Reads the filter, halved so often, unless memory has it.
    pub(super) fn load_filter(&mut self, halvings: u32) -> Result<(), RunError> {
        let mut filter = Filter::with_room_for(self.head.lines, halvings);
        if self.filter.bytes() == filter.bytes() {
            return Ok(());
        }
        self.drop_filter();
        let mut at = BLOCK_BYTES as u64;
        let (mut sum, mut number) = (0, 0);
        let mut add = |bytes: &[u8; LINE_BYTES]| {
            let mut line = Line::default();
            line.iter_mut().zip(bytes.as_chunks().0).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
            filter.add(number, halvings, &line);
            number += 1;
        };
        each_field(&self.file, &mut at, self.head.lines, &mut sum, &mut add)?;
        if sum != self.head.filter_sum {
            return Err(RunError::Damaged);
        }
        self.filter = filter;
        Ok(())
    }

    /// Calls `each` with the entries of a prefix until it returns false.
    pub(super) fn find(&self, prefix: u64, mut each: impl FnMut(IndexEntry) -> bool) -> Result<LookupScope, RunError> {
        if !self.filter.may_have(prefix) {
            return Ok(LookupScope::All);
        }
        // Entries with the prefix may begin in the block before the first one that begins with it or behind it.
        let start = self.firsts.partition_point(|first| *first < prefix).saturating_sub(1);
        let mut bytes = [0; BLOCK_BYTES];
        for (number, first) in self.firsts.iter().enumerate().skip(start) {
            if *first > prefix {
                break;
            }
            if number - start >= LOOKED_MAX {
                return Ok(LookupScope::Part);
            }
            self.file.read_exact_at(&mut bytes, self.head.blocks_at() + (number * BLOCK_BYTES) as u64)?;
            let entries = block_entries(number, &bytes)?;
            let from = entries.partition_point(|entry| prefix_of(entry) < prefix);
            for entry in entries[from..].iter().take_while(|entry| prefix_of(entry) == prefix) {
                if !each(self.valid(entry)?) {
                    return Ok(LookupScope::All);
                }
            }
        }
        Ok(LookupScope::All)
    }

    /// Returns all entries in order.
    pub(super) fn read(&self) -> RunReader<'_> {
        RunReader { run: self, next: 0, bytes: Vec::new(), entries: Vec::new().into_iter() }
    }

    fn valid(&self, bytes: &[u8; ENTRY_BYTES]) -> Result<IndexEntry, RunError> {
        let entry = IndexEntry::of_bytes(bytes);
        if entry.is_valid(self.packs.len()) { Ok(entry) } else { Err(RunError::Damaged) }
    }
}

fn prefix_of(entry: &[u8; ENTRY_BYTES]) -> u64 {
    u64::from_le_bytes(*entry.first_chunk().expect("an entry is longer"))
}

/// Returns the checksum of a block. The number of the block is part of it, and so is no block of zeros right.
pub(super) fn block_sum(number: usize, content: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&(number as u64 + 1).to_le_bytes()), content)
}

/// Returns the entries of a block.
fn block_entries(number: usize, block: &[u8; BLOCK_BYTES]) -> Result<&[[u8; ENTRY_BYTES]], RunError> {
    let (sum, content) = block.split_first_chunk::<4>().expect("a block is longer");
    let (count, entries) = content.split_first_chunk::<4>().expect("a block is longer");
    let count = u32::from_le_bytes(*count) as usize;
    if block_sum(number, content) != u32::from_le_bytes(*sum) {
        return Err(RunError::Damaged);
    }
    entries.as_chunks().0.get(..count).ok_or(RunError::Damaged)
}

/// Reads `count` fields of N bytes, and calls `each` with them. Extends the checksum of all.
fn each_field<const N: usize>(
    file: &File,
    at: &mut u64,
    count: u64,
    sum: &mut u32,
    each: &mut dyn FnMut(&[u8; N]),
) -> Result<(), RunError> {
    let batch = BATCH_BLOCKS * BLOCK_BYTES / N;
    let mut bytes = vec![0; batch * N];
    let mut left = count;
    while left > 0 {
        let now = usize::try_from(left).map_or(batch, |left| left.min(batch));
        let bytes = &mut bytes[..now * N];
        file.read_exact_at(bytes, *at)?;
        *sum = crc32c::crc32c_append(*sum, bytes);
        bytes.as_chunks::<N>().0.iter().for_each(&mut *each);
        *at += bytes.len() as u64;
        left -= now as u64;
    }
    Ok(())
}

fn read_fields<const N: usize, T>(
    file: &File,
    at: &mut u64,
    count: u64,
    sum: &mut u32,
    decode: impl Fn(&[u8; N]) -> T,
) -> Result<Vec<T>, RunError> {
    // The count is at most the length of the file.
    let mut fields = Vec::with_capacity(usize::try_from(count).map_err(|_| RunError::Damaged)?);
    each_field(file, at, count, sum, &mut |bytes| fields.push(decode(bytes)))?;
    Ok(fields)
}

/// Reads a run from its first entry to its last.
pub(super) struct RunReader<'r> {
    run: &'r IndexRun,
    /// Number of the next block to read.
    next: usize,
    bytes: Vec<u8>,
    entries: std::vec::IntoIter<IndexEntry>,
}

impl Iterator for RunReader<'_> {
    type Item = Result<IndexEntry, RunError>;

    fn next(&mut self) -> Option<Result<IndexEntry, RunError>> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Some(Ok(entry));
            }
            if self.next == self.run.firsts.len() {
                return None;
            }
            match self.read_batch() {
                Ok(entries) => self.entries = entries.into_iter(),
                Err(error) => {
                    self.next = self.run.firsts.len();
                    return Some(Err(error));
                }
            }
        }
    }
}

impl RunReader<'_> {
    fn read_batch(&mut self) -> Result<Vec<IndexEntry>, RunError> {
        let blocks = BATCH_BLOCKS.min(self.run.firsts.len() - self.next);
        self.bytes.resize(blocks * BLOCK_BYTES, 0);
        self.run.file.read_exact_at(&mut self.bytes, self.run.head.blocks_at() + (self.next * BLOCK_BYTES) as u64)?;
        let mut entries = Vec::with_capacity(blocks * BLOCK_ENTRIES);
        for (number, block) in (self.next..).zip(self.bytes.as_chunks::<BLOCK_BYTES>().0) {
            for entry in block_entries(number, block)? {
                entries.push(self.run.valid(entry)?);
            }
        }
        self.next += blocks;
        Ok(entries)
    }
}
