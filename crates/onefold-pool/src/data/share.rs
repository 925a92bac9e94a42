//! Compare-and-share: makes blocks one that were found to be equal after they were stored.
//!
//! Nothing that the finder claims is trusted. The order of the steps makes this safe:
//!
//! 1. Both ranges are locked. Until the end, no thread changes what either of them reads, and no block that they name
//!    is freed.
//! 2. Fingerprints in the stores are compared. Blocks whose fingerprints differ are not read: either their content
//!    differs, or one of them no longer holds what was written. So sharing neither spreads damage nor hides it.
//! 3. All bytes are compared. Bytes of a private source block are also compared with the block's fingerprint: it may be
//!    private because a scrub found it damaged.
//! 4. The target's places name the source's blocks, some hundreds in one operation, which joins the running transaction
//!    as a whole. So the new reference and the end of the old one become durable together, and a block without
//!    references is not handed out before that ([`crate::meta::op`]).

use onefold_block::block::BLOCK_BYTES_U64;
use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockNo, Fingerprint};

use super::Data;
use super::fetch::FetchPart;
use crate::attr::{Dedup, Ino, RangePair};
use crate::error::{PoolError, Result};
use crate::format::inode::Inode;
use crate::format::map_node::MapEntry;
use crate::format::store_page::StoreEntry;
use crate::map::blocks_of;
use crate::meta::hash::BlockSet;
use crate::meta::{Op, OpResult, Privilege};

/// Maximum number of bytes that one call compares. Writers to the ranges wait as long.
pub const SHARE_BYTES_MAX: u64 = 16 << 20;
/// Number of blocks that are compared at once, or changed by one operation.
const STEP_BLOCKS: u64 = 256;

/// The result of comparing and sharing two ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ShareOutcome {
    /// They are equal, and now share their blocks.
    Shared,
    /// They are equal. Some blocks of the source cannot take another reference, because their counts are full, and stay
    /// unshared; all others are now shared.
    InPart,
    /// They differ, or one ends beyond its file, or a block no longer holds what was stored. Nothing was changed.
    Differ,
}

/// Two ranges of blocks of equal length.
#[derive(Clone, Copy, Debug)]
struct BlockRanges {
    source: Ino,
    source_first: u64,
    target: Ino,
    target_first: u64,
    count: u64,
}

impl BlockRanges {
    /// Returns the part of the ranges for the next step, from block `from` on.
    fn step(&self, from: u64, count_max: u64) -> BlockRanges {
        let (source_first, target_first) = (self.source_first + from, self.target_first + from);
        BlockRanges { source_first, target_first, count: count_max.min(self.count - from), ..*self }
    }

    fn overlap(&self) -> bool {
        self.source == self.target && self.source_first.abs_diff(self.target_first) < self.count
    }
}

/// Different blocks at one place of both ranges.
struct BlockPair {
    source: BlockNo,
    target: BlockNo,
    /// The fingerprint that the source's content must be proven to have, because the source is private.
    to_prove: Option<Fingerprint>,
}

impl Data {
    /// Checks whether two files may share blocks now.
    ///
    /// # Errors
    /// See [`Data::share_part`].
    pub(crate) fn ensure_may_share(&self, source: Ino, target: Ino) -> Result<()> {
        self.engine.view(|op| {
            let (from, to) = (op.regular(source)?, op.regular(target)?);
            Ok(self.check_sharing(&from, &to)?)
        })
    }

    fn check_sharing(&self, from: &Inode, to: &Inode) -> Result<()> {
        if from.attr.domain != to.attr.domain {
            return Err(PoolError::CrossDomain);
        }
        let is_on = |inode: &Inode| inode.attr.dedup == Dedup::On;
        if self.engine.options.dedup == Dedup::On && is_on(from) && is_on(to) {
            Ok(())
        } else {
            Err(PoolError::NotPermitted("deduplication is switched off"))
        }
    }

