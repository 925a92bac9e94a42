//! The symbols of a chunk that are sent: all of it, those that machines lack, or repair symbols.

use super::SenderSettings;
use super::cache::BuiltChunk;
use crate::format::multicast::{RepairCode, Symbol, symbols_of};
use crate::multicast::coding::{CodedSize, EXCESS_SYMBOLS, RepairJob};
use crate::multicast::demand::Repair;

/// Repair symbols that are made at once, for each one that is to be sent, and at least: these, or twice the symbols
/// of a smaller chunk. A machine loses some of them, and requests others.
const MADE_FOR_EACH: u16 = 2;
const MADE_MIN: u16 = 16;

/// The part of a chunk that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// All symbols.
    Whole,
    /// The symbols that machines lack.
    Originals,
    /// Repair symbols from `first` on.
    Repairs {
        first: u16,
        count: u16,
        /// Whether they have been made.
        is_made: bool,
    },
}

impl Plan {
    /// Returns what is sent of a chunk that machines have begun. Repair symbols from `next` on are new to all.
    pub(super) fn of_repair(
        settings: &SenderSettings,
        built: &BuiltChunk,
        repair: &Repair,
        next: u16,
        are_losses_of_one: bool,
    ) -> Plan {
        let has_repairs = settings.repairs == RepairCode::RaptorQ;
        let size = CodedSize::of(built.bytes.len(), settings.symbol_bytes).filter(|_| has_repairs);
        if repair.sends_originals(are_losses_of_one) || size.is_none() {
            return Plan::Originals;
        }
        let Some(made) = &built.repairs else { return Plan::Whole };
        let symbols = count_of(built, settings.symbol_bytes);
        let count = repair.needed.min(symbols + EXCESS_SYMBOLS);
        match next.checked_add(count).and_then(|end| symbols.checked_add(end)) {
            Some(_) => Plan::Repairs { first: next, count, is_made: made.has(next, count) },
            // There are no more repair symbols.
            None => Plan::Whole,
        }
    }

    /// Returns the job that makes the repair symbols, and further ones.
    pub(super) fn job(self, chunk: u32, built: &BuiltChunk, symbol_bytes: u16) -> Option<RepairJob> {
        let Plan::Repairs { first, count, .. } = self else { return None };
        let size = CodedSize::of(built.bytes.len(), symbol_bytes)?;
        let symbols = count_of(built, symbol_bytes);
        let most = u16::MAX - symbols - first;
        let least = MADE_MIN.min(MADE_FOR_EACH * (symbols + EXCESS_SYMBOLS));
        let count = (MADE_FOR_EACH * count).max(least).min(most);
        Some(RepairJob { chunk, form: built.form, bytes: built.bytes.clone(), size, first, count })
    }

    /// Returns the indices of the symbols.
    pub(super) fn symbols(self, built: &BuiltChunk, repair: Option<&Repair>, symbol_bytes: u16) -> Vec<u16> {
        let count = count_of(built, symbol_bytes);
        match (self, repair) {
            (Plan::Originals, Some(repair)) => repair.symbols.range(..count).copied().collect(),
            (Plan::Repairs { first, count: repairs, .. }, _) => (count + first..count + first + repairs).collect(),
            _ => (0..count).collect(),
        }
    }
}

/// A chunk under way.
#[derive(Debug)]
pub(super) struct Transmission {
    pub(super) chunk: u32,
    pub(super) built: BuiltChunk,
    pub(super) is_again: bool,
    pub(super) symbols: std::vec::IntoIter<u16>,
}

impl Transmission {
    /// Returns a symbol.
    pub(super) fn symbol(&self, index: u16, symbol_bytes: u16) -> Symbol<'_> {
        let bytes = self.built.bytes.as_slice();
        let count = count_of(&self.built, symbol_bytes);
        let payload = match index.checked_sub(count) {
            Some(number) => self.built.repairs.as_ref().and_then(|made| made.get(number)).unwrap_or_default(),
            None => {
                let size = usize::from(symbol_bytes);
                let start = bytes.len().min(usize::from(index) * size);
                &bytes[start..bytes.len().min(start + size)]
            }
        };
        let chunk_bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Symbol { chunk: self.chunk, form: self.built.form, chunk_bytes, index, payload }
    }
}

/// Returns how many symbols a chunk has.
fn count_of(built: &BuiltChunk, symbol_bytes: u16) -> u16 {
    symbols_of(u32::try_from(built.bytes.len()).unwrap_or(u32::MAX), symbol_bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn repair_symbols_take_little_more_than_twice_the_memory_of_a_chunk() {
        for (chunk_bytes, needed, made) in [(100, 1, 4), (128, 2, 4), (1000, 1, 16), (1000, 9, 18), (128_000, 100, 200)]
        {
            let built = BuiltChunk { form: 1, bytes: Arc::new(vec![1; chunk_bytes]), repairs: Some(Arc::default()) };
            let job = Plan::Repairs { first: 0, count: needed, is_made: false }.job(0, &built, 128).unwrap();
            assert_eq!(job.count, made, "{chunk_bytes}");
        }
    }
}
