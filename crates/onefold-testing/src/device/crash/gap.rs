//! The events between two syncs. A power cut may leave any part of them.

use std::collections::HashMap;
use std::ops::Range;

use super::fate::{DiscardedContent, EventFate};
use crate::device::{Event, MemoryImage, SharedBlock};
use onefold_block::BlockNo;

/// Returns the gaps of a stream of events: each ends at a sync, and the last one at the end of the stream.
pub(super) fn gaps(events: &[Event]) -> Vec<Range<usize>> {
    let mut gaps = Vec::new();
    let mut start = 0;
    for (index, event) in events.iter().enumerate() {
        if matches!(event, Event::Sync) {
            gaps.push(start..index);
            start = index + 1;
        }
    }
    gaps.push(start..events.len());
    gaps
}

/// One gap, with the events that touch each of its blocks.
#[derive(Debug)]
pub(super) struct Gap<'a> {
    events: &'a [Event],
    touched_by: HashMap<BlockNo, Vec<usize>>,
}

impl<'a> Gap<'a> {
    pub(super) fn new(events: &'a [Event], range: Range<usize>) -> Gap<'a> {
        let mut touched_by: HashMap<BlockNo, Vec<usize>> = HashMap::new();
        for index in range {
            for block in blocks_of(&events[index]) {
                touched_by.entry(block).or_default().push(index);
            }
        }
        Gap { events, touched_by }
    }

    /// Returns the blocks that the gap touches, sorted.
    pub(super) fn blocks(&self) -> Vec<BlockNo> {
        let mut blocks: Vec<_> = self.touched_by.keys().copied().collect();
        blocks.sort_unstable();
        blocks
    }

    /// Sets `block` of `image` to its content after the gap's events before `cut` happened to `base`, with the fates
    /// that `fate_of` returns.
    ///
    /// Events on one block take effect in order: a disk's cache holds the later one.
    pub(super) fn settle(
        &self,
        image: &mut MemoryImage,
        base: &MemoryImage,
        block: BlockNo,
        cut: usize,
        discard_seed: u64,
        fate_of: impl Fn(usize) -> EventFate,
    ) {
        let mut content = base.get(block).cloned();
        for &index in self.touched_by.get(&block).into_iter().flatten().filter(|index| **index < cut) {
            content = outcome(&self.events[index], index, block, content, fate_of(index), discard_seed);
        }
        match content {
            Some(content) => image.set(block, content),
            None => image.clear(block),
        }
    }
}

/// Applies all of `event` to `image`.
pub(super) fn apply(event: &Event, index: usize, image: &mut MemoryImage, discard_seed: u64) {
    for block in blocks_of(event) {
        let old = image.get(block).cloned();
        match outcome(event, index, block, old, EventFate::Whole, discard_seed) {
            Some(content) => image.set(block, content),
            None => image.clear(block),
        }
    }
}

/// Returns the blocks that an event touches.
pub(super) fn blocks_of(event: &Event) -> impl Iterator<Item = BlockNo> + use<> {
    let (first, count) = match event {
        Event::Write { first, blocks } => (*first, blocks.len() as u64),
        Event::Discard { first, count } => (*first, *count),
        Event::Sync | Event::Mark(_) => (BlockNo(0), 0),
    };
    (first.0..first.0 + count).map(BlockNo)
}

/// Returns the content of `block`, one of those that `event` touches, after the event.
fn outcome(
    event: &Event,
    index: usize,
    block: BlockNo,
    old: Option<SharedBlock>,
    fate: EventFate,
    discard_seed: u64,
) -> Option<SharedBlock> {
    match event {
        Event::Write { first, blocks } => {
            let place = usize::try_from(block.0 - first.0).expect("below the number of blocks written");
            fate.block(place, blocks, old)
        }
        Event::Discard { first, .. } if fate == EventFate::Whole => {
            match DiscardedContent::of(discard_seed, index, block.0 - first.0) {
                DiscardedContent::Old => old,
                DiscardedContent::Zero => None,
                // Never-written blocks may stay zero: a trim of the whole device must not fill memory.
                DiscardedContent::Garbage => old.map(|_| DiscardedContent::garbage(discard_seed, index)),
            }
        }
        Event::Discard { .. } | Event::Sync | Event::Mark(_) => old,
    }
}
