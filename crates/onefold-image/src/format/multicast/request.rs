//! Requests of machines: the chunks that a machine lacks, and how many datagrams reached it.
//!
//! | field    | type     | is                                                                                   |
//! |----------|----------|--------------------------------------------------------------------------------------|
//! | seen     | u64      | highest sequence number of the server that the machine has received; 0 before that   |
//! | received | u64      | datagrams received since the machine joined                                          |
//! | expected | u64      | datagrams sent since then, by their sequence numbers                                 |
//! | left     | u32      | chunks that the machine lacks altogether; 0 ends its part in the session             |
//! | lacking  | set      | chunks of which it has no symbol and for which it has room                           |
//! | begun    | variable | number of begun chunks; the following for each                                       |
//! | chunk, form | u32, u32 | number of the chunk, and form of its symbols that the machine has                  |
//! | needed   | variable | number of symbols that complete the chunk, repair symbols or others                  |
//! | next     | variable | number of the first repair symbol, from 0, behind all that the machine has received  |
//! | missing  | set      | lacking symbols; empty if they are many, so that only repair symbols help            |
//!
//! Begun chunks are in ascending order, and none is among the lacking ones.

use super::IndexSet;
use super::index_set::variable_bytes;
use crate::format::FormatError;
use crate::format::bytes::{Decoder, Encoder};

/// Name of the structure in errors.
const STRUCTURE: &str = "multicast request";
/// Length of the fields before the first set.
const FIXED_BYTES: usize = 3 * 8 + 4;
/// Minimum bytes of a begun chunk: its number, its form, two numbers, and an empty set.
const BEGUN_BYTES_MIN: usize = 4 + 4 + 1 + 1 + 1;
/// Maximum length of the number of begun chunks.
const COUNT_BYTES_MAX: usize = 2;
/// Maximum number of begun chunks in a request.
const BEGUN_MAX: usize = 1 << 12;
/// Number of symbols that an index of 16 bits tells apart.
const SYMBOLS_MAX: u32 = 1 << 16;

/// A chunk of which a machine has some symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BegunChunk {
    /// Index of the chunk in its image.
    pub chunk: u32,
    /// Form of the symbols that the machine has.
    pub form: u32,
    /// Number of symbols that complete the chunk, repair symbols or others.
    pub needed: u16,
    /// Number of the first repair symbol, from 0, behind all that the machine has received.
    pub next_repair: u16,
    /// Symbols that it lacks. Empty if they are many, and repair symbols help as well.
    pub missing: IndexSet,
}

/// A request of one machine. It replaces the earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Highest sequence number of the server that the machine has received, or 0.
    pub seen: u64,
    /// Datagrams received since the machine joined.
    pub received: u64,
    /// Datagrams that the server sent since then.
    pub expected: u64,
    /// Number of chunks that the machine lacks, requested here or not.
    pub left: u32,
    /// Chunks of which it has nothing.
    pub lacking: IndexSet,
    /// Chunks of which it lacks some symbols, in ascending order.
    pub begun: Vec<BegunChunk>,
}

impl Request {
    /// Appends its bytes to a datagram: at most `bytes_max` of them. Begun chunks come before others. Chunks for which
    /// there is no room are left out.
    pub fn encode(&self, bytes_max: usize, datagram: &mut Vec<u8>) {
        let mut encoder = Encoder(std::mem::take(datagram));
        encoder.u64(self.seen).u64(self.received).u64(self.expected).u32(self.left);
        let mut left = bytes_max.saturating_sub(FIXED_BYTES + COUNT_BYTES_MAX + 1);
        let mut begun = Encoder::default();
        let mut count = 0;
        for chunk in self.begun.iter().take(BEGUN_MAX) {
            let before = begun.0.len();
            begun.u32(chunk.chunk).u32(chunk.form);
            begun.variable(chunk.needed.into()).variable(chunk.next_repair.into());
            let missing = chunk.missing.within(left.saturating_sub(begun.0.len() - before));
            missing.encode(&mut begun);
            let is_whole = missing.is_empty() == chunk.missing.is_empty();
            let Some(rest) = left.checked_sub(begun.0.len() - before).filter(|_| is_whole) else {
                begun.0.truncate(before);
                break;
            };
            (left, count) = (rest, count + 1);
        }
        self.lacking.within(left + 1).encode(&mut encoder);
        debug_assert!(variable_bytes(count) <= COUNT_BYTES_MAX);
        encoder.variable(u64::from(count)).bytes(&begun.0);
        *datagram = encoder.0;
    }

    /// Decodes the body of a request for an image with so many chunks.
    ///
    /// # Errors
    /// When the bytes are no request, or name other chunks.
    pub fn decode(body: &[u8], chunks: u32) -> Result<Request, FormatError> {
        let mut decoder = Decoder::new(STRUCTURE, body);
        let (seen, received, expected) = (decoder.u64()?, decoder.u64()?, decoder.u64()?);
        let left = decoder.u32()?;
        let lacking = IndexSet::decode(&mut decoder, chunks)?;
        let count = decoder.variable()?;
        let count = decoder.there(count, BEGUN_BYTES_MIN)?;
        let mut begun: Vec<BegunChunk> = Vec::with_capacity(count);
        for _ in 0..count {
            let (chunk, form) = (decoder.u32()?, decoder.u32()?);
            let (needed, next_repair) = (decode_number(&mut decoder)?, decode_number(&mut decoder)?);
            let missing = IndexSet::decode(&mut decoder, SYMBOLS_MAX)?;
            let is_in_order = begun.last().is_none_or(|last| last.chunk < chunk);
            if !is_in_order || chunk >= chunks || lacking.contains(chunk) || needed == 0 {
                return Err(decoder.wrong("a begun chunk is out of order, out of bounds, lacking or complete"));
            }
            begun.push(BegunChunk { chunk, form, needed, next_repair, missing });
        }
        decoder.end()?;
        if left > chunks || lacking.len() + begun.len() as u64 > u64::from(left) || begun.len() > BEGUN_MAX {
            return Err(decoder.wrong("more chunks are requested than lacking"));
        }
        if received > expected {
            return Err(decoder.wrong("more datagrams were received than sent"));
        }
        Ok(Request { seen, received, expected, left, lacking, begun })
    }
}

/// Takes a number of symbols.
fn decode_number(decoder: &mut Decoder<'_>) -> Result<u16, FormatError> {
    let number = decoder.variable()?;
    u16::try_from(number).map_err(|_| decoder.wrong("a chunk has fewer symbols"))
}
