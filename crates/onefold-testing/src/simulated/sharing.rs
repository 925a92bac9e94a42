//! Comparing and sharing, cloning, and the map of extents.

use std::rc::Rc;

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::{
    AgedExtent, ComparisonResult, MappedExtent, Reference, Refusal, ShareError, Slice, WholeExtent,
};
use rustix::io::Errno;

use super::blocks::PhysicalNo;
use super::content::reads_same;
use super::files::FileNo;
use super::host::HostNo;
use super::options::Mistake;
use super::world::{Actor, World};

/// Blocks of an extent that the file system claims to free as a whole.
const EXTENT_BLOCKS: u64 = 4;

/// Two ranges of whole blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedRanges {
    pub(super) source: (FileNo, u64),
    pub(super) into: (FileNo, u64),
    pub(super) count: u64,
}

impl SharedRanges {
    /// Returns the pairs of each source block and its destination block.
    fn pairs(self) -> impl Iterator<Item = (u64, u64)> {
        (0..self.count).map(move |step| (self.source.1 + step, self.into.1 + step))
    }
}

/// The extents that a map withholds.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapLimits {
    pub(super) extents_max: usize,
    pub(super) hides_unsynced: bool,
}

impl World {
    /// Checks two ranges of bytes against the rules of the trait.
    ///
    /// # Errors
    /// `InvalidInput` if they break the rules; a refusal for a property of the files.
    pub(super) fn ranges(
        &self,
        source: (FileNo, u64),
        into: (FileNo, u64),
        length: u64,
    ) -> Result<SharedRanges, ShareError> {
        let aligned = |bytes: u64| bytes.is_multiple_of(BLOCK_BYTES_U64);
        let within = |(no, offset): (FileNo, u64)| {
            offset.checked_add(length).is_some_and(|end| end <= self.files.get(no).length)
        };
        let apart = source.0 != into.0 || source.1.abs_diff(into.1) >= length;
        let most = u64::from(self.options.habits.share_blocks_max) * BLOCK_BYTES_U64;
        let is_valid = length > 0 && length <= most && [source.1, into.1, length].into_iter().all(aligned);
        if !is_valid || !within(source) || !within(into) || !apart {
            return Err(ShareError::Io(Errno::INVAL.into()));
        }
        if let Some(refusal) = self.refusal(source.0, into.0) {
            return Err(ShareError::Refused(refusal));
        }
        let blocks = |(no, offset): (FileNo, u64)| (no, offset / BLOCK_BYTES_U64);
        Ok(SharedRanges { source: blocks(source), into: blocks(into), count: length / BLOCK_BYTES_U64 })
    }

    /// Returns why the file system would not share between two files.
    fn refusal(&self, source: FileNo, into: FileNo) -> Option<Refusal> {
        let (source, into) = (self.files.get(source).refusal, self.files.get(into).refusal);
        let is_in_place = |refusal| refusal == Some(Refusal::NoCopyOnWrite);
        match (source, into) {
            (_, Some(Refusal::Immutable)) => Some(Refusal::Immutable),
            (Some(Refusal::Swap), _) | (_, Some(Refusal::Swap)) => Some(Refusal::Swap),
            _ if is_in_place(source) != is_in_place(into) => Some(Refusal::NoCopyOnWrite),
            _ => None,
        }
    }

