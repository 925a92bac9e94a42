//! The index, as files: shards. Each shard holds the entries whose digests have one prefix, in numbered generations of
//! which the newest counts.
//!
//! The file names show which shards exist. A shard that has become too large gets a generation that is marked as split:
//! its entries belong to its two halves from then on. A half has its entries there until it has a generation of its
//! own. So a split is one step, the `link` of one file. When both halves have their own generations, the split one is
//! removed.
//!
//! A generation appears by `link`, which fails if another host was first. So two hosts may work on a shard at once,
//! because a lock expired or a host was suspended: the second one only has to begin anew. Because older generations are
//! removed, a host that comes back late may find its own name free. So it checks afterwards whether its generation is
//! the newest.
//!
//! A reader of a shard reads the batches (`batches`) beside it, as if it held their entries.

mod generations;
mod search;
mod shard;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use onefold_substrate::Substrate;

use self::generations::Generations;
use self::search::{Search, Stop};
pub use self::shard::Shard;
use super::batches::SharedBatches;
use super::{State, StateError};
use crate::format::FormatError;
use crate::format::prefix::Prefix;
use crate::format::shard::{EntryCounts, ShardWriter};

const FOLDER: &str = "shards";

/// A generation of a shard that is to be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextGeneration {
    /// The prefix of the shard's digests.
    pub prefix: Prefix,
    /// The number of the generation.
    pub generation: u64,
    /// Whether the entries belong to the shard's halves from then on.
    pub is_split: bool,
}

/// A generation that was written and has no name yet.
pub struct Publication<T> {
    /// The result of its writer.
    pub result: T,
    /// Its counts of entries.
    pub counts: EntryCounts,
    /// Its length in bytes.
    pub bytes: u64,
}

