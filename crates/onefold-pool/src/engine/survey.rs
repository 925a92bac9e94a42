//! Finding out after a mount what free blocks the groups have, beside the work.
//!
//! Bitmaps are read many at once, with no lock held and past the cache: all of them together may be larger than the
//! cache. What is registered as being read ([`crate::meta::cache`]) is neither changed nor read by others meanwhile, so
//! what the device has is what counts.

use onefold_block::device::reads_of;
use onefold_block::{AlignedBuffer, BlockNo};

use super::Engine;
use super::load::sound;
use crate::activity::Counter;
use crate::error::{PoolError, Result};
use crate::format::BlockBytes;
use crate::format::header::BlockKind;
use crate::format::state::Field;
use crate::meta::Meta;
use crate::meta::free_words::{Bitmaps, FreeFor, FreeWords, bitmaps_of};
use crate::meta::op::Fault;
use crate::sync;

/// Groups whose bitmaps are read at once: half a mebibyte in as many places.
const GROUPS_PER_STEP: usize = 64;
/// Groups that are looked at under one hold of the metadata lock: about a tenth of a millisecond.
const GROUPS_PER_HOLD: usize = 8;

/// A group whose bitmaps are looked at.
struct Surveyed {
    group: u64,
    /// Those of its bitmaps that this step reads.
    missing: Vec<BlockNo>,
}

impl Engine {
    /// Looks at some groups that nothing is known of. Returns false when each was looked at.
    ///
    /// A group whose bitmaps are damaged, or being read by others, is passed over: an operation that needs it looks
    /// itself.
    ///
    /// # Errors
    /// Device errors. Nothing is known of these groups then.
    pub(crate) fn survey_some(&self) -> Result<bool> {
        if self.options.read_only {
            return Ok(false);
        }
        let groups = self.begin_survey();
        if groups.is_empty() {
            return Ok(false);
        }
        let places: Vec<BlockNo> = groups.iter().flat_map(|surveyed| surveyed.missing.iter().copied()).collect();
        let mut buffer = AlignedBuffer::zeroed(places.len());
        let read = match places.first() {
            None => Ok(()),
            Some(&block) => self
                .device
                .read_batch(&mut reads_of(&places, &mut buffer))
                .map_err(|source| PoolError::Io { action: "read", block, source }),
        };
        let mut blocks = buffer.blocks();
        for groups in groups.chunks(GROUPS_PER_HOLD) {
            let mut meta = self.meta();
            for surveyed in groups {
                let bytes: Vec<&BlockBytes> = blocks.by_ref().take(surveyed.missing.len()).collect();
                end_survey(&mut meta, surveyed, &bytes, read.is_ok());
            }
            sync::unlock_fairly(meta);
        }
        self.loaded.notify_all();
        self.activity.add(Counter::MetadataBlocksRead, places.len() as u64);
        read.map(|()| true)
    }

    /// Picks the next groups, and registers that the bitmaps which are not in memory are read.
    fn begin_survey(&self) -> Vec<Surveyed> {
        let mut meta = self.meta();
        let meta = &mut *meta;
        let (geometry, ready) = (meta.geometry, meta.state(Field::GroupsReady));
        let mut groups = Vec::new();
        while groups.len() < GROUPS_PER_STEP
            && let Some(group) = meta.groups.free_runs.next_unknown(meta.groups.survey_next..ready)
        {
            meta.groups.survey_next = group + 1;
            if bitmaps_of(&geometry, group).any(|block| meta.cache.is_loading(block)) {
                continue;
            }
            let missing = bitmaps_of(&geometry, group).filter(|block| meta.cache.begin_load(*block)).collect();
            groups.push(Surveyed { group, missing });
        }
        groups
    }
}

/// Takes in what the device has of a group's bitmaps; not if one of them was created meanwhile.
fn end_survey(meta: &mut Meta, surveyed: &Surveyed, bytes: &[&BlockBytes], is_read: bool) {
    let mut is_current = is_read;
    for (&block, bytes) in surveyed.missing.iter().zip(bytes) {
        let fault = Fault { block, kind: BlockKind::Bitmap };
        is_current &= meta.cache.is_loading(block) && sound(&meta.geometry, meta.pool_tag, fault, bytes).is_ok();
        meta.cache.end_load(block, None);
    }
    if !is_current || meta.groups.free_runs.get(surveyed.group).is_some() {
        return;
    }
    let geometry = meta.geometry;
    let mut bitmaps = Bitmaps::default();
    for (place, block) in bitmaps.iter_mut().zip(bitmaps_of(&geometry, surveyed.group)) {
        let read = surveyed.missing.iter().position(|missing| *missing == block).map(|at| bytes[at]);
        *place = read.or_else(|| meta.cache.peek(block));
        if place.is_none() {
            return;
        }
    }
    let words = FreeWords::new(bitmaps, &meta.groups, &geometry, surveyed.group, FreeFor::Data);
    let (known, looked) = words.survey();
    meta.groups.free_runs.set(surveyed.group, Some(known));
    meta.groups.words_scanned += looked;
}
