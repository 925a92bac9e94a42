//! The saved form of the filter, kept over a clean unmount: chunks of one size, read and written in sequence.
//!
//! All numbers are little-endian. A chunk is [`CHUNK_BYTES`] long:
//!
//! | bytes  | field      | notes                                                                        |
//! |--------|------------|------------------------------------------------------------------------------|
//! | 0..4   | magic      | `OFFC`                                                                       |
//! | 4..8   | version    | an unknown version is refused, not guessed                                   |
//! | 8..16  | generation | chosen by the pool anew for each save, so that no older save is taken for it |
//! | 16..20 | sequence   | number of the chunk, counted from 0                                          |
//! | 20..24 | words      | words of the stream in this chunk; the last chunk may have fewer than fit    |
//! | 24..28 | checksum   | CRC-32C over the chunk, these four bytes taken as zeros                      |
//! | 28..32 |            | zeros                                                                        |
//! | 32..   | stream     | then zeros                                                                   |
//!
//! The stream is of 64-bit words:
//!
//! | words | field         | notes                                                                          |
//! |-------|---------------|--------------------------------------------------------------------------------|
//! | 0     | prefix bits   | the paper's n + k; must be what the filter is opened with                      |
//! | 1     | index bits    | the paper's n; likewise                                                        |
//! | 2     | region count  |                                                                                |
//! | 3     | entry count   |                                                                                |
//! | 4     | refused count |                                                                                |
//! | 5..   | regions       | in order of their number, each as `region` lays it out; an empty one is its     |
//! |       |               | number alone                                                                   |
//!
//! If a saved filter cannot be loaded, it is rebuilt from the fingerprint stores, which only takes time.

#[cfg(test)]
mod tests;

use super::directory;
use super::region::{self, Region, RegionFault, RegionShape};
use super::{Filter, FilterOptions};

/// Length of a chunk in bytes: a whole number of blocks.
pub const CHUNK_BYTES: usize = 64 << 10;
const _: () = assert!(CHUNK_BYTES.is_multiple_of(onefold_block::BLOCK_BYTES), "a chunk is whole blocks");

const MAGIC: [u8; 4] = *b"OFFC";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 32;
const CHECKSUM_AT: usize = 24;
const CHUNK_WORDS: usize = (CHUNK_BYTES - HEADER_BYTES) / 8;
const STREAM_HEADER_WORDS: usize = 5;

/// Why a saved filter cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// A chunk is not [`CHUNK_BYTES`] long.
    #[error("a chunk of {found} bytes instead of {CHUNK_BYTES}")]
    Length {
        /// Its length in bytes.
        found: usize,
    },
    /// A chunk has the wrong magic.
    #[error("not a chunk of a saved filter")]
    Magic,
    /// The chunk's content is damaged.
    #[error("checksum {found:#010x}, expected {expected:#010x}")]
    Checksum {
        /// The checksum of the content.
        expected: u32,
        /// The checksum in the chunk.
        found: u32,
    },
    /// The chunk has another version of this format.
    #[error("version {found} is unknown")]
    Version {
        /// Its version.
        found: u32,
    },
    /// The chunk belongs to another save.
    #[error("saved as generation {found}, not {expected}")]
    Generation {
        /// Generation of the save being loaded.
        expected: u64,
        /// Generation in the chunk.
        found: u64,
    },
    /// The chunk is not the next one, or is past the last.
    #[error("chunk {found} where chunk {expected} belongs")]
    Sequence {
        /// Number of the next chunk.
        expected: u32,
        /// Number in the chunk.
        found: u32,
    },
    /// The filter was saved with other parameters than requested.
    #[error("saved with n + k = {prefix_bits} and n = {index_bits}")]
    Parameters {
        /// The saved n + k.
        prefix_bits: u64,
        /// The saved n.
        index_bits: u64,
    },
    /// A count or a length contradicts the rest of the chunk or of the stream.
    #[error("counts and lengths do not agree")]
    Counts,
    /// A region is damaged.
    #[error("region {region} is damaged")]
    Region {
        /// Its number.
        region: u32,
        /// The damage.
        #[source]
        fault: RegionFault,
    },
    /// The filter no longer fits in its memory.
    #[error("the saved filter does not fit into the memory allowed")]
    Memory,
    /// Chunks are missing at the end.
    #[error("chunks are missing at the end")]
    Incomplete,
}

