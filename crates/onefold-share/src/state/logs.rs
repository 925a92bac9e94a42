//! Write logs, as files. The name gives the file that a log is of, the time of writing, the host that wrote it, and a
//! number of that host's.
//!
//! If two logs report one block, the later one is believed. The order is that of the times by the file system's clock,
//! and for one host the order of writing. A host whose clock is ahead would be believed for as long as its log is
//! there. So a host that has a file's lock writes its log after all existing ones (`State::last_log_of`). If clocks
//! mislead nevertheless, a block is found out of date when it is compared, and that costs savings.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use onefold_substrate::{Access, Substrate};

use super::hosts::HostNo;
use super::{State, StateError};
use crate::format::log::{LogKind, LogReader, LogRun, LogWriter, Note, read_log_runs};
use crate::format::{FileNo, FormatError};

/// A complete log, or a merge request. Ordered by file, then by time of writing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogName {
    /// The file that the log is of.
    pub file: FileNo,
    /// Whether it is a log or a request.
    pub kind: LogKind,
    /// When it was written.
    pub(super) order: LogOrder,
    /// The host that wrote it.
    pub host: HostNo,
    /// The name of the log's own file.
    name: String,
}

impl LogName {
    fn parse(kind: LogKind, name: String) -> Option<LogName> {
        let mut parts = name.split('.');
        let file = FileNo(parts.next()?.parse().ok()?);
        // Logs of earlier versions have no time: they are older than all others.
        let order = match parts.clone().count() {
            3 => LogOrder(u64::from_str_radix(parts.next()?, 16).ok()?),
            _ => LogOrder::default(),
        };
        let host = HostNo::parse(parts.next()?)?;
        Some(LogName { file, kind, order, host, name })
    }

    /// Returns when it was written.
    #[must_use]
    pub fn order(&self) -> LogOrder {
        self.order
    }
}

fn folder(kind: LogKind) -> &'static str {
    match kind {
        LogKind::Log => "logs",
        LogKind::Request => "requests",
    }
}

/// When a log was written, among all logs of its file: the nanoseconds of a time, or one more than those of the
/// previous log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogOrder(u64);

impl LogOrder {
    /// Returns the number in the form of marks; 0 if there is no log.
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// Result of writing a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenLog {
    /// The number of its blocks.
    pub blocks: u64,
    /// Its length, in bytes.
    pub bytes: u64,
    /// When it was written; unchanged if nothing was.
    pub order: LogOrder,
    /// The log; `None` if nothing was written.
    pub log: Option<LogName>,
}

/// The write logs at one moment, by their files: one listing for a whole scan.
#[derive(Debug, Default)]
pub(crate) struct LogList {
    by_file: BTreeMap<FileNo, Vec<LogName>>,
}

impl LogList {
    /// Returns when the last log of a file was written, if there are any.
    pub(crate) fn last_of(&self, file: FileNo) -> LogOrder {
        self.of(file).iter().map(|log| log.order).max().unwrap_or_default()
    }

    /// Returns the logs of a file.
    pub(crate) fn of(&self, file: FileNo) -> &[LogName] {
        self.by_file.get(&file).map_or(&[], Vec::as_slice)
    }

    /// Returns whether there are logs of a file.
    pub(crate) fn has(&self, file: FileNo) -> bool {
        self.by_file.contains_key(&file)
    }

    /// Adds a log that was just written.
    pub(crate) fn add(&mut self, log: LogName) {
        self.by_file.entry(log.file).or_default().push(log);
    }

    /// Removes and returns all logs of a file.
    pub(crate) fn take(&mut self, file: FileNo) -> Vec<LogName> {
        self.by_file.remove(&file).unwrap_or_default()
    }
}

/// Why a log could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError<E> {
    /// The log is useless, or not readable from some point on.
    #[error(transparent)]
    Log(#[from] FormatError),
    /// The receiver of its blocks failed.
    #[error("{0}")]
    Each(E),
}

