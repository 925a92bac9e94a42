//! Batches: small files of entries that passes publish before their end, and that are read beside the shards.
//!
//! A batch is one step of a pass: its slots are filled, images share with them, and its file names them. The digests of
//! a batch are spread over all shards, so merging it at once would mean writing the whole index. The merge is done at
//! the end of a pass, or when batches have become a large part of the index: first new generations of the shards are
//! published, then the batches are removed. A host that dies in between leaves entries twice, which agree.
//!
//! For one digest, the newest batch is right, then older ones, then the shard. A reader opens the batches before the
//! shards: the entries of a batch that is gone by then are in the shards that are there by then.
//!
//! `link` gives out consecutive numbers. So if two hosts have put one content into the arena, the second sees the first
//! one's batch before its own has a number. The newest batch is never removed before an empty one comes after it;
//! otherwise its number would be given out twice.

use std::cell::RefCell;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeSet, BinaryHeap};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use onefold_substrate::{Access, Substrate};

use super::{State, StateError};
use crate::format::entry::ContentEntry;
use crate::format::prefix::Prefix;
use crate::format::shard::{EMPTY_BYTES, ShardReader, ShardWriter};
use crate::format::{FingerprintPrefix, FormatError};

pub(super) const FOLDER: &str = "batches";

/// Maximum number of batches before they are merged into the shards: each is open while the index is read.
pub(crate) const BATCHES_MAX: usize = 64;

/// Batches are merged into the shards when they are this fraction of the index, and at least [`MERGE_BYTES_MIN`] long.
/// So each entry is written only a few times.
pub(crate) const MERGE_PART: u64 = 4;
/// Minimum length of batches that are merged, in bytes. See [`MERGE_PART`].
pub(crate) const MERGE_BYTES_MIN: u64 = 64 << 20;

/// One list of batches that several readers use, for shards that are read one after the other.
pub(crate) type SharedBatches<'a, S> = Rc<RefCell<Batches<'a, S>>>;

/// The entries of some batches, in order of their digests, the newest for each.
pub(crate) struct Batches<'a, S: Substrate> {
    readers: Vec<(u64, ShardReader<'a, S>)>,
    /// The next entry of each batch, the lowest digest first. Of equal digests, that of the newest batch comes first.
    heads: BinaryHeap<Head>,
    /// The next entry, once it was looked up.
    next: Option<ContentEntry>,
    is_begun: bool,
    /// Entries below this were taken or skipped.
    from: u64,
    bytes: u64,
    /// The batch that turned out to be damaged.
    damaged: Option<u64>,
}

struct Head {
    entry: ContentEntry,
    number: u64,
    reader: usize,
}

impl Head {
    fn key(&self) -> (std::cmp::Reverse<FingerprintPrefix>, u64) {
        (std::cmp::Reverse(self.entry.digest), self.number)
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Head) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl<S: Substrate> Batches<'_, S> {
    /// Returns the numbers of the batches.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.readers.iter().map(|(number, _)| *number)
    }

    /// Returns whether any of them has an entry.
    pub(crate) fn has_entries(&self) -> bool {
        self.readers.iter().any(|(_, entries)| entries.length() > EMPTY_BYTES)
    }

    /// Returns their total length, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the damaged batch that ended the reading.
    pub(crate) fn damaged(&self) -> Option<u64> {
        self.damaged
    }

    /// Returns whether the entries of a prefix are still ahead.
    pub(super) fn reaches(&self, prefix: Prefix) -> bool {
        self.from <= prefix.first_word()
    }

    /// Returns the next entry of a prefix without taking it, and skips those of lower digests. Prefixes have to come in
    /// order.
    pub(crate) fn peek(&mut self, prefix: Prefix) -> Result<Option<ContentEntry>, FormatError> {
        if !self.is_begun {
            self.is_begun = true;
            for reader in 0..self.readers.len() {
                if let Some(entry) = self.read(reader)? {
                    self.heads.push(Head { entry, number: self.readers[reader].0, reader });
                }
            }
        }
        loop {
            if self.next.is_none() {
                self.advance()?;
            }
            match self.next {
                Some(entry) if entry.digest.first_word() < prefix.first_word() => drop(self.take()),
                Some(entry) => return Ok(Some(entry).filter(|entry| prefix.contains(entry.digest))),
                None => return Ok(None),
            }
        }
    }

    /// Takes the entry that was peeked at.
    pub(crate) fn take(&mut self) -> Option<ContentEntry> {
        let entry = self.next.take();
        if let Some(entry) = entry {
            self.from = self.from.max(entry.digest.first_word().saturating_add(1));
        }
        entry
    }

    fn advance(&mut self) -> Result<(), FormatError> {
        let Some(entry) = self.take_head()? else { return Ok(()) };
        while self.heads.peek().is_some_and(|older| older.entry.digest == entry.digest) {
            self.take_head()?;
        }
        self.next = Some(entry);
        Ok(())
    }

    /// Takes the first of the heads, and puts the next entry of its batch into its place.
    fn take_head(&mut self) -> Result<Option<ContentEntry>, FormatError> {
        let Some(reader) = self.heads.peek().map(|head| head.reader) else { return Ok(None) };
        let next = self.read(reader)?;
        let Some(mut head) = self.heads.peek_mut() else { return Ok(None) };
        Ok(Some(match next {
            Some(next) => std::mem::replace(&mut head.entry, next),
            None => PeekMut::pop(head).entry,
        }))
    }

    /// Returns the next entry of a batch.
    fn read(&mut self, reader: usize) -> Result<Option<ContentEntry>, FormatError> {
        let (number, entries) = &mut self.readers[reader];
        entries.next_entry().inspect_err(|why| {
            if why.is_worthless() {
                self.damaged = Some(*number);
            }
        })
    }
}