impl<'a, S: Substrate> State<'a, S> {
    /// Opens the shards that have digests with this prefix, in order. Together they hold all of these. A useless one is
    /// dropped: its contents are found again.
    ///
    /// # Errors
    /// Errors of the device; `Newer`, because this version must not rewrite a later version's index.
    pub(crate) fn open_shards(&self, within: Prefix) -> Result<Vec<Shard<'a, S>>, StateError> {
        Ok(self.open_index(within, &mut None)?.0)
    }

    /// Does the same as [`State::open_shards`], and opens the batches beside them. Batches that were opened before are
    /// used further, if the list of batches has not changed and their entries of these digests are still ahead.
    ///
    /// # Errors
    /// As [`State::open_shards`].
    pub(crate) fn open_index(
        &self,
        within: Prefix,
        opened: &mut Option<SharedBatches<'a, S>>,
    ) -> Result<(Vec<Shard<'a, S>>, SharedBatches<'a, S>), StateError> {
        let mut tries = 0;
        while tries < super::TRIES {
            // Before the shards: the entries of batches that are gone by now were merged, and are in the shards that
            // are there now.
            let numbers = self.batch_numbers()?;
            let is_same = |batches: &SharedBatches<'a, S>| {
                let batches = batches.borrow();
                let is_whole = batches.reaches(within) && batches.damaged().is_none();
                is_whole && numbers.iter().all(|number| batches.numbers().any(|opened| opened == *number))
            };
            let batches = match opened.take().filter(is_same) {
                Some(batches) => batches,
                None => Rc::new(RefCell::new(self.open_batches_of(numbers)?)),
            };
            *opened = Some(Rc::clone(&batches));
            let generations = self.generations()?;
            let found = Vec::new();
            let mut search = Search { state: self, generations, within, batches: Rc::clone(&batches), found };
            match search.find(Prefix::WHOLE, None) {
                Ok(()) => return Ok((search.found, batches)),
                Err(Stop::Changed) => tries += 1,
                // There is one shard less each time, however many there were.
                Err(Stop::Dropped) => {}
                Err(Stop::Failed(error)) => return Err(error),
            }
        }
        Err(StateError::Restless)
    }

    /// Returns whether a part of the index was dropped since the last call. Its contents are found again only by
    /// reading all files, which a host that publishes a new generation has to ensure: from then on the index looks as
    /// if it were whole.
    pub(crate) fn take_loss(&self) -> bool {
        self.has_lost_entries.swap(false, Ordering::Relaxed)
    }

    /// Drops the file of a shard, or the batch beside it, that turned out to be damaged while it was read.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn refuse_shard(&self, shard: &Shard<'_, S>, why: FormatError) -> Result<(), StateError> {
        if let Some(batch) = shard.batches.borrow().damaged() {
            return self.refuse_batch(batch, why);
        }
        match shard.source {
            Some((prefix, generation)) => self.refuse(shard_path(self, prefix, generation), why),
            None => Ok(()),
        }
    }

    /// Writes a generation of a shard and publishes it. `fill` returns any value, or `None` if no new generation is
    /// needed after all.
    ///
    /// Returns `Late` if another host has published one meanwhile: then only the work is lost.
    ///
    /// # Errors
    /// Errors of `fill`; no space; errors of the device.
    pub fn publish_shard<T>(
        &self,
        next: NextGeneration,
        fill: impl FnOnce(&mut ShardWriter<'a, S>) -> io::Result<Option<T>>,
    ) -> Result<PublishOutcome<T>, StateError> {
        let NextGeneration { prefix, generation, is_split } = next;
        let mut written = None;
        let scratch = self.write_scratch(|file| {
            let uuid = self.identity().uuid;
            let mut writer = ShardWriter::new(self.substrate(), file, uuid, generation, is_split);
            if let Some(result) = fill(&mut writer)? {
                let (counts, bytes) = writer.finish()?;
                written = Some(Publication { result, counts, bytes });
            }
            Ok(())
        })?;
        let Some(written) = written else {
            self.discard(&scratch);
            return Ok(PublishOutcome::Unneeded);
        };
        if !self.publish(&scratch, &shard_path(self, prefix, generation))? {
            return Ok(PublishOutcome::Late);
        }
        let generations = self.generations()?;
        if generations.is_over(prefix, generation) {
            // The name was free because its generation had come and gone. Or the generation was removed since, and its
            // entries are in a later one.
            self.remove(&shard_path(self, prefix, generation))?;
            return Ok(PublishOutcome::Late);
        }
        self.remove_superseded(&generations)?;
        Ok(PublishOutcome::Done(written))
    }

    /// Returns whether there is a complete index.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn has_index(&self) -> Result<bool, StateError> {
        Ok(self.generations()?.are_all_there(Prefix::WHOLE))
    }

    /// Returns the newest generation of each shard that has any, as the file names show.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn newest_generations(&self) -> Result<BTreeMap<Prefix, u64>, StateError> {
        let generations = self.generations()?;
        let newest = generations.by_prefix.keys().filter_map(|prefix| Some((*prefix, generations.newest(*prefix)?)));
        Ok(newest.collect())
    }

    fn remove_superseded(&self, generations: &Generations) -> Result<(), StateError> {
        for (prefix, numbers) in &generations.by_prefix {
            let newest = generations.newest(*prefix);
            let is_split = generations.has_both_halves(*prefix);
            for number in numbers.iter().filter(|number| is_split || Some(**number) != newest) {
                self.remove(&shard_path(self, *prefix, *number))?;
            }
        }
        Ok(())
    }

    fn generations(&self) -> Result<Generations, StateError> {
        let mut generations = Generations::default();
        for name in self.names(FOLDER)? {
            let Some((prefix, number)) = name.split_once('.') else { continue };
            let Ok(generation) = number.parse::<u64>() else { continue };
            // A number in another notation is foreign: there is no file under the name that it should have.
            if let Some(prefix) = Prefix::parse(prefix).filter(|_| generation.to_string() == number) {
                generations.by_prefix.entry(prefix).or_default().push(generation);
            }
        }
        Ok(generations)
    }
}

/// Result of publishing a generation.
pub enum PublishOutcome<T> {
    /// It is the newest.
    Done(Publication<T>),
    /// Nothing had changed.
    Unneeded,
    /// Another host was first.
    Late,
}

fn shard_path<S: Substrate>(state: &State<'_, S>, prefix: Prefix, generation: u64) -> PathBuf {
    state.path(FOLDER, format!("{prefix}.{generation}"))
}