impl<S: Substrate> State<'_, S> {
    /// Writes the log of a file, or a merge request for it, with a later time than `after`. Nothing is written if there
    /// are no notes.
    ///
    /// # Errors
    /// Errors of `notes`; no space; errors of the device.
    pub fn write_log(
        &self,
        kind: LogKind,
        file: FileNo,
        after: LogOrder,
        notes: &mut dyn FnMut() -> io::Result<Option<Note>>,
    ) -> Result<WrittenLog, StateError> {
        let folder = self.path(folder(kind), "");
        let mut logged = WrittenLog { order: after, ..WrittenLog::default() };
        // Its time is taken before the first note. The blocks are read for it afterwards, and a host that sees a later
        // write meanwhile has the last word.
        let scratch = self.write_scratch(|log| {
            let time = self.substrate().stat(&log)?.modified;
            let seconds = u64::try_from(time.seconds).unwrap_or(0);
            let time = seconds.saturating_mul(1_000_000_000).saturating_add(u64::from(time.nanoseconds));
            // If the clock of a host is set back, its newer log must not become the older one.
            let last = self.last_log.fetch_max(time, Ordering::Relaxed).max(after.0);
            let order = LogOrder(time.max(last.saturating_add(1)));
            self.last_log.fetch_max(order.0, Ordering::Relaxed);
            let Some(first) = notes()? else { return Ok(()) };
            let mut writer = LogWriter::new(self.substrate(), log, kind, self.identity().uuid, file);
            writer.push(first)?;
            while let Some(note) = notes()? {
                writer.push(note)?;
            }
            (logged.blocks, logged.bytes) = writer.finish()?;
            logged.order = order;
            Ok(())
        })?;
        if logged.blocks == 0 {
            self.discard(&scratch);
            return Ok(logged);
        }
        let name = format!("{file}.{:016x}.{}.{}", logged.order.0, self.host(), self.next_name());
        self.publish(&scratch, &folder.join(&name))?;
        logged.log = Some(LogName { file, kind, order: logged.order, host: self.host(), name });
        Ok(logged)
    }

    /// Returns when the last log of a file was written, if there are any, so that the next log can come after it. The
    /// caller has the file's lock, so that no other host writes one.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn last_log_of(&self, file: FileNo) -> Result<LogOrder, StateError> {
        let of_file = format!("{file}.");
        let names = self.names(folder(LogKind::Log))?.into_iter().filter(|name| name.starts_with(&of_file));
        let orders = names.filter_map(|name| Some(LogName::parse(LogKind::Log, name)?.order));
        Ok(orders.max().unwrap_or_default())
    }

    /// Returns the existing write logs. Logs that another host writes afterwards are missing.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn list_logs(&self) -> Result<LogList, StateError> {
        let mut list = LogList::default();
        let names = self.names(folder(LogKind::Log))?;
        names.into_iter().filter_map(|name| LogName::parse(LogKind::Log, name)).for_each(|log| list.add(log));
        Ok(list)
    }

    /// Begins to read a log.
    ///
    /// # Errors
    /// See [`FormatError`].
    pub(crate) fn open_log(&self, log: &LogName) -> Result<LogReader<'_, S>, FormatError> {
        let file = self.open_own(&log_path(self, log), Access::Read)?;
        let reader = LogReader::open(self.substrate(), file, log.kind, &self.identity().uuid)?;
        if reader.file() == log.file { Ok(reader) } else { Err(FormatError::Damaged("it is the log of another file")) }
    }

    /// Returns the existing logs and merge requests, by file; first the logs, the oldest first.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn logs(&self) -> Result<Vec<LogName>, StateError> {
        let mut logs = Vec::new();
        for kind in [LogKind::Log, LogKind::Request] {
            logs.extend(self.names(folder(kind))?.into_iter().filter_map(|name| LogName::parse(kind, name)));
        }
        logs.sort();
        Ok(logs)
    }

    /// Calls back with each note of a log.
    ///
    /// # Errors
    /// See [`LogError`]; the notes before the error were passed on.
    pub(crate) fn read_log<E>(
        &self,
        log: &LogName,
        mut each: impl FnMut(Note) -> Result<(), E>,
    ) -> Result<(), LogError<E>> {
        self.read_log_runs(log, |run| run.notes().try_for_each(&mut each))
    }

    /// Does the same as [`State::read_log`], but calls `each` with consecutive blocks.
    ///
    /// # Errors
    /// As [`State::read_log`].
    pub(crate) fn read_log_runs<E>(
        &self,
        log: &LogName,
        mut each: impl FnMut(LogRun<'_>) -> Result<(), E>,
    ) -> Result<(), LogError<E>> {
        let file = self.open_own(&log_path(self, log), Access::Read).map_err(FormatError::Io)?;
        let uuid = &self.identity().uuid;
        read_log_runs(self.substrate(), file, log.kind, uuid, |file, run| {
            if file != log.file {
                return Err(FormatError::Damaged("it is the log of another file").into());
            }
            each(run).map_err(LogError::Each)
        })?;
        Ok(())
    }

    /// Removes a log that is merged, or that another one replaces. A replaced log was not read, so its owner is checked
    /// here.
    ///
    /// # Errors
    /// `Untrusted` for a log of another user, which stays; errors of the device.
    pub(crate) fn remove_log(&self, log: &LogName) -> Result<(), StateError> {
        let path = log_path(self, log);
        self.open_left(&path).map(drop)?;
        self.remove(&path)
    }

    /// Handles a log that could not be read.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn refuse_log(&self, log: &LogName, why: FormatError) -> Result<(), StateError> {
        self.refuse(log_path(self, log), why)
    }
}

