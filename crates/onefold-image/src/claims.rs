//! Claims of chunks on the sectors of a disk: a sector belongs to at most one chunk.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::format::chunk_header::ChunkHeader;
use crate::{SECTOR_BYTES, SectorRun};

/// Sectors of one word of bits.
const WORD_SECTORS: u64 = 64;

/// The claimed sectors of a window of the disk, one bit each. Threads share it.
///
/// A disk of any length takes the same memory: if the window does not cover it, chunks that have sectors behind the
/// window claim again in the next one.
pub(crate) struct Claims {
    start: u64,
    /// End of the window.
    end: u64,
    /// Length of the disk.
    sectors: u64,
    window_sectors: u64,
    bits: Vec<AtomicU64>,
    behind: Mutex<Vec<Reach>>,
}

/// A chunk with sectors behind the window.
struct Reach {
    chunk: usize,
    /// The first of these sectors.
    first: u64,
}

impl Claims {
    /// Returns the claims on a disk of `size_bytes`, with a window that takes at most `memory_bytes`, or a word.
    pub(crate) fn new(size_bytes: u64, memory_bytes: u64) -> Claims {
        let sectors = size_bytes.div_ceil(SECTOR_BYTES);
        let words = (memory_bytes / size_of::<AtomicU64>() as u64).max(1).min(sectors.div_ceil(WORD_SECTORS));
        let window_sectors = words * WORD_SECTORS;
        let bits = (0..words).map(|_| AtomicU64::new(0)).collect();
        let end = window_sectors.min(sectors);
        Claims { start: 0, end, sectors, window_sectors, bits, behind: Mutex::default() }
    }

    /// Claims the sectors of a chunk that lie in the window. Returns false if another chunk has claimed one of them.
    /// All runs of the header must lie on the disk, and none may overlap another.
    pub(crate) fn claim(&self, chunk: usize, header: &ChunkHeader) -> bool {
        let runs = header.units.iter().flat_map(|unit| &unit.runs).chain(&header.zeros);
        let mut behind: Option<u64> = None;
        for run in runs {
            if run.end() > self.end {
                let first = run.start.max(self.end);
                behind = Some(behind.map_or(first, |before| before.min(first)));
            }
            if !self.take(*run) {
                return false;
            }
        }
        if let Some(first) = behind {
            self.behind.lock().push(Reach { chunk, first });
        }
        true
    }

    /// Sets the bits of a run within the window. Returns false if one was set.
    fn take(&self, run: SectorRun) -> bool {
        let (start, end) = (run.start.max(self.start), run.end().min(self.end));
        let mut at = start;
        while at < end {
            let (word, bit) = ((at - self.start) / WORD_SECTORS, (at - self.start) % WORD_SECTORS);
            let count = (WORD_SECTORS - bit).min(end - at);
            let mask = (u64::MAX >> (WORD_SECTORS - count)) << bit;
            let before = usize::try_from(word).ok().and_then(|word| self.bits.get(word));
            if before.is_some_and(|word| word.fetch_or(mask, Ordering::Relaxed) & mask != 0) {
                return false;
            }
            at += count;
        }
        true
    }

    /// Calls `each` with the runs of the window that no chunk has claimed, in order. The runs end with the window.
    ///
    /// # Errors
    /// The first of `each`.
    pub(crate) fn each_unclaimed<E>(&self, each: &mut dyn FnMut(SectorRun) -> Result<(), E>) -> Result<(), E> {
        let mut at = self.start;
        let mut free = SectorRun { start: at, count: 0 };
        while at < self.end {
            let (word, bit) = ((at - self.start) / WORD_SECTORS, (at - self.start) % WORD_SECTORS);
            let word = usize::try_from(word).ok().and_then(|word| self.bits.get(word));
            let bits = word.map_or(0, |word| word.load(Ordering::Relaxed)) >> bit;
            let left = (WORD_SECTORS - bit).min(self.end - at);
            let unclaimed = u64::from(bits.trailing_zeros()).min(left);
            free.count += unclaimed;
            at += unclaimed;
            if unclaimed < left {
                let claimed = u64::from((bits >> unclaimed).trailing_ones()).min(left - unclaimed);
                at += claimed;
                let run = mem::replace(&mut free, SectorRun { start: at, count: 0 });
                if run.count > 0 {
                    each(run)?;
                }
            }
        }
        if free.count > 0 { each(free) } else { Ok(()) }
    }

    /// Returns the sectors of the window.
    pub(crate) fn window(&self) -> std::ops::Range<u64> {
        self.start..self.end
    }

    /// Moves the window to the next sectors that chunks have. Returns these chunks, which must claim again; `None` if
    /// no chunk has a sector behind the window.
    pub(crate) fn next(&mut self) -> Option<Vec<usize>> {
        let behind = mem::take(self.behind.get_mut());
        self.start = behind.iter().map(|reach| reach.first).min()?;
        self.end = self.start.saturating_add(self.window_sectors).min(self.sectors);
        self.bits.iter_mut().for_each(|word| *word.get_mut() = 0);
        let (within, later): (Vec<Reach>, Vec<Reach>) = behind.into_iter().partition(|reach| reach.first < self.end);
        *self.behind.get_mut() = later;
        let mut chunks: Vec<usize> = within.into_iter().map(|reach| reach.chunk).collect();
        chunks.sort_unstable();
        Some(chunks)
    }
}

#[cfg(test)]
mod tests {
    use onefold_block::random::SeededRandom;

