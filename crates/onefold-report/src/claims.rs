//! Additional fields of the records of a piece besides contents: their lists, and the owners of the blocks.
//!
//! Both come from the survey of the image. If the survey is still running while the blocks are read, contents wait for
//! it here, within a memory limit.

use std::collections::BTreeMap;
use std::io;

use crate::files::{BlockOwners, PieceOwners};
use crate::record::{Content, ListSet};
use crate::scan_error::ScanError;
use crate::sizes::PIECE_BLOCKS;

/// Memory of a waiting piece, in addition to the memory of its vector and its owners.
const HELD_PIECE_BYTES: usize = PIECE_BLOCKS * size_of::<Option<Content>>() + size_of::<PieceOwners>() + 256;

/// Lists and owners for the records of a piece.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) lists: ListSet,
    owners: Option<PieceOwners>,
}

impl Claim {
    /// Returns the owner of a block, by its index in the piece.
    pub(crate) fn owner(&self, block: usize) -> u16 {
        self.owners.as_ref().and_then(|owners| owners.get(block)).copied().unwrap_or(0)
    }
}

/// The claims of all pieces of an image.
pub(crate) struct Claims {
    lists: ListSet,
    owners: Option<BlockOwners>,
}

impl Claims {
    /// Returns claims of these lists and owners. Without owners, all blocks belong to owner 0.
    pub(crate) fn new(lists: ListSet, owners: Option<BlockOwners>) -> Claims {
        Claims { lists, owners }
    }

    /// Returns the claim of the piece that begins at block `first`. It must come after all earlier pieces.
    fn piece(&mut self, first: u64) -> io::Result<Claim> {
        let owners = self.owners.as_mut().map(|owners| owners.piece(first)).transpose()?;
        Ok(Claim { lists: self.lists, owners })
    }
}

/// Whether to wait for the survey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Return immediately.
    No,
    /// Wait for the survey to finish.
    Yes,
}

/// Returns the claims of an image once its survey is over. Returns `None` only if the survey is still running and the
/// caller must not wait.
pub(crate) type ClaimsQuery<'a> = &'a mut (dyn FnMut(Wait) -> Result<Option<Claims>, ScanError> + Send);

/// Origin of the claims.
pub(crate) enum Source<'a> {
    /// The claims are known.
    Known(Claims),
    /// A running survey will provide them. Until then, contents may take about `held_bytes`.
    Awaited { ask: ClaimsQuery<'a>, held_bytes: usize },
}

/// The contents of the blocks of a piece; `None` for zeros.
#[derive(Debug)]
pub(crate) struct HashedPiece {
    /// The first block.
    pub(crate) first: u64,
    pub(crate) contents: Vec<Option<Content>>,
}

/// Assigns claims to pieces. Pieces come in the order of the disk, and their contents in any order.
pub(crate) struct ClaimQueue<'a> {
    source: Source<'a>,
    /// Pieces that came before there were claims, by their first blocks.
    unclaimed: Vec<u64>,
    /// The claims of these pieces, once they are known.
    claims: BTreeMap<u64, Claim>,
    held: Vec<HashedPiece>,
}

impl<'a> ClaimQueue<'a> {
    pub(crate) fn new(source: Source<'a>) -> ClaimQueue<'a> {
        ClaimQueue { source, unclaimed: Vec::new(), claims: BTreeMap::new(), held: Vec::new() }
    }

    /// Returns whether there are no claims yet.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.source, Source::Awaited { .. })
    }

    /// Returns whether the queue accepts no further pieces until there are claims.
    pub(crate) fn is_full(&self) -> bool {
        match &self.source {
            Source::Known(_) => false,
            Source::Awaited { held_bytes, .. } => self.unclaimed.len() >= (held_bytes / HELD_PIECE_BYTES).max(1),
        }
    }

    /// Fetches the claims if there were none and the survey is over.
    ///
    /// # Errors
    /// Those of the survey.
    pub(crate) fn arrive(&mut self, wait: Wait) -> Result<(), ScanError> {
        let Source::Awaited { ask, .. } = &mut self.source else { return Ok(()) };
        let Some(mut claims) = ask(wait)? else { return Ok(()) };
        for first in self.unclaimed.drain(..) {
            self.claims.insert(first, claims.piece(first).map_err(ScanError::Spill)?);
        }
        self.source = Source::Known(claims);
        Ok(())
    }

    /// Returns the claim of the next piece; `None` if it is not known yet.
    ///
    /// # Errors
    /// Those of temporary files.
    pub(crate) fn piece(&mut self, first: u64) -> Result<Option<Claim>, ScanError> {
        match &mut self.source {
            Source::Known(claims) => claims.piece(first).map(Some).map_err(ScanError::Spill),
            Source::Awaited { .. } => {
                self.unclaimed.push(first);
                Ok(None)
            }
        }
    }

