//! The blocks of some ranges of a file, read and digested in order.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use onefold_block::{BLOCK_BYTES_U64, FingerprintKey};
use onefold_substrate::{Reader, Substrate};

use crate::digest::{Digester, PIECE_BYTES, Piece};
use crate::extents::Extents;
use crate::format::FileBlock;
use crate::format::log::Written;
use crate::pace::Pace;
use crate::ranges::Ranges;

/// The blocks that hold data, in order, with their digests.
pub(super) struct Blocks<'a, S: Substrate> {
    substrate: &'a S,
    pace: &'a Pace<'a>,
    file: &'a S::File,
    map: Option<Extents>,
    digester: Digester<'a>,
    key: &'a FingerprintKey,
    /// What is to be read, and was not asked for.
    wanted: VecDeque<Range<u64>>,
    /// Bytes that may still be asked for.
    left: u64,
    /// Nothing more is asked for.
    is_ending: bool,
    /// What the digester's threads read by.
    reader: Option<Arc<dyn Reader>>,
    /// The piece whose blocks are being returned, and the next of them.
    piece: Option<(Piece, usize)>,
    /// Whether the map has shown a hole. What is set aside is none.
    has_seen_hole: bool,
    pub(super) read_bytes: u64,
    /// What could not be read, and why first.
    pub(super) failed: Vec<Range<u64>>,
    pub(super) why: Option<io::Error>,
}

impl<'a, S: Substrate> Blocks<'a, S> {
    /// Returns the blocks of ranges, which are whole blocks; at most so many bytes are read.
    pub(super) fn new(
        substrate: &'a S,
        pace: &'a Pace<'a>,
        file: &'a S::File,
        wanted: &Ranges,
        most: u64,
        digester: Digester<'a>,
        key: &'a FingerprintKey,
    ) -> Blocks<'a, S> {
        Blocks {
            substrate,
            pace,
            file,
            map: Some(Extents::new()),
            digester,
            key,
            wanted: wanted.iter().cloned().collect(),
            left: most,
            is_ending: false,
            reader: substrate.reader(file),
            piece: None,
            has_seen_hole: false,
            read_bytes: 0,
            failed: Vec::new(),
            why: None,
        }
    }

    /// Has nothing more be read than was asked for already.
    pub(super) fn end_soon(&mut self) {
        self.is_ending = true;
    }

    /// Returns what is left to be read, once no block comes any more.
    pub(super) fn rest(&self) -> Ranges {
        Ranges::of(self.wanted.iter().cloned())
    }

    /// Tells whether there is a hole in what was read, or may be one.
    pub(super) fn has_hole(&self) -> bool {
        self.has_seen_hole || self.map.is_none()
    }

    /// Returns where the next piece is looked for; none where all was asked for.
    pub(super) fn position(&self) -> Option<u64> {
        self.wanted.front().map(|range| range.start)
    }

    pub(super) fn next(&mut self) -> Option<Written> {
        loop {
            if let Some((piece, next)) = &mut self.piece {
                if let Some(digest) = piece.digests.get(*next) {
                    let offset = piece.offset + *next as u64 * BLOCK_BYTES_U64;
                    *next += 1;
                    if !piece.is_read(offset) {
                        continue;
                    }
                    return Some(Written { block: FileBlock(offset / BLOCK_BYTES_U64), digest: *digest });
                }
                let (mut piece, _) = self.piece.take()?;
                self.read_bytes += piece.read_bytes;
                self.failed.append(&mut piece.failed);
                if let Some(why) = piece.why.take() {
                    self.why.get_or_insert(why);
                }
                self.digester.give_back(piece);
            }
            while self.digester.has_room() && self.ask_piece() {}
            self.piece = Some((self.digester.take()?, 0));
        }
    }

    /// Has the next piece with data read and digested. Returns false where there is none.
    fn ask_piece(&mut self) -> bool {
        while let Some(Range { start: offset, end }) = self.wanted.front().cloned().filter(|_| !self.is_ending) {
            let (from, to) = self.data_from(offset);
            if from >= to.min(end) {
                self.asked_up_to(to);
                continue;
            }
            let at_once = (PIECE_BYTES as u64).min(self.left / BLOCK_BYTES_U64 * BLOCK_BYTES_U64);
            if at_once == 0 {
                self.is_ending = true;
                break;
            }
            // A shared file lies in many small parts, which are read as one where no hole is between them.
            let most = end.min(from + at_once);
            let mut to = to.min(most);
            while to < most {
                let (start, end) = self.data_from(to);
                if start != to || start == end {
                    break;
                }
                to = end.min(most);
            }
            self.asked_up_to(to);
            self.left -= to - from;
            self.pace.read(to - from);
            let length = usize::try_from(to - from).expect("at most a piece");
            let (substrate, file) = (self.substrate, self.file);
            // It may have become shorter: then less is in the piece, or nothing.
            self.digester.ask(self.key, from, length, self.reader.as_ref(), |offset, into| {
                substrate.read_at(file, offset, into)
            });
            return true;
        }
        false
    }

    /// Takes what is before an offset out of what is wanted.
    fn asked_up_to(&mut self, offset: u64) {
        if let Some(first) = self.wanted.front_mut() {
            first.start = offset;
            if first.is_empty() {
                self.wanted.pop_front();
            }
        }
    }

    /// Returns where the next data is, in whole blocks; all of the rest where the file system has no maps.
    fn data_from(&mut self, offset: u64) -> (u64, u64) {
        let Some(map) = &mut self.map else { return (offset, u64::MAX) };
        match map.at(self.substrate, self.file, offset) {
            Ok(placed) if placed.is_data => {
                let end = offset.saturating_add(placed.length).div_ceil(BLOCK_BYTES_U64);
                (offset, end.saturating_mul(BLOCK_BYTES_U64))
            }
            Ok(placed) => {
                self.has_seen_hole |= placed.is_hole;
                // A block that begins in a hole and ends in data is read from its beginning.
                let end = offset.saturating_add(placed.length) / BLOCK_BYTES_U64 * BLOCK_BYTES_U64;
                let end = end.max(offset + BLOCK_BYTES_U64);
                (end, end)
            }
            Err(_) => {
                self.map = None;
                (offset, u64::MAX)
            }
        }
    }
}
