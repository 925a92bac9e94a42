//! The pass over the data: reads each piece of each image once, and makes records of its blocks in all sizes.

use std::ops::ControlFlow;
use std::thread;

use onefold_block::zero::is_zero;
use onefold_block::{AlignedBuffer, BLOCK_BYTES, Fingerprint, FingerprintKey};
use onefold_disk::Disk;
use parking_lot::Mutex;

use crate::claims::{Claim, ClaimQueue, HashedPiece, Source, Wait};
use crate::map_nodes::MapNodes;
use crate::record::{Content, Record};
use crate::scan_error::ScanError;
use crate::sizes::{Joiner, PIECE_BLOCKS, PIECE_BYTES, SIZES};
use onefold_sort::SortBatch;

/// The blocks of a disk to record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    /// Variant of the 4 KiB blocks. Larger sizes have the variants after it.
    pub(crate) variant: u8,
    /// Number of sizes, from 4 KiB on.
    pub(crate) sizes: u8,
}

impl Grid {
    /// The blocks at their original places, in all sizes.
    pub(crate) fn plain() -> Grid {
        Grid { variant: 0, sizes: SIZES }
    }

    /// The blocks of an image after `steps` sectors of zeros, in all sizes.
    pub(crate) fn shifted(steps: u8) -> Grid {
        Grid { variant: steps * SHIFT_VARIANTS, sizes: SIZES }
    }

    /// The 4 KiB blocks of an image after its partitions, or data areas within them, were moved.
    pub(crate) fn realigned() -> Grid {
        Grid { variant: 0, sizes: 1 }
    }
}

/// Distance between the variants of one shift and those of the next.
pub(crate) const SHIFT_VARIANTS: u8 = 16;
const _: () = assert!(SIZES <= SHIFT_VARIANTS);

/// Computes the contents of bytes.
pub(crate) struct Hasher {
    blocks: FingerprintKey,
    joiner: Joiner,
}

impl Hasher {
    /// Returns the hasher of one analysis. `key` is secret, so that nobody can prepare blocks that look equal.
    pub(crate) fn new(key: [u8; 32]) -> Hasher {
        Hasher { blocks: FingerprintKey::new(key), joiner: Joiner::new(blake3::derive_key(JOIN_CONTEXT, &key)) }
    }
}

/// Separates fingerprints of bytes from fingerprints of fingerprints.
const JOIN_CONTEXT: &str = "onefold 2026-11-22 analysis, blocks of two blocks";

/// Result of a pass over one image, besides records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScanResult {
    pub(crate) size_bytes: u64,
    /// Bytes that were read: all that may hold data.
    pub(crate) read_bytes: u64,
    /// Nodes of the image's map in a pool.
    pub(crate) map_nodes: u64,
}

/// Passes over `disk` with one thread for each of `batches`. `source` provides the other fields of records besides
/// contents. `progress` receives the position in the image.
pub(crate) fn scan(
    disk: &dyn Disk,
    image: usize,
    grid: Grid,
    hasher: &Hasher,
    source: Source<'_>,
    batches: &mut [SortBatch<'_>],
    progress: &(dyn Fn(u64) -> ControlFlow<()> + Sync),
) -> Result<ScanResult, ScanError> {
    let cursor = Mutex::new(Cursor {
        offset: 0,
        read_bytes: 0,
        nodes: MapNodes::default(),
        claims: ClaimQueue::new(source),
        ended: None,
    });
    let scan = Scan { disk, image, grid, hasher, cursor: &cursor, progress };
    thread::scope(|scope| {
        let mut batches = batches.iter_mut();
        let own = batches.next();
        for batch in batches {
            scope.spawn(|| scan.work(batch));
        }
        if let Some(batch) = own {
            scan.work(batch);
        }
    });
    let cursor = cursor.into_inner();
    match cursor.ended {
        Some(error) => Err(error),
        None => Ok(ScanResult {
            size_bytes: disk.size_bytes(),
            read_bytes: cursor.read_bytes,
            map_nodes: cursor.nodes.count(),
        }),
    }
}

/// Progress of the threads.
struct Cursor<'a> {
    offset: u64,
    read_bytes: u64,
    nodes: MapNodes,
    claims: ClaimQueue<'a>,
    /// The reason why all threads stop.
    ended: Option<ScanError>,
}

