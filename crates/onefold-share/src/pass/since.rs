//! News: the entries that other hosts have published since the plan was made.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::iter::Peekable;

use onefold_sort::{Spool, SpoolReader};
use onefold_substrate::Substrate;

use super::PassError;
use super::publish::KnownShards;
use super::rows::SeenContent;
use super::slots::SlotSet;
use crate::format::entry::{ContentEntry, ContentPlace};
use crate::format::prefix::Prefix;
use crate::format::{FingerprintPrefix, FormatError};
use crate::state::State;

/// The parts of the index of which this pass has read all entries.
#[derive(Debug, Default)]
pub(super) struct SeenIndex {
    pub(super) generations: BTreeMap<Prefix, u64>,
    pub(super) batches: BTreeSet<u64>,
    /// Slots that entries name, unless the entries are to be dropped.
    pub(super) named: SlotSet,
    /// Places that other hosts have published since the plan, of contents that this pass has seen, too.
    pub(super) met: BTreeMap<FingerprintPrefix, BTreeSet<ContentPlace>>,
}

impl SeenIndex {
    /// Reads the new parts, and counts them as read. Keeps their places of contents of `seen`, which has all places in
    /// order of their digests. If nothing is new, this only lists two folders.
    pub(super) fn read_news<S: Substrate>(
        &mut self,
        state: &State<'_, S>,
        seen: Option<&Spool>,
    ) -> Result<(), PassError> {
        let mut news = News { seen: seen.map(SeenDigests::new), named: &mut self.named, met: &mut self.met };
        // Before the shards: the entries of batches that are gone by now were merged, and are in the shards that are
        // there now.
        let numbers: Vec<u64> = state.batch_numbers()?.difference(&self.batches).copied().collect();
        let mut batches = state.open_batches_of(numbers.iter().copied())?;
        loop {
            match batches.peek(Prefix::WHOLE) {
                Ok(Some(entry)) => news.take(entry)?,
                Ok(None) => break,
                Err(FormatError::Io(error)) => return Err(error.into()),
                Err(why) => {
                    if let Some(number) = batches.damaged() {
                        state.refuse_batch(number, FormatError::Damaged("its entries cannot be read"))?;
                    }
                    return Err(PassError::Index { prefix: Prefix::WHOLE, why });
                }
            }
            batches.take();
        }
        self.batches.extend(numbers);
        let mut opened = None;
        for (prefix, generation) in state.newest_generations()? {
            if self.generations.get(&prefix) == Some(&generation) {
                continue;
            }
            for mut shard in state.open_index(prefix, &mut opened)?.0 {
                loop {
                    match shard.next_entry() {
                        Ok(Some(entry)) => {
                            news.take(entry)?;
                            // A batch, above all one of this host, may hide a place that another host has published.
                            if let Some(hidden) = shard.take_hidden().filter(|hidden| is_unique(hidden.place)) {
                                news.take(hidden)?;
                            }
                        }
                        Ok(None) => break,
                        Err(FormatError::Io(error)) => return Err(error.into()),
                        Err(why) => return Err(PassError::damaged(state, &shard, why)?),
                    }
                }
            }
            self.generations.insert(prefix, generation);
        }
        if state.take_loss() {
            let why = io::Error::other("a part of it was dropped");
            return Err(PassError::Index { prefix: Prefix::WHOLE, why: FormatError::Io(why) });
        }
        Ok(())
    }

    /// Notes the generations that this pass has published, or into which it has merged its news.
    pub(super) fn note(&mut self, known: &KnownShards) {
        self.generations.extend(known.iter().map(|(prefix, known)| (*prefix, known.generation)));
    }
}

fn is_unique(place: ContentPlace) -> bool {
    matches!(place, ContentPlace::Unique(..))
}

/// Collects news.
struct News<'a> {
    seen: Option<SeenDigests<'a>>,
    named: &'a mut SlotSet,
    met: &'a mut BTreeMap<FingerprintPrefix, BTreeSet<ContentPlace>>,
}

impl News<'_> {
    fn take(&mut self, entry: ContentEntry) -> Result<(), PassError> {
        let is_known = match entry.place {
            ContentPlace::Shared(slot) => {
                let is_known = self.named.contains(slot);
                self.named.insert(slot);
                is_known
            }
            ContentPlace::Unique(..) => false,
        };
        if let Some(seen) = self.seen.as_mut().filter(|_| !is_known)
            && seen.contain(entry.digest)?
        {
            self.met.entry(entry.digest).or_default().insert(entry.place);
        }
        Ok(())
    }
}

/// The digests of a list, read forward as long as they are asked for in order.
struct SeenDigests<'a> {
    rows: &'a Spool,
    ahead: Peekable<SpoolReader<'a>>,
    last: Option<FingerprintPrefix>,
}

impl SeenDigests<'_> {
    fn new(rows: &Spool) -> SeenDigests<'_> {
        SeenDigests { rows, ahead: rows.read(0, rows.len()).peekable(), last: None }
    }

    fn contain(&mut self, digest: FingerprintPrefix) -> io::Result<bool> {
        if self.last.replace(digest).is_some_and(|last| last > digest) {
            let from = self.rows.lower_bound(digest.first_word())?;
            self.ahead = self.rows.read(from, self.rows.len()).peekable();
        }
        while let Some(row) =
            self.ahead.next_if(|row| row.as_ref().map_or(true, |row| SeenContent::of(*row).digest < digest))
        {
            row?;
        }
        Ok(matches!(self.ahead.peek(), Some(Ok(row)) if SeenContent::of(*row).digest == digest))
    }
}
