//! Chunks that are put together from symbols, in bounded memory.

use std::collections::BTreeMap;

use super::chunk::Assembly;
use crate::format::multicast::{BegunChunk, RepairCode, Symbol};
use crate::multicast::coding::ReceivedChunk;

/// Part of the memory in which chunks begin that may not be requested: one of so many.
const UNREQUESTED_SHARE: usize = 2;

/// Chunks that are put together, and the memory for them and for those that the caller has not settled yet.
#[derive(Debug)]
pub(super) struct Assemblies {
    begun: BTreeMap<u32, Assembly>,
    /// Bytes of begun chunks, and of those that were handed over.
    used_bytes: usize,
    bytes_max: usize,
    /// The chunk whose passing symbols are dropped, since there was no room when the first one came, and the index of
    /// the last of them. A lower index begins the next transmission.
    refused: Option<(u32, u16)>,
    /// Memory of the longest chunk so far.
    chunk_bytes_max: usize,
    /// Size of the symbols of the session, and its repair symbols.
    symbol_bytes: u16,
    repairs: RepairCode,
}

/// The fate of a symbol.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SymbolOutcome {
    /// It was put into its place.
    Placed,
    /// It completes its chunk.
    Complete(ReceivedChunk),
    /// It has come before, or is of an old form.
    Repeated,
    /// There is no room for its chunk, which is dropped as a whole.
    Refused {
        /// Whether this is the first symbol of the chunk to be dropped.
        is_first: bool,
    },
}

impl Assemblies {
    pub(super) fn new(bytes_max: usize) -> Assemblies {
        Assemblies {
            begun: BTreeMap::new(),
            used_bytes: 0,
            bytes_max,
            refused: None,
            chunk_bytes_max: 0,
            symbol_bytes: 0,
            repairs: RepairCode::None,
        }
    }

    /// Takes a symbol of a chunk that is not complete yet. Returns its fate; the memory of a complete chunk stays
    /// counted until [`Self::release`]. A chunk that may not be requested begins only in the first half of the memory:
    /// it may lack symbols for long, and must not keep out those that are requested.
    pub(super) fn place(&mut self, symbol: &Symbol<'_>, sequence: u64, is_requestable: bool) -> SymbolOutcome {
        if let Some(assembly) = self.begun.get(&symbol.chunk)
            && !assembly.has_form_of(symbol)
        {
            // An old packet that comes late must not throw away the new form.
            if sequence < assembly.newest() {
                return SymbolOutcome::Repeated;
            }
            self.drop_begun(symbol.chunk);
        }
        let length = Assembly::memory_bytes(symbol.chunk_bytes, self.symbol_bytes, self.repairs);
        if !self.begun.contains_key(&symbol.chunk) {
            let is_passing = self.refused.is_some_and(|(chunk, last)| chunk == symbol.chunk && last < symbol.index);
            let share = if is_requestable || self.used_bytes == 0 { 1 } else { UNREQUESTED_SHARE };
            if is_passing || self.used_bytes + length > self.bytes_max / share {
                self.refused = Some((symbol.chunk, symbol.index));
                return SymbolOutcome::Refused { is_first: !is_passing };
            }
            self.used_bytes += length;
            self.begun.insert(symbol.chunk, Assembly::new(symbol, self.symbol_bytes, self.repairs));
        }
        self.refused = None;
        self.chunk_bytes_max = self.chunk_bytes_max.max(length);
        let Some(assembly) = self.begun.get_mut(&symbol.chunk) else { return SymbolOutcome::Repeated };
        if !assembly.place(symbol, sequence) {
            return SymbolOutcome::Repeated;
        }
        if assembly.needed() > 0 {
            return SymbolOutcome::Placed;
        }
        let complete = self.begun.remove(&symbol.chunk).map(Assembly::into_chunk);
        complete.map_or(SymbolOutcome::Repeated, SymbolOutcome::Complete)
    }

    /// Returns the memory that a chunk of this length takes.
    pub(super) fn memory_bytes(&self, chunk_bytes: u32) -> usize {
        Assembly::memory_bytes(chunk_bytes, self.symbol_bytes, self.repairs)
    }

    /// Gives back the memory of a chunk that was handed over.
    pub(super) fn release(&mut self, bytes: usize) {
        self.used_bytes = self.used_bytes.saturating_sub(bytes);
    }

    /// Drops the symbols of a chunk.
    pub(super) fn drop_begun(&mut self, chunk: u32) {
        if let Some(assembly) = self.begun.remove(&chunk) {
            self.release(assembly.memory());
        }
    }

    /// Prepares for a session whose sequence numbers begin anew, with symbols of this size. Chunks stay begun if they
    /// can be continued.
    pub(super) fn begin_session(&mut self, symbol_bytes: u16, repairs: RepairCode) {
        (self.symbol_bytes, self.repairs) = (symbol_bytes, repairs);
        let unfit = self.begun.iter().filter(|(_, assembly)| !assembly.fits(symbol_bytes, repairs));
        let unfit: Vec<u32> = unfit.map(|(chunk, _)| *chunk).collect();
        unfit.into_iter().for_each(|chunk| self.drop_begun(chunk));
        self.begun.values_mut().for_each(Assembly::begin_session);
        self.refused = None;
    }

    /// Returns the begun chunks, in ascending order.
    pub(super) fn begun(&self) -> impl Iterator<Item = u32> + '_ {
        self.begun.keys().copied()
    }

    /// Returns the begun chunks with their lacking symbols.
    pub(super) fn missing(&self) -> impl Iterator<Item = BegunChunk> + '_ {
        self.begun.iter().map(|(chunk, assembly)| assembly.missing(*chunk))
    }

    /// Returns the number of whole chunks that there is room for. At least one if no chunk takes any room.
    pub(super) fn room_chunks(&self, chunk_bytes_default: usize) -> usize {
        let chunk_bytes = if self.chunk_bytes_max == 0 { chunk_bytes_default } else { self.chunk_bytes_max };
        let room = self.bytes_max.saturating_sub(self.used_bytes) / chunk_bytes.max(1);
        if self.used_bytes == 0 { room.max(1) } else { room }
    }
}