fn log_path<S: Substrate>(state: &State<'_, S>, log: &LogName) -> PathBuf {
    state.path(folder(log.kind), Path::new(&log.name))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::format::FileBlock;
    use onefold_testing::simulated::{SimulatedFileSystem, SimulationOptions};

    /// A host that reads a file for its log gets the content at that time. Logs of later writes meanwhile are newer.
    #[test]
    fn a_log_is_as_old_as_its_first_note() {
        let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..SimulationOptions::default() });
        let host = file_system.observe();
        let [state, other] =
            [(); 2].map(|()| State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap());
        let note = || Note::Changed { first: FileBlock(0), count: 1 };
        let write = |state: &State<'_, _>, notes: &mut dyn FnMut() -> io::Result<Option<Note>>| {
            state.write_log(LogKind::Log, FileNo(1), LogOrder::default(), notes).unwrap()
        };
        let mut left = vec![note()];
        let logged = write(&state, &mut || {
            file_system.pass(Duration::from_secs(1));
            let mut left_of_other = vec![note()];
            write(&other, &mut || Ok(left_of_other.pop()));
            Ok(left.pop())
        });
        let orders: Vec<LogOrder> = state.logs().unwrap().iter().map(|log| log.order).collect();
        assert!(orders.len() == 3 && orders[0] == logged.order && orders[0] < orders[1], "{orders:?}");
        assert_eq!(write(&state, &mut || Ok(None)), WrittenLog::default());
        assert_eq!(state.logs().unwrap().len(), 3);
    }

    /// Regression: a host whose clock was ahead was believed for an hour, whatever came later.
    #[test]
    fn a_log_comes_after_those_of_a_host_whose_clock_is_ahead() {
        let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..SimulationOptions::default() });
        let host = file_system.observe();
        let [state, other] =
            [(); 2].map(|()| State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap());
        let write = |state: &State<'_, _>, file, after| {
            let mut left = vec![Note::Changed { first: FileBlock(0), count: 1 }];
            state.write_log(LogKind::Log, FileNo(file), after, &mut || Ok(left.pop())).unwrap().order
        };
        let ahead = LogOrder(u64::MAX / 2);
        let one = write(&state, 1, ahead);
        assert!(one > ahead);
        assert_eq!(other.last_log_of(FileNo(11)).unwrap(), LogOrder::default());
        assert_eq!(other.last_log_of(FileNo(1)).unwrap(), one);
        assert!(write(&other, 1, other.last_log_of(FileNo(1)).unwrap()) > one);
    }

    #[test]
    fn logs_of_a_file_come_in_the_order_of_their_writing() {
        let names =
            ["7.0000000000000002.ffff.0", "7.0000000000000010.00.1", "7.ffff.9", "12.0000000000000001.0.0", "7.0"];
        let mut logs: Vec<LogName> =
            names.iter().filter_map(|name| LogName::parse(LogKind::Log, (*name).to_owned())).collect();
        logs.sort();
        let sorted: Vec<&str> = logs.iter().map(|log| log.name.as_str()).collect();
        assert_eq!(sorted, ["7.0", "7.ffff.9", names[0], names[1], names[3]]);
        assert_eq!(LogName::parse(LogKind::Log, "x.1.2.3".to_owned()), None);
    }
}