impl Filter {
    /// Returns the chunks that store this filter over an unmount.
    #[must_use]
    pub fn save(&self, generation: u64) -> SavedFilter<'_> {
        let header = [
            u64::from(self.geometry.prefix_bits),
            u64::from(self.geometry.index_bits),
            self.regions.len() as u64,
            self.entry_count,
            self.refused_count,
        ];
        SavedFilter { filter: self, generation, sequence: 0, region: 0, pending: header.to_vec(), taken: 0 }
    }

    /// Returns the total length of the chunks of [`Filter::save`], in bytes.
    #[must_use]
    pub fn saved_bytes(&self) -> u64 {
        let regions = (0..).take(self.regions.len()).map(|region| self.saved_words(region).map_or(1, <[u64]>::len));
        let words = STREAM_HEADER_WORDS + regions.sum::<usize>();
        (words.div_ceil(CHUNK_WORDS) * CHUNK_BYTES) as u64
    }

    /// Returns the used words of a region that is not empty.
    fn saved_words(&self, region: u32) -> Option<&[u64]> {
        let words = self.regions.words(region)?;
        let place = self.regions.locate(u64::from(region));
        Some(&words[..self.shape(words, place).words()])
    }
}

/// The chunks of a filter that is being saved.
#[derive(Debug)]
pub struct SavedFilter<'a> {
    filter: &'a Filter,
    generation: u64,
    sequence: u32,
    /// The next region to append to `pending`.
    region: u32,
    /// Words of the stream; those before `taken` are already in chunks.
    pending: Vec<u64>,
    taken: usize,
}

impl SavedFilter<'_> {
    /// Appends regions until a chunk can be filled or all are appended.
    fn gather(&mut self) {
        self.pending.drain(..self.taken);
        self.taken = 0;
        while self.pending.len() < CHUNK_WORDS && (self.region as usize) < self.filter.regions.len() {
            match self.filter.saved_words(self.region) {
                Some(words) => self.pending.extend_from_slice(words),
                None => self.pending.push(u64::from(self.region)),
            }
            self.region += 1;
        }
    }
}

impl Iterator for SavedFilter<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        self.gather();
        let words = self.pending.len().min(CHUNK_WORDS);
        if words == 0 {
            return None;
        }
        let word_count = u32::try_from(words).expect("a chunk has fewer words than bytes");
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        chunk.extend_from_slice(&MAGIC);
        chunk.extend_from_slice(&VERSION.to_le_bytes());
        chunk.extend_from_slice(&self.generation.to_le_bytes());
        chunk.extend_from_slice(&self.sequence.to_le_bytes());
        chunk.extend_from_slice(&word_count.to_le_bytes());
        chunk.resize(HEADER_BYTES, 0);
        chunk.extend(self.pending[..words].iter().flat_map(|word| word.to_le_bytes()));
        chunk.resize(CHUNK_BYTES, 0);
        let checksum = crc32c::crc32c(&chunk);
        chunk[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        self.taken = words;
        self.sequence += 1;
        Some(chunk)
    }
}

/// A filter that is being loaded, chunk by chunk.
#[derive(Debug)]
pub struct Loader {
    filter: Filter,
    generation: u64,
    sequence: u32,
    /// Words of the stream that do not make a whole region yet.
    pending: Vec<u64>,
    counts: Option<FilterCounts>,
    /// The next region to load.
    region: u64,
}

/// The counts in the stream's header.
#[derive(Clone, Copy, Debug)]
struct FilterCounts {
    regions: u64,
    entries: u64,
}

impl Loader {
    /// Returns a loader of the filter that was saved as `generation`.
    #[must_use]
    pub fn new(options: &FilterOptions, generation: u64) -> Loader {
        let filter = Filter::new(options);
        Loader { filter, generation, sequence: 0, pending: Vec::new(), counts: None, region: 0 }
    }

