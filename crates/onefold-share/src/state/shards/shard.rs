//! An open shard: its entries, and those of the batches beside it, in one order.

use onefold_substrate::Substrate;

use crate::format::entry::ContentEntry;
use crate::format::prefix::Prefix;
use crate::format::shard::{ShardReader, Stretch};
use crate::format::{FingerprintPrefix, FormatError};
use crate::state::batches::SharedBatches;

/// An open shard.
pub struct Shard<'a, S: Substrate> {
    /// The prefix of its digests.
    pub prefix: Prefix,
    /// Its generation; 0 if it has none of its own yet.
    pub generation: u64,
    /// Its entries; `None` if there are none.
    pub(super) entries: Option<ShardReader<'a, S>>,
    /// The file of the entries.
    pub(super) source: Option<(Prefix, u64)>,
    /// Length of its entries, in bytes. Approximate if it is one half of a split shard, or if batches hold some of
    /// them.
    pub bytes: u64,
    /// The entries of batches, for this shard and those after it.
    pub(super) batches: SharedBatches<'a, S>,
    /// An entry of the shard that comes behind one of a batch.
    pub(super) ahead: Option<ContentEntry>,
    /// The shard's own entry for the digest of the last entry, if that came from a batch.
    pub(super) hidden: Option<ContentEntry>,
    /// Number of entries that came from batches.
    pub(super) from_batches: u64,
}

impl<S: Substrate> Shard<'_, S> {
    /// Returns how many of the entries so far came from batches.
    pub(crate) fn batched_entries(&self) -> u64 {
        self.from_batches
    }

    /// Takes the shard's own entry for the digest of the last entry, if that came from a batch.
    pub(crate) fn take_hidden(&mut self) -> Option<ContentEntry> {
        self.hidden.take()
    }

    /// Returns the next entry, in order of the digests; `None` behind the last. An entry of a batch replaces the
    /// shard's entry for the same digest. Shards that were opened together are read in their order.
    ///
    /// # Errors
    /// See [`FormatError`].
    pub fn next_entry(&mut self) -> Result<Option<ContentEntry>, FormatError> {
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

    fn next_own_entry(&mut self) -> Result<Option<ContentEntry>, FormatError> {
        let Some(entries) = &mut self.entries else { return Ok(None) };
        loop {
            let Some(entry) = entries.next_entry()? else { return Ok(None) };
            if self.prefix.contains(entry.digest) {
                return Ok(Some(entry));
            }
            if self.source.is_some_and(|(prefix, _)| !prefix.contains(entry.digest)) {
                return Err(FormatError::Damaged("it has entries of another shard"));
            }
            // It belongs to the other half of a split shard.
            if entry.digest.first_word() > self.prefix.last_word() {
                return Ok(None);
            }
        }
    }

    /// Returns the next entries, as far as they are in memory, up to a digest or the end of the shard. Returns nothing
    /// before [`Shard::next_entry`] has returned an entry, and sometimes between others.
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
        // From an entry of the shard on, all belong to it, up to its highest digest.
        let end = (u128::from(self.prefix.last_word()) + 1) << (u128::BITS - u64::BITS - u32::BITS);
        let batched = self.batches.borrow_mut().peek(self.prefix)?;
        let limits = limit.into_iter().chain(batched.map(|entry| entry.digest));
        entries.take_below(limits.fold(end, |end, limit| end.min(limit.number())))
    }
}
