//! The index, as files: shards, each of which holds the entries whose digests begin alike, in numbered generations of which
//! the newest counts.
//!
//! Which shards there are is told by the names. A shard that has become too large gets a generation that says that it is
//! split: its entries belong to its two halves from then on. A half has them from there until it has a generation of its
//! own, so that a split is one step, the `link` of one file. When both halves have their own, the split one goes.
//!
//! A generation appears by `link`, which fails where another host was first. So two hosts may work on a shard at once,
//! because a lock expired or a host was suspended: the second begins anew and nothing else. As older generations go, a
//! host that comes back late may find the name of its own free: it looks afterwards whether it is the newest.
//!
//! Who reads a shard reads the batches (`batches`) beside it, as if it held their entries.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use onefold_substrate::{Access, Substrate};

use super::batches::SharedBatches;
use super::{State, StateError};
use crate::format::entry::Entry;
use crate::format::prefix::Prefix;
use crate::format::shard::{EntryCounts, GENERATION_MAX, ShardReader, ShardWriter, Stretch};
use crate::format::{FingerprintPrefix, FormatError};

const FOLDER: &str = "shards";

/// A shard as it was found.
pub struct Shard<'a, S: Substrate> {
    /// Which digests it holds.
    pub prefix: Prefix,
    /// Its generation; 0 where it has none of its own yet.
    pub generation: u64,
    /// Its entries; none where there are none.
    entries: Option<ShardReader<'a, S>>,
    /// The file that they are in.
    source: Option<(Prefix, u64)>,
    /// How long its entries are, in bytes; about, where it is one half of a shard that was split, or batches hold some.
    pub bytes: u64,
    /// What batches hold, for this shard and those after it.
    batches: SharedBatches<'a, S>,
    /// An entry of the shard that comes behind one of a batch.
    ahead: Option<Entry>,
    /// What the shard itself says of the digest of the last entry, where that was in a batch.
    hidden: Option<Entry>,
    /// Entries that batches held.
    from_batches: u64,
}

impl<S: Substrate> Shard<'_, S> {
    /// Returns how many of the entries so far were in batches.
    pub(crate) fn batched_entries(&self) -> u64 {
        self.from_batches
    }

    /// Takes what the shard itself says of the digest of the last entry, where that was in a batch.
    pub(crate) fn take_hidden(&mut self) -> Option<Entry> {
        self.hidden.take()
    }

    /// Returns the next entry, in order of the digests; none behind the last. What a batch holds comes in place of what the shard
    /// says of the same digest. Shards that were opened together are read in their order.
    ///
    /// # Errors
    /// As [`FormatError`] says.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, FormatError> {
        let own = match self.ahead.take() {
            Some(entry) => Some(entry),
            None => self.next_own_entry()?,
        };
        let mut batches = self.batches.borrow_mut();
        match batches.peek(self.prefix)? {
            Some(entry) if own.is_none_or(|own| entry.digest <= own.digest) => {
                batches.take();
                self.from_batches += 1;
                let is_hidden = own.is_some_and(|own| own.digest == entry.digest);
                (self.ahead, self.hidden) = if is_hidden { (None, own) } else { (own, None) };
                Ok(Some(entry))
            }
            _ => {
                self.hidden = None;
                Ok(own)
            }
        }
    }

    fn next_own_entry(&mut self) -> Result<Option<Entry>, FormatError> {
        let Some(entries) = &mut self.entries else { return Ok(None) };
        loop {
            let Some(entry) = entries.next_entry()? else { return Ok(None) };
            if self.prefix.contains(entry.digest) {
                return Ok(Some(entry));
            }
            if self.source.is_some_and(|(prefix, _)| !prefix.contains(entry.digest)) {
                return Err(FormatError::Damaged("it has entries of another shard"));
            }
            // It is one half of a shard that was split.
            if entry.digest.first_word() > self.prefix.last_word() {
                return Ok(None);
            }
        }
    }

    /// Returns what comes next, as long as it is below a digest, or the shard ends, and only of what is in memory: nothing
    /// before [`Shard::next_entry`] has returned an entry, and now and then between others.
    ///
    /// # Errors
    /// As [`Shard::next_entry`].
    pub(crate) fn take_below(&mut self, limit: Option<FingerprintPrefix>) -> Result<Stretch<'_>, FormatError> {
        let Some(entries) = self.entries.as_mut().filter(|_| self.ahead.is_none()) else {
            return Ok(Stretch::default());
        };
        if !entries.last().is_some_and(|last| self.prefix.contains(last)) {
            return Ok(Stretch::default());
        }
        // From an entry of the shard on all are, up to its highest digest.
        let end = (u128::from(self.prefix.last_word()) + 1) << (u128::BITS - u64::BITS - u32::BITS);
        let batched = self.batches.borrow_mut().peek(self.prefix)?;
        let limits = limit.into_iter().chain(batched.map(|entry| entry.digest));
        entries.take_below(limits.fold(end, |end, limit| end.min(limit.number())))
    }
}

