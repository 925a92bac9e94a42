//! The chunks that machines lack, by their last requests. All of it may be lost at any moment: machines request again.

use std::collections::{BTreeMap, BTreeSet};

use super::rank::ChunkRank;
use super::rules::{Rule, follows};
use crate::format::multicast::{BegunChunk, CODED_SYMBOLS_MAX, IndexSet, Request};
use crate::format::wire::CHUNK_BYTES_MAX;

/// Maximum number of chunks of which lacking symbols are noted. Machines request others again.
const REPAIRS_MAX: usize = 4096;
/// Maximum number of chunks that one request counts for, and of lacking symbols. Machines request others again.
const REQUESTED_MAX: usize = 1 << 14;

/// The chunks that machines lack.
#[derive(Debug)]
pub(super) struct Demand {
    chunks: Vec<ChunkDemand>,
    /// Number of symbols of the longest chunk.
    symbols_max: u32,
    /// Chunks that machines lack as a whole, in the order in which they are sent.
    ranking: BTreeSet<ChunkRank>,
    /// Chunks that no machine lacks as a whole, and their lacking symbols.
    repairs: BTreeMap<u32, Repair>,
    /// Number of requests so far.
    requests: u64,
}

/// The demand for one chunk.
#[derive(Clone, Copy, Debug, Default)]
struct ChunkDemand {
    /// Number of machines that lack all of it.
    machines: u32,
    /// Number of its first repair symbol that has not been sent.
    next_repair: u16,
    /// Number of requests when it was sent last. Earlier requests do not count any more.
    answered: u64,
    /// Sequence number of its last packet.
    sent: u64,
}

/// Lacking symbols of a chunk.
#[derive(Clone, Debug)]
pub(super) struct Repair {
    /// Form of the symbols that machines have.
    pub(super) form: u32,
    /// Symbols that a machine lacks.
    pub(super) symbols: BTreeSet<u16>,
    /// Number of symbols that complete the chunk at each machine, if none has them.
    pub(super) needed: u16,
    /// Number of the first repair symbol that no machine has.
    pub(super) next_repair: u16,
    /// Number of requests for symbols of the chunk.
    machines: u32,
    /// Whether all of them list the symbols that their machines lack.
    is_listed: bool,
}

/// A request that counts until its machine replaces it.
#[derive(Clone, Debug)]
pub(super) struct CountedRequest {
    number: u64,
    lacking: IndexSet,
}

impl Repair {
    fn new(form: u32) -> Repair {
        Repair { form, symbols: BTreeSet::new(), needed: 0, next_repair: 0, machines: 0, is_listed: true }
    }

    /// Adds what a machine lacks. It has got none of the repair symbols that are `far` or more.
    fn add(&mut self, begun: &BegunChunk, symbols: Vec<u16>, far: u16) {
        self.is_listed &= !symbols.is_empty();
        self.symbols.extend(symbols);
        self.needed = self.needed.max(begun.needed);
        let is_likely = begun.next_repair <= far;
        self.next_repair = self.next_repair.max(if is_likely { begun.next_repair } else { 0 });
        self.machines += 1;
    }

    /// Returns whether the lacking symbols themselves are sent, rather than repair symbols, which have to be decoded.
    /// `is_alone` says that at most one machine loses packets; otherwise others lack other symbols of the chunk.
    pub(super) fn sends_originals(&self, is_alone: bool) -> bool {
        let is_same = self.symbols.len() <= usize::from(self.needed) && self.machines > 1;
        self.is_listed && (is_alone || is_same || !follows(Rule::RepairsCoded))
    }
}

impl Demand {
    pub(super) fn new(chunks: u32, symbol_bytes: u16) -> Demand {
        let chunks = vec![ChunkDemand::default(); chunks as usize];
        let longest = u32::try_from(CHUNK_BYTES_MAX).unwrap_or(u32::MAX);
        let symbols_max = longest.div_ceil(u32::from(symbol_bytes).max(1));
        Demand { chunks, symbols_max, ranking: BTreeSet::new(), repairs: BTreeMap::new(), requests: 0 }
    }

