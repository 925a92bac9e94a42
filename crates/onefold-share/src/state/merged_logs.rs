//! Merges the logs of one file into one log with only the last note of each block. So the logs of a file that is read
//! again and again stay as short as the file is.

use std::io;

use onefold_substrate::Substrate;

use super::logs::{LogList, LogName};
use super::trust::Distrust;
use super::{State, StateError};
use crate::format::log::{LogKind, LogReader, Note};
use crate::format::{FileBlock, FileNo, FormatError};

/// Maximum number of logs of a file before they are merged.
const LOGS_MAX: usize = 8;

/// Result of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MergeOutcome {
    /// There are too few logs.
    Few,
    /// They are one log now.
    One,
    /// One of them was damaged and is dropped. Its content is found by reading the file.
    Damaged,
}

impl<S: Substrate> State<'_, S> {
    /// Merges the logs of a file if there are many. The caller has the file's lock, so that no pass takes them in.
    pub(crate) fn merge_logs(&self, file: FileNo, list: &mut LogList) -> Result<MergeOutcome, StateError> {
        if list.of(file).len() <= LOGS_MAX {
            return Ok(MergeOutcome::Few);
        }
        let after = list.last_of(file);
        let mut logs = list.take(file);
        // The newest first.
        logs.sort_by(|one, other| other.cmp(one));
        let mut readers = Vec::with_capacity(logs.len());
        for (at, log) in logs.iter().enumerate() {
            match self.open_log(log).and_then(Source::open) {
                Ok(source) => readers.push(source),
                Err(why) => return self.give_up(&logs, at, why, list),
            }
        }
        let mut merge = Merge { readers, failed: None };
        let written = self.write_log(LogKind::Log, file, after, &mut || merge.next());
        if let Some((at, why)) = merge.failed {
            return self.give_up(&logs, at, why, list);
        }
        // If it could not be written, the others have to stay.
        let written = written?;
        logs.iter().try_for_each(|log| self.remove_log(log))?;
        written.log.into_iter().for_each(|log| list.add(log));
        Ok(MergeOutcome::One)
    }

    fn give_up(
        &self,
        logs: &[LogName],
        at: usize,
        why: FormatError,
        list: &mut LogList,
    ) -> Result<MergeOutcome, StateError> {
        for (_, log) in logs.iter().enumerate().filter(|(number, _)| *number != at) {
            list.add(log.clone());
        }
        let why = match why {
            // Another process has deleted it.
            FormatError::Io(error) if error.kind() == io::ErrorKind::NotFound => return Ok(MergeOutcome::Damaged),
            FormatError::Io(error) if Distrust::of(&error).is_none() => {
                FormatError::Damaged("it cannot be read to its end")
            }
            why => why,
        };
        self.refuse_log(&logs[at], why)?;
        Ok(MergeOutcome::Damaged)
    }
}

/// A log, and its next note.
struct Source<'a, S: Substrate> {
    reader: LogReader<'a, S>,
    note: Option<Note>,
}

