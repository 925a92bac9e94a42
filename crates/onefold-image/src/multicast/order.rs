//! **Decides which chunk is sent next**, and which one is built next.
//!
//! 1. Symbols that begun chunks lack come first: few bytes make chunks complete, and free the memory of machines. But
//!    as soon as repairs have taken as many bytes as a chunk has, a whole chunk is next.
//! 2. Of whole chunks, cached ones are sent before others, and the chunk that most machines lack is first. Among
//!    equals, that is the one with the lowest index: disks are written in order.
//! 3. Chunks that are not cached are built in the same order, while others are sent.

use std::cmp::Reverse;

use super::demand::Demand;

/// The place of a chunk in the order in which whole chunks are sent: the lowest is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChunkRank {
    machines: Reverse<u32>,
    /// Index of the chunk.
    pub(super) chunk: u32,
}

impl ChunkRank {
    /// Returns the place of a chunk that so many machines lack.
    pub(super) fn new(machines: u32, chunk: u32) -> ChunkRank {
        ChunkRank { machines: Reverse(machines), chunk }
    }
}

/// Bytes of repairs since the last whole chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RepairShare {
    bytes: usize,
    chunk_bytes: usize,
}

impl RepairShare {
    /// Counts the bytes of a transmission.
    pub(super) fn add(&mut self, is_whole: bool, bytes: usize) {
        *self = if is_whole {
            RepairShare { bytes: 0, chunk_bytes: bytes }
        } else {
            RepairShare { bytes: self.bytes.saturating_add(bytes), ..*self }
        };
    }

    fn is_used_up(self) -> bool {
        self.bytes > self.chunk_bytes
    }
}

/// Returns the chunk that is sent next, of those that are `cached` in memory.
pub(super) fn next_to_send(demand: &Demand, cached: impl Iterator<Item = u32>, share: RepairShare) -> Option<u32> {
    let (mut whole, mut repair) = (None::<ChunkRank>, None::<u32>);
    for chunk in cached {
        match demand.machines(chunk) {
            0 if demand.repairs().contains_key(&chunk) => repair = repair.into_iter().chain([chunk]).min(),
            0 => {}
            machines => whole = whole.into_iter().chain([ChunkRank::new(machines, chunk)]).min(),
        }
    }
    let whole = whole.map(|rank| rank.chunk);
    if share.is_used_up() { whole.or(repair) } else { repair.or(whole) }
}

/// Returns the chunk that is built next: of those that are neither cached nor being built.
pub(super) fn next_to_build(demand: &Demand, is_there: impl Fn(u32) -> bool) -> Option<u32> {
    let whole = demand.ranking().iter().map(|rank| rank.chunk).find(|chunk| !is_there(*chunk));
    whole.or_else(|| demand.repairs().keys().copied().find(|chunk| !is_there(*chunk)))
}
