//! Queries of the state folder: look-ups in the index, all of its entries, the contents of logs. Status, explanations
//! and clones use nothing else of index and logs.
//!
//! All answers are hints, as old as the last pass.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use onefold_substrate::{Access, Substrate};

use super::logs::LogError;
use super::trust::Distrust;
use super::{State, StateError, batches};
use crate::format::entry::{ContentEntry, ContentPlace};
use crate::format::log::{LogKind, Note};
use crate::format::prefix::Prefix;
use crate::format::shard::{EMPTY_BYTES, EntryCounts};
use crate::format::{FileBlock, FileNo, FingerprintPrefix, FormatError};

const SHARDS: &str = "shards";
const LOGS: &str = "logs";
const REQUESTS: &str = "requests";

/// Files of one kind in the state folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredFiles {
    /// Their number.
    pub files: u64,
    /// Their total length in bytes.
    pub bytes: u64,
    /// Their highest generation, or 0 if they have none.
    pub generation: u64,
}

/// Logs and merge requests that wait for a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingLogs {
    /// Logs.
    pub logs: u64,
    /// Number of image files with logs.
    pub files: u64,
    /// Number of blocks in the logs; a block may occur twice.
    pub blocks: u64,
    /// Length of the logs in bytes.
    pub bytes: u64,
}

/// Whether all logs could be read, and have the content of all their blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogCompleteness {
    /// All logs were read.
    Whole,
    /// A log is damaged, was written by a later version, or reports only that blocks were changed.
    InPart,
}

impl<S: Substrate> State<'_, S> {
    /// Returns the place of a content in the index.
    ///
    /// # Errors
    /// Errors of the device; `Damaged`, `Newer`.
    pub fn find(&self, digest: FingerprintPrefix) -> Result<Option<ContentPlace>, StateError> {
        let mut found = None;
        self.each_entry_within(Prefix::of(digest), |entry| {
            if entry.digest >= digest {
                found = (entry.digest == digest).then_some(entry.place);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Calls `each` with all entries of the index, in order of their digests, until it breaks off.
    ///
    /// # Errors
    /// Errors of the device; `Newer`; `Damaged`, after the entries before the damage were passed on.
    pub fn each_entry(&self, each: impl FnMut(ContentEntry) -> ControlFlow<()>) -> Result<(), StateError> {
        self.each_entry_within(Prefix::WHOLE, each)
    }

    /// Calls `each` with the entries of the shards that have digests with this prefix.
    fn each_entry_within(
        &self,
        within: Prefix,
        mut each: impl FnMut(ContentEntry) -> ControlFlow<()>,
    ) -> Result<(), StateError> {
        let path = self.folder.join(SHARDS);
        for mut shard in self.open_shards(within)? {
            loop {
                match shard.next_entry() {
                    Ok(Some(entry)) if each(entry).is_continue() => {}
                    Ok(Some(_)) => return Ok(()),
                    Ok(None) => break,
                    Err(FormatError::Io(source)) => return Err(StateError::Io { path, source }),
                    Err(why) => return Err(StateError::Damaged { path, why }),
                }
            }
        }
        Ok(())
    }

    /// Counts the entries of the index, by reading all of them.
    ///
    /// # Errors
    /// As [`State::each_entry`].
    pub fn count_entries(&self) -> Result<EntryCounts, StateError> {
        let mut counts = EntryCounts::default();
        self.each_entry(|entry| {
            counts.count(&entry);
            ControlFlow::Continue(())
        })?;
        Ok(counts)
    }

    /// Returns the space that the index takes.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn index_stored(&self) -> Result<StoredFiles, StateError> {
        // A batch without entries exists only for its number.
        let (mut stored, batches) = (self.stored(SHARDS, 0)?, self.stored(batches::FOLDER, EMPTY_BYTES + 1)?);
        stored.files += batches.files;
        stored.bytes += batches.bytes;
        Ok(stored)
    }

    /// Returns the logs that wait for a pass. Useless ones are left out, and reported.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn waiting(&self) -> Result<WaitingLogs, StateError> {
        let bytes = self.stored(LOGS, 0)?.bytes + self.stored(REQUESTS, 0)?.bytes;
        let mut waiting = WaitingLogs { bytes, ..WaitingLogs::default() };
        let mut files = BTreeSet::new();
        for log in self.logs()? {
            let mut blocks = 0;
            let read = self.read_log(&log, |_| -> Result<(), StateError> {
                blocks += 1;
                Ok(())
            });
            match read {
                Ok(()) => {
                    files.insert(log.file);
                    (waiting.logs, waiting.blocks) = (waiting.logs + 1, waiting.blocks + blocks);
                }
                // A pass has taken it in meanwhile.
                Err(LogError::Log(FormatError::Io(error))) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(LogError::Log(why)) => self.refuse_log(&log, why)?,
                Err(LogError::Each(error)) => return Err(error),
            }
        }
        waiting.files = files.len() as u64;
        Ok(waiting)
    }

    /// Calls `each` with the blocks of a file that logs report, and their digests; `None` if a block is zero. Later
    /// logs come in no order, so if several logs report a block, each of the contents may be the present one.
    ///
    /// # Errors
    /// Errors of the device, and of `each`.
    pub(crate) fn each_logged<E: From<StateError>>(
        &self,
        file: FileNo,
        mut each: impl FnMut(FileBlock, Option<FingerprintPrefix>) -> Result<(), E>,
    ) -> Result<LogCompleteness, E> {
        let mut told = LogCompleteness::Whole;
        for log in self.logs()?.into_iter().filter(|log| log.file == file && log.kind == LogKind::Log) {
            let read = self.read_log(&log, |note| match note {
                Note::Written(written) => each(written.block, written.digest),
                Note::Changed { .. } => {
                    told = LogCompleteness::InPart;
                    Ok(())
                }
            });
            match read {
                Ok(()) => {}
                Err(LogError::Each(error)) => return Err(error),
                // A pass has taken it in meanwhile, so the index has its content.
                Err(LogError::Log(FormatError::Io(error))) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(LogError::Log(why)) => {
                    if let FormatError::Io(error) = &why
                        && Distrust::of(error).is_some()
                    {
                        self.refuse_log(&log, why)?;
                    }
                    told = LogCompleteness::InPart;
                }
            }
        }
        Ok(told)
    }

    fn stored(&self, folder: &str, bytes_min: u64) -> Result<StoredFiles, StateError> {
        let mut stored = StoredFiles::default();
        for name in self.names(folder)? {
            let path = self.path(folder, &name);
            let stat = self.open_own(&path, Access::Read).and_then(|file| self.substrate().stat(&file));
            let stat = match stat {
                Ok(stat) => stat,
                // Removed since it was listed.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(StateError::at(&path)(error)),
            };
            if stat.length < bytes_min {
                continue;
            }
            let generation = name.rsplit_once('.').and_then(|(_, generation)| generation.parse().ok()).unwrap_or(0);
            stored.files += 1;
            stored.bytes += stat.length;
            stored.generation = stored.generation.max(generation);
        }
        Ok(stored)
    }
}
