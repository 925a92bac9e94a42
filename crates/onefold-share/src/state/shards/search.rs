//! Finds the shards with some digests: a split shard has its entries in its halves, or still has them itself.

use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use onefold_substrate::{Access, Substrate};

use super::generations::Generations;
use super::{Shard, shard_path};
use crate::format::FormatError;
use crate::format::prefix::Prefix;
use crate::format::shard::{GENERATION_MAX, ShardReader};
use crate::state::batches::SharedBatches;
use crate::state::{State, StateError};

/// Finds the shards of some digests.
pub(super) struct Search<'s, 'a, S: Substrate> {
    pub(super) state: &'s State<'a, S>,
    pub(super) generations: Generations,
    pub(super) within: Prefix,
    pub(super) batches: SharedBatches<'a, S>,
    pub(super) found: Vec<Shard<'a, S>>,
}

/// Why the search has to begin anew, or fails.
pub(super) enum Stop {
    /// The files have changed since they were listed.
    Changed,
    /// A file was useless, and is gone.
    Dropped,
    Failed(StateError),
}

impl<'a, S: Substrate> Search<'_, 'a, S> {
    pub(super) fn find(&mut self, prefix: Prefix, inherited: Option<(Prefix, u64)>) -> Result<(), Stop> {
        if !prefix.covers(self.within) && !self.within.covers(prefix) {
            return Ok(());
        }
        let own = self.generations.newest(prefix).map(|generation| (prefix, generation));
        if self.generations.has_part(prefix) {
            return self.find_halves(prefix, own.or(inherited));
        }
        let Some(source) = own.or(inherited) else {
            self.push(prefix, 0, None);
            return Ok(());
        };
        let entries = self.open(source)?;
        if own.is_some() && entries.is_split() {
            return self.find_halves(prefix, own);
        }
        let generation = own.map_or(0, |(_, generation)| generation);
        self.push(prefix, generation, Some((entries, source)));
        Ok(())
    }

    fn push(&mut self, prefix: Prefix, generation: u64, entries: Option<(ShardReader<'a, S>, (Prefix, u64))>) {
        let (entries, source) = entries.unzip();
        let own =
            entries.as_ref().zip(source).map(|(entries, source)| entries.length() >> prefix.bits_behind(source.0));
        let bytes = own.unwrap_or(0) + (self.batches.borrow().bytes() >> prefix.bits_behind(Prefix::WHOLE));
        let batches = Rc::clone(&self.batches);
        let shard =
            Shard { prefix, generation, entries, source, bytes, batches, ahead: None, hidden: None, from_batches: 0 };
        self.found.push(shard);
    }

    fn find_halves(&mut self, prefix: Prefix, source: Option<(Prefix, u64)>) -> Result<(), Stop> {
        prefix.halves().into_iter().flatten().try_for_each(|half| self.find(half, source))
    }

    fn open(&self, (prefix, generation): (Prefix, u64)) -> Result<ShardReader<'a, S>, Stop> {
        let path = shard_path(self.state, prefix, generation);
        let file = match self.state.open_own(&path, Access::Read) {
            Ok(file) => file,
            // There is a newer one, and this one was removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Stop::Changed),
            Err(error) => return Err(Stop::Failed(StateError::at(&path)(error))),
        };
        let why = match ShardReader::open(self.state.substrate(), file, &self.state.identity().uuid) {
            Ok(_) if generation >= GENERATION_MAX => FormatError::Damaged("no generation could come after it"),
            Ok(entries) if entries.generation() == generation => return Ok(entries),
            Ok(_) => FormatError::Damaged("it is another generation than its name says"),
            Err(FormatError::Io(source)) => return Err(Stop::Failed(StateError::at(&path)(source))),
            Err(why @ FormatError::Newer { .. }) => return Err(Stop::Failed(StateError::Newer { path, why })),
            Err(why) => why,
        };
        self.state.refuse(path, why).map_err(Stop::Failed)?;
        self.state.has_lost_entries.store(true, Ordering::Relaxed);
        Err(Stop::Dropped)
    }
}