/// The next step of a thread.
enum Step {
    /// Read the piece at this byte. Its claim may not be known yet.
    Read(u64, Option<Claim>),
    /// Make records of contents that waited for their claim.
    Record(HashedPiece, Claim),
    /// All work is done.
    End,
}

/// State that the threads share.
struct Scan<'a, 'c> {
    disk: &'a dyn Disk,
    image: usize,
    grid: Grid,
    hasher: &'a Hasher,
    cursor: &'a Mutex<Cursor<'c>>,
    progress: &'a (dyn Fn(u64) -> ControlFlow<()> + Sync),
}

impl Scan<'_, '_> {
    /// Processes pieces until none is left or a thread has failed.
    fn work(&self, batch: &mut SortBatch<'_>) {
        let mut buffer = AlignedBuffer::zeroed(PIECE_BLOCKS);
        loop {
            let outcome = match self.next_step() {
                Step::Read(start, claim) => self.piece(start, claim, &mut buffer, batch),
                Step::Record(hashed, claim) => self.record(hashed, &claim, batch),
                Step::End => return,
            };
            if let Err(error) = outcome {
                self.cursor.lock().ended.get_or_insert(error);
                return;
            }
        }
    }

    /// Returns the next step of a thread. An error stops all threads. It is stored before another thread can ask,
    /// because that thread would fail too, for a reason that follows from the first.
    fn next_step(&self) -> Step {
        let mut cursor = self.cursor.lock();
        self.step_from(&mut cursor).unwrap_or_else(|error| {
            cursor.ended.get_or_insert(error);
            Step::End
        })
    }

    fn step_from(&self, cursor: &mut Cursor<'_>) -> Result<Step, ScanError> {
        loop {
            if cursor.ended.is_some() {
                return Ok(Step::End);
            }
            cursor.claims.arrive(Wait::No)?;
            if let Some((hashed, claim)) = cursor.claims.next_held() {
                return Ok(Step::Record(hashed, claim));
            }
            if !cursor.claims.is_full()
                && let Some(start) = self.next_piece(cursor)?
            {
                let claim = cursor.claims.piece(start / BLOCK_BYTES as u64)?;
                return Ok(Step::Read(start, claim));
            }
            if !cursor.claims.is_waiting() {
                return Ok(Step::End);
            }
            // No piece is left to read while waiting. Threads that still hash a piece wait for the lock, and get their
            // claims afterwards.
            cursor.claims.arrive(Wait::Yes)?;
        }
    }

    /// Returns the first byte of the next piece that may hold data.
    fn next_piece(&self, cursor: &mut Cursor<'_>) -> Result<Option<u64>, ScanError> {
        if cursor.offset >= self.disk.size_bytes() {
            return Ok(None);
        }
        let Some(data) = self.disk.next_data(cursor.offset).map_err(ScanError::Disk)? else {
            return Ok(None);
        };
        let start = data.start / PIECE_BYTES * PIECE_BYTES;
        let end = start.saturating_add(PIECE_BYTES);
        cursor.offset = end;
        cursor.read_bytes += end.min(self.disk.size_bytes()).saturating_sub(start);
        match (self.progress)(start) {
            ControlFlow::Continue(()) => Ok(Some(start)),
            ControlFlow::Break(()) => Err(ScanError::Interrupted),
        }
    }

