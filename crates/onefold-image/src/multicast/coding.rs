//! Repair symbols of chunks, by RaptorQ (RFC 6330): each mends the loss of any other symbol.
//!
//! Making them and decoding take milliseconds for each MiB, so both are jobs for other threads than those that send and
//! receive. The crate panics on symbols of a wrong length and trusts the sizes that it is given: nothing here passes it
//! others than those of [`CodedSize`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use raptorq::{
    EncodingPacket, ObjectTransmissionInformation, PayloadId, SourceBlockDecoder, SourceBlockEncoder,
    SourceBlockEncodingPlan,
};

use crate::format::multicast::{CODED_SYMBOLS_MAX, symbols_of};

/// Symbols that a machine needs beyond those of the chunk. Without any, one of a hundred decodings would fail; with
/// this one, one of ten thousand.
pub(super) const EXCESS_SYMBOLS: u16 = 1;
/// Number of the only source block. A chunk is one.
const BLOCK: u8 = 0;

/// The sizes of a chunk that has repair symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodedSize {
    chunk_bytes: usize,
    symbol_bytes: u16,
    /// Symbols of the chunk, the last one padded by zeros. Repair symbols have the indices from here on.
    symbols: u16,
}

impl CodedSize {
    /// Returns the sizes of a chunk, unless it has too many symbols or none.
    pub(super) fn of(chunk_bytes: usize, symbol_bytes: u16) -> Option<CodedSize> {
        let symbols = symbols_of(u32::try_from(chunk_bytes).ok()?, symbol_bytes);
        let has_repairs = symbol_bytes > 0 && (1..=CODED_SYMBOLS_MAX).contains(&symbols);
        has_repairs.then_some(CodedSize { chunk_bytes, symbol_bytes, symbols })
    }

    fn padded_bytes(self) -> usize {
        usize::from(self.symbols) * usize::from(self.symbol_bytes)
    }

    fn information(self) -> ObjectTransmissionInformation {
        ObjectTransmissionInformation::new(self.padded_bytes() as u64, self.symbol_bytes, 1, 1, 1)
    }
}

/// A job for a thread that may take a while: to make repair symbols of a chunk.
#[derive(Debug)]
pub struct RepairJob {
    pub(super) chunk: u32,
    pub(super) form: u32,
    pub(super) bytes: Arc<Vec<u8>>,
    pub(super) size: CodedSize,
    /// The first repair symbol, and their number.
    pub(super) first: u16,
    pub(super) count: u16,
}

/// Repair symbols of a chunk.
#[derive(Debug)]
pub struct RepairSymbols {
    pub(super) chunk: u32,
    pub(super) form: u32,
    /// `None` if they cannot be made.
    pub(super) block: Option<RepairBlock>,
}

/// Repair symbols in a row.
#[derive(Debug, Default)]
pub(super) struct RepairBlock {
    /// Number of the first one, from 0.
    pub(super) first: u16,
    symbol_bytes: usize,
    bytes: Vec<u8>,
}

impl RepairJob {
    /// Makes the symbols. Takes some milliseconds for each MiB of the chunk, and four times its memory. If the crate
    /// panics, there are none.
    #[must_use]
    pub fn run(self) -> RepairSymbols {
        let block = catch_unwind(AssertUnwindSafe(|| self.block())).ok();
        RepairSymbols { chunk: self.chunk, form: self.form, block }
    }

    fn block(&self) -> RepairBlock {
        let size = self.size;
        let mut padded = self.bytes.get(..size.chunk_bytes).unwrap_or(&self.bytes).to_vec();
        padded.resize(size.padded_bytes(), 0);
        // A plan of our own: the crate keeps those that it makes, which takes memory.
        let plan = SourceBlockEncodingPlan::generate(size.symbols);
        let encoder = SourceBlockEncoder::with_encoding_plan(BLOCK, &size.information(), &padded, &plan);
        let packets = encoder.repair_packets(self.first.into(), self.count.into());
        let bytes = packets.iter().flat_map(|packet| packet.data().iter().copied()).collect();
        RepairBlock { first: self.first, symbol_bytes: size.symbol_bytes.into(), bytes }
    }
}

impl RepairBlock {
    /// Returns whether the block has all of these symbols.
    pub(super) fn has(&self, first: u16, count: u16) -> bool {
        let end = usize::from(first) + usize::from(count);
        let own_end = usize::from(self.first) + self.bytes.len() / self.symbol_bytes.max(1);
        first >= self.first && end <= own_end
    }

    /// Returns one symbol.
    pub(super) fn get(&self, number: u16) -> Option<&[u8]> {
        let start = usize::from(number.checked_sub(self.first)?) * self.symbol_bytes;
        self.bytes.get(start..start + self.symbol_bytes)
    }
}

/// A chunk as a machine has received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedChunk(pub(super) ReceivedSymbols);

