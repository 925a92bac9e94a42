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
use crate::format::FingerprintPrefix;
use crate::format::log::WrittenBlock;
use crate::format::stamp::Stamp;
use crate::pace::Pace;
use crate::ranges::Ranges;
use crate::scan::places::DomainPlaces;

/// Minimum length of a stretch with known digests that is left out of a read. A shorter one is read with its
/// surroundings: one request costs less than two.
const KNOWN_BLOCKS_MIN: u64 = 16;
/// Number of blocks of a piece.
const PIECE_BLOCKS: usize = PIECE_BYTES / onefold_block::BLOCK_BYTES;

/// Data of a file, in whole blocks; empty if there is none.
struct Data {
    from: u64,
    to: u64,
    /// The place of the first block, in bytes, and the number of consecutive whole blocks from there on; `None` if no
    /// other file refers to it.
    shared: Option<(u64, u64)>,
}

/// Requested blocks at places to which other files may refer.
struct SharedBlocks {
    offset: u64,
    place: u64,
    blocks: u64,
}

/// The blocks that hold data, in order, with their digests.
pub(super) struct Blocks<'a, S: Substrate> {
    substrate: &'a S,
    pace: &'a Pace<'a>,
    file: &'a S::File,
    map: Option<Extents>,
    digester: Digester<'a>,
    key: &'a FingerprintKey,
    /// Ranges that are to be read, and were not requested yet.
    wanted: VecDeque<Range<u64>>,
    /// Bytes that may still be requested.
    left: u64,
    /// Whether nothing more is requested.
    is_ending: bool,
    /// The reader of the digester's threads.
    reader: Option<Arc<dyn Reader>>,
    /// The piece whose blocks are being returned, and the next of them.
    piece: Option<(Piece, usize)>,
    /// Whether the map has shown a hole. Unwritten space is none.
    has_seen_hole: bool,
    pub(super) read_bytes: u64,
    /// Bytes whose digests were known already.
    pub(super) once_bytes: u64,
    /// Digests that were read before, by place.
    places: Option<DomainPlaces<'a>>,
    /// The stamp of the file before its map was looked at; `None` once it is known to have changed, or if nothing is
    /// added to `places`.
    mapped: Option<Stamp>,
    /// Blocks whose digests are to be added to it, for each requested piece.
    asked: VecDeque<Vec<SharedBlocks>>,
    /// Ranges that could not be read, and the first reason.
    pub(super) failed: Vec<Range<u64>>,
    pub(super) why: Option<io::Error>,
}