    /// Compares two ranges and shares them if they are equal. With `stop_after`, fails after that many blocks were
    /// shared.
    ///
    /// First makes the compared data durable, as the kernel writes both ranges back before it compares. Otherwise a
    /// crash could revert one file to a content that differs from the one compared.
    pub(super) fn share(
        &mut self,
        host: HostNo,
        ranges: SharedRanges,
        stop_after: Option<u64>,
    ) -> Result<ComparisonResult, ShareError> {
        let (source, into) = (ranges.source.0, ranges.into.0);
        self.make_range_durable(host, source, ranges.source.1, ranges.count);
        self.make_range_durable(host, into, ranges.into.1, ranges.count);
        let is_compared = self.options.mistake != Some(Mistake::ShareDoesNotCompare);
        let mut pairs = ranges.pairs();
        if is_compared && !pairs.all(|(from, to)| reads_same(self.content_at(source, from), self.content_at(into, to)))
        {
            self.counters.differs += 1;
            return Ok(ComparisonResult::Differ);
        }
        self.check_owners(SharedRanges { count: stop_after.unwrap_or(ranges.count).min(ranges.count), ..ranges });
        let used = self.blocks.used();
        let count = stop_after.map_or(ranges.count, |most| most.min(ranges.count));
        for (from, to) in (SharedRanges { count, ..ranges }).pairs() {
            let block = self.files.get(source).block(from);
            self.remap(into, to, block);
        }
        self.note_shared(host, SharedRanges { count, ..ranges });
        self.counters.blocks_freed_by_sharing += u64::from(used.saturating_sub(self.blocks.used()));
        if stop_after.is_some() {
            self.leave_rest(ranges, count);
            if self.shares_in_two_steps() && self.dice.one_in(2) {
                // Like kernels that have shared a part.
                return Ok(ComparisonResult::Shared);
            }
            return Err(ShareError::Io(Errno::IO.into()));
        }
        self.counters.shares += 1;
        Ok(ComparisonResult::Shared)
    }

    /// Checks that a host shares blocks of one user's images only. Images keep their owner while a host has them open.
    fn check_owners(&mut self, ranges: SharedRanges) {
        let (source, into) = (ranges.source.0, ranges.into.0);
        if !self.files.get(into).is_image {
            return;
        }
        let owner = self.files.get(into).owner;
        for (from, _) in ranges.pairs() {
            let image = self.files.get(source);
            // A host's own file that holds no clone holds zeros, or data to be moved.
            let other = if image.is_image { Some(image.owner) } else { self.cloned_from.get(&(source, from)).copied() };
            if other.is_some_and(|other| other != owner) {
                let path = self.names.path_of(into);
                self.violated(format!("{path} of user {owner} was to share a block of user {other:?}"));
            }
        }
    }

    /// Notes the owner of the blocks that a host clones into its own file.
    fn note_cloned(&mut self, actor: Actor, ranges: SharedRanges) {
        let (source, into) = (self.files.get(ranges.source.0), self.files.get(ranges.into.0));
        if matches!(actor, Actor::Writer(_)) || !source.is_image || into.is_image {
            return;
        }
        let owner = source.owner;
        for (_, to) in ranges.pairs() {
            self.cloned_from.insert((ranges.into.0, to), owner);
        }
    }

    /// Forgets the owners of blocks that were cloned into a removed file.
    pub(super) fn forget_clones(&mut self, no: FileNo) {
        let mut others = self.cloned_from.split_off(&(no, 0));
        self.cloned_from.append(&mut others.split_off(&(no, u64::MAX)));
    }

    /// Makes a range refer to the blocks of another, whatever it held.
    pub(super) fn clone_range(&mut self, actor: Actor, ranges: SharedRanges) {
        let (source, into) = (ranges.source.0, ranges.into.0);
        self.check_exposure(actor, into);
        self.make_range_durable(actor.host(), source, ranges.source.1, ranges.count);
        self.take_over(actor.host(), into);
        self.mark_unsynced(actor.host(), into);
        self.note_cloned(actor, ranges);
        for (from, to) in ranges.pairs() {
            self.note_durable(into, to);
            if self.forget_hole(into, to) && !self.is_followed(actor, into) {
                self.files.get_mut(into).unsynced.filled.insert(to);
            }
            let block = self.files.get(source).block(from);
            self.remap(into, to, block);
            if self.is_followed(actor, into) {
                // A clone of a hole that a share has left has the hole, too.
                let is_left = self.left.contains(&(source, from));
                let content = self.reference.get(source, from).filter(|_| !is_left).cloned();
                self.reference.set(into, to, content);
            }
        }
        self.touch(actor.host(), into);
    }