    use super::*;

    const SECTORS: u64 = 3000;

    /// Returns headers of random runs of zeros, and whether each sector belongs to one header at most.
    fn headers(random: &SeededRandom, is_disjoint: bool) -> (Vec<ChunkHeader>, bool) {
        let mut headers = vec![ChunkHeader::default(); 12];
        let mut owners = vec![0; usize::try_from(SECTORS).unwrap()];
        let mut at = 0;
        while at < SECTORS {
            let count = (1 + random.below(200)).min(SECTORS - at);
            let header = usize::try_from(random.below(13)).unwrap();
            if let Some(header) = headers.get_mut(header) {
                // A longer run enters the next one.
                let more = if !is_disjoint && random.below(20) == 0 { 1 } else { 0 };
                let run = SectorRun { start: at, count: (count + more).min(SECTORS - at) };
                let overlaps = header.zeros.last().is_some_and(|last| last.end() > at);
                if !overlaps {
                    header.zeros.push(run);
                    (run.start..run.end()).for_each(|sector| owners[usize::try_from(sector).unwrap()] += 1);
                }
            }
            at += count;
        }
        (headers, owners.iter().all(|owners| *owners <= 1))
    }

    fn claim_all(headers: &[ChunkHeader], memory_bytes: u64) -> bool {
        let mut claims = Claims::new(SECTORS * SECTOR_BYTES, memory_bytes);
        let mut chunks: Vec<usize> = (0..headers.len()).collect();
        loop {
            if !chunks.iter().all(|chunk| claims.claim(*chunk, &headers[*chunk])) {
                return false;
            }
            match claims.next() {
                Some(next) => chunks = next,
                None => return true,
            }
        }
    }

    #[test]
    fn a_sector_that_two_chunks_have_is_found_whatever_the_memory() {
        let mut counts = [0, 0];
        for seed in 0..200 {
            let random = SeededRandom::new(seed);
            let (headers, is_disjoint) = headers(&random, seed % 2 == 0);
            counts[usize::from(is_disjoint)] += 1;
            for memory_bytes in [0, 8, 17, 64, 200, 1 << 20] {
                assert_eq!(claim_all(&headers, memory_bytes), is_disjoint, "{seed} {memory_bytes}");
            }
        }
        assert!(counts.iter().all(|count| *count > 30), "{counts:?}");
    }

    #[test]
    fn unclaimed_sectors_are_those_of_no_chunk() {
        for seed in 0..60 {
            let (headers, _) = headers(&SeededRandom::new(seed), true);
            let mut expected = vec![true; usize::try_from(SECTORS).unwrap()];
            for run in headers.iter().flat_map(|header| &header.zeros) {
                (run.start..run.end()).for_each(|sector| expected[usize::try_from(sector).unwrap()] = false);
            }
            for memory_bytes in [0, 17, 200, 1 << 20] {
                let mut claims = Claims::new(SECTORS * SECTOR_BYTES, memory_bytes);
                let mut chunks: Vec<usize> = (0..headers.len()).collect();
                let mut found = vec![false; expected.len()];
                let mut end = 0;
                let mut last_end = 0;
                loop {
                    // Sectors between two windows are nobody's.
                    (end..claims.window().start).for_each(|at| found[usize::try_from(at).unwrap()] = true);
                    chunks.iter().for_each(|chunk| assert!(claims.claim(*chunk, &headers[*chunk])));
                    let each = &mut |run: SectorRun| {
                        assert!(run.count > 0 && run.start >= last_end && run.end() <= claims.window().end);
                        (run.start..run.end()).for_each(|at| found[usize::try_from(at).unwrap()] = true);
                        last_end = run.end();
                        Ok::<(), ()>(())
                    };
                    claims.each_unclaimed(each).unwrap();
                    end = claims.window().end;
                    let Some(next) = claims.next() else { break };
                    chunks = next;
                }
                (end..SECTORS).for_each(|at| found[usize::try_from(at).unwrap()] = true);
                assert!(found == expected, "{seed} {memory_bytes}");
            }
        }
    }

    #[test]
    fn a_chunk_is_claimed_again_only_in_windows_that_it_reaches() {
        let zeros = |runs: &[(u64, u64)]| ChunkHeader {
            zeros: runs.iter().map(|&(start, count)| SectorRun { start, count }).collect(),
            ..ChunkHeader::default()
        };
        let mut claims = Claims::new(1 << 50, 16);
        assert!(claims.claim(0, &zeros(&[(0, 100)])));
        assert!(claims.claim(1, &zeros(&[(100, 28)])));
        assert!(claims.claim(2, &zeros(&[(1 << 30, 5)])));
        assert!(claims.claim(3, &zeros(&[((1 << 30) + 5, 200), (1 << 40, 1)])));
        assert_eq!(claims.next(), Some(vec![2, 3]));
        assert!(claims.claim(2, &zeros(&[(1 << 30, 5)])));
        assert!(claims.claim(3, &zeros(&[((1 << 30) + 5, 200), (1 << 40, 1)])));
        assert_eq!(claims.next(), Some(vec![3]));
        assert!(claims.claim(3, &zeros(&[((1 << 30) + 5, 200), (1 << 40, 1)])));
        assert_eq!(claims.next(), Some(vec![3]));
        assert!(claims.claim(3, &zeros(&[((1 << 30) + 5, 200), (1 << 40, 1)])));
        assert_eq!(claims.next(), None);
    }
}