impl<'a, S: Substrate> Blocks<'a, S> {
    /// Returns the blocks of ranges, which are whole blocks. At most `most` bytes are read.
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
            once_bytes: 0,
            places: None,
            mapped: None,
            asked: VecDeque::new(),
            failed: Vec::new(),
            why: None,
        }
    }

    /// Uses known digests for blocks at places that were read before. Adds new digests while the file still has this
    /// stamp.
    pub(super) fn with_places(self, places: Option<DomainPlaces<'a>>, mapped: Stamp) -> Blocks<'a, S> {
        Blocks { places, mapped: Some(mapped), ..self }
    }

    /// Stops further requests; requested pieces are still read.
    pub(super) fn end_soon(&mut self) {
        self.is_ending = true;
    }

    /// Returns the ranges that are left to be read, once no further block comes.
    pub(super) fn rest(&self) -> Ranges {
        Ranges::of(self.wanted.iter().cloned())
    }

    /// Returns whether there is, or may be, a hole in the part that was read.
    pub(super) fn has_hole(&self) -> bool {
        self.has_seen_hole || self.map.is_none()
    }

    /// Returns where the next piece begins; `None` if everything was requested.
    pub(super) fn position(&self) -> Option<u64> {
        self.wanted.front().map(|range| range.start)
    }

    pub(super) fn next(&mut self) -> Option<WrittenBlock> {
        loop {
            if let Some((piece, next)) = &mut self.piece {
                if let Some(digest) = piece.digests.get(*next) {
                    let offset = piece.offset + *next as u64 * BLOCK_BYTES_U64;
                    *next += 1;
                    if !piece.is_read(offset) {
                        continue;
                    }
                    return Some(WrittenBlock { block: FileBlock(offset / BLOCK_BYTES_U64), digest: *digest });
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
            let piece = self.digester.take()?;
            self.note_places(&piece);
            self.piece = Some((piece, 0));
        }
    }

    /// Adds the digests of a piece to the known ones, for blocks that are still at their places. A block that was
    /// written between the looks at its place and at its content has another place by now. If the file has other times
    /// by then, none of its places count any more. The times of a direct write are older than its data, so the map is
    /// checked again, too.
    fn note_places(&mut self, piece: &Piece) {
        let shared = self.asked.pop_front().unwrap_or_default();
        if shared.is_empty() || !piece.failed.is_empty() {
            return;
        }
        let stamp = self.substrate.stat(self.file).ok().map(|stat| Stamp::of(&stat));
        self.mapped = self.mapped.filter(|mapped| Some(*mapped) == stamp);
        let Some(places) = self.places.as_mut().filter(|_| self.mapped.is_some()) else { return };
        // The map of the piece alone: that of the file has many more extents.
        let end = |shared: &SharedBlocks| shared.offset.saturating_add(shared.blocks * BLOCK_BYTES_U64);
        let (from, to) = (shared.first().map_or(0, |first| first.offset), shared.last().map_or(0, end));
        let Ok(map) = Extents::between(self.substrate, self.file, from, to) else { return };
        for SharedBlocks { offset, place, blocks } in shared {
            let mut done = 0;
            while done < blocks {
                let (offset, place) = (offset + done * BLOCK_BYTES_U64, place.saturating_add(done * BLOCK_BYTES_U64));
                let now = map.look(offset);
                let count = (now.length / BLOCK_BYTES_U64).min(blocks - done);
                if now.is_data && now.place == Some(place) {
                    places.add(place, digests_of(piece, offset, count));
                }
                done += count.max(1);
            }
        }
    }

    /// Returns the known digests of blocks from an offset on, up to an end, at most a piece.
    fn known_from(&mut self, offset: u64, end: u64) -> Vec<Option<FingerprintPrefix>> {
        let mut known: Vec<Option<FingerprintPrefix>> = Vec::new();
        if self.places.is_none() {
            return known;
        }
        while known.len() < PIECE_BLOCKS {
            let at = offset.saturating_add(known.len() as u64 * BLOCK_BYTES_U64);
            if at >= end {
                break;
            }
            let data = self.data_from(at);
            let (Some((place, blocks)), Some(places)) = (data.shared, &self.places) else { break };
            let most = blocks.min((end - at) / BLOCK_BYTES_U64);
            let most = usize::try_from(most).unwrap_or(usize::MAX).min(PIECE_BLOCKS - known.len());
            let digests = places.at(place);
            let digests = digests.get(..most).unwrap_or(digests);
            if digests.is_empty() || data.from != at {
                break;
            }
            known.extend_from_slice(digests);
        }
        known
    }

    /// Requests the next piece with data from the digester. Returns false if there is none.
    fn ask_piece(&mut self) -> bool {
        while let Some(Range { start: offset, end }) = self.wanted.front().cloned().filter(|_| !self.is_ending) {
            let Data { from, to, shared } = self.data_from(offset);
            if from >= to.min(end) {
                self.asked_up_to(to);
                continue;
            }
            let known = self.known_from(from, end);
            if !known.is_empty() {
                let bytes = known.len() as u64 * BLOCK_BYTES_U64;
                self.asked_up_to(from + bytes);
                self.once_bytes += bytes;
                self.asked.push_back(Vec::new());
                self.digester.put(from, known);
                return true;
            }
            let at_once = (PIECE_BYTES as u64).min(self.left / BLOCK_BYTES_U64 * BLOCK_BYTES_U64);
            if at_once == 0 {
                self.is_ending = true;
                break;
            }
            // A shared file is in many small parts, which are read as one if no hole is between them.
            let most = end.min(from + at_once);
            let mut to = self.known_at(from, to.min(most), shared);
            let mut asked = Vec::from_iter(part_of(from, to, shared));
            while to < most {
                let next = self.data_from(to);
                let is_long = |known: &[Option<FingerprintPrefix>]| known.len() as u64 >= KNOWN_BLOCKS_MIN;
                if next.from != to || next.from == next.to || is_long(&self.known_from(to, most)) {
                    break;
                }
                let end = self.known_at(to, next.to.min(most), next.shared);
                asked.extend(part_of(to, end, next.shared));
                to = end;
            }
            self.asked.push_back(asked);
            self.asked_up_to(to);
            self.left -= to - from;
            self.pace.read(to - from);
            let length = usize::try_from(to - from).expect("at most a piece");
            let (substrate, file) = (self.substrate, self.file);
            // It may have become shorter: then the piece has less, or nothing.
            self.digester.ask(self.key, from, length, self.reader.as_ref(), |offset, into| {
                substrate.read_at(file, offset, into)
            });
            return true;
        }
        false
    }

    /// Removes everything before an offset from the wanted ranges.
    fn asked_up_to(&mut self, offset: u64) {
        if let Some(first) = self.wanted.front_mut() {
            first.start = offset;
            if first.is_empty() {
                self.wanted.pop_front();
            }
        }
    }

    /// Returns the first block with a known digest, between an offset and the end of a read.
    fn known_at(&self, offset: u64, end: u64, shared: Option<(u64, u64)>) -> u64 {
        let (Some((place, _)), Some(places)) = (shared, &self.places) else { return end };
        end.min(offset.saturating_add(places.unknown_from(place).max(BLOCK_BYTES_U64)))
    }

    /// Returns the next data at or behind an offset; if the file system has no maps, all of the rest.
    fn data_from(&mut self, offset: u64) -> Data {
        let Some(map) = &mut self.map else { return Data { from: offset, to: u64::MAX, shared: None } };
        match map.at(self.substrate, self.file, offset) {
            Ok(placed) if placed.is_data => {
                let end = offset.saturating_add(placed.length).div_ceil(BLOCK_BYTES_U64);
                let place = placed.place.filter(|_| placed.is_shared && self.places.is_some());
                let shared = place.map(|place| (place, placed.length / BLOCK_BYTES_U64));
                Data { from: offset, to: end.saturating_mul(BLOCK_BYTES_U64), shared }
            }
            Ok(placed) => {
                self.has_seen_hole |= placed.is_hole;
                // A block that begins in a hole and ends in data is read from its beginning.
                let end = offset.saturating_add(placed.length) / BLOCK_BYTES_U64 * BLOCK_BYTES_U64;
                let end = end.max(offset + BLOCK_BYTES_U64);
                Data { from: end, to: end, shared: None }
            }
            Err(_) => {
                self.map = None;
                Data { from: offset, to: u64::MAX, shared: None }
            }
        }
    }
}

/// Returns the digests of blocks of a piece from an offset on. The file may have become shorter.
fn digests_of(piece: &Piece, offset: u64, blocks: u64) -> &[Option<FingerprintPrefix>] {
    let blocks_of = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let first = blocks_of(offset.saturating_sub(piece.offset) / BLOCK_BYTES_U64);
    let end = first.saturating_add(blocks_of(blocks)).min(piece.digests.len());
    piece.digests.get(first..end).unwrap_or_default()
}

/// Returns the part of shared blocks between two offsets.
fn part_of(offset: u64, end: u64, shared: Option<(u64, u64)>) -> Option<SharedBlocks> {
    let (place, blocks) = shared?;
    Some(SharedBlocks { offset, place, blocks: blocks.min(end.saturating_sub(offset) / BLOCK_BYTES_U64) })
}

#[cfg(test)]
mod tests;
