//! The index, as files: numbered generations, of which the newest counts.
//!
//! A generation appears by `link`, which fails where another host was first. So two hosts may work on the index at once,
//! because a lock expired or a host was suspended: the second loses its work and nothing else.

use std::io;
use std::path::PathBuf;

use onefold_block::Substrate;
use onefold_block::substrate::Access;

use super::{State, StateError};
use crate::format::FormatError;
use crate::format::shard::{EntryCounts, ShardReader, ShardWriter};

const FOLDER: &str = "shards";
/// Beginning of the names of the shard that holds all digests.
const WHOLE: &str = "whole";

/// The index as it was found.
pub struct Index<'a, S: Substrate> {
    /// Its generation; 0 where there is none yet.
    pub generation: u64,
    /// Its entries; none where there are none yet.
    pub entries: Option<ShardReader<'a, S>>,
}

impl<'a, S: Substrate> State<'a, S> {
    /// Opens the newest generation of the index. One that is of no use is dropped: what it held is found again.
    ///
    /// # Errors
    /// Those of the device; `Newer`, as a later version's index must not be written anew by this one.
    pub fn open_index(&self) -> Result<Index<'a, S>, StateError> {
        // A generation may be removed between the listing and the opening, but only for a newer one.
        for _ in 0..super::TRIES {
            let Some(generation) = self.generations()?.into_iter().max() else {
                return Ok(Index { generation: 0, entries: None });
            };
            let path = shard_path::<S>(generation);
            let file = match self.substrate().open(&path, Access::Read) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(StateError::at(&path)(error)),
            };
            match ShardReader::open(self.substrate(), file, &self.identity().uuid) {
                Ok(_) if generation == u64::MAX => {
                    self.refuse(path, FormatError::Damaged("no generation could come after it"))?;
                }
                Ok(entries) if entries.generation() == generation => {
                    return Ok(Index { generation, entries: Some(entries) });
                }
                Ok(_) => self.refuse(path, FormatError::Damaged("it is another generation than its name says"))?,
                Err(FormatError::Io(source)) => return Err(StateError::Io { path, source }),
                Err(why @ FormatError::Newer { .. }) => return Err(StateError::Newer { path, why }),
                Err(why) => self.refuse(path, why)?,
            }
        }
        Err(StateError::Restless)
    }

    /// Drops a generation that turned out to be damaged while it was read.
    ///
    /// # Errors
    /// Those of the device.
    pub fn refuse_index(&self, generation: u64, why: FormatError) -> Result<(), StateError> {
        self.refuse(shard_path::<S>(generation), why)
    }

    /// Writes a generation and publishes it. Returns what it holds and its length in bytes, or none where another host had
    /// published it before: then the work is lost, and nothing else.
    ///
    /// # Errors
    /// What `fill` gives; no space; those of the device.
    pub fn publish_index(
        &self,
        generation: u64,
        fill: impl FnOnce(&mut ShardWriter<'a, S>) -> io::Result<()>,
    ) -> Result<Option<(EntryCounts, u64)>, StateError> {
        let mut written = None;
        let scratch = self.write_scratch(|file| {
            let mut writer = ShardWriter::new(self.substrate(), file, self.identity().uuid, generation);
            fill(&mut writer)?;
            written = Some(writer.finish()?);
            Ok(())
        })?;
        if !self.publish(&scratch, &shard_path::<S>(generation))? {
            return Ok(None);
        }
        for older in self.generations()?.into_iter().filter(|older| *older < generation) {
            self.remove(&shard_path::<S>(older))?;
        }
        Ok(written)
    }

    /// Tells whether there is an index.
    ///
    /// # Errors
    /// Those of the device.
    pub fn has_index(&self) -> Result<bool, StateError> {
        Ok(!self.generations()?.is_empty())
    }

    fn generations(&self) -> Result<Vec<u64>, StateError> {
        let names = self.names(FOLDER)?;
        Ok(names.iter().filter_map(|name| name.strip_prefix(WHOLE)?.strip_prefix('.')?.parse().ok()).collect())
    }
}

fn shard_path<S: Substrate>(generation: u64) -> PathBuf {
    State::<S>::path(FOLDER, format!("{WHOLE}.{generation}"))
}
