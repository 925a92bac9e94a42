//! The pass over the data: each piece of each image is read once, its blocks become records of all block sizes.

use std::io;
use std::ops::ControlFlow;
use std::thread;

use onefold_block::zero::is_zero;
use onefold_block::{AlignedBuffer, BLOCK_BYTES, Fingerprint, FingerprintKey};
use onefold_disk::{Disk, DiskError};
use parking_lot::Mutex;

use crate::files::{BlockOwners, PieceOwners};
use crate::map_nodes::MapNodes;
use crate::record::{Content, Lists, Record};
use crate::sizes::{Joiner, PIECE_BLOCKS, PIECE_BYTES, SIZES};
use onefold_sort::Batch;

/// Which blocks of a disk are looked at, and what they count for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    /// Variant of the 4 KiB blocks; larger sizes have the variants after it.
    pub(crate) variant: u8,
    /// How many sizes, from 4 KiB on.
    pub(crate) sizes: u8,
    pub(crate) lists: Lists,
}

impl Grid {
    /// The blocks as they lie, in all sizes.
    pub(crate) fn plain(lists: Lists) -> Grid {
        Grid { variant: 0, sizes: SIZES, lists }
    }

    /// The blocks of images before which `steps` sectors of zeros were put, in all sizes.
    pub(crate) fn shifted(steps: u8) -> Grid {
        Grid { variant: steps * SHIFT_VARIANTS, sizes: SIZES, lists: Lists::AS_IT_IS }
    }

    /// The 4 KiB blocks of an image whose partitions were moved, or data areas within them.
    pub(crate) fn realigned(lists: Lists) -> Grid {
        Grid { variant: 0, sizes: 1, lists }
    }
}

/// Distance of the variants of one shift from those of the next.
pub(crate) const SHIFT_VARIANTS: u8 = 16;
const _: () = assert!(SIZES <= SHIFT_VARIANTS);

/// Makes contents of bytes.
pub(crate) struct Hasher {
    blocks: FingerprintKey,
    joiner: Joiner,
}

impl Hasher {
    /// Returns the hasher of one analysis; `key` is secret, so that nobody prepares blocks that look equal.
    pub(crate) fn new(key: [u8; 32]) -> Hasher {
        Hasher { blocks: FingerprintKey::new(key), joiner: Joiner::new(blake3::derive_key(JOIN_CONTEXT, &key)) }
    }
}

/// Keeps fingerprints of bytes apart from fingerprints of fingerprints.
const JOIN_CONTEXT: &str = "onefold 2026-11-22 analysis, blocks of two blocks";

/// Why a pass ended before its end.
#[derive(Debug)]
pub(crate) enum ScanError {
    /// The image cannot be read; other images can.
    Disk(DiskError),
    /// The image has more blocks than can be counted; other images can have fewer.
    TooLong,
    /// Rows could not be spilled.
    Spill(io::Error),
    /// The user wants to stop.
    Interrupted,
}

/// What a pass over one image found, besides records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scanned {
    pub(crate) size_bytes: u64,
    /// What was read: all that may hold data.
    pub(crate) read_bytes: u64,
    /// Nodes that a pool's map of the image has.
    pub(crate) map_nodes: u64,
}

/// Passes over `disk` with one thread for each of `batches`. `owners` are those of its blocks, as far as they are asked
/// for. `progress` is told how far in the image it is.
pub(crate) fn scan(
    disk: &dyn Disk,
    image: usize,
    grid: Grid,
    hasher: &Hasher,
    owners: Option<BlockOwners>,
    batches: &mut [Batch<'_>],
    progress: &(dyn Fn(u64) -> ControlFlow<()> + Sync),
) -> Result<Scanned, ScanError> {
    let cursor = Mutex::new(Cursor { offset: 0, read_bytes: 0, nodes: MapNodes::default(), owners, ended: None });
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
        None => Ok(Scanned {
            size_bytes: disk.size_bytes(),
            read_bytes: cursor.read_bytes,
            map_nodes: cursor.nodes.count(),
        }),
    }
}

/// How far the threads are.
struct Cursor {
    offset: u64,
    read_bytes: u64,
    nodes: MapNodes,
    owners: Option<BlockOwners>,
    /// Why all threads stop.
    ended: Option<ScanError>,
}

/// A piece that a thread reads.
struct Piece {
    start: u64,
    owners: Option<PieceOwners>,
}

impl Piece {
    /// Returns the owner of a block, by its place in the piece.
    fn owner(&self, block: u64) -> u16 {
        let owners = self.owners.as_ref();
        owners.and_then(|owners| owners.get(usize::try_from(block).ok()?)).copied().unwrap_or(0)
    }
}

/// What the threads share.
struct Scan<'a> {
    disk: &'a dyn Disk,
    image: usize,
    grid: Grid,
    hasher: &'a Hasher,
    cursor: &'a Mutex<Cursor>,
    progress: &'a (dyn Fn(u64) -> ControlFlow<()> + Sync),
}

impl Scan<'_> {
    /// Takes piece after piece until there is none, or some thread failed.
    fn work(&self, batch: &mut Batch<'_>) {
        let mut buffer = AlignedBuffer::zeroed(PIECE_BLOCKS);
        loop {
            let outcome = match self.next_piece() {
                Ok(Some(piece)) => self.piece(&piece, &mut buffer, batch),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                self.cursor.lock().ended.get_or_insert(error);
                return;
            }
        }
    }

    /// Returns the next piece that may hold data.
    fn next_piece(&self) -> Result<Option<Piece>, ScanError> {
        let mut cursor = self.cursor.lock();
        if cursor.ended.is_some() || cursor.offset >= self.disk.size_bytes() {
            return Ok(None);
        }
        let Some(data) = self.disk.next_data(cursor.offset).map_err(ScanError::Disk)? else {
            return Ok(None);
        };
        let start = data.start / PIECE_BYTES * PIECE_BYTES;
        let end = start.saturating_add(PIECE_BYTES);
        cursor.offset = end;
        cursor.read_bytes += end.min(self.disk.size_bytes()).saturating_sub(start);
        let first_block = start / BLOCK_BYTES as u64;
        let owners =
            cursor.owners.as_mut().map(|owners| owners.piece(first_block)).transpose().map_err(ScanError::Spill)?;
        match (self.progress)(start) {
            ControlFlow::Continue(()) => Ok(Some(Piece { start, owners })),
            ControlFlow::Break(()) => Err(ScanError::Interrupted),
        }
    }

    fn piece(&self, piece: &Piece, buffer: &mut AlignedBuffer, batch: &mut Batch<'_>) -> Result<(), ScanError> {
        let start = piece.start;
        let left = self.disk.size_bytes().saturating_sub(start);
        let length = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        // The image's last block may be short: what is missing counts as zeros.
        buffer[length..].fill(0);
        self.disk.read(start, &mut buffer[..length]).map_err(ScanError::Disk)?;
        let mut level = self.contents(buffer);
        let first = start / BLOCK_BYTES as u64;
        self.note_mapped(first, &level);
        for size in 0..self.grid.sizes {
            if size > 0 {
                self.hasher.joiner.join(&mut level);
            }
            for (index, content) in ((first >> size)..).zip(&level) {
                let Some(content) = *content else { continue };
                let (variant, lists) = (self.grid.variant + size, self.grid.lists);
                let owner = if size == 0 { piece.owner(index - first) } else { 0 };
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

    fn note_mapped(&self, first: u64, level: &[Option<Content>]) {
        let mut cursor = self.cursor.lock();
        for (index, content) in (first..).zip(level) {
            if content.is_some() {
                cursor.nodes.note(index);
            }
        }
    }
}
