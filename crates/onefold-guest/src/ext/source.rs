//! The bytes of the volume after recovery: the volume overlaid with the blocks in the journal.

use crate::error::{Damage, GuestError};
use crate::volume::VolumeReader;

/// The first bytes of every descriptive block of a journal, big-endian.
pub(super) const JOURNAL_MAGIC: u32 = 0xc03b_3998;

/// A block with a newer copy in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JournaledBlock {
    /// Its number.
    pub(super) block: u64,
    /// First byte of the copy in the volume.
    pub(super) copy: u64,
    /// Whether its first four bytes are [`JOURNAL_MAGIC`], which the copy omits.
    pub(super) is_escaped: bool,
}

/// The blocks with newer copies in the journal.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    /// By number, each once.
    blocks: Vec<JournaledBlock>,
    block_bytes: u64,
}

impl Overlay {
    /// Returns an overlay of these blocks, which must be sorted by number.
    pub(super) fn new(blocks: Vec<JournaledBlock>, block_bytes: u64) -> Overlay {
        Overlay { blocks, block_bytes }
    }

    /// Returns whether no block has a newer copy.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns its blocks that overlap a range of the volume.
    pub(super) fn overlapping(&self, offset: u64, length: u64) -> &[JournaledBlock] {
        let end = offset.saturating_add(length);
        let rest = &self.blocks[self.blocks.partition_point(|at| (at.block + 1) * self.block_bytes <= offset)..];
        &rest[..rest.partition_point(|at| at.block * self.block_bytes < end)]
    }

    /// Overlays bytes that were read from byte `offset` of the volume.
    fn cover(&self, reader: &VolumeReader<'_>, offset: u64, into: &mut [u8]) -> Result<(), GuestError> {
        let end = offset.saturating_add(into.len() as u64);
        for at in self.overlapping(offset, into.len() as u64) {
            let block_start = at.block * self.block_bytes;
            let start = block_start.max(offset);
            let stop = (block_start + self.block_bytes).min(end);
            let Some(part) = slice(into, start - offset, stop - offset) else { continue };
            reader.read(at.copy + (start - block_start), part, "journal block")?;
            if at.is_escaped {
                for (index, byte) in JOURNAL_MAGIC.to_be_bytes().iter().enumerate() {
                    let place = block_start + index as u64;
                    if let Some(target) =
                        place.checked_sub(start).and_then(|at| part.get_mut(usize::try_from(at).ok()?))
                    {
                        *target = *byte;
                    }
                }
            }
        }
        Ok(())
    }
}

fn slice(bytes: &mut [u8], start: u64, end: u64) -> Option<&mut [u8]> {
    bytes.get_mut(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
}

/// The bytes of a volume after recovery.
#[derive(Debug)]
pub(super) struct Source<'a> {
    reader: VolumeReader<'a>,
    overlay: Overlay,
}

impl<'a> Source<'a> {
    /// Returns the bytes of a volume with an overlay.
    pub(super) fn new(reader: VolumeReader<'a>, overlay: Overlay) -> Source<'a> {
        Source { reader, overlay }
    }

    /// Returns the volume without the overlay.
    pub(super) fn reader(&self) -> &VolumeReader<'a> {
        &self.reader
    }

    /// Returns the blocks with newer copies in the journal.
    pub(super) fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    /// Fills `into` from byte `offset` of the volume.
    ///
    /// # Errors
    /// Those of [`VolumeReader::read`].
    pub(super) fn read(&self, offset: u64, into: &mut [u8], structure: &'static str) -> Result<(), GuestError> {
        self.reader.read(offset, into, structure)?;
        self.overlay.cover(&self.reader, offset, into)
    }

    /// Returns `length` bytes from byte `offset` of the volume. The caller bounds `length`.
    ///
    /// # Errors
    /// Those of [`VolumeReader::bytes`].
    pub(super) fn bytes(&self, offset: u64, length: usize, structure: &'static str) -> Result<Vec<u8>, GuestError> {
        let mut bytes = self.reader.bytes(offset, length, structure)?;
        self.overlay.cover(&self.reader, offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the damage of a structure at byte `offset` of the volume.
    pub(super) fn damage(&self, offset: u64, structure: &'static str, problem: &'static str) -> Damage {
        self.reader.damage(offset, structure, problem)
    }
}