    /// Compares ranges of whole blocks. If they are equal, makes the target name the source's blocks. Times do not
    /// change.
    ///
    /// # Errors
    /// [`PoolError::CrossDomain`]; [`PoolError::NotPermitted`] if deduplication is switched off for either file or the
    /// pool; [`PoolError::Invalid`] for ranges that are not of whole blocks, are empty, too long, or overlap; no space
    /// for map nodes that clones no longer share; device errors. The first part may be shared then.
    pub(crate) fn share_part(&self, ranges: RangePair) -> Result<ShareOutcome> {
        let RangePair { source, source_offset, target, target_offset, bytes } = ranges;
        self.engine.ensure_writable()?;
        let is_whole =
            [source_offset, target_offset, bytes].iter().all(|number| number.is_multiple_of(BLOCK_BYTES_U64));
        if !is_whole || bytes == 0 || bytes > SHARE_BYTES_MAX {
            return Err(PoolError::Invalid("whole blocks can be shared, 16 MiB at once"));
        }
        let (source_end, target_end) = ranges.ends().ok_or(PoolError::FileTooLarge)?;
        let first = |offset: u64| offset / BLOCK_BYTES_U64;
        let ranges = BlockRanges {
            source,
            source_first: first(source_offset),
            target,
            target_first: first(target_offset),
            count: first(bytes),
        };
        if ranges.overlap() {
            return Err(PoolError::Invalid("the ranges overlap"));
        }
        let _guards = self.lock_two(
            (source, ranges.source_first..first(source_end)),
            (target, ranges.target_first..first(target_end)),
        );
        let are_within = self.engine.view(|op| {
            let (from, to) = (op.regular(source)?, op.regular(target)?);
            self.check_sharing(&from, &to)?;
            Ok(source_end <= from.attr.size_bytes && target_end <= to.attr.size_bytes)
        })?;
        // A truncate since the ranges were found changes the file as a write does.
        if !are_within {
            return Ok(ShareOutcome::Differ);
        }
        match self.compare(&ranges)? {
            Some(proven) => self.refer_to_source(&ranges, &proven),
            None => Ok(ShareOutcome::Differ),
        }
    }

    /// Compares locked ranges. Returns the private blocks of the source that are sound; `None` if anything differs.
    fn compare(&self, ranges: &BlockRanges) -> Result<Option<BlockSet>> {
        let mut proven = BlockSet::default();
        let mut at = 0;
        while at < ranges.count {
            let step = ranges.step(at, STEP_BLOCKS);
            at += step.count;
            let Some((domain, pairs)) = self.engine.view(|op| op.pairs(&step))? else { return Ok(None) };
            if pairs.is_empty() {
                continue;
            }
            let entries = |of: fn(&BlockPair) -> BlockNo| pairs.iter().map(|pair| MapEntry::Block(of(pair))).collect();
            let (ours, theirs): (Vec<_>, Vec<_>) = (entries(|pair| pair.source), entries(|pair| pair.target));
            let [mut one, mut other] = [(); 2].map(|()| AlignedBuffer::zeroed(pairs.len()));
            self.fetch_each(&mut [
                FetchPart { entries: &ours, into: &mut one },
                FetchPart { entries: &theirs, into: &mut other },
            ])?;
            if one[..] != other[..] {
                return Ok(None);
            }
            let key = self.engine.key(domain);
            for (pair, bytes) in pairs.iter().zip(one.chunks_exact(BLOCK_BYTES)) {
                let Some(fingerprint) = pair.to_prove else { continue };
                if key.fingerprint(bytes) != fingerprint {
                    return Ok(None);
                }
                proven.insert(pair.source);
            }
        }
        Ok(Some(proven))
    }

    /// Makes a target name the blocks of a source whose content is known to be equal.
    fn refer_to_source(&self, ranges: &BlockRanges, proven: &BlockSet) -> Result<ShareOutcome> {
        let (mut at, mut step_blocks) = (0, STEP_BLOCKS);
        let mut outcome = ShareOutcome::Shared;
        while at < ranges.count {
            let step = ranges.step(at, step_blocks);
            match self.engine.run(Privilege::Normal, |op| op.share_step(&step, proven)) {
                Ok(UnsharedRest::Nothing) => at += step.count,
                Ok(UnsharedRest::Some) => {
                    outcome = ShareOutcome::InPart;
                    at += step.count;
                }
                // A small journal takes a large change in several transactions.
                Err(PoolError::TooLargeForJournal) if step_blocks > 1 => step_blocks = step_blocks.div_ceil(2),
                Err(error) => return Err(error),
            }
        }
        Ok(outcome)
    }
}