/// The symbols of a chunk that suffice for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReceivedSymbols {
    /// The bytes of the chunk.
    Plain(Vec<u8>),
    /// Some symbols of the chunk, and repair symbols for the others.
    Coded {
        size: CodedSize,
        /// Places for one symbol each, and the index of the symbol that lies there.
        slots: Vec<u8>,
        indices: Vec<u16>,
    },
}

impl From<Vec<u8>> for ReceivedChunk {
    /// Returns a chunk that is not to be decoded.
    fn from(bytes: Vec<u8>) -> ReceivedChunk {
        ReceivedChunk(ReceivedSymbols::Plain(bytes))
    }
}

impl ReceivedChunk {
    /// Returns the bytes of the chunk. If some symbols are repair symbols, this decodes them, which takes some
    /// milliseconds for each MiB, and four times its memory. `None` if they do not suffice, which is rare.
    #[must_use]
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        let (size, slots, indices) = match self.0 {
            ReceivedSymbols::Plain(bytes) => return Some(bytes),
            ReceivedSymbols::Coded { size, slots, indices } => (size, slots, indices),
        };
        let symbols = slots.chunks_exact(size.symbol_bytes.into());
        let packets = indices.iter().zip(symbols);
        let packets = packets
            .map(|(index, symbol)| EncodingPacket::new(PayloadId::new(BLOCK, u32::from(*index)), symbol.to_vec()));
        let mut decoder = SourceBlockDecoder::new(BLOCK, &size.information(), size.padded_bytes() as u64);
        let mut bytes = decoder.decode(packets)?;
        bytes.truncate(size.chunk_bytes);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use onefold_block::random::{Random, SeededRandom};

    use super::*;

    /// Makes the symbols of a drawn chunk, loses some, and decodes the others.
    fn decoded(random: &SeededRandom, chunk_bytes: usize, symbol_bytes: u16, excess: u16) -> Option<bool> {
        let mut bytes = vec![0; chunk_bytes];
        random.fill(&mut bytes).unwrap();
        let size = CodedSize::of(chunk_bytes, symbol_bytes).unwrap();
        let symbol_length = usize::from(symbol_bytes);
        let first = u16::try_from(random.below(100)).unwrap();
        let kept: Vec<u16> = (0..size.symbols).filter(|_| random.below(4) > 0).collect();
        let count = size.symbols - u16::try_from(kept.len()).unwrap() + excess;
        let job = RepairJob { chunk: 3, form: 1, bytes: Arc::new(bytes.clone()), size, first, count };
        let block = job.run().block.unwrap();
        assert!(block.has(first, count) && !block.has(first, count + 1) && block.get(first + count).is_none());
        let repairs = first..first + count;
        let mut slots = Vec::new();
        for index in &kept {
            let mut symbol = bytes[usize::from(*index) * symbol_length..].to_vec();
            symbol.resize(symbol_length, 0);
            slots.extend(symbol);
        }
        repairs.clone().for_each(|number| slots.extend(block.get(number).unwrap()));
        let indices = kept.into_iter().chain(repairs.map(|number| size.symbols + number)).collect();
        let received = ReceivedChunk(ReceivedSymbols::Coded { size, slots, indices });
        received.into_bytes().map(|decoded| decoded == bytes)
    }

    #[test]
    fn any_symbols_suffice_whatever_the_sizes() {
        let random = SeededRandom::new(5);
        let mut failures = 0;
        for round in 0..300 {
            let symbol_bytes = 128 + u16::try_from(random.below(40)).unwrap();
            let chunk_bytes = 1 + usize::try_from(random.below(if round % 10 == 0 { 100_000 } else { 3000 })).unwrap();
            let decoded = decoded(&random, chunk_bytes, symbol_bytes, EXCESS_SYMBOLS);
            assert_ne!(decoded, Some(false), "{chunk_bytes} bytes in symbols of {symbol_bytes}");
            failures += usize::from(decoded.is_none());
        }
        assert!(failures <= 1, "{failures} of 300 failed");
    }

    #[test]
    fn a_job_that_panics_says_so() {
        let size = CodedSize { chunk_bytes: 1000, symbol_bytes: 128, symbols: u16::MAX };
        let job = RepairJob { chunk: 3, form: 1, bytes: Arc::new(vec![1; 1000]), size, first: 0, count: 1 };
        let RepairSymbols { chunk, form, block } = job.run();
        assert_eq!((chunk, form, block.is_none()), (3, 1, true));
    }

    #[test]
    fn only_chunks_of_bounded_size_have_repair_symbols() {
        let most = usize::from(CODED_SYMBOLS_MAX) * 128;
        assert!(CodedSize::of(1, 128).is_some() && CodedSize::of(most, 128).is_some());
        assert!(CodedSize::of(0, 128).is_none() && CodedSize::of(most + 1, 128).is_none());
        assert!(CodedSize::of(4 << 20, 128).is_none() && CodedSize::of(4 << 20, 1428).is_some());
        assert!(CodedSize::of(100, 0).is_none() && CodedSize::of(usize::MAX, 128).is_none());
    }
}
