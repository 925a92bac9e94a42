//! Digests of many blocks. Several threads read and compute them while the caller goes on.
//!
//! Threads that read by themselves keep several requests at the disk.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use onefold_block::zero::is_zero;
use onefold_block::{BLOCK_BYTES, Fingerprint, FingerprintKey};
use onefold_substrate::Reader;

use crate::format::FingerprintPrefix;

/// Size of a piece that is read and digested at once.
pub(crate) const PIECE_BYTES: usize = 1 << 20;
/// Pieces of each thread: one being processed, and one waiting.
const PIECES_PER_THREAD: usize = 2;
/// Upper bound; more threads would only monopolise the disk.
const THREADS_MAX: usize = 4;

/// Whole blocks of a file, and their digests.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The blocks that could be read. A partial block at the end of the file is left out.
    bytes: Vec<u8>,
    /// One for each block; `None` if the block is zero.
    pub digests: Vec<Option<FingerprintPrefix>>,
    /// Number of bytes that were read.
    pub read_bytes: u64,
    /// Blocks that could not be read, as disjoint ranges of offsets in the file, in order. Their digests are
    /// meaningless.
    pub failed: Vec<Range<u64>>,
    /// Why the first of them could not be read.
    pub why: Option<io::Error>,
}

/// Size of the parts in which a failed larger read is tried again, in bytes.
const PART_BYTES: usize = 64 << 10;
/// Maximum number of unreadable blocks of a piece, after which the rest is given up: each may have taken a disk
/// seconds.
const FAILED_BLOCKS_MAX: usize = 16;

impl Piece {
    /// Reads its blocks; the buffer has the length to be read. If that fails, it is tried in parts, so that only
    /// unreadable blocks are missing.
    fn read(&mut self, read: impl Fn(u64, &mut [u8]) -> io::Result<usize>) {
        let count = match read(self.offset, &mut self.bytes) {
            Ok(count) => count,
            Err(why) => {
                self.why = Some(why);
                self.read_in_parts(&read)
            }
        };
        let failed: u64 = self.failed.iter().map(|range| range.end - range.start).sum();
        self.read_bytes = (count as u64).saturating_sub(failed);
        self.bytes.truncate(count / BLOCK_BYTES * BLOCK_BYTES);
        let end = self.offset + self.bytes.len() as u64;
        self.failed.retain_mut(|range| {
            range.end = range.end.min(end);
            !range.is_empty()
        });
        if self.failed.is_empty() {
            self.why = None;
        }
    }

    /// Reads part by part, and a failing part block by block. Returns the length, including unreadable blocks.
    fn read_in_parts(&mut self, read: &impl Fn(u64, &mut [u8]) -> io::Result<usize>) -> usize {
        let (length, mut failures) = (self.bytes.len(), 0);
        for part in (0..length).step_by(PART_BYTES) {
            let end = (part + PART_BYTES).min(length);
            match read(self.offset + part as u64, &mut self.bytes[part..end]) {
                Ok(count) if count < end - part => return part + count,
                Ok(_) => continue,
                Err(_) => {}
            }
            for block in (part..end).step_by(BLOCK_BYTES) {
                let block_end = (block + BLOCK_BYTES).min(end);
                let given_up = failures >= FAILED_BLOCKS_MAX;
                let into = &mut self.bytes[block..block_end];
                match if given_up { Err(io::ErrorKind::Other.into()) } else { read(self.offset + block as u64, into) } {
                    Ok(count) if count < block_end - block => return block + count,
                    Ok(_) => {}
                    Err(_) => {
                        into.fill(0);
                        failures += 1;
                        let (from, to) = (self.offset + block as u64, self.offset + block_end as u64);
                        match self.failed.last_mut() {
                            Some(last) if last.end == from => last.end = to,
                            _ => self.failed.push(from..to),
                        }
                    }
                }
            }
        }
        length
    }

    /// Returns whether a block, given by its offset in the file, could be read.
    #[must_use]
    pub(crate) fn is_read(&self, offset: u64) -> bool {
        !self.failed.iter().any(|range| range.contains(&offset))
    }

    fn digest(&mut self, key: &FingerprintKey) {
        digest_blocks(key, &self.bytes, &mut self.digests);
    }
}