impl<'a, S: Substrate> State<'a, S> {
    /// Returns the numbers of all batches, in order.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn batch_numbers(&self) -> Result<BTreeSet<u64>, StateError> {
        let names = match self.names(FOLDER) {
            // An earlier version has made the state folder, and no host has written a batch since.
            Err(StateError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Vec::new(),
            names => names?,
        };
        // A number without a successor, or a name in another notation, is foreign.
        let number = |name: &String| name.parse::<u64>().ok().filter(|number| number.to_string() == *name);
        Ok(names.iter().filter_map(number).filter(|number| *number < u64::MAX).collect())
    }

    /// Opens all batches, to be read beside shards that are opened afterwards. A useless one is dropped, and counts as
    /// a lost part of the index.
    ///
    /// # Errors
    /// Errors of the device; `Newer`.
    pub(crate) fn open_batches(&self) -> Result<Batches<'a, S>, StateError> {
        let numbers = self.batch_numbers()?;
        self.open_batches_of(numbers)
    }

    /// Does the same as [`State::open_batches`], for batches of these numbers. Those that are gone are skipped.
    ///
    /// # Errors
    /// As [`State::open_batches`].
    pub(crate) fn open_batches_of(&self, numbers: impl IntoIterator<Item = u64>) -> Result<Batches<'a, S>, StateError> {
        let mut batches = Batches {
            readers: Vec::new(),
            heads: BinaryHeap::new(),
            next: None,
            is_begun: false,
            from: 0,
            bytes: 0,
            damaged: None,
        };
        for number in numbers {
            let path = batch_path(self, number);
            let file = match self.open_own(&path, Access::Read) {
                // It was merged into shards, which are opened next.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.map_err(StateError::at(&path))?,
            };
            let why = match ShardReader::open_batch(self.substrate(), file, &self.identity().uuid) {
                Ok(entries) if entries.batch_number() == number => {
                    batches.bytes += entries.length();
                    batches.readers.push((number, entries));
                    continue;
                }
                Ok(_) => FormatError::Damaged("it is another batch than its name says"),
                Err(FormatError::Io(source)) => return Err(StateError::at(&path)(source)),
                Err(why @ FormatError::Newer { .. }) => return Err(StateError::Newer { path, why }),
                Err(why) => why,
            };
            self.refuse_batch(number, why)?;
        }
        Ok(batches)
    }

    /// Drops a damaged batch. Its contents are found again by reading all files.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn refuse_batch(&self, number: u64, why: FormatError) -> Result<(), StateError> {
        self.has_lost_entries.store(true, Ordering::Relaxed);
        self.refuse(batch_path(self, number), why)
    }

    /// Publishes entries as the batch behind all existing ones; `newest` is the last one that the caller has read.
    /// Returns its number; `None` if there is a newer batch, which has to be read first.
    ///
    /// # Errors
    /// No space; errors of the device.
    ///
    /// # Panics
    /// If the entries are not in order of their digests.
    pub(crate) fn publish_batch(&self, newest: u64, entries: &[ContentEntry]) -> Result<Option<u64>, StateError> {
        let number = newest + 1;
        let scratch = self.write_scratch(|file| {
            let mut writer = ShardWriter::of_batch(self.substrate(), file, self.identity().uuid, number);
            entries.iter().try_for_each(|entry| writer.push(entry))?;
            writer.finish().map(drop)
        })?;
        if !self.publish(&scratch, &batch_path(self, number))? {
            return Ok(None);
        }
        if self.batch_numbers()?.last().is_some_and(|last| *last > number) {
            // The name was free because another host's batch with this number, which was not read, had come and gone.
            self.remove(&batch_path(self, number))?;
            return Ok(None);
        }
        Ok(Some(number))
    }

    /// Removes batches whose entries are all in the shards by now.
    ///
    /// # Errors
    /// No space for an empty batch that replaces the newest; errors of the device.
    pub(crate) fn remove_batches(&self, merged: &BTreeSet<u64>) -> Result<(), StateError> {
        let Some(newest) = self.batch_numbers()?.last().copied() else { return Ok(()) };
        let mut kept = newest;
        if merged.contains(&newest) && self.open_batches_of([newest])?.has_entries() {
            // If another host has just published one, that batch is newer, and stays.
            kept = self.publish_batch(newest, &[])?.unwrap_or(newest + 1);
        }
        for number in merged.iter().filter(|number| **number < kept) {
            self.remove(&batch_path(self, *number))?;
        }
        Ok(())
    }
}

fn batch_path<S: Substrate>(state: &State<'_, S>, number: u64) -> PathBuf {
    state.path(FOLDER, number.to_string())
}
