//! Chunks that are put together from symbols, in bounded memory.

use std::collections::BTreeMap;

use crate::format::multicast::{BegunChunk, IndexSet, Symbol, symbols_of};
use crate::multicast::rules::{Rule, follows};

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
    /// Length of the longest chunk so far.
    chunk_bytes_max: usize,
}

#[derive(Debug)]
struct Assembly {
    form: u32,
    bytes: Vec<u8>,
    /// A bit for each symbol that has come.
    received: Vec<u64>,
    missing: u16,
    symbol_bytes: u16,
    /// Highest sequence number of its symbols.
    newest: u64,
}

/// The fate of a symbol.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SymbolOutcome {
    /// It was put into its place.
    Placed,
    /// It completes its chunk.
    Complete(Vec<u8>),
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
        Assemblies { begun: BTreeMap::new(), used_bytes: 0, bytes_max, refused: None, chunk_bytes_max: 0 }
    }

    /// Takes a symbol of a chunk that is not complete yet.
    pub(super) fn place(&mut self, symbol: &Symbol<'_>, sequence: u64, symbol_bytes: u16) -> SymbolOutcome {
        if let Some(assembly) = self.begun.get(&symbol.chunk)
            && !assembly.has_form_of(symbol)
        {
            // An old packet that comes late must not throw away the new form.
            if sequence < assembly.newest {
                return SymbolOutcome::Repeated;
            }
            self.drop_begun(symbol.chunk);
        }
        let length = symbol.chunk_bytes as usize;
        if !self.begun.contains_key(&symbol.chunk) {
            let is_passing = self.refused.is_some_and(|(chunk, last)| chunk == symbol.chunk && last < symbol.index);
            if is_passing || self.used_bytes + length > self.bytes_max {
                self.refused = Some((symbol.chunk, symbol.index));
                return SymbolOutcome::Refused { is_first: !is_passing };
            }
            self.used_bytes += length;
            self.begun.insert(symbol.chunk, Assembly::new(symbol, symbol_bytes));
        }
        self.refused = None;
        self.chunk_bytes_max = self.chunk_bytes_max.max(length);
        let Some(assembly) = self.begun.get_mut(&symbol.chunk) else { return SymbolOutcome::Repeated };
        if !assembly.place(symbol, sequence) {
            return SymbolOutcome::Repeated;
        }
        if assembly.missing > 0 {
            return SymbolOutcome::Placed;
        }
        let complete = self.begun.remove(&symbol.chunk).map(|assembly| assembly.bytes);
        complete.map_or(SymbolOutcome::Repeated, SymbolOutcome::Complete)
    }

    /// Gives back the memory of a chunk that was handed over.
    pub(super) fn release(&mut self, bytes: usize) {
        self.used_bytes = self.used_bytes.saturating_sub(bytes);
    }

    /// Drops the symbols of a chunk.
    pub(super) fn drop_begun(&mut self, chunk: u32) {
        if let Some(assembly) = self.begun.remove(&chunk) {
            self.release(assembly.bytes.len());
        }
    }

    /// Prepares for a session whose sequence numbers begin anew, with symbols of this size. Chunks stay begun if they
    /// can be continued.
    pub(super) fn begin_session(&mut self, symbol_bytes: u16) {
        let unfit = self.begun.iter().filter(|(_, assembly)| assembly.symbol_bytes != symbol_bytes);
        let unfit: Vec<u32> = unfit.map(|(chunk, _)| *chunk).collect();
        unfit.into_iter().for_each(|chunk| self.drop_begun(chunk));
        self.begun.values_mut().for_each(|assembly| assembly.newest = 0);
        self.refused = None;
    }

    /// Returns the begun chunks, in ascending order.
    pub(super) fn begun(&self) -> impl Iterator<Item = u32> + '_ {
        self.begun.keys().copied()
    }

    /// Returns the begun chunks with their lacking symbols.
    pub(super) fn missing(&self) -> impl Iterator<Item = BegunChunk> + '_ {
        let missing = |(chunk, assembly): (&u32, &Assembly)| BegunChunk {
            chunk: *chunk,
            form: assembly.form,
            missing: assembly.missing(),
        };
        self.begun.iter().map(missing)
    }

    /// Returns the number of whole chunks that there is room for. At least one if no chunk takes any room.
    pub(super) fn room_chunks(&self, chunk_bytes_default: usize) -> usize {
        let chunk_bytes = if self.chunk_bytes_max == 0 { chunk_bytes_default } else { self.chunk_bytes_max };
        let room = self.bytes_max.saturating_sub(self.used_bytes) / chunk_bytes.max(1);
        if self.used_bytes == 0 { room.max(1) } else { room }
    }
}

impl Assembly {
    fn new(symbol: &Symbol<'_>, symbol_bytes: u16) -> Assembly {
        let missing = symbols_of(symbol.chunk_bytes, symbol_bytes);
        Assembly {
            form: symbol.form,
            bytes: vec![0; symbol.chunk_bytes as usize],
            received: vec![0; usize::from(missing).div_ceil(64)],
            missing,
            symbol_bytes,
            newest: 0,
        }
    }

    fn has_form_of(&self, symbol: &Symbol<'_>) -> bool {
        let has_length = self.bytes.len() == symbol.chunk_bytes as usize;
        has_length && (self.form == symbol.form || !follows(Rule::FormsApart))
    }

    /// Puts a symbol into its place. Returns false if it is there already.
    fn place(&mut self, symbol: &Symbol<'_>, sequence: u64) -> bool {
        self.newest = self.newest.max(sequence);
        let (word, bit) = (usize::from(symbol.index / 64), 1u64 << (symbol.index % 64));
        let start = usize::from(symbol.index) * usize::from(self.symbol_bytes);
        let place = self.bytes.get_mut(start..start + symbol.payload.len());
        let (Some(received), Some(place)) = (self.received.get_mut(word), place) else { return false };
        if *received & bit != 0 {
            return false;
        }
        *received |= bit;
        place.copy_from_slice(symbol.payload);
        self.missing -= 1;
        true
    }

    fn missing(&self) -> IndexSet {
        let count = symbols_of(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX), self.symbol_bytes);
        let is_missing = |index: &u16| {
            let word = self.received.get(usize::from(index / 64)).copied().unwrap_or(0);
            word & (1 << (index % 64)) == 0
        };
        (0..count).filter(is_missing).map(u32::from).collect()
    }
}
