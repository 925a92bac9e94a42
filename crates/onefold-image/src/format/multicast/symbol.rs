//! Symbols: a chunk is cut into symbols of one size, of which only the last may be shorter.
//!
//! | field   | type | is                                                                                     |
//! |---------|------|----------------------------------------------------------------------------------------|
//! | chunk   | u32  | the index of the chunk in its image                                                    |
//! | form    | u32  | the form of the chunk's bytes                                                          |
//! | length  | u32  | the length of the chunk in bytes, from 1 to 4 MiB                                      |
//! | symbol  | u16  | the index of the symbol; those behind the chunk's end are repair symbols               |
//! | payload |      | the bytes of the chunk, to the end of the body; a repair symbol is never shorter       |
//!
//! Repair symbols are those of RaptorQ, of a chunk that zeros extend to whole symbols: index and encoding symbol ID are
//! the same number. They exist if the join says so, and the chunk has at most 4,096 symbols.

use super::{CHUNKS_MAX, RepairCode, SYMBOL_BYTES_MAX, SYMBOL_BYTES_MIN};
use crate::format::FormatError;
use crate::format::bytes::{Decoder, Encoder};
use crate::format::wire::CHUNK_BYTES_MAX;

/// Length of the fields before the payload of a symbol, in bytes.
pub const SYMBOL_HEADER_BYTES: usize = 14;

/// Maximum number of symbols of a chunk that has repair symbols. It bounds the work of decoding.
pub const CODED_SYMBOLS_MAX: u16 = 4096;

/// Name of the structure in errors.
const STRUCTURE: &str = "multicast symbol";

/// A part of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Index of the chunk in its image.
    pub chunk: u32,
    /// Which bytes the chunk has. Symbols of different forms do not belong together.
    pub form: u32,
    /// Length of the chunk in bytes.
    pub chunk_bytes: u32,
    /// Index of the symbol in the chunk.
    pub index: u16,
    /// Its bytes.
    pub payload: &'a [u8],
}

/// Returns how many symbols a chunk has.
#[must_use]
pub fn symbols_of(chunk_bytes: u32, symbol_bytes: u16) -> u16 {
    u16::try_from(chunk_bytes.div_ceil(u32::from(symbol_bytes.max(1)))).unwrap_or(u16::MAX)
}

impl<'a> Symbol<'a> {
    /// Appends its bytes to a datagram.
    pub fn encode(&self, datagram: &mut Vec<u8>) {
        let mut encoder = Encoder(std::mem::take(datagram));
        encoder.u32(self.chunk).u32(self.form).u32(self.chunk_bytes).u16(self.index).bytes(self.payload);
        *datagram = encoder.0;
    }

    /// Decodes the body of a symbol of a session with symbols of this size, and with these repair symbols.
    ///
    /// # Errors
    /// When the bytes are no symbol, or its length is not that which its index has.
    pub fn decode(body: &'a [u8], symbol_bytes: u16, repairs: RepairCode) -> Result<Symbol<'a>, FormatError> {
        let mut decoder = Decoder::new(STRUCTURE, body);
        let (chunk, form, chunk_bytes, index) = (decoder.u32()?, decoder.u32()?, decoder.u32()?, decoder.u16()?);
        if chunk >= CHUNKS_MAX || chunk_bytes == 0 || chunk_bytes as usize > CHUNK_BYTES_MAX {
            return Err(decoder.wrong("a chunk has an index or a length that no chunk has"));
        }
        let symbols = symbols_of(chunk_bytes, symbol_bytes);
        let is_repair = index >= symbols;
        let has_repairs = repairs == RepairCode::RaptorQ && symbols <= CODED_SYMBOLS_MAX;
        if !(SYMBOL_BYTES_MIN..=SYMBOL_BYTES_MAX).contains(&symbol_bytes) || (is_repair && !has_repairs) {
            return Err(decoder.wrong("the index is behind the end of the chunk"));
        }
        let start = u32::from(index) * u32::from(symbol_bytes);
        let rest = if is_repair { u32::MAX } else { chunk_bytes - start };
        let expected = rest.min(symbol_bytes.into());
        let payload = decoder.bytes(expected as usize)?;
        decoder.end()?;
        Ok(Symbol { chunk, form, chunk_bytes, index, payload })
    }
}