    /// Counts a request, of which chunks that `is_served` names need nothing.
    pub(super) fn add(&mut self, request: &Request, is_served: impl Fn(u32) -> bool) -> CountedRequest {
        self.requests += 1;
        let number = self.requests;
        let is_open = |chunks: &[ChunkDemand], chunk: u32| {
            let is_in_flight = follows(Rule::FlightsCount)
                && chunks.get(chunk as usize).is_none_or(|demand| demand.sent > request.seen);
            !is_in_flight && !is_served(chunk)
        };
        let lacking: IndexSet =
            request.lacking.iter().take(REQUESTED_MAX).filter(|chunk| is_open(&self.chunks, *chunk)).collect();
        let mut symbols_left = REQUESTED_MAX;
        lacking.iter().for_each(|chunk| self.change(chunk, |machines| machines + 1));
        for begun in &request.begun {
            if !is_open(&self.chunks, begun.chunk) || self.machines(begun.chunk) > 0 {
                continue;
            }
            if !follows(Rule::PartsRepaired) {
                self.change(begun.chunk, |machines| machines + 1);
                continue;
            }
            let symbols = begun.missing.iter().take_while(|symbol| *symbol < self.symbols_max).take(symbols_left);
            let symbols: Vec<u16> = symbols.filter_map(|symbol| u16::try_from(symbol).ok()).collect();
            symbols_left -= symbols.len();
            let sent = self.chunks.get(begun.chunk as usize).map_or(0, |demand| demand.next_repair);
            // A claim of more would use up the repair symbols of the chunk.
            let far = sent.saturating_add(CODED_SYMBOLS_MAX);
            let has_room = self.repairs.len() < REPAIRS_MAX;
            match self.repairs.get_mut(&begun.chunk) {
                Some(repair) if repair.form == begun.form => repair.add(begun, symbols, far),
                // Machines have different forms of the chunk, so one of them has to begin anew.
                Some(_) => self.change(begun.chunk, |machines| machines + 1),
                None if has_room => {
                    let mut repair = Repair::new(begun.form);
                    repair.add(begun, symbols, far);
                    self.repairs.insert(begun.chunk, repair);
                }
                None => {}
            }
        }
        CountedRequest { number, lacking }
    }

    /// Takes back a request that another one replaces.
    pub(super) fn remove(&mut self, request: &CountedRequest) {
        for chunk in request.lacking.iter() {
            if self.chunks.get(chunk as usize).is_some_and(|demand| demand.answered < request.number) {
                self.change(chunk, |machines| machines.saturating_sub(1));
            }
        }
    }

    /// Ends the demand for a chunk: it is sent, or never can be. Returns its lacking symbols if only those are lacking.
    pub(super) fn answer(&mut self, chunk: u32) -> Option<Repair> {
        self.change(chunk, |_| 0);
        if let Some(demand) = self.chunks.get_mut(chunk as usize) {
            demand.answered = self.requests;
        }
        self.repairs.remove(&chunk)
    }

    /// Notes the sequence number of a packet of a chunk.
    pub(super) fn note_sent(&mut self, chunk: u32, sequence: u64) {
        if let Some(demand) = self.chunks.get_mut(chunk as usize) {
            demand.sent = sequence;
        }
    }

    /// Returns the number of the first repair symbol of a chunk that is new to all machines, by what was sent and what
    /// they say.
    pub(super) fn next_repair(&self, chunk: u32, repair: &Repair) -> u16 {
        self.chunks.get(chunk as usize).map_or(0, |demand| demand.next_repair).max(repair.next_repair)
    }

    /// Notes that repair symbols of a chunk have been sent up to this number; 0 once the chunk is sent as a whole,
    /// since machines need no earlier ones then.
    pub(super) fn note_repairs(&mut self, chunk: u32, end: u16) {
        if let Some(demand) = self.chunks.get_mut(chunk as usize) {
            demand.next_repair = end;
        }
    }

    /// Has a chunk sent as a whole, since nobody can complete the form that machines have.
    pub(super) fn begin_anew(&mut self, chunk: u32) {
        self.change(chunk, |machines| machines.max(1));
    }

