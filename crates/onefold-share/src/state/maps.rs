//! Kept maps: the places of images' data when it was read. A comparison with the present map shows the changes since.
//!
//! Each map and their total are bounded. A file without a kept map is only read again by rounds.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use onefold_substrate::{Access, Substrate};

use super::{State, StateError};
use crate::format::map::KeptExtent;
use crate::format::{FileNo, FormatError, map};
use crate::kept_map::KeptMap;
use crate::ranges::Ranges;

pub(super) const FOLDER: &str = "maps";
/// Maximum length of all kept maps together, in bytes: about thirty million extents.
pub(crate) const MAPS_BYTES_MAX: u64 = 256 << 20;

/// The lengths of the existing kept maps, loaded when the first one is to be kept.
#[derive(Debug, Default)]
pub(crate) struct KeptMaps {
    bytes: Option<BTreeMap<FileNo, u64>>,
}

impl KeptMaps {
    /// Lists all kept maps.
    fn look<S: Substrate>(state: &State<'_, S>) -> Result<BTreeMap<FileNo, u64>, StateError> {
        let mut bytes = BTreeMap::new();
        for name in state.names(FOLDER)? {
            let Ok(number) = name.parse().map(FileNo) else { continue };
            let path = path(state, number);
            match state.open_own(&path, Access::Read).and_then(|file| state.substrate().stat(&file)) {
                Ok(stat) => drop(bytes.insert(number, stat.length)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(StateError::at(&path)(error)),
            }
        }
        Ok(bytes)
    }

    /// Keeps the map of a file, or none if there is no room for it among the others. The caller has the file's lock.
    pub(crate) fn keep<S: Substrate>(
        &mut self,
        state: &State<'_, S>,
        number: FileNo,
        map: Option<&KeptMap>,
    ) -> Result<(), StateError> {
        let Some(map) = map else {
            if let Some(known) = &mut self.bytes {
                known.remove(&number);
            }
            return state.forget_map(number);
        };
        let known = match &mut self.bytes {
            Some(known) => known,
            none => none.insert(Self::look(state)?),
        };
        known.remove(&number);
        let others: u64 = known.values().sum();
        match state.write_map(number, map, MAPS_BYTES_MAX.saturating_sub(others))? {
            Some(bytes) => drop(known.insert(number, bytes)),
            None => state.forget_map(number)?,
        }
        Ok(())
    }
}

/// A range of an image that Onefold itself has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MovedRange {
    /// Offset in the image, in bytes.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) length: u64,
    /// Its place now; `None` if it is a hole.
    pub(crate) place: Option<u64>,
}

impl<S: Substrate> State<'_, S> {
    /// Updates the kept map of a file after sharing. Only these ranges are changed, so that writes of a guest elsewhere
    /// still show.
    ///
    /// # Errors
    /// No space; errors of the device. The next scan then reads the ranges without need.
    pub(crate) fn move_kept(&self, number: FileNo, moved: &[MovedRange]) -> Result<(), StateError> {
        if moved.is_empty() {
            return Ok(());
        }
        let Some(mut map) = self.kept_map(number)? else { return Ok(()) };
        let before = map.extents().len();
        let laid = moved.iter().filter_map(|moved| {
            let MovedRange { offset, length, place } = *moved;
            place.map(|place| KeptExtent { offset, length, place: Some(place), is_unwritten: false })
        });
        let emptied = moved.iter().filter(|moved| moved.place.is_none());
        let emptied = Ranges::of(emptied.map(|moved| moved.offset..moved.offset + moved.length));
        map.lay(laid.collect());
        map.empty(&emptied);
        // It grows by the pieces into which the file was shared.
        let bytes_max = MAPS_BYTES_MAX / 64 + before as u64 * 32;
        if self.write_map(number, &map, bytes_max)?.is_none() {
            self.forget_map(number)?;
        }
        Ok(())
    }

    /// Returns the kept map of a file.
    ///
    /// # Errors
    /// Errors of the device. A useless map is dropped.
    pub(crate) fn kept_map(&self, number: FileNo) -> Result<Option<KeptMap>, StateError> {
        let path = path(self, number);
        let file = match self.open_own(&path, Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StateError::at(&path)(error)),
        };
        match map::read(self.substrate(), file, &self.identity().uuid) {
            Ok((of, extents)) if of == number => Ok(Some(KeptMap::of(extents))),
            Ok(_) => self.refuse(path, FormatError::Damaged("it is the map of another file")).map(|()| None),
            Err(FormatError::Io(source)) => Err(StateError::at(&path)(source)),
            Err(why) => self.refuse(path, why).map(|()| None),
        }
    }

    /// Writes the kept map of a file, unless it would be longer than `bytes_max`. Returns its length in bytes.
    pub(crate) fn write_map(&self, number: FileNo, map: &KeptMap, bytes_max: u64) -> Result<Option<u64>, StateError> {
        let extents = map.extents();
        if extents.len() > map::EXTENTS_MAX {
            return Ok(None);
        }
        let (uuid, mut bytes) = (self.identity().uuid, 0);
        let scratch = self.write_scratch(|file| {
            bytes = map::write(self.substrate(), file, uuid, number, extents)?;
            Ok(())
        })?;
        if bytes > bytes_max {
            self.discard(&scratch);
            return Ok(None);
        }
        self.replace(&scratch, &path(self, number))?;
        Ok(Some(bytes))
    }

    /// Drops the kept map of a file.
    pub(crate) fn forget_map(&self, number: FileNo) -> Result<(), StateError> {
        self.remove(&path(self, number))
    }
}

fn path<S: Substrate>(state: &State<'_, S>, number: FileNo) -> PathBuf {
    state.path(FOLDER, number.to_string())
}
