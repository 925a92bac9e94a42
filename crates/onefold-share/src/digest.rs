//! Digests of many blocks, computed by several threads while the caller reads on.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use onefold_block::zero::is_zero;
use onefold_block::{BLOCK_BYTES, Fingerprint, FingerprintKey};

use crate::format::Digest;

/// Read and digested at once.
pub const PIECE_BYTES: usize = 1 << 20;
/// Pieces that each thread has at once: one that it works on, one that waits.
const PIECES_PER_THREAD: usize = 2;

/// Whole blocks of a file, and their digests.
#[derive(Debug)]
pub struct Piece {
    /// Where it lies in the file, in bytes.
    pub offset: u64,
    /// The blocks.
    pub bytes: Vec<u8>,
    /// One for each block; none where it is zero.
    pub digests: Vec<Option<Digest>>,
}

impl Piece {
    fn digest(&mut self, key: &FingerprintKey) {
        digest_blocks(key, &self.bytes, &mut self.digests);
    }
}

/// Fills `into` with the digest of each whole block; none where it is zero.
pub(crate) fn digest_blocks(key: &FingerprintKey, bytes: &[u8], into: &mut Vec<Option<Digest>>) {
    let blocks: Vec<&[u8]> = bytes.chunks_exact(BLOCK_BYTES).filter(|block| !is_zero(block)).collect();
    let mut fingerprints = vec![Fingerprint::default(); blocks.len()];
    key.fingerprint_each(&blocks, &mut fingerprints);
    let mut fingerprints = fingerprints.into_iter();
    let blocks = bytes.chunks_exact(BLOCK_BYTES);
    into.clear();
    into.extend(blocks.map(|block| if is_zero(block) { None } else { fingerprints.next().map(Digest::of) }));
}

/// Digests pieces in the order in which they are given.
pub struct Digester<'scope> {
    key: FingerprintKey,
    workers: Vec<Worker>,
    /// Whose turn it is; without workers, the pieces themselves.
    pending: VecDeque<Pending>,
    next: usize,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
    _scope: std::marker::PhantomData<&'scope ()>,
}

struct Worker {
    to: SyncSender<Piece>,
    from: Receiver<Piece>,
}

enum Pending {
    With(usize),
    Done(Piece),
}

impl<'scope> Digester<'scope> {
    /// Returns a digester with threads of a scope of its caller's; with none, the caller does the work.
    pub fn new<'env>(
        key: &FingerprintKey,
        threads: usize,
        scope: &'scope thread::Scope<'scope, 'env>,
    ) -> Digester<'scope> {
        let workers = (0..threads).map(|_| {
            let (to, work) = sync_channel::<Piece>(PIECES_PER_THREAD);
            let (done, from) = sync_channel(PIECES_PER_THREAD);
            let key = key.clone();
            scope.spawn(move || {
                for mut piece in work {
                    piece.digest(&key);
                    if done.send(piece).is_err() {
                        return;
                    }
                }
            });
            Worker { to, from }
        });
        Digester {
            key: key.clone(),
            workers: workers.collect(),
            pending: VecDeque::new(),
            next: 0,
            spare: Vec::new(),
            _scope: std::marker::PhantomData,
        }
    }

    /// Tells whether another piece can be given without waiting for the first one.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.pending.len() < (self.workers.len() * PIECES_PER_THREAD).max(1)
    }

    /// Returns a buffer for a piece, with anything in it.
    #[must_use]
    pub fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Gives a piece, of whole blocks.
    ///
    /// # Panics
    /// When a thread has panicked.
    pub fn give(&mut self, offset: u64, bytes: Vec<u8>) {
        let mut piece = Piece { offset, bytes, digests: Vec::new() };
        if self.workers.is_empty() {
            piece.digest(&self.key);
            self.pending.push_back(Pending::Done(piece));
            return;
        }
        let turn = self.next;
        self.next = (self.next + 1) % self.workers.len();
        self.workers[turn].to.send(piece).expect("a worker ends after its channel");
        self.pending.push_back(Pending::With(turn));
    }

    /// Returns the first piece that was given and not returned, once it has its digests.
    ///
    /// # Panics
    /// When a thread has panicked.
    pub fn take(&mut self) -> Option<Piece> {
        Some(match self.pending.pop_front()? {
            Pending::Done(piece) => piece,
            Pending::With(turn) => self.workers[turn].from.recv().expect("a worker ends after its channel"),
        })
    }

    /// Gives a buffer back.
    pub fn give_back(&mut self, bytes: Vec<u8>) {
        // As it is: to fill a new one with zeros would take as long as to digest a part of it.
        self.spare.push(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: u8) -> Vec<u8> {
        vec![number; BLOCK_BYTES]
    }

    #[test]
    fn pieces_come_back_in_order_with_the_digests_of_their_blocks() {
        let key = FingerprintKey::new([7; 32]);
        for threads in [0, 1, 3] {
            thread::scope(|scope| {
                let mut digester = Digester::new(&key, threads, scope);
                let (mut given, mut taken) = (0_u8, 0_u8);
                while taken < 100 {
                    while given < 100 && digester.has_room() {
                        digester.give(u64::from(given), [block(given), block(0), block(given + 1)].concat());
                        given += 1;
                    }
                    let piece = digester.take().unwrap();
                    assert_eq!(piece.offset, u64::from(taken));
                    let digest = |number| Some(Digest::of(key.fingerprint(&block(number)))).filter(|_| number != 0);
                    assert_eq!(piece.digests, [digest(taken), None, digest(taken + 1)]);
                    digester.give_back(piece.bytes);
                    taken += 1;
                }
                assert!(digester.take().is_none());
            });
        }
    }
}