/// Fills `into` with the digest of each whole block; `None` if the block is zero.
pub(crate) fn digest_blocks(key: &FingerprintKey, bytes: &[u8], into: &mut Vec<Option<FingerprintPrefix>>) {
    let blocks: Vec<&[u8]> = bytes.chunks_exact(BLOCK_BYTES).filter(|block| !is_zero(block)).collect();
    let mut fingerprints = vec![Fingerprint::default(); blocks.len()];
    key.fingerprint_each(&blocks, &mut fingerprints);
    let mut fingerprints = fingerprints.into_iter();
    let blocks = bytes.chunks_exact(BLOCK_BYTES);
    into.clear();
    into.extend(blocks.map(|block| if is_zero(block) { None } else { fingerprints.next().map(FingerprintPrefix::of) }));
}

/// Reads and digests pieces in the order in which they are requested.
pub(crate) struct Digester<'scope> {
    workers: Vec<Worker>,
    /// The order of the workers' turns or, without workers, the pieces themselves.
    pending: VecDeque<PendingPiece>,
    next: usize,
    /// Pieces for reuse: filling a new one with zeros would take as long as digesting a part of it.
    spare: Vec<Piece>,
    _scope: std::marker::PhantomData<&'scope ()>,
}

/// A piece to be digested, the key for it, and its reader, unless it was read.
type Job = (Piece, FingerprintKey, Option<Arc<dyn Reader>>);

struct Worker {
    to: SyncSender<Job>,
    from: Receiver<Piece>,
}

enum PendingPiece {
    With(usize),
    Done(Piece),
}

