//! One chunk that is put together from its symbols and from repair symbols.

use crate::format::multicast::{BegunChunk, CODED_SYMBOLS_MAX, RepairCode, Symbol, symbols_of};
use crate::multicast::coding::{CodedSize, EXCESS_SYMBOLS, ReceivedChunk, ReceivedSymbols};
use crate::multicast::rules::{Rule, follows};

/// Lacking symbols that a request lists. A machine that lacks more of a chunk says only how many, if there are repair
/// symbols.
const LISTED_MAX: u16 = 16;

/// A begun chunk.
#[derive(Debug)]
pub(super) struct Assembly {
    form: u32,
    chunk_bytes: u32,
    symbol_bytes: u16,
    /// Sizes for decoding, if the chunk has repair symbols.
    size: Option<CodedSize>,
    /// Symbols of the chunk in their order. With repair symbols, these lie in the slots of lacking ones, and in one
    /// slot more at the end.
    slots: Vec<u8>,
    /// Symbols of the chunk that have come.
    received: BitSet,
    /// Slots in which a symbol lies.
    taken: BitSet,
    missing: u16,
    /// Repair symbols that have come: the index and the slot of each.
    repairs: Vec<(u16, u16)>,
    /// Number of the first repair symbol behind all that have come.
    next_repair: u16,
    /// Highest sequence number of its symbols.
    newest: u64,
}

impl Assembly {
    /// Returns an assembly for the chunk of a symbol.
    pub(super) fn new(symbol: &Symbol<'_>, symbol_bytes: u16, repairs: RepairCode) -> Assembly {
        let missing = symbols_of(symbol.chunk_bytes, symbol_bytes);
        Assembly {
            form: symbol.form,
            chunk_bytes: symbol.chunk_bytes,
            symbol_bytes,
            size: coded_size(symbol.chunk_bytes, symbol_bytes, repairs),
            slots: vec![0; Assembly::memory_bytes(symbol.chunk_bytes, symbol_bytes, repairs)],
            received: BitSet::new(missing),
            taken: BitSet::new(missing + EXCESS_SYMBOLS),
            missing,
            repairs: Vec::new(),
            next_repair: 0,
            newest: 0,
        }
    }

    /// Returns the memory that the symbols of a chunk take, in bytes.
    pub(super) fn memory_bytes(chunk_bytes: u32, symbol_bytes: u16, repairs: RepairCode) -> usize {
        let slots = usize::from(symbols_of(chunk_bytes, symbol_bytes)) + usize::from(EXCESS_SYMBOLS);
        let is_coded = coded_size(chunk_bytes, symbol_bytes, repairs).is_some();
        if is_coded { slots * usize::from(symbol_bytes) } else { chunk_bytes as usize }
    }