    /// Returns the contents of a piece that came before there were claims, with its claim. If there are still no
    /// claims, the queue keeps the contents.
    pub(crate) fn claimed(&mut self, hashed: HashedPiece) -> Option<(HashedPiece, Claim)> {
        match self.claims.remove(&hashed.first) {
            Some(claim) => Some((hashed, claim)),
            None => {
                self.held.push(hashed);
                None
            }
        }
    }

    /// Returns contents that waited for their claim, once the claim is known.
    pub(crate) fn next_held(&mut self) -> Option<(HashedPiece, Claim)> {
        if self.is_waiting() {
            return None;
        }
        let hashed = self.held.pop()?;
        let claim = self.claims.remove(&hashed.first)?;
        Some((hashed, claim))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_sort::OrderedWriter;

    const PIECES: u64 = 5;

    /// Returns the claims of pieces whose owners change at irregular places.
    fn claims() -> Claims {
        let mut runs = OrderedWriter::new(std::path::Path::new("/nowhere"), 1 << 20);
        (0..40).for_each(|run| runs.push([run * 33, (run + 1) * 33, run % 7]).unwrap());
        Claims::new(ListSet::AS_IT_IS, Some(BlockOwners::new(runs.finish().unwrap(), vec![0, 11, 12, 13, 14, 15, 16])))
    }

    fn owners(claim: &Claim) -> Vec<u16> {
        (0..PIECE_BLOCKS).map(|block| claim.owner(block)).collect()
    }

    fn first_of(piece: u64) -> u64 {
        piece * PIECE_BLOCKS as u64
    }

    #[test]
    fn pieces_that_come_before_the_survey_is_over_get_what_they_would_get_after_it() {
        let mut known = ClaimQueue::new(Source::Known(claims()));
        let expected: Vec<Vec<u16>> =
            (0..PIECES).map(|piece| owners(&known.piece(first_of(piece)).unwrap().unwrap())).collect();
        assert!(expected.iter().all(|piece| piece.contains(&16)));
        for before in 0..=PIECES {
            for hashed_before in 0..=before {
                let mut is_over = false;
                let mut ask = move |wait: Wait| {
                    is_over |= wait == Wait::Yes;
                    Ok(is_over.then(claims))
                };
                let mut queue = ClaimQueue::new(Source::Awaited { ask: &mut ask, held_bytes: 1 << 20 });
                let mut found: Vec<Option<Vec<u16>>> = vec![None; usize::try_from(PIECES).unwrap()];
                let mut take = |(hashed, claim): (HashedPiece, Claim)| {
                    let at = usize::try_from(hashed.first).unwrap() / PIECE_BLOCKS;
                    assert_eq!(found[at].replace(owners(&claim)), None, "each piece once");
                };
                let hashed = |piece: u64| HashedPiece { first: first_of(piece), contents: Vec::new() };
                (0..before).for_each(|piece| assert!(queue.piece(first_of(piece)).unwrap().is_none()));
                queue.arrive(Wait::No).unwrap();
                // Contents come in any order, some after the survey.
                (0..hashed_before).rev().for_each(|piece| assert!(queue.claimed(hashed(piece)).is_none()));
                assert!(queue.is_waiting() && queue.next_held().is_none());
                queue.arrive(Wait::Yes).unwrap();
                for piece in before..PIECES {
                    let claim = queue.piece(first_of(piece)).unwrap().unwrap();
                    take((hashed(piece), claim));
                }
                (hashed_before..before).for_each(|piece| take(queue.claimed(hashed(piece)).unwrap()));
                while let Some(held) = queue.next_held() {
                    take(held);
                }
                let found: Vec<Vec<u16>> = found.into_iter().flatten().collect();
                assert_eq!(found, expected, "{before} pieces before, {hashed_before} of them hashed");
            }
        }
    }

    #[test]
    fn no_more_contents_wait_than_there_is_memory_for() {
        let mut ask = |_: Wait| Ok(None);
        for (held_bytes, pieces) in [(0, 1), (HELD_PIECE_BYTES, 1), (4 * HELD_PIECE_BYTES, 4)] {
            let mut queue = ClaimQueue::new(Source::Awaited { ask: &mut ask, held_bytes });
            for piece in 0..pieces {
                assert!(!queue.is_full());
                queue.piece(first_of(piece)).unwrap();
            }
            assert!(queue.is_full());
        }
        assert!(!ClaimQueue::new(Source::Known(claims())).is_full());
    }

    #[test]
    fn a_survey_that_fails_is_told() {
        let mut ask = |_: Wait| Err(ScanError::TooLong);
        let mut queue = ClaimQueue::new(Source::Awaited { ask: &mut ask, held_bytes: 0 });
        assert!(matches!(queue.arrive(Wait::No), Err(ScanError::TooLong)));
    }
}
