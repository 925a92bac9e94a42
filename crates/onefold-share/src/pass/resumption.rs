//! Resumption: a pass that was interrupted has left its logs, whose places share in part with the slots of its batches.
//! The next pass leaves these places out of its lists while it reads the logs. Otherwise every resumption would sort
//! all of them by their contents and by their blocks again, only to find in the maps that they share.
//!
//! The kept maps say which places share. Asking the file system would take as long as the sorting: XFS looks up for
//! each extent whether it is shared. A pass notes a share in a kept map only after it is durable (`share::target`). A
//! scan may keep a map with a share of a killed pass; on XFS and in a pool the journal is in order, so that share is
//! durable before the map is. A block that a guest has overwritten since no longer has the content of the log.
//!
//! A place that is left out wrongly would cost a saving, so its slot has to be named with the content that the log
//! tells: a file whose domain changed may share with a slot of the earlier domain. A place that shares keeps the entry
//! of its slot alive, because maps show the slot as wanted. So this is for file systems whose maps show each block by
//! itself. Where space is freed by whole extents, places that share are targets again, because the rests of their
//! extents are theirs to copy.

use std::collections::{BTreeMap, BTreeSet};

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::{Access, Substrate, is_gone};

use super::engine::Engine;
use super::lists::part_bytes;
use super::{PassError, PassOptions};
use crate::extents::Extents;
use crate::format::entry::{ContentEntry, ContentPlace};
use crate::format::log::WrittenBlock;
use crate::format::map::KeptExtent;
use crate::format::prefix::Prefix;
use crate::format::{FileNo, FingerprintPrefix, Slot};
use crate::policy::{FreedUnit, UnneededSlots};
use crate::state::{State, StateError};

/// Number of slots by which the contents of an arena file grow at least.
const CONTENTS_STEP: usize = 1 << 12;

/// The slots that batches name, with their places on the device.
///
/// They take no more memory than a long list that the pass fills only later. Places that share with further slots are
/// targets as usual.
pub(super) struct BatchSlots {
    /// In order of their places.
    stretches: Vec<SlotStretch>,
    /// Bits of the contents of the slots of each arena file; 0 for a slot that no batch names.
    contents: BTreeMap<u32, Vec<u32>>,
}

/// Consecutive slots at consecutive places.
#[derive(Clone, Copy)]
struct SlotStretch {
    /// The place on the device, in bytes.
    place: u64,
    first: Slot,
    /// Number of slots.
    count: u64,
}

impl SlotStretch {
    fn end(&self) -> u64 {
        self.place.saturating_add(self.count * BLOCK_BYTES_U64)
    }
}

impl BatchSlots {
    /// Looks at the slots that batches name. `None` if there are none, or if the file system shows too little.
    pub(super) fn load<S: Substrate>(
        state: &State<'_, S>,
        options: &PassOptions<'_>,
    ) -> Result<Option<BatchSlots>, PassError> {
        let policy = state.policy();
        let shows_blocks = policy.unneeded == UnneededSlots::Told && policy.freed == FreedUnit::Block;
        if options.is_dry_run || policy.is_declared() || !shows_blocks {
            return Ok(None);
        }
        let mut slots = BatchSlots { stretches: Vec::new(), contents: BTreeMap::new() };
        slots.take_contents(state, options)?;
        // The arena is looked at after the batches, so that it shows all of their slots.
        slots.look(state, options)?;
        Ok(Some(slots).filter(|slots| !slots.stretches.is_empty()))
    }

    /// Takes the contents of slots from the batches, the newest batch for each content. A batch that cannot be read to
    /// its end is the plan's to report.
    fn take_contents<S: Substrate>(
        &mut self,
        state: &State<'_, S>,
        options: &PassOptions<'_>,
    ) -> Result<(), PassError> {
        let mut left = part_bytes(options) / 2 / size_of::<u32>();
        let mut batches = state.open_batches()?;
        while let Ok(Some(ContentEntry { digest, place })) = batches.peek(Prefix::WHOLE) {
            options.pace.boundary()?;
            batches.take();
            let ContentPlace::Shared(slot) = place else { continue };
            let index = usize::try_from(slot.index()).expect("below the slots of an arena file");
            let known = self.contents.get(&slot.arena()).map_or(0, Vec::len);
            let more = (index + 1).saturating_sub(known).next_multiple_of(CONTENTS_STEP);
            if more > left {
                continue;
            }
            left -= more;
            let contents = self.contents.entry(slot.arena()).or_default();
            contents.reserve_exact(more);
            contents.resize(known + more, 0);
            contents[index] = bits_of(digest);
        }
        Ok(())
    }

