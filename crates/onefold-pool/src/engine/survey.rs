//! Finds out after a mount, in the background, which free blocks the groups have, unless the last close saved it
//! ([`super::summary_image`]).
//!
//! Many bitmaps are read at once, with no lock held and past the cache, because all of them together may be larger than
//! the cache. While a bitmap is registered as being read ([`crate::meta::cache`]), no other thread changes or reads it,
//! so the device's content is valid.

use onefold_block::device::reads_of;
use onefold_block::{AlignedBuffer, BlockNo};

use super::Engine;
use super::load::sound;
use crate::activity::ActivityCounter;
use crate::error::{PoolError, Result};
use crate::format::BlockBytes;
use crate::format::header::BlockKind;
use crate::format::state::Field;
use crate::meta::Meta;
use crate::meta::free_words::{Bitmaps, FreeWords, SearchPurpose, bitmaps_of};
use crate::meta::op::BlockFault;
use crate::sync;

/// Number of groups whose bitmaps are read at once: half a mebibyte, in as many places.
const GROUPS_PER_STEP: usize = 64;
/// Number of groups that are examined under one hold of the metadata lock: about a tenth of a millisecond.
const GROUPS_PER_HOLD: usize = 8;

/// A group whose bitmaps are examined.
struct SurveyGroup {
    group: u64,
    /// The bitmaps that this step reads.
    missing: Vec<BlockNo>,
}

impl Engine {
    /// Examines some unknown groups. Returns false once each group was examined.
    ///
    /// Skips a group whose bitmaps are damaged or being read by another thread: an operation that needs the group
    /// examines it itself.
    ///
    /// # Errors
    /// Device errors. These groups stay unknown then.
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
        self.activity.add(ActivityCounter::MetadataBlocksRead, places.len() as u64);
        read.map(|()| true)
    }

    /// Chooses the next groups, and registers the bitmaps that are not in memory as being read.
    fn begin_survey(&self) -> Vec<SurveyGroup> {
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
            groups.push(SurveyGroup { group, missing });
        }
        if groups.is_empty() {
            meta.groups.free_runs.forget_hints();
        }
        groups
    }
}

/// Records the content of a group's bitmaps as read from the device, unless one of them was created meanwhile.
fn end_survey(meta: &mut Meta, surveyed: &SurveyGroup, bytes: &[&BlockBytes], is_read: bool) {
    let mut is_current = is_read;
    for (&block, bytes) in surveyed.missing.iter().zip(bytes) {
        let fault = BlockFault { block, kind: BlockKind::Bitmap };
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
    let words = FreeWords::new(bitmaps, &meta.groups, &geometry, surveyed.group, SearchPurpose::Data);
    let (known, looked) = words.survey();
    meta.groups.free_runs.set(surveyed.group, Some(known));
    meta.groups.words_scanned += looked;
}
