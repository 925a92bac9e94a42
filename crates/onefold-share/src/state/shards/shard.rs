//! A shard that was opened: its entries, and those of the batches beside it, in one order.

use onefold_substrate::Substrate;

use crate::format::entry::Entry;
use crate::format::prefix::Prefix;
use crate::format::shard::{ShardReader, Stretch};
use crate::format::{FingerprintPrefix, FormatError};
use crate::state::batches::SharedBatches;

/// A shard as it was found.
pub struct Shard<'a, S: Substrate> {
    /// Which digests it holds.
    pub prefix: Prefix,
    /// Its generation; 0 where it has none of its own yet.
    pub generation: u64,
    /// Its entries; none if there are none.
    pub(super) entries: Option<ShardReader<'a, S>>,
    /// The file that they are in.
    pub(super) source: Option<(Prefix, u64)>,
    /// How long its entries are, in bytes; about, where it is one half of a shard that was split, or batches hold some.
    pub bytes: u64,
    /// What batches hold, for this shard and those after it.
    pub(super) batches: SharedBatches<'a, S>,
    /// An entry of the shard that comes behind one of a batch.
    pub(super) ahead: Option<Entry>,
    /// What the shard itself says of the digest of the last entry, where that was in a batch.
    pub(super) hidden: Option<Entry>,
    /// Entries that batches held.
    pub(super) from_batches: u64,
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

    /// Returns the next entry, in order of the digests; none behind the last. What a batch holds comes in place of what
    /// the shard says of the same digest. Shards that were opened together are read in their order.
    ///
    /// # Errors
    /// See [`FormatError`].
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

    /// Returns what comes next, as long as it is below a digest, or the shard ends, and only of what is in memory:
    /// nothing before [`Shard::next_entry`] has returned an entry, and now and then between others.
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