    fn piece(
        &self,
        start: u64,
        claim: Option<Claim>,
        buffer: &mut AlignedBuffer,
        batch: &mut SortBatch<'_>,
    ) -> Result<(), ScanError> {
        let left = self.disk.size_bytes().saturating_sub(start);
        let length = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        // The image's last block may be short. The missing bytes count as zeros.
        buffer[length..].fill(0);
        self.disk.read(start, &mut buffer[..length]).map_err(ScanError::Disk)?;
        let hashed = HashedPiece { first: start / BLOCK_BYTES as u64, contents: self.contents(buffer) };
        self.note_mapped(&hashed);
        let claimed = match claim {
            Some(claim) => Some((hashed, claim)),
            None => self.cursor.lock().claims.claimed(hashed),
        };
        claimed.map_or(Ok(()), |(hashed, claim)| self.record(hashed, &claim, batch))
    }

    /// Makes records of the blocks of a piece, in all sizes.
    fn record(&self, hashed: HashedPiece, claim: &Claim, batch: &mut SortBatch<'_>) -> Result<(), ScanError> {
        let HashedPiece { first, contents: mut level } = hashed;
        for size in 0..self.grid.sizes {
            if size > 0 {
                self.hasher.joiner.join(&mut level);
            }
            for (at, content) in level.iter().enumerate() {
                let Some(content) = *content else { continue };
                let (variant, lists) = (self.grid.variant + size, claim.lists);
                let owner = if size == 0 { claim.owner(at) } else { 0 };
                let index = (first >> size) + at as u64;
                let record = Record { variant, content, image: self.image, index, lists, owner };
                batch.push(record.encode()).map_err(ScanError::Spill)?;
            }
        }
        Ok(())
    }

    /// Returns the content of each block, `None` for zeros.
    fn contents(&self, bytes: &[u8]) -> Vec<Option<Content>> {
        let mut places = Vec::with_capacity(PIECE_BLOCKS);
        let mut blocks = Vec::with_capacity(PIECE_BLOCKS);
        for (at, block) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
            if !is_zero(block) {
                places.push(at);
                blocks.push(block);
            }
        }
        let mut fingerprints = vec![Fingerprint::default(); blocks.len()];
        self.hasher.blocks.fingerprint_each(&blocks, &mut fingerprints);
        let mut contents = vec![None; bytes.len() / BLOCK_BYTES];
        for (at, fingerprint) in places.into_iter().zip(fingerprints) {
            contents[at] = Some(Content::of_digest(fingerprint.0));
        }
        contents
    }

    fn note_mapped(&self, hashed: &HashedPiece) {
        let mut cursor = self.cursor.lock();
        for (index, content) in (hashed.first..).zip(&hashed.contents) {
            if content.is_some() {
                cursor.nodes.note(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use onefold_disk::DiskError;

    use super::*;

    struct Zeros;

    impl Disk for Zeros {
        fn size_bytes(&self) -> u64 {
            8 * PIECE_BYTES
        }

        fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
            Ok(Some(offset..self.size_bytes()))
        }

        fn read(&self, _: u64, into: &mut [u8]) -> Result<(), DiskError> {
            into.fill(0);
            Ok(())
        }
    }

    /// The claims cannot be read. Regression: a second thread that came before the first one had reported the reason
    /// found the survey gone, and reported an interruption.
    #[test]
    fn the_reason_is_that_of_the_thread_that_fails_first() {
        let mut is_asked = false;
        let mut ask = |_: Wait| {
            if std::mem::replace(&mut is_asked, true) { Err(ScanError::Interrupted) } else { Err(ScanError::TooLong) }
        };
        let cursor = Mutex::new(Cursor {
            offset: 0,
            read_bytes: 0,
            nodes: MapNodes::default(),
            claims: ClaimQueue::new(Source::Awaited { ask: &mut ask, held_bytes: 0 }),
            ended: None,
        });
        let hasher = Hasher::new([1; 32]);
        let progress = |_| ControlFlow::Continue(());
        let scan =
            Scan { disk: &Zeros, image: 0, grid: Grid::plain(), hasher: &hasher, cursor: &cursor, progress: &progress };
        // Both threads take a step before either continues.
        let steps = [scan.next_step(), scan.next_step()];
        assert!(matches!(cursor.lock().ended, Some(ScanError::TooLong)));
        assert!(steps.iter().all(|step| matches!(step, Step::End)));
    }
}
