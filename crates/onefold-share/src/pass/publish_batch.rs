//! The end of a batch: a file of its own names its slots.
//!
//! Another host may have put the same content into the arena since the plan was made. The host with the later batch
//! number yields: its places are looked at again, and no entry names its slot. If another host has published a single
//! place of a content, that place is looked at again, because the batch hides the entry of the shard.

use std::collections::BTreeMap;

use onefold_sort::Spool;
use onefold_substrate::Substrate;

use super::PassError;
use super::rows::{Candidate, Change, SeenContent, Step};
use super::since::SeenIndex;
use crate::format::FingerprintPrefix;
use crate::format::entry::{ContentEntry, ContentPlace};
use crate::state::{State, StateError};

/// Maximum number of times that other hosts may publish first.
const TRIES: u32 = 1000;

/// The decisions of the plan, by digests.
pub(super) struct PlannedChanges {
    /// Changes of entries.
    pub(super) changes: Spool,
    /// All places that were seen.
    pub(super) seen: Spool,
}

impl PlannedChanges {
    /// Returns the places of a content whose entries the plan drops.
    fn dropped(&self, digest: FingerprintPrefix) -> Result<Vec<ContentPlace>, PassError> {
        let mut dropped = Vec::new();
        let from = self.changes.lower_bound(digest.first_word())?;
        for row in self.changes.read(from, self.changes.len()) {
            let change = Change::of(row?);
            if change.digest > digest {
                break;
            }
            if let (true, Step::Drop(place)) = (change.digest == digest, change.step) {
                dropped.push(place);
            }
        }
        Ok(dropped)
    }

    /// Returns all places of a content that this pass was to share.
    fn places(&self, digest: FingerprintPrefix) -> Result<Vec<Candidate>, PassError> {
        let mut places = Vec::new();
        let from = self.seen.lower_bound(digest.first_word())?;
        for row in self.seen.read(from, self.seen.len()) {
            let SeenContent { digest: seen, file, block } = SeenContent::of(row?);
            if seen > digest {
                break;
            }
            if seen == digest {
                places.push(Candidate { file, block, digest });
            }
        }
        for place in self.dropped(digest)? {
            if let ContentPlace::Unique(file, block) = place {
                places.push(Candidate { file, block, digest });
            }
        }
        Ok(places)
    }
}

/// Publishes the entries of a batch, in order of their digests. Slots that they name count as named. Returns places
/// that have to be looked at again.
pub(super) fn publish_batch<S: Substrate>(
    state: &State<'_, S>,
    planned: &PlannedChanges,
    index: &mut SeenIndex,
    mut entries: Vec<ContentEntry>,
) -> Result<Vec<Candidate>, PassError> {
    let mut again = Vec::new();
    for _ in 0..TRIES {
        yield_to_others(state, planned, index, &mut entries, &mut again)?;
        if entries.is_empty() {
            return Ok(again);
        }
        let newest = index.batches.last().copied().unwrap_or(0);
        // From here on other hosts may share with the slots, whatever error this host gets.
        for entry in &entries {
            if let ContentPlace::Shared(slot) = entry.place {
                index.named.insert(slot);
            }
        }
        let published = state.publish_batch(newest, &entries).inspect_err(|_| {
            // The slots are emptied, unless the batch is there after all: then it is read before.
            for entry in &entries {
                if let ContentPlace::Shared(slot) = entry.place {
                    index.named.remove(slot);
                }
            }
        });
        if let Some(number) = published? {
            index.batches.insert(number);
            // Shards that were published in between do not take the batch into account, which hides their entries.
            let theirs = yield_to_others(state, planned, index, &mut entries, &mut again)?;
            if !theirs.is_empty() {
                correct(state, index, &theirs)?;
            }
            return Ok(again);
        }
    }
    Err(StateError::Restless.into())
}

/// Publishes the slots of other hosts after a batch that names other slots.
fn correct<S: Substrate>(
    state: &State<'_, S>,
    index: &mut SeenIndex,
    theirs: &[ContentEntry],
) -> Result<(), PassError> {
    let mut newest = index.batches.last().copied().unwrap_or(0);
    for _ in 0..TRIES {
        if let Some(number) = state.publish_batch(newest, theirs)? {
            index.batches.insert(number);
            return Ok(());
        }
        newest = state.batch_numbers()?.last().copied().unwrap_or(newest);
    }
    Err(StateError::Restless.into())
}

/// Reads what other hosts have published meanwhile. Removes the contents that they have in the arena, returns their
/// entries, and notes the places that are to be looked at again.
fn yield_to_others<S: Substrate>(
    state: &State<'_, S>,
    planned: &PlannedChanges,
    index: &mut SeenIndex,
    entries: &mut Vec<ContentEntry>,
    again: &mut Vec<Candidate>,
) -> Result<Vec<ContentEntry>, PassError> {
    index.read_news(state, Some(&planned.seen))?;
    let mut yielded = BTreeMap::new();
    for ContentEntry { digest, place } in entries.iter() {
        let Some(met) = index.met.remove(digest) else { continue };
        let dropped = planned.dropped(*digest)?;
        for theirs in met.into_iter().filter(|theirs| theirs != place && !dropped.contains(theirs)) {
            match theirs {
                ContentPlace::Shared(_) => {
                    if yielded.insert(*digest, theirs).is_none() {
                        again.extend(planned.places(*digest)?);
                    }
                }
                ContentPlace::Unique(file, block) => again.push(Candidate { file, block, digest: *digest }),
            }
        }
    }
    entries.retain(|entry| !yielded.contains_key(&entry.digest));
    Ok(yielded.into_iter().map(|(digest, place)| ContentEntry { digest, place }).collect())
}