impl<'a, S: Substrate> Source<'a, S> {
    fn open(mut reader: LogReader<'a, S>) -> Result<Source<'a, S>, FormatError> {
        let note = reader.next_note()?;
        Ok(Source { reader, note })
    }

    /// Returns the blocks of its next note.
    fn blocks(&self) -> Option<(u64, u64)> {
        self.note.map(|note| {
            let (first, count) = note.blocks();
            (first.0, first.0 + count)
        })
    }

    /// Skips the notes of blocks before `block`.
    fn skip_to(&mut self, block: u64) -> Result<(), FormatError> {
        while let Some((first, end)) = self.blocks() {
            if end <= block {
                self.note = self.reader.next_note()?;
            } else {
                if first < block {
                    self.note = Some(Note::Changed { first: FileBlock(block), count: end - block });
                }
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The notes of several logs, the newest first: for each block the note of the newest.
struct Merge<'a, S: Substrate> {
    readers: Vec<Source<'a, S>>,
    /// The log that could not be read.
    failed: Option<(usize, FormatError)>,
}

impl<S: Substrate> Merge<'_, S> {
    fn next(&mut self) -> io::Result<Option<Note>> {
        let Some(first) = self.readers.iter().filter_map(Source::blocks).map(|(first, _)| first).min() else {
            return Ok(None);
        };
        let covers = |source: &Source<'_, S>| source.blocks().is_some_and(|(start, _)| start == first);
        let Some(winner) = self.readers.iter().position(covers) else { return Ok(None) };
        let (Some(note), Some((_, end))) = (self.readers[winner].note, self.readers[winner].blocks()) else {
            return Ok(None);
        };
        // The part ends where a note of a newer log begins.
        let newer = self.readers[..winner].iter().filter_map(Source::blocks).map(|(start, _)| start);
        let end = newer.fold(end, u64::min);
        for (at, source) in self.readers.iter_mut().enumerate() {
            if let Err(why) = source.skip_to(end) {
                self.failed = Some((at, why));
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        Ok(Some(match note {
            Note::Written(_) => note,
            Note::Changed { .. } => Note::Changed { first: FileBlock(first), count: end - first },
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use onefold_block::random::SeededRandom;

    use onefold_substrate::Files;

    use super::*;
    use crate::format::FingerprintPrefix;
    use crate::format::log::WrittenBlock;
    use onefold_testing::simulated::{SimulatedFileSystem, SimulationOptions};

    fn told(
        state: &State<'_, impl Substrate>,
        log: &LogName,
        into: &mut BTreeMap<u64, Option<Option<FingerprintPrefix>>>,
    ) {
        let each = |note| -> Result<(), FormatError> {
            match note {
                Note::Written(WrittenBlock { block, digest }) => drop(into.insert(block.0, Some(digest))),
                Note::Changed { first, count } => into.extend((first.0..first.0 + count).map(|block| (block, None))),
            }
            Ok(())
        };
        assert!(state.read_log(log, each).is_ok());
    }

    /// Regression: each round over a written image left a log, until a pass came.
    #[test]
    fn many_logs_of_a_file_become_one_that_tells_the_last_word_of_each_block() {
        let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..SimulationOptions::default() });
        let host = file_system.observe();
        let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
        let random = SeededRandom::new(9);
        for file in (1..20).map(FileNo) {
            let mut list = state.list_logs().unwrap();
            assert!(!list.has(file));
            let mut expected = BTreeMap::new();
            for _ in 0..=LOGS_MAX {
                let (mut notes, mut next) = (Vec::new(), 0);
                for _ in 0..random.below(30) {
                    next += random.below(5);
                    let digest = Some(FingerprintPrefix([u8::try_from(1 + random.below(200)).unwrap(); 12]));
                    let digest = digest.filter(|_| random.below(4) > 0);
                    let count = 1 + random.below(9);
                    let (note, count) = match random.below(3) {
                        0 => (Note::Changed { first: FileBlock(next), count }, count),
                        _ => (WrittenBlock { block: FileBlock(next), digest }.into(), 1),
                    };
                    notes.push(note);
                    next += count;
                }
                let mut left = notes.into_iter().chain([Note::Changed { first: FileBlock(1000), count: 1 }]);
                let logged = state.write_log(LogKind::Log, file, list.last_of(file), &mut || Ok(left.next())).unwrap();
                let log = logged.log.unwrap();
                told(&state, &log, &mut expected);
                list.add(log);
            }
            let last = list.last_of(file);
            assert_eq!(state.merge_logs(file, &mut list).unwrap(), MergeOutcome::One);
            assert_eq!(state.merge_logs(file, &mut list).unwrap(), MergeOutcome::Few);
            let logs: Vec<LogName> = state.logs().unwrap().into_iter().filter(|log| log.file == file).collect();
            assert_eq!((logs.as_slice(), list.last_of(file) > last), (list.of(file), true));
            let mut found = BTreeMap::new();
            logs.iter().for_each(|log| told(&state, log, &mut found));
            assert_eq!((logs.len(), found), (1, expected));
        }
    }

    #[test]
    fn a_damaged_log_among_many_is_dropped_and_said() {
        let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..SimulationOptions::default() });
        let host = file_system.observe();
        let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
        let mut list = LogList::default();
        for _ in 0..=LOGS_MAX {
            let mut left = vec![Note::Changed { first: FileBlock(1), count: 1 }];
            let after = list.last_of(FileNo(1));
            let logged = state.write_log(LogKind::Log, FileNo(1), after, &mut || Ok(left.pop())).unwrap();
            list.add(logged.log.unwrap());
        }
        let names: Vec<String> = state.log_names().unwrap().into_iter().collect();
        let path = state.path("logs", &names[3]);
        let file = host.substrate.open(&path, onefold_substrate::Access::Write).unwrap();
        host.substrate.write_at(&file, 70, &[0xff; 4]).unwrap();
        assert_eq!(state.merge_logs(FileNo(1), &mut list).unwrap(), MergeOutcome::Damaged);
        assert_eq!((list.of(FileNo(1)).len(), state.logs().unwrap().len()), (LOGS_MAX, LOGS_MAX));
    }
}