    /// Loads the next chunk.
    ///
    /// # Errors
    /// When the chunk is not the next one of the save, or its filter cannot be this one. The loader is useless then.
    pub fn load(&mut self, chunk: &[u8]) -> Result<(), LoadError> {
        let words = self.decode(chunk)?;
        self.sequence += 1;
        self.pending.extend(words.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)));
        let mut taken = 0;
        if self.counts.is_none() {
            self.counts = Some(self.take_header()?);
            taken = STREAM_HEADER_WORDS;
        }
        while let Some(words) = self.take_region(taken)? {
            taken += words;
        }
        self.pending.drain(..taken);
        if self.is_complete() && !self.pending.is_empty() { Err(LoadError::Counts) } else { Ok(()) }
    }

    /// Returns whether all chunks have been loaded.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.counts.is_some_and(|counts| self.region == counts.regions)
    }

    /// Returns the filter.
    ///
    /// # Errors
    /// When chunks are missing, or the number of entries differs from the announced one.
    pub fn finish(self) -> Result<Filter, LoadError> {
        match self.counts {
            Some(counts) if self.region == counts.regions => {
                if counts.entries == self.filter.entry_count {
                    Ok(self.filter)
                } else {
                    Err(LoadError::Counts)
                }
            }
            _ => Err(LoadError::Incomplete),
        }
    }

    /// Checks a chunk and returns its part of the stream.
    fn decode<'a>(&self, chunk: &'a [u8]) -> Result<&'a [u8], LoadError> {
        let Some(header) = chunk.first_chunk::<HEADER_BYTES>().filter(|_| chunk.len() == CHUNK_BYTES) else {
            return Err(LoadError::Length { found: chunk.len() });
        };
        let u32_at = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if header[..4] != MAGIC {
            return Err(LoadError::Magic);
        }
        let (expected, found) = (checksum_of(chunk), u32_at(CHECKSUM_AT));
        if found != expected {
            return Err(LoadError::Checksum { expected, found });
        }
        match (u32_at(4), u64_at(8), u32_at(16)) {
            (found, _, _) if found != VERSION => return Err(LoadError::Version { found }),
            (_, found, _) if found != self.generation => {
                return Err(LoadError::Generation { expected: self.generation, found });
            }
            (_, _, found) if found != self.sequence || self.is_complete() => {
                return Err(LoadError::Sequence { expected: self.sequence, found });
            }
            _ => {}
        }
        let words = u32_at(20) as usize;
        let least = if self.sequence == 0 { STREAM_HEADER_WORDS } else { 1 };
        if words < least || words > CHUNK_WORDS || u32_at(28) != 0 {
            return Err(LoadError::Counts);
        }
        let (stream, rest) = chunk[HEADER_BYTES..].split_at(words * 8);
        if rest.iter().any(|&byte| byte != 0) {
            return Err(LoadError::Counts);
        }
        Ok(stream)
    }

    /// Checks the stream's header, which is in the first chunk.
    fn take_header(&mut self) -> Result<FilterCounts, LoadError> {
        let [prefix_bits, index_bits, regions, entries, refused] =
            *self.pending.first_chunk::<STREAM_HEADER_WORDS>().expect("checked with the first chunk's length");
        let geometry = self.filter.geometry;
        if (prefix_bits, index_bits) != (u64::from(geometry.prefix_bits), u64::from(geometry.index_bits)) {
            return Err(LoadError::Parameters { prefix_bits, index_bits });
        }
        if regions == 0 || regions > u64::from(u32::MAX) || regions > 1 << geometry.prefix_bits {
            return Err(LoadError::Counts);
        }
        self.filter.refused_count = refused;
        Ok(FilterCounts { regions, entries })
    }

    /// Takes the region that begins at word `from` into the filter. Returns its number of words, or `None` if they have
    /// not all arrived yet or all regions have.
    fn take_region(&mut self, from: usize) -> Result<Option<usize>, LoadError> {
        let counts = self.counts.expect("the header comes first");
        let words = &self.pending[from..];
        if words.is_empty() || self.region == counts.regions {
            return Ok(None);
        }
        let number = u32::try_from(self.region).expect("the header's count was checked");
        let damaged = |fault| LoadError::Region { region: number, fault };
        if region::number(words) != number {
            return Err(damaged(RegionFault::Number { found: region::number(words) }));
        }
        let place = directory::locate(counts.regions, self.region);
        let shape = RegionShape::read(words, self.filter.remainder_bits(place));
        let is_empty = words[0] == self.region;
        if !is_empty && (shape.count == 0 || !shape.is_possible(self.filter.bucket_bits_max(place))) {
            return Err(damaged(RegionFault::Shape));
        }
        let length = if is_empty { 1 } else { shape.words() };
        let Some(words) = words.get(..length) else { return Ok(None) };
        if number > 0 && !self.filter.regions.push() {
            return Err(LoadError::Memory);
        }
        if !is_empty {
            Region::check(words, shape, self.filter.pages).map_err(damaged)?;
            let cell = self.filter.regions.reserve(number, length).ok_or(LoadError::Memory)?;
            cell[..length].copy_from_slice(words);
        }
        self.filter.entry_count += shape.count as u64;
        self.region += 1;
        Ok(Some(length))
    }
}

/// Returns the correct checksum of a chunk.
fn checksum_of(chunk: &[u8]) -> u32 {
    let before = crc32c::crc32c(&chunk[..CHECKSUM_AT]);
    let blank = crc32c::crc32c_append(before, &[0; 4]);
    crc32c::crc32c_append(blank, &chunk[CHECKSUM_AT + 4..])
}
