//! Write logs and merge requests, as files. Named by the file that they are of, the host that wrote them, and a number of
//! that host's.

use std::io;
use std::path::{Path, PathBuf};

use onefold_block::Substrate;
use onefold_block::substrate::Access;

use super::hosts::HostNo;
use super::{State, StateError};
use crate::format::log::{LogKind, LogWriter, Written, read_log};
use crate::format::{FileNo, FormatError};

/// A log, or a merge request, that is whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogName {
    /// The file that it is of.
    pub file: FileNo,
    /// Which of the two it is.
    pub kind: LogKind,
    /// Who wrote it.
    pub host: HostNo,
    /// The name of the log's own file.
    name: String,
}

impl LogName {
    fn parse(kind: LogKind, name: String) -> Option<LogName> {
        let (file, rest) = name.split_once('.')?;
        let host = HostNo::parse(rest.split_once('.')?.0)?;
        Some(LogName { file: FileNo(file.parse().ok()?), kind, host, name })
    }
}

fn folder(kind: LogKind) -> &'static str {
    match kind {
        LogKind::Log => "logs",
        LogKind::Request => "requests",
    }
}

/// Why a log could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum LogError<E> {
    /// The log is of no use, or not from here on.
    #[error(transparent)]
    Log(#[from] FormatError),
    /// What its blocks were handed to failed.
    #[error("{0}")]
    Each(E),
}

impl<S: Substrate> State<'_, S> {
    /// Writes the log of a file, or a merge request for it. Nothing is written where `blocks` has none. Returns how many it
    /// had.
    ///
    /// # Errors
    /// What `blocks` gives; no space; those of the device.
    pub fn write_log(
        &self,
        kind: LogKind,
        file: FileNo,
        blocks: &mut dyn FnMut() -> io::Result<Option<Written>>,
    ) -> Result<u64, StateError> {
        self.be_present()?;
        let path = Self::path(folder(kind), format!("{file}.{}.{}", self.host(), self.next_name()));
        let Some(first) = blocks().map_err(StateError::at(&path))? else { return Ok(0) };
        let mut count = 0;
        let scratch = self.write_scratch(|log| {
            let mut writer = LogWriter::new(self.substrate(), log, kind, self.identity().uuid, file);
            writer.push(first)?;
            while let Some(written) = blocks()? {
                writer.push(written)?;
            }
            count = writer.finish()?;
            Ok(())
        })?;
        self.publish(&scratch, &path)?;
        Ok(count)
    }

    /// Returns the logs and the merge requests that there are, by file.
    ///
    /// # Errors
    /// Those of the device.
    pub fn logs(&self) -> Result<Vec<LogName>, StateError> {
        let mut logs = Vec::new();
        for kind in [LogKind::Log, LogKind::Request] {
            logs.extend(self.names(folder(kind))?.into_iter().filter_map(|name| LogName::parse(kind, name)));
        }
        logs.sort();
        Ok(logs)
    }

    /// Hands each block of a log on.
    ///
    /// # Errors
    /// As [`LogError`] says; the blocks before were handed on.
    pub fn read_log<E>(
        &self,
        log: &LogName,
        mut each: impl FnMut(Written) -> Result<(), E>,
    ) -> Result<(), LogError<E>> {
        let file = self.substrate().open(&log_path::<S>(log), Access::Read).map_err(FormatError::Io)?;
        let uuid = &self.identity().uuid;
        read_log(self.substrate(), file, log.kind, uuid, |file, written| {
            if file != log.file {
                return Err(FormatError::Damaged("it is the log of another file").into());
            }
            each(written).map_err(LogError::Each)
        })?;
        Ok(())
    }

    /// Removes a log that is merged.
    ///
    /// # Errors
    /// Those of the device.
    pub fn remove_log(&self, log: &LogName) -> Result<(), StateError> {
        self.remove(&log_path::<S>(log))
    }

    /// Deals with a log that could not be read.
    ///
    /// # Errors
    /// Those of the device.
    pub fn refuse_log(&self, log: &LogName, why: FormatError) -> Result<(), StateError> {
        self.refuse(log_path::<S>(log), why)
    }
}

fn log_path<S: Substrate>(log: &LogName) -> PathBuf {
    State::<S>::path(folder(log.kind), Path::new(&log.name))
}