    /// Returns the memory that its symbols take, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.slots.len()
    }

    /// Returns the highest sequence number of its symbols.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// Returns whether symbols of a session fit those that have come.
    pub(super) fn fits(&self, symbol_bytes: u16, repairs: RepairCode) -> bool {
        self.symbol_bytes == symbol_bytes && coded_size(self.chunk_bytes, symbol_bytes, repairs) == self.size
    }

    /// Goes on in a session whose sequence numbers begin anew.
    pub(super) fn begin_session(&mut self) {
        self.newest = 0;
    }

    /// Returns whether a symbol belongs to the same bytes.
    pub(super) fn has_form_of(&self, symbol: &Symbol<'_>) -> bool {
        self.chunk_bytes == symbol.chunk_bytes && (self.form == symbol.form || !follows(Rule::FormsApart))
    }

    /// Puts a symbol into its place. Returns false if it is there already.
    pub(super) fn place(&mut self, symbol: &Symbol<'_>, sequence: u64) -> bool {
        self.newest = self.newest.max(sequence);
        match symbol.index.checked_sub(self.symbols()) {
            Some(number) => {
                self.next_repair = self.next_repair.max(number.saturating_add(1));
                self.place_repair(symbol)
            }
            None => self.place_original(symbol),
        }
    }

    /// Returns how many symbols complete the chunk.
    pub(super) fn needed(&self) -> u16 {
        if self.missing == 0 || self.size.is_none() {
            return self.missing;
        }
        let repairs = u16::try_from(self.repairs.len()).unwrap_or(u16::MAX);
        (self.missing + EXCESS_SYMBOLS).saturating_sub(repairs)
    }

    /// Returns what the chunk lacks.
    pub(super) fn missing(&self, chunk: u32) -> BegunChunk {
        let is_listed = self.size.is_none() || self.missing <= LISTED_MAX;
        let symbols = if is_listed { self.symbols() } else { 0 };
        let missing = (0..symbols).filter(|index| !self.received.has(*index)).map(u32::from).collect();
        BegunChunk { chunk, form: self.form, needed: self.needed(), next_repair: self.next_repair, missing }
    }

    /// Returns the complete chunk.
    pub(super) fn into_chunk(mut self) -> ReceivedChunk {
        let Some(size) = self.size.filter(|_| self.missing > 0) else {
            self.slots.truncate(self.chunk_bytes as usize);
            return self.slots.into();
        };
        // Each slot has a symbol now.
        let mut indices: Vec<u16> = (0..self.symbols() + EXCESS_SYMBOLS).collect();
        for (index, slot) in &self.repairs {
            if let Some(place) = indices.get_mut(usize::from(*slot)) {
                *place = *index;
            }
        }
        ReceivedChunk(ReceivedSymbols::Coded { size, slots: self.slots, indices })
    }

    fn symbols(&self) -> u16 {
        symbols_of(self.chunk_bytes, self.symbol_bytes)
    }

    fn place_original(&mut self, symbol: &Symbol<'_>) -> bool {
        let size = usize::from(self.symbol_bytes);
        let start = usize::from(symbol.index) * size;
        let payload_end = start + symbol.payload.len();
        if self.received.has(symbol.index) || symbol.payload.len() > size || self.slots.len() < payload_end {
            return false;
        }
        if self.taken.has(symbol.index) {
            self.move_repair(symbol.index);
        }
        let end = self.slots.len().min(start + size);
        self.slots[start..payload_end].copy_from_slice(symbol.payload);
        self.slots[payload_end..end].fill(0);
        self.received.insert(symbol.index);
        self.taken.insert(symbol.index);
        self.missing -= 1;
        true
    }

    fn place_repair(&mut self, symbol: &Symbol<'_>) -> bool {
        let is_there = self.repairs.iter().any(|(index, _)| *index == symbol.index);
        if symbol.payload.len() > usize::from(self.symbol_bytes) {
            return false;
        }
        let Some(slot) = self.taken.first_absent().filter(|_| self.size.is_some() && !is_there) else { return false };
        let start = usize::from(slot) * usize::from(self.symbol_bytes);
        let Some(place) = self.slots.get_mut(start..start + symbol.payload.len()) else { return false };
        place.copy_from_slice(symbol.payload);
        self.taken.insert(slot);
        self.repairs.push((symbol.index, slot));
        true
    }

    /// Moves the repair symbol that lies in a slot to a free one. There is one until the chunk is complete.
    fn move_repair(&mut self, from: u16) {
        let Some(to) = self.taken.first_absent() else { return };
        let size = usize::from(self.symbol_bytes);
        let start = usize::from(from) * size;
        self.slots.copy_within(start..start + size, usize::from(to) * size);
        self.taken.insert(to);
        self.repairs.iter_mut().filter(|(_, slot)| *slot == from).for_each(|(_, slot)| *slot = to);
    }
}

/// A set of numbers below a bound.
#[derive(Debug)]
struct BitSet {
    words: Vec<u64>,
    bound: u16,
}

impl BitSet {
    fn new(bound: u16) -> BitSet {
        BitSet { words: vec![0; usize::from(bound).div_ceil(64)], bound }
    }

    fn has(&self, number: u16) -> bool {
        self.words.get(usize::from(number / 64)).is_some_and(|word| word & (1 << (number % 64)) != 0)
    }

    fn insert(&mut self, number: u16) {
        if let Some(word) = self.words.get_mut(usize::from(number / 64)) {
            *word |= 1 << (number % 64);
        }
    }

