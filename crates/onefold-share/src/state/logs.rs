//! Write logs, as files. Named by the file that they are of, the host that wrote them, and a number of that host's.

use std::io;
use std::path::{Path, PathBuf};

use onefold_block::Substrate;
use onefold_block::substrate::Access;

use super::{State, StateError};
use crate::format::log::{LogWriter, Written, read_log};
use crate::format::{FileNo, FormatError};

const FOLDER: &str = "logs";

/// A log that is whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogName {
    /// The file that it is of.
    pub file: FileNo,
    /// The name of the log's own file.
    name: String,
}

impl LogName {
    fn parse(name: String) -> Option<LogName> {
        let file = name.split_once('.')?.0.parse().ok()?;
        Some(LogName { file: FileNo(file), name })
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
    /// Writes the log of a file. Nothing is written where `blocks` has none. Returns how many it had.
    ///
    /// # Errors
    /// What `blocks` gives; no space; those of the device.
    pub fn write_log(
        &self,
        file: FileNo,
        blocks: &mut dyn FnMut() -> io::Result<Option<Written>>,
    ) -> Result<u64, StateError> {
        let path = Self::path(FOLDER, format!("{file}.{:016x}.{}", self.host(), self.next_name()));
        let Some(first) = blocks().map_err(StateError::at(&path))? else { return Ok(0) };
        let mut count = 0;
        let scratch = self.write_scratch(|log| {
            let mut writer = LogWriter::new(self.substrate(), log, self.identity().uuid, file);
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

    /// Returns the logs that there are, by file.
    ///
    /// # Errors
    /// Those of the device.
    pub fn logs(&self) -> Result<Vec<LogName>, StateError> {
        let mut logs: Vec<LogName> = self.names(FOLDER)?.into_iter().filter_map(LogName::parse).collect();
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
        read_log(self.substrate(), file, uuid, |file, written| {
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
    State::<S>::path(FOLDER, Path::new(&log.name))
}