/// Whether an operation has left blocks unshared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnsharedRest {
    Nothing,
    Some,
}

impl Op<'_> {
    /// Returns the map entries of both ranges, and the target's inode.
    fn both_entries(&mut self, ranges: &BlockRanges) -> OpResult<(Inode, Vec<(MapEntry, MapEntry)>)> {
        let (from, to) = (self.regular(ranges.source)?, self.regular(ranges.target)?);
        let mut ours = vec![MapEntry::Hole; usize::try_from(ranges.count).expect("at most a step")];
        let mut theirs = ours.clone();
        self.map_read(&from, ranges.source_first, &mut ours)?;
        self.map_read(&to, ranges.target_first, &mut theirs)?;
        self.want_entries(blocks_of(&ours).into_iter().chain(blocks_of(&theirs)))?;
        Ok((to, ours.into_iter().zip(theirs).collect()))
    }

    /// Returns the sharing domain and the pairs of blocks to compare by value; `None` if something certainly differs.
    fn pairs(&mut self, ranges: &BlockRanges) -> OpResult<Option<(u16, Vec<BlockPair>)>> {
        let (to, entries) = self.both_entries(ranges)?;
        let mut pairs = Vec::new();
        for (ours, theirs) in entries {
            let (source, target) = match (ours.block(), theirs.block()) {
                (None, None) => continue,
                (Some(source), Some(target)) if source == target => continue,
                (Some(source), Some(target)) => (source, target),
                // Zeros are never stored, so a block that reads as zeros is damaged.
                (Some(_), None) | (None, Some(_)) => return Ok(None),
            };
            let (one, other) = (self.entry(source)?, self.entry(target)?);
            if one.fingerprint != other.fingerprint {
                return Ok(None);
            }
            pairs.push(BlockPair { source, target, to_prove: one.private.then_some(one.fingerprint) });
        }
        Ok(Some((to.attr.domain, pairs)))
    }

    /// Makes the target name the source's blocks in place of its own, which are equal.
    fn share_step(&mut self, ranges: &BlockRanges, proven: &BlockSet) -> OpResult<UnsharedRest> {
        let (mut to, entries) = self.both_entries(ranges)?;
        let mut left = UnsharedRest::Nothing;
        let mut changes: Vec<(u64, MapEntry)> = Vec::new();
        for (place, (ours, theirs)) in (ranges.target_first..).zip(entries) {
            let (Some(source), Some(target)) = (ours.block(), theirs.block()) else { continue };
            if source == target {
                continue;
            }
            if self.offer(source, proven)? {
                changes.push((place, MapEntry::Block(self.add_data_reference(source)?)));
            } else {
                left = UnsharedRest::Some;
            }
        }
        for run in changes.chunk_by(|one, next| one.0 + 1 == next.0) {
            let entries: Vec<MapEntry> = run.iter().map(|(_, entry)| *entry).collect();
            self.map_write(&mut to, run[0].0, &entries)?;
        }
        if !changes.is_empty() {
            self.put_inode(&to)?;
        }
        Ok(left)
    }

    /// Returns whether a block can take another reference. A private block is offered for sharing from now on.
    /// Otherwise a later write of its content would find no block, because the target's block, which it would have
    /// found, is gone.
    fn offer(&mut self, source: BlockNo, proven: &BlockSet) -> OpResult<bool> {
        let entry = self.entry(source)?;
        if entry.count >= self.meta.limits.references_max {
            return Ok(false);
        }
        if entry.private {
            // A scrub may have found it damaged since the comparison.
            if !proven.contains(&source) {
                return Ok(false);
            }
            self.set_entry(source, &StoreEntry { private: false, ..entry })?;
            self.index(entry.fingerprint, source);
        }
        Ok(true)
    }
}