    /// Returns the extents of a file's data.
    pub(super) fn extents(&self, no: FileNo, from: u64, limits: MapLimits) -> Vec<MappedExtent> {
        let file = self.files.get(no);
        let mut extents: Vec<MappedExtent> = Vec::new();
        for (index, &block) in file.map.iter_from(from / BLOCK_BYTES_U64) {
            let is_hidden = limits.hides_unsynced && file.unsynced.blocks.contains_key(&index);
            let offset = index * BLOCK_BYTES_U64;
            let place = (!is_hidden).then_some(u64::from(block.0) * BLOCK_BYTES_U64);
            let is_shared = self.is_told_shared(block);
            let is_unwritten = Rc::ptr_eq(self.blocks.content(block), &self.unwritten);
            if let Some(last) = extents.last_mut() {
                let follows =
                    last.place.map(|place| place + last.length) == place || (last.place, place) == (None, None);
                if last.end() == offset && follows && (last.is_shared, last.is_unwritten) == (is_shared, is_unwritten) {
                    last.length += BLOCK_BYTES_U64;
                    continue;
                }
            }
            if extents.len() == limits.extents_max {
                break;
            }
            extents.push(MappedExtent { offset, place, length: BLOCK_BYTES_U64, is_shared, is_unwritten });
        }
        extents
    }

    /// Returns the whole extents of a file's data: a slice for each block.
    ///
    /// The simulation frees blocks one by one, and only claims to free them in fours. That makes no difference to how
    /// hosts work.
    pub(super) fn slices(&self, no: FileNo, from: u64) -> impl Iterator<Item = Slice> {
        let file = self.files.get(no);
        file.map.iter_from(from / BLOCK_BYTES_U64).map(|(index, &block)| {
            let (place, within) = (u64::from(block.0) / EXTENT_BLOCKS, u64::from(block.0) % EXTENT_BLOCKS);
            let length = EXTENT_BLOCKS * BLOCK_BYTES_U64;
            Slice {
                offset: index * BLOCK_BYTES_U64,
                length: BLOCK_BYTES_U64,
                extent: WholeExtent { place: place * length, length },
                within: within * BLOCK_BYTES_U64,
                is_unwritten: Rc::ptr_eq(self.blocks.content(block), &self.unwritten),
            }
        })
    }

    /// Returns the blocks of a file that changed in a generation or later, and their neighbours.
    pub(super) fn changed_since(&self, no: FileNo, generation: u64, from: u64) -> impl Iterator<Item = AgedExtent> {
        let file = self.files.get(no);
        let is_touched = move |index: u64| file.touched.get(&index).is_some_and(|touched| *touched >= generation);
        let is_near = move |index: u64| (index.saturating_sub(1)..=index + 1).any(is_touched);
        let blocks = file.map.iter_from(from / BLOCK_BYTES_U64).filter(move |(index, _)| is_near(*index));
        blocks.map(|(index, &block)| AgedExtent {
            offset: index * BLOCK_BYTES_U64,
            length: BLOCK_BYTES_U64,
            place: Some(u64::from(block.0) * BLOCK_BYTES_U64),
            is_unwritten: Rc::ptr_eq(self.blocks.content(block), &self.unwritten),
            generation: self.blocks.generation_of(block),
        })
    }

    /// Returns the slices of all files that lie in an extent.
    pub(super) fn references(&self, extent: WholeExtent) -> Vec<Reference> {
        let of = |no: FileNo| {
            let slices = self.slices(no, 0).filter(move |slice| slice.extent == extent);
            slices.map(move |slice| Reference { handle: Some(self.handle(no)), offset: slice.offset })
        };
        self.files.all().flat_map(|(no, _)| of(no)).collect()
    }

    fn is_told_shared(&self, block: PhysicalNo) -> bool {
        let stays_shared = !self.options.habits.tells_last_reference && self.blocks.was_shared(block);
        self.blocks.count(block) > 1 || stays_shared
    }
}