    /// Finds the places of the slots.
    fn look<S: Substrate>(&mut self, state: &State<'_, S>, options: &PassOptions<'_>) -> Result<(), PassError> {
        // A list that grows may have room for twice as many.
        let stretches_max = part_bytes(options) / 4 / size_of::<SlotStretch>();
        for &number in self.contents.keys() {
            options.pace.boundary()?;
            let Some(file) = state.open_arena(number, Access::Read)? else { continue };
            for extent in Extents::load(state.substrate(), &file)?.iter().filter(|extent| !extent.is_unwritten) {
                let (first, count) = (extent.offset / BLOCK_BYTES_U64, extent.length / BLOCK_BYTES_U64);
                let (Some(place), Some(first)) = (extent.place, Slot::new(number, first)) else { continue };
                if self.stretches.len() < stretches_max {
                    self.stretches.push(SlotStretch { place, first, count });
                }
            }
        }
        self.stretches.sort_unstable_by_key(|stretch| stretch.place);
        Ok(())
    }

    /// Returns the consecutive slots from a place on, in bytes; or that there are none, and for how many blocks.
    fn at(&self, place: u64) -> (Option<Slot>, u64) {
        let next = self.stretches.partition_point(|stretch| stretch.end() <= place);
        match self.stretches.get(next) {
            Some(stretch) if stretch.place <= place => {
                let ahead = (place - stretch.place) / BLOCK_BYTES_U64;
                (Slot::from_number(stretch.first.number() + ahead), stretch.count - ahead)
            }
            Some(stretch) => (None, (stretch.place - place).div_ceil(BLOCK_BYTES_U64)),
            None => (None, u64::MAX),
        }
    }
}

/// Returns some bits of a digest, which are never 0. Two contents agree in them once in 2^31 cases.
fn bits_of(digest: FingerprintPrefix) -> u32 {
    let [.., i, j, k, l] = digest.0;
    u32::from_be_bytes([i, j, k, l]) | 1
}

/// The work of an interrupted pass that the logs still tell.
#[derive(Default)]
pub(super) struct Resumption {
    shared_blocks: u64,
    /// Files with such blocks.
    files: BTreeSet<FileNo>,
}

impl Resumption {
    /// Counts the blocks of a file that were found done.
    pub(super) fn note(&mut self, number: FileNo, file: &ResumedFile<'_>) {
        let ResumedFile { shared, empty, .. } = *file;
        self.shared_blocks += shared;
        if shared + empty > 0 {
            self.files.insert(number);
        }
    }

    /// Returns the number of blocks that share with a slot.
    pub(super) fn shared_blocks(&self) -> u64 {
        self.shared_blocks
    }

    /// Makes the shares durable. This has to come before the logs go, because nothing would repeat a lost share: a scan
    /// may have kept a map with shares that a killed pass had not made durable.
    ///
    /// # Errors
    /// `Interrupted` if the work is to end.
    pub(super) fn sync<S: Substrate>(&self, engine: &mut Engine<'_, '_, S>) -> Result<(), PassError> {
        let Engine { state, options, images, passed, .. } = engine;
        let is_one_enough = state.substrate().syncs_all_shares();
        for number in &self.files {
            options.pace.boundary()?;
            let synced = match images.open(*number, Access::Read) {
                Ok(file) => state.substrate().sync_shares(&file),
                // Another file of the file system may do.
                Err(why) if is_gone(&why) => continue,
                Err(why) => Err(why),
            };
            let is_synced = synced.is_ok();
            passed.trouble.note_unsynced(&[*number], images, synced);
            if is_one_enough && is_synced {
                break;
            }
        }
        Ok(())
    }
}