/// A generation that was written and has no name yet.
pub struct Publication<T> {
    /// What its writer says of it.
    pub result: T,
    /// What it holds.
    pub counts: EntryCounts,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The generations that there are of each shard.
#[derive(Debug, Default)]
struct Generations {
    by_prefix: BTreeMap<Prefix, Vec<u64>>,
}

impl Generations {
    fn newest(&self, prefix: Prefix) -> Option<u64> {
        self.by_prefix.get(&prefix)?.iter().copied().max()
    }

    /// Tells whether there is a shard that is a part of this one.
    fn has_part(&self, prefix: Prefix) -> bool {
        self.by_prefix.keys().any(|other| *other != prefix && prefix.covers(*other))
    }

    /// Tells whether each half of a shard has files.
    fn has_both_halves(&self, prefix: Prefix) -> bool {
        let has = |half: Prefix| self.by_prefix.keys().any(|other| half.covers(*other));
        prefix.halves().is_some_and(|halves| halves.into_iter().all(has))
    }
}

/// Finds the shards of some digests.
struct Finder<'s, 'a, S: Substrate> {
    state: &'s State<'a, S>,
    generations: Generations,
    within: Prefix,
    batches: SharedBatches<'a, S>,
    found: Vec<Shard<'a, S>>,
}

/// Why the shards have to be looked for anew, or cannot be found.
enum Stop {
    /// Something has changed since the names were listed.
    Changed,
    /// A file was of no use, and is gone.
    Dropped,
    Failed(StateError),
}

impl<'a, S: Substrate> Finder<'_, 'a, S> {
    fn find(&mut self, prefix: Prefix, inherited: Option<(Prefix, u64)>) -> Result<(), Stop> {
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
            // A newer one is there, and this one was removed.
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

impl<'a, S: Substrate> State<'a, S> {
    /// Opens the shards that have digests with this prefix, in order. Together they hold all of these. One that is of no use
    /// is dropped: what it held is found again.
    ///
    /// # Errors
    /// Those of the device; `Newer`, as a later version's index must not be written anew by this one.
    pub(crate) fn open_shards(&self, within: Prefix) -> Result<Vec<Shard<'a, S>>, StateError> {
        Ok(self.open_index(within, &mut None)?.0)
    }

    /// As [`State::open_shards`], with the batches that they are read beside. Those that were opened before are used on, where no other
    /// ones are there now and what they hold of these digests is still ahead.
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
            // Before the shards: what is merged and gone by now is in those that are there now.
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
            let mut finder = Finder { state: self, generations, within, batches: Rc::clone(&batches), found };
            match finder.find(Prefix::WHOLE, None) {
                Ok(()) => return Ok((finder.found, batches)),
                Err(Stop::Changed) => tries += 1,
                // There is one less of them each time, however many they were.
                Err(Stop::Dropped) => {}
                Err(Stop::Failed(error)) => return Err(error),
            }
        }
        Err(StateError::Restless)
    }

    /// Tells whether a part of the index was dropped since this was asked last. What it held is found again only by reading
    /// all files, which who publishes a new generation has to see to: from then on the index looks as if it were whole.
    pub(crate) fn take_loss(&self) -> bool {
        self.has_lost_entries.swap(false, Ordering::Relaxed)
    }

    /// Drops the file of a shard that turned out to be damaged while it was read, or the batch beside it that did.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn refuse_shard(&self, shard: &Shard<'_, S>, why: FormatError) -> Result<(), StateError> {
        if let Some(batch) = shard.batches.borrow().damaged() {
            return self.refuse_batch(batch, why);
        }
        match shard.source {
            Some((prefix, generation)) => self.refuse(shard_path(self, prefix, generation), why),
            None => Ok(()),
        }
    }

    /// Writes a generation of a shard and publishes it; `fill` returns whatever it likes, or nothing where no new
    /// generation is needed after all. With `is_split` its entries belong to its halves from then on.
    ///
    /// Returns none where another host has published one meanwhile: then the work is lost, and nothing else.
    ///
    /// # Errors
    /// What `fill` gives; no space; those of the device.
    pub fn publish_shard<T>(
        &self,
        (prefix, generation): (Prefix, u64),
        is_split: bool,
        fill: impl FnOnce(&mut ShardWriter<'a, S>) -> io::Result<Option<T>>,
    ) -> Result<Published<T>, StateError> {
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
            return Ok(Published::Unneeded);
        };
        if !self.publish(&scratch, &shard_path(self, prefix, generation))? {
            return Ok(Published::Late);
        }
        let generations = self.generations()?;
        if generations.is_over(prefix, generation) {
            // The name was free because its generation had come and gone; or it has gone since, and is in what came after it.
            self.remove(&shard_path(self, prefix, generation))?;
            return Ok(Published::Late);
        }
        self.remove_superseded(&generations)?;
        Ok(Published::Done(written))
    }

    /// Tells whether there is an index, and all of it.
    ///
    /// # Errors
    /// Those of the device.
    pub fn has_index(&self) -> Result<bool, StateError> {
        Ok(self.generations()?.are_all_there(Prefix::WHOLE))
    }

    /// Returns the newest generation of each shard that has any, as the names tell.
    ///
    /// # Errors
    /// Those of the device.
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
            // A number that is written in another way is not ours: there is no such file under the name that it should have.
            if let Some(prefix) = Prefix::parse(prefix).filter(|_| generation.to_string() == number) {
                generations.by_prefix.entry(prefix).or_default().push(generation);
            }
        }
        Ok(generations)
    }
}