impl<'scope> Digester<'scope> {
    /// Returns a digester with threads of a scope of its caller. With none, the caller does the work.
    pub(crate) fn new<'env>(threads: usize, scope: &'scope thread::Scope<'scope, 'env>) -> Digester<'scope> {
        let workers = (0..threads.min(THREADS_MAX)).map(|_| {
            let (to, work) = sync_channel::<Job>(PIECES_PER_THREAD);
            let (done, from) = sync_channel(PIECES_PER_THREAD);
            scope.spawn(move || {
                for (mut piece, key, reader) in work {
                    if let Some(reader) = reader {
                        piece.read(|offset, into| reader.read_at(offset, into));
                    }
                    piece.digest(&key);
                    if done.send(piece).is_err() {
                        return;
                    }
                }
            });
            Worker { to, from }
        });
        Digester {
            workers: workers.collect(),
            pending: VecDeque::new(),
            next: 0,
            spare: Vec::new(),
            _scope: std::marker::PhantomData,
        }
    }

    /// Returns whether another piece can be requested without waiting for the first one.
    #[must_use]
    pub(crate) fn has_room(&self) -> bool {
        self.pending.len() < (self.workers.len() * PIECES_PER_THREAD).max(1)
    }

    /// Requests `length` bytes of a file from an offset on, in whole blocks, and their digests by a key. There has to
    /// be room for them. A thread reads them by `reader`. If there is no reader, or no thread, the caller reads them by
    /// `read`.
    ///
    /// # Panics
    /// If a thread has panicked.
    pub(crate) fn ask(
        &mut self,
        key: &FingerprintKey,
        offset: u64,
        length: usize,
        reader: Option<&Arc<dyn Reader>>,
        read: impl Fn(u64, &mut [u8]) -> io::Result<usize>,
    ) {
        debug_assert!(self.has_room(), "nobody takes what was asked for");
        let spare = self.spare.pop().unwrap_or_default();
        let mut piece = Piece { offset, read_bytes: 0, why: None, ..spare };
        piece.failed.clear();
        piece.bytes.resize(length, 0);
        let reader = reader.filter(|_| !self.workers.is_empty()).map(Arc::clone);
        match &reader {
            // Some pieces are ahead of it.
            Some(reader) => reader.prefetch(offset, length as u64),
            None => piece.read(read),
        }
        if self.workers.is_empty() {
            piece.digest(key);
            self.pending.push_back(PendingPiece::Done(piece));
            return;
        }
        let turn = self.next;
        self.next = (self.next + 1) % self.workers.len();
        self.workers[turn].to.send((piece, key.clone(), reader)).expect("a worker ends after its channel");
        self.pending.push_back(PendingPiece::With(turn));
    }

    /// Adds a piece whose digests are known, behind the requested ones. There has to be room for it.
    pub(crate) fn put(&mut self, offset: u64, digests: Vec<Option<FingerprintPrefix>>) {
        let mut piece = Piece { offset, read_bytes: 0, why: None, digests, ..self.spare.pop().unwrap_or_default() };
        piece.failed.clear();
        self.pending.push_back(PendingPiece::Done(piece));
    }

    /// Returns the first requested piece that was not returned yet, once it has its digests.
    ///
    /// # Panics
    /// If a thread has panicked.
    pub(crate) fn take(&mut self) -> Option<Piece> {
        Some(match self.pending.pop_front()? {
            PendingPiece::Done(piece) => piece,
            PendingPiece::With(turn) => self.workers[turn].from.recv().expect("a worker ends after its channel"),
        })
    }

    /// Returns a piece to the digester, which reuses its memory.
    pub(crate) fn give_back(&mut self, piece: Piece) {
        self.spare.push(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: u8) -> Vec<u8> {
        vec![number; BLOCK_BYTES]
    }

    /// A file of a block of 1, zeros, a block of 2, zeros and so on, and half a block at the end.
    struct StripedFile;

    const BLOCKS: u64 = 200;
    const FAILS_AT: u64 = 40;

    impl Reader for StripedFile {
        fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
            let end = BLOCKS * BLOCK_BYTES as u64 + 2048;
            let count = into.len().min(usize::try_from(end.saturating_sub(offset)).unwrap());
            let first = offset / BLOCK_BYTES as u64;
            if (first..).zip(into.chunks(BLOCK_BYTES)).any(|(number, _)| number == FAILS_AT + 1) {
                return Err(io::ErrorKind::Other.into());
            }
            for (number, into) in (first..).zip(into[..count].chunks_mut(BLOCK_BYTES)) {
                into.fill(if number % 2 == 0 { u8::try_from(number / 2 + 1).unwrap() } else { 0 });
            }
            Ok(count)
        }
    }

    #[test]
    fn pieces_come_back_in_order_with_the_digests_of_their_blocks_from_any_reader() {
        let key = FingerprintKey::new([7; 32]);
        let reader: Arc<dyn Reader> = Arc::new(StripedFile);
        for (threads, has_reader) in [(0, false), (0, true), (1, false), (1, true), (3, false), (3, true)] {
            thread::scope(|scope| {
                let mut digester = Digester::new(threads, scope);
                let (mut asked, mut taken) = (0, 0);
                while taken <= BLOCKS {
                    while asked <= BLOCKS && digester.has_room() {
                        let offset = asked * BLOCK_BYTES as u64;
                        let read = |offset, into: &mut [u8]| StripedFile.read_at(offset, into);
                        digester.ask(&key, offset, 4 * BLOCK_BYTES, has_reader.then_some(&reader), read);
                        asked += 4;
                    }
                    let piece = digester.take().unwrap();
                    assert_eq!(piece.offset, taken * BLOCK_BYTES as u64);
                    let digest = |number| Some(FingerprintPrefix::of(key.fingerprint(&block(number))));
                    let number = u8::try_from(taken / 2 + 1).unwrap();
                    let (digests, read_bytes) = match taken {
                        // Half a block is read, but does not count.
                        BLOCKS => (vec![], 2048),
                        // One block fails, and the others are there.
                        FAILS_AT => (vec![digest(number), None, digest(number + 1), None], 3 * BLOCK_BYTES as u64),
                        _ => (vec![digest(number), None, digest(number + 1), None], 4 * BLOCK_BYTES as u64),
                    };
                    assert_eq!(piece.digests, digests, "{threads} threads, block {taken}");
                    assert_eq!(piece.read_bytes, read_bytes);
                    assert_eq!(piece.why.is_some(), taken == FAILS_AT);
                    let failed: Vec<u64> =
                        (taken..taken + 4).filter(|block| !piece.is_read(block * BLOCK_BYTES as u64)).collect();
                    assert_eq!(failed, if taken == FAILS_AT { vec![FAILS_AT + 1] } else { vec![] });
                    digester.give_back(piece);
                    taken += 4;
                }
                assert!(digester.take().is_none());
            });
        }
    }
}
