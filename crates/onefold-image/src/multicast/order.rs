//! **Decides which chunk is sent next**, and which one is built next.
//!
//! 1. Symbols that begun chunks lack come first: few bytes make chunks complete, and free the memory of machines. But
//!    as soon as repairs have taken as many bytes as a chunk has, a whole chunk is next.
//! 2. Of whole chunks, cached ones are sent before others, and the chunk that most machines lack is first. Among
//!    equals, that is the one with the lowest index: disks are written in order.
//! 3. Chunks that are not cached are built in the same order, while others are sent.

use super::demand::Demand;
use super::rank::ChunkRank;

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

/// Returns the chunk that is sent next, of those that are `cached` in memory with what is to be sent of them.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::multicast::{BegunChunk, Request};

    fn demand(lacking: &[&[u32]], begun: &[u32]) -> Demand {
        let mut demand = Demand::new(10, 1428);
        for lacking in lacking {
            let request = Request { left: 10, lacking: lacking.iter().copied().collect(), ..Request::default() };
            demand.add(&request, |_| false);
        }
        let missing = [1].into_iter().collect();
        let begun = begun.iter().map(|chunk| BegunChunk {
            chunk: *chunk,
            form: 1,
            needed: 1,
            next_repair: 0,
            missing: Clone::clone(&missing),
        });
        let request = Request { left: 10, begun: begun.collect(), ..Request::default() };
        demand.add(&request, |_| false);
        demand
    }

    fn next(demand: &Demand, cached: &[u32], share: RepairShare) -> Option<u32> {
        next_to_send(demand, cached.iter().copied(), share)
    }

    #[test]
    fn the_chunk_that_most_machines_lack_is_first_and_then_the_first_on_the_disk() {
        let demand = demand(&[&[1, 2, 3, 7], &[2, 3, 7], &[7]], &[]);
        let share = RepairShare::default();
        assert_eq!(next(&demand, &[1, 2, 3, 7], share), Some(7));
        assert_eq!(next(&demand, &[1, 2, 3], share), Some(2));
        assert_eq!(next(&demand, &[1, 5], share), Some(1), "cached ones are not kept waiting");
        assert_eq!(next(&demand, &[5], share), None);
        assert_eq!(next_to_build(&demand, |chunk| chunk == 7), Some(2));
    }

    #[test]
    fn repairs_come_first_and_take_no_more_than_half() {
        let demand = demand(&[&[1, 2], &[1]], &[4, 5]);
        let mut share = RepairShare::default();
        assert_eq!(next(&demand, &[1, 4, 5], share), Some(4));
        share.add(true, 1000);
        share.add(false, 1000);
        assert_eq!(next(&demand, &[1, 4, 5], share), Some(4));
        share.add(false, 1);
        assert_eq!(next(&demand, &[1, 4, 5], share), Some(1));
        assert_eq!(next(&demand, &[4, 5], share), Some(4), "nothing else is to be sent");
        share.add(true, 1000);
        assert_eq!(next(&demand, &[1, 4, 5], share), Some(4));
        assert_eq!(next_to_build(&demand, |chunk| chunk < 3), Some(4));
    }
}