impl Generations {
    /// Tells whether others hold all that a generation does, or newer of it. While only one half of a split shard was published, the
    /// entries of the other one are nowhere else: whoever published the first half had them from this generation.
    fn is_over(&self, prefix: Prefix, generation: u64) -> bool {
        self.newest(prefix) != Some(generation) || self.has_both_halves(prefix)
    }

    /// Tells whether all digests of a prefix are in some shard's files.
    fn are_all_there(&self, prefix: Prefix) -> bool {
        self.newest(prefix).is_some()
            || self.has_part(prefix)
                && prefix.halves().is_some_and(|halves| halves.into_iter().all(|half| self.are_all_there(half)))
    }
}

/// What came of publishing a generation.
pub enum Published<T> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn generations(names: &[(&str, u64)]) -> Generations {
        let mut generations = Generations::default();
        for (prefix, number) in names {
            generations.by_prefix.entry(Prefix::parse(prefix).unwrap()).or_default().push(*number);
        }
        generations
    }

    #[test]
    fn an_index_is_there_when_each_digest_has_a_shard() {
        for (names, expected) in [
            (&[][..], false),
            (&[("whole", 3)], true),
            (&[("0", 1)], false),
            (&[("0", 1), ("1", 4)], true),
            (&[("whole", 3), ("0", 1)], true),
            (&[("00", 1), ("01", 1), ("1", 1)], true),
            (&[("00", 1), ("01", 1), ("11", 1)], false),
            (&[("00", 1), ("0", 1), ("1", 1)], true),
        ] {
            assert_eq!(generations(names).are_all_there(Prefix::WHOLE), expected, "{names:?}");
        }
    }

    #[test]
    fn a_split_shard_is_superseded_by_both_of_its_halves() {
        let prefix = |name| Prefix::parse(name).unwrap();
        let generations = generations(&[("whole", 3), ("whole", 12), ("0", 1), ("01", 2), ("11", 1)]);
        assert_eq!(generations.newest(prefix("whole")), Some(12));
        assert!(generations.has_both_halves(prefix("whole")) && !generations.has_both_halves(prefix("0")));
        assert!(generations.has_part(prefix("1")) && !generations.has_part(prefix("01")));
    }

    /// Another host publishes a half of a shard that this one has just split, before this one looks what is there: the other half is in
    /// this one's file alone.
    #[test]
    fn a_split_shard_is_needed_until_both_of_its_halves_are_there() {
        let prefix = Prefix::parse("0").unwrap();
        for (names, expected) in [
            (&[("0", 3)][..], false),
            (&[("0", 2), ("0", 3)], false),
            (&[("0", 3), ("01", 1)], false),
            (&[("0", 3), ("00", 1), ("01", 1)], true),
            (&[("0", 3), ("0", 4)], true),
            (&[("00", 1), ("01", 1)], true),
        ] {
            assert_eq!(generations(names).is_over(prefix, 3), expected, "{names:?}");
        }
    }
}
