//! Candidates on their way into the order of the join.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use onefold_sort::{Merge, SortWriter};

use super::rows::{FILES_MAX, Instance, PIECE_BLOCKS_MAX, RANK_MAX};
use crate::files::tier::Label;
use crate::format::guest::Piece;

/// Added to the rank of a file most of whose blocks are not shared on the host.
const OWN_RANK: u64 = 256;
/// Added to the rank of a file with content that has no piece: it becomes a source only if all others have gaps, too.
const GAP_RANK: u64 = 512;

/// Takes candidates of all images in any order.
#[derive(Debug)]
pub(in crate::files) struct Candidates {
    rows: SortWriter,
    /// Number of files added so far for each image, counted once per phase.
    added: HashMap<u32, u32>,
    /// The image that is preferred to all others as a source.
    preferred: Option<u32>,
}

impl Candidates {
    /// Returns an empty list. It keeps at most `memory_bytes` in memory, and the rest in files in `folder`.
    pub(in crate::files) fn new(folder: &Path, memory_bytes: usize) -> Candidates {
        Candidates { rows: SortWriter::new(folder, memory_bytes), added: HashMap::new(), preferred: None }
    }

    /// Makes the files of an image sources before those of all others.
    pub(in crate::files) fn prefer(&mut self, image: u32) {
        self.preferred = Some(image);
    }

    /// Adds the pieces that a file of an image has in a phase. Files with equal `content` are believed equal; only the
    /// low 61 bits count. `phase` comes with how many blocks its content takes. `is_shared` tells whether most of it
    /// shares with others on the host. Returns false where the image has too many files.
    ///
    /// # Errors
    /// Errors of writing temporary files.
    pub(in crate::files) fn add(
        &mut self,
        image: u32,
        content: u64,
        label: Label,
        (phase, blocks): (u64, u64),
        pieces: &[Piece],
        is_shared: bool,
    ) -> io::Result<bool> {
        let added = self.added.entry(image).or_default();
        let (Some(key), true) = (label.key(), *added < FILES_MAX) else { return Ok(false) };
        let ordinal = *added;
        *added += 1;
        let covered = pieces.iter().map(|piece| piece.count).fold(u64::from(phase > 0), u64::saturating_add);
        let of_gap = if covered < blocks { GAP_RANK } else { 0 };
        let of_owner = if is_shared { 0 } else { OWN_RANK };
        let rank = (pieces.len() as u64).min(OWN_RANK - 1) + of_owner + of_gap;
        let rank = if self.preferred == Some(image) { 0 } else { rank };
        let instance = Instance { content, phase, rank: rank.min(RANK_MAX), image, ordinal };
        self.rows.push(instance.head(key.number()))?;
        for piece in pieces {
            let mut at = 0;
            while at < piece.count {
                let count = PIECE_BLOCKS_MAX.min(piece.count - at);
                let part =
                    Piece { content: piece.content.saturating_add(at), block: piece.block.saturating_add(at), count };
                // A piece that lies too far for a row is left out.
                let Some(row) = instance.piece(&part) else { break };
                self.rows.push(row)?;
                at += count;
            }
        }
        Ok(true)
    }

    /// Returns all rows in order.
    ///
    /// # Errors
    /// Errors of reading temporary files.
    pub(in crate::files) fn finish(self) -> io::Result<Merge> {
        self.rows.finish()
    }
}