    /// Returns how many machines lack all of a chunk.
    pub(super) fn machines(&self, chunk: u32) -> u32 {
        self.chunks.get(chunk as usize).map_or(0, |demand| demand.machines)
    }

    /// Returns whether a machine lacks a chunk, or symbols of it.
    pub(super) fn is_wanted(&self, chunk: u32) -> bool {
        self.machines(chunk) > 0 || self.repairs.contains_key(&chunk)
    }

    /// Returns the chunks that machines lack as a whole, in the order in which they are sent.
    pub(super) fn ranking(&self) -> &BTreeSet<ChunkRank> {
        &self.ranking
    }

    /// Returns the chunks of which only symbols are lacking.
    pub(super) fn repairs(&self) -> &BTreeMap<u32, Repair> {
        &self.repairs
    }

    /// Returns all chunks that will be sent.
    pub(super) fn queued(&self) -> IndexSet {
        let mut queued: Vec<u32> = self.ranking.iter().map(|rank| rank.chunk).collect();
        queued.extend(self.repairs.keys());
        queued.sort_unstable();
        queued.into_iter().collect()
    }

    /// Forgets all demand, once no machine lacks anything.
    pub(super) fn clear(&mut self) {
        let queued: Vec<u32> = self.queued().iter().collect();
        queued.into_iter().for_each(|chunk| _ = self.answer(chunk));
    }

    /// Changes the number of machines that lack all of a chunk.
    fn change(&mut self, chunk: u32, to: impl FnOnce(u32) -> u32) {
        let Some(demand) = self.chunks.get_mut(chunk as usize) else { return };
        let before = demand.machines;
        demand.machines = to(before);
        self.ranking.remove(&ChunkRank::new(before, chunk));
        if demand.machines > 0 {
            self.ranking.insert(ChunkRank::new(demand.machines, chunk));
            self.repairs.remove(&chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A datagram can name millions of chunks and symbols. Its machine has the key, and may lie.
    #[test]
    fn one_request_counts_for_bounded_numbers_of_chunks_and_symbols() {
        let mut demand = Demand::new(1 << 20, 1428);
        let begun =
            |chunk| BegunChunk { chunk, form: 1, needed: u16::MAX, next_repair: 0, missing: (0..1 << 16).collect() };
        let request = Request {
            left: 1,
            lacking: (100..1 << 20).collect(),
            begun: (0..100).map(begun).collect(),
            ..Request::default()
        };
        demand.add(&request, |_| false);
        assert_eq!(demand.ranking().len(), REQUESTED_MAX);
        let symbols = demand.repairs().values().map(|repair| repair.symbols.len());
        assert_eq!(symbols.clone().sum::<usize>(), REQUESTED_MAX);
        assert_eq!(symbols.max(), Some((4 << 20) / 1428 + 1), "a chunk has no further symbols");
        demand.add(&request, |_| false);
        assert_eq!(demand.repairs().values().map(|repair| repair.symbols.len()).sum::<usize>(), REQUESTED_MAX);
    }

    /// A machine can claim any repair symbols. Claims of those that the server cannot have sent would leave none.
    #[test]
    fn a_machine_that_claims_far_repair_symbols_does_not_use_them_up() {
        let mut demand = Demand::new(2, 1428);
        let mut request = |claims: &[u16]| {
            demand.answer(0);
            for next_repair in claims.iter().copied() {
                let begun = BegunChunk { chunk: 0, form: 1, needed: 8, next_repair, missing: IndexSet::default() };
                demand.add(&Request { left: 1, begun: vec![begun], ..Request::default() }, |_| false);
            }
            demand.next_repair(0, &demand.repairs()[&0])
        };
        assert_eq!(request(&[64_799, 20, u16::MAX]), 20);
        assert_eq!(request(&[4096, 0]), 4096, "a server that has started again knows nothing of its earlier symbols");
        demand.note_repairs(0, 30);
        assert_eq!(demand.next_repair(0, &Repair::new(1)), 30);
    }
}
