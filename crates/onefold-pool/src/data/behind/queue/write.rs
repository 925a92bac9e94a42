//! A write in the queue, and the facts about it that readers need until it takes effect.

use std::ops::Range;

use onefold_block::{AlignedBuffer, BLOCK_BYTES, Timestamp};

use crate::attr::Ino;
use crate::format::map_node::FAN_OUT;
use crate::readers::range_lock::RangeTicket;

/// A write of fewer blocks than this is small (128 KiB). Its cost is mostly turns, locks and metadata, for which two
/// workers would wait for each other. The cost of a larger write is mostly copying and hashing, which workers do
/// independently.
pub(super) const SMALL_BELOW_BLOCKS: usize = 32;

/// An accepted write.
#[derive(Debug)]
pub(in crate::data::behind) struct AcceptedWrite {
    pub(in crate::data::behind) number: u64,
    pub(in crate::data::behind) ino: Ino,
    /// Its first block in the file.
    pub(in crate::data::behind) first: u64,
    pub(in crate::data::behind) buffer: AlignedBuffer,
    /// The place of the data in the buffer.
    pub(in crate::data::behind) range: Range<usize>,
    /// When the write was accepted.
    pub(in crate::data::behind) now: Timestamp,
    pub(in crate::data::behind) lock: RangeTicket,
    /// Whether it ends past the end that the file had when the write was accepted.
    pub(in crate::data::behind) moves_end: bool,
    /// Whether no worker was woken for it: its caller begins the write, or hands it over.
    pub(in crate::data::behind) is_left: bool,
}

/// An accepted write that has not taken effect yet.
#[derive(Debug)]
pub(super) struct PendingWrite {
    pub(super) ino: Ino,
    /// Its blocks in the file.
    pub(super) range: Range<u64>,
    /// Blocks of its buffer; it may fill only a few of them.
    pub(super) buffer_blocks: usize,
    pub(super) moves_end: bool,
}

impl PendingWrite {
    /// Returns whether a read of blocks `range` of a file could notice that the write has not taken effect.
    pub(super) fn is_seen_by(&self, ino: Ino, range: &Range<u64>) -> bool {
        let overlaps = self.range.start < range.end && range.start < self.range.end;
        self.ino == ino && (self.moves_end || overlaps)
    }
}

impl AcceptedWrite {
    pub(in crate::data::behind) fn block_count(&self) -> usize {
        self.range.len() / BLOCK_BYTES
    }

    pub(super) fn is_small(&self) -> bool {
        self.block_count() < SMALL_BELOW_BLOCKS
    }

    /// Returns the leaves of the file's map that name its blocks, by number.
    pub(super) fn leaves(&self) -> impl Iterator<Item = u64> + use<> {
        self.first / FAN_OUT..=(self.first + self.block_count() as u64 - 1) / FAN_OUT
    }
}