/// A file whose log is read, with its kept map.
pub(super) struct ResumedFile<'s> {
    slots: &'s BatchSlots,
    /// In order.
    extents: Vec<KeptExtent>,
    /// The stretch of blocks that was looked at last: the first block, and the one behind the last.
    from: u64,
    end: u64,
    kind: StretchKind,
    /// The contents of the slots of the arena file that was looked at last.
    contents: &'s [u32],
    /// Number of places that share with their slot.
    shared: u64,
    /// Number of zero blocks without data.
    empty: u64,
}

/// What the map shows of a stretch of blocks.
#[derive(Clone, Copy)]
enum StretchKind {
    /// There is no data.
    Empty,
    /// The first block shares with this slot, the following blocks with those behind it.
    InSlots(Slot),
    /// They are elsewhere.
    Apart,
}

impl<'s> ResumedFile<'s> {
    /// Loads the kept map of a file. `None` if it has none, or if the map cannot be read: it is a hint.
    ///
    /// # Errors
    /// `Interrupted` if the work is to end.
    pub(super) fn load<S: Substrate>(
        state: &State<'_, S>,
        slots: &'s BatchSlots,
        number: FileNo,
    ) -> Result<Option<ResumedFile<'s>>, StateError> {
        let map = match state.kept_map(number) {
            Err(StateError::Interrupted) => return Err(StateError::Interrupted),
            map => map.ok().flatten(),
        };
        let (kind, contents) = (StretchKind::Apart, &[][..]);
        Ok(map.map(|map| ResumedFile {
            slots,
            extents: map.into_extents(),
            from: 0,
            end: 0,
            kind,
            contents,
            shared: 0,
            empty: 0,
        }))
    }

    /// Returns whether nothing is left to do for a block: it shares with the slot of its content, or is zero and has no
    /// data. Cheap if blocks only rise.
    pub(super) fn is_done(&mut self, written: WrittenBlock) -> bool {
        let WrittenBlock { block, digest } = written;
        if !(self.from..self.end).contains(&block.0) {
            self.look(block.0);
        }
        match (self.kind, digest) {
            (StretchKind::Empty, None) => {
                self.empty += 1;
                true
            }
            (StretchKind::InSlots(first), Some(digest)) => {
                let index = usize::try_from(first.index() + (block.0 - self.from)).ok();
                let named = index.and_then(|index| self.contents.get(index));
                let is_done = named == Some(&bits_of(digest));
                self.shared += u64::from(is_done);
                is_done
            }
            _ => false,
        }
    }

    /// Looks at the stretch that begins with a block.
    fn look(&mut self, block: u64) {
        let offset = block * BLOCK_BYTES_U64;
        let next = self.extents.partition_point(|extent| extent.end() <= offset);
        let (kind, bytes) = match self.extents.get(next) {
            Some(extent) if extent.offset <= offset => {
                let kind = if extent.is_unwritten { StretchKind::Empty } else { StretchKind::Apart };
                (kind, extent.end() - offset)
            }
            Some(extent) => (StretchKind::Empty, extent.offset - offset),
            None => (StretchKind::Empty, u64::MAX),
        };
        let place = self
            .extents
            .get(next)
            .filter(|_| matches!(kind, StretchKind::Apart))
            .and_then(|extent| extent.place_of(offset));
        let blocks = bytes / BLOCK_BYTES_U64;
        let (kind, count) = match place.map(|place| self.slots.at(place)) {
            // The block ends within another kind of stretch.
            _ if blocks == 0 => (StretchKind::Apart, 1),
            Some((Some(slot), count)) => {
                self.contents = self.slots.contents.get(&slot.arena()).map_or(&[], Vec::as_slice);
                (StretchKind::InSlots(slot), count.min(blocks))
            }
            Some((None, count)) => (StretchKind::Apart, count.min(blocks)),
            None => (kind, blocks),
        };
        (self.from, self.end, self.kind) = (block, block.saturating_add(count.max(1)), kind);
    }
}