    fn first_absent(&self) -> Option<u16> {
        let at = self.words.iter().position(|word| *word != u64::MAX)?;
        let bit = self.words.get(at)?.trailing_ones();
        u16::try_from(at * 64 + bit as usize).ok().filter(|number| *number < self.bound)
    }
}

/// Returns the sizes of a chunk that has repair symbols.
fn coded_size(chunk_bytes: u32, symbol_bytes: u16, repairs: RepairCode) -> Option<CodedSize> {
    let has_repairs = repairs == RepairCode::RaptorQ && symbols_of(chunk_bytes, symbol_bytes) <= CODED_SYMBOLS_MAX;
    CodedSize::of(chunk_bytes as usize, symbol_bytes).filter(|_| has_repairs)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use onefold_block::random::{Random, SeededRandom};

    use super::*;
    use crate::multicast::coding::RepairJob;

    const SYMBOL_BYTES: u16 = 128;

    /// Places symbols of a chunk in a drawn order, originals and repair symbols mixed, until it is complete. Returns
    /// whether it has the right bytes then, and how many symbols it took.
    fn assembled(random: &SeededRandom, chunk_bytes: usize, repairs_in_hundred: u64) -> (Option<bool>, u16, u16) {
        let mut bytes = vec![0; chunk_bytes];
        random.fill(&mut bytes).unwrap();
        let length = u32::try_from(chunk_bytes).unwrap();
        let count = symbols_of(length, SYMBOL_BYTES);
        let size = CodedSize::of(chunk_bytes, SYMBOL_BYTES).unwrap();
        let job = RepairJob { chunk: 0, form: 1, bytes: Arc::new(bytes.clone()), size, first: 0, count: count + 1 };
        let block = job.run().block.unwrap();
        let mut assembly: Option<Assembly> = None;
        let mut placed = 0;
        while assembly.as_ref().is_none_or(|assembly| assembly.needed() > 0) {
            let is_repair = random.below(100) < repairs_in_hundred;
            let number = u16::try_from(random.below(u64::from(count) + u64::from(is_repair))).unwrap();
            let start = usize::from(number) * 128;
            let payload =
                if is_repair { block.get(number).unwrap() } else { &bytes[start..chunk_bytes.min(start + 128)] };
            let index = if is_repair { count + number } else { number };
            let symbol = Symbol { chunk: 0, form: 1, chunk_bytes: length, index, payload };
            let assembly = assembly.get_or_insert_with(|| Assembly::new(&symbol, SYMBOL_BYTES, RepairCode::RaptorQ));
            let needed = assembly.needed();
            if assembly.place(&symbol, 1) {
                placed += 1;
                assert!(assembly.needed() < needed);
            } else {
                assert_eq!(assembly.needed(), needed);
            }
        }
        let chunk = assembly.unwrap().into_chunk();
        (chunk.into_bytes().map(|found| found == bytes), placed, count)
    }

    #[test]
    fn repair_symbols_and_others_complete_a_chunk_in_any_order() {
        let random = SeededRandom::new(8);
        let mut undecided = 0;
        for round in 0..200 {
            let chunk_bytes = 1 + usize::try_from(random.below(6000)).unwrap();
            let (is_right, placed, count) = assembled(&random, chunk_bytes, [0, 5, 50, 100][round % 4]);
            assert_ne!(is_right, Some(false), "{chunk_bytes} bytes");
            undecided += usize::from(is_right.is_none());
            assert!(placed == count || placed == count + EXCESS_SYMBOLS, "{placed} of {count}");
        }
        assert!(undecided <= 1, "{undecided} of 200 could not be decoded");
    }

    #[test]
    fn a_chunk_without_repair_symbols_takes_no_more_memory_than_its_bytes() {
        assert_eq!(Assembly::memory_bytes(1000, SYMBOL_BYTES, RepairCode::None), 1000);
        assert_eq!(Assembly::memory_bytes(1000, SYMBOL_BYTES, RepairCode::RaptorQ), 9 * 128);
        assert_eq!(Assembly::memory_bytes(4 << 20, SYMBOL_BYTES, RepairCode::RaptorQ), 4 << 20, "too many symbols");
    }
}
