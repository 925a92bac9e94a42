//! The amount of work that waits for a pass, measured by the lengths of files. Nothing is read.

use std::collections::BTreeSet;
use std::io;

use onefold_substrate::{Access, Substrate};

use super::{State, StateError, batches};
use crate::format::{FileNo, FingerprintPrefix};

const LOGS: &str = "logs";
const REQUESTS: &str = "requests";
const SHARDS: &str = "shards";
/// Length of the shorter kind of entry: a digest and an arena slot.
const ENTRY_BYTES: u64 = FingerprintPrefix::BYTES as u64 + 5;

/// The work that waits for a pass, beside the size of the index. Approximate: logs and shards have headers, too, and
/// runs of single blocks take up to half as much again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backlog {
    /// Write logs and merge requests that wait.
    pub logs: u64,
    /// Their length, in bytes.
    pub bytes: u64,
    /// Blocks that they report.
    pub blocks: u64,
    /// Entries of the index.
    pub index_entries: u64,
    /// Known images that are gone: blocks that were shared with them may be freed.
    pub gone: u64,
}

impl Backlog {
    /// Returns whether there is nothing for a pass to do.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.logs == 0 && self.gone == 0
    }

    /// Adds images that are gone, by their numbers of blocks.
    pub(crate) fn add_gone(&mut self, blocks: impl Iterator<Item = u64>) {
        for blocks in blocks {
            self.gone += 1;
            self.blocks += blocks;
        }
    }

    /// Returns whether enough work waits for a pass, which reads and writes the whole index.
    #[must_use]
    pub(crate) fn is_worthwhile(&self, percent: u32) -> bool {
        !self.is_empty() && u128::from(self.blocks) * 100 >= u128::from(self.index_entries) * u128::from(percent)
    }
}

impl Backlog {
    /// Does the same as [`Backlog::is_worthwhile`], with this many more bytes of logs.
    pub(crate) fn is_worthwhile_with(&self, bytes: u64, percent: u32) -> bool {
        let logs = self.logs + u64::from(bytes > 0);
        Backlog { logs, blocks: self.blocks + bytes / FingerprintPrefix::BYTES as u64, ..*self }.is_worthwhile(percent)
    }
}

impl<S: Substrate> State<'_, S> {
    /// Returns the work that waits for a pass: the logs of the files for which `includes` returns true, without the
    /// logs of these names.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn backlog(
        &self,
        without: &BTreeSet<String>,
        includes: impl Fn(FileNo) -> bool,
    ) -> Result<Backlog, StateError> {
        let mut backlog = Backlog::default();
        for folder in [LOGS, REQUESTS] {
            let is_counted = |name: &&String| {
                let file = name.split_once('.').and_then(|(file, _)| file.parse().ok()).map(FileNo);
                !without.contains(*name) && file.is_none_or(&includes)
            };
            for name in self.names(folder)?.iter().filter(is_counted) {
                backlog.logs += 1;
                let bytes = self.length_of(folder, name)?;
                backlog.bytes += bytes;
                backlog.blocks += bytes / FingerprintPrefix::BYTES as u64;
            }
        }
        for folder in [SHARDS, batches::FOLDER] {
            for name in self.names(folder)? {
                backlog.index_entries += self.length_of(folder, &name)? / ENTRY_BYTES;
            }
        }
        Ok(backlog)
    }

    /// Returns the names of all logs and merge requests.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn log_names(&self) -> Result<BTreeSet<String>, StateError> {
        Ok(self.names(LOGS)?.into_iter().chain(self.names(REQUESTS)?).collect())
    }

    /// Returns the length of a file; zero if it is gone meanwhile.
    fn length_of(&self, folder: &str, name: &str) -> Result<u64, StateError> {
        let path = self.path(folder, name);
        match self.open_own(&path, Access::Read).and_then(|file| self.substrate().stat(&file)) {
            Ok(stat) => Ok(stat.length),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(StateError::at(&path)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_waits_until_the_backlog_is_a_fraction_of_the_index() {
        let backlog = |logs, blocks, index_entries| Backlog { logs, bytes: 0, blocks, index_entries, gone: 0 };
        assert!(!backlog(1, 49, 1000).is_worthwhile(5));
        assert!(backlog(1, 50, 1000).is_worthwhile(5));
        assert!(backlog(1, 1, 0).is_worthwhile(5), "with no index, anything is worth while");
        let mut gone = backlog(0, 0, 1000);
        gone.add_gone([20, 30].into_iter());
        assert_eq!((gone.gone, gone.blocks), (2, 50));
        assert!(gone.is_worthwhile(5) && !gone.is_worthwhile(6));
        assert!(!backlog(0, 0, 0).is_worthwhile(0), "without a log there is nothing to do");
        assert!(backlog(1, u64::MAX, u64::MAX).is_worthwhile(100));
    }
}
