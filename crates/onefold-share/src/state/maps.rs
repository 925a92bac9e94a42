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
/// Maximum length of all kept maps together, in bytes: about thirty million extents. A host lists them once for each
/// scan, so several hosts that scan at the same time may each add as much as was left when they began.
pub(crate) const MAPS_BYTES_MAX: u64 = 256 << 20;

/// The lengths of the existing kept maps, in bytes; `None` until a map is to be kept.
pub(super) type MapLengths = Option<BTreeMap<FileNo, u64>>;

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
    /// Keeps the map of a file, or none if there is no room for it among the others. The caller has the file's lock.
    ///
    /// # Errors
    /// No space; errors of the device.
    pub(crate) fn keep_map(&self, number: FileNo, map: Option<&KeptMap>) -> Result<(), StateError> {
        let Some(map) = map else { return self.forget_map(number) };
        let others = self.other_map_bytes(number)?;
        match self.write_map(number, map, MAPS_BYTES_MAX.saturating_sub(others))? {
            Some(bytes) => {
                if let Some(known) = &mut *self.map_lengths.lock() {
                    known.insert(number, bytes);
                }
                Ok(())
            }
            None => self.forget_map(number),
        }
    }

    /// Has the kept maps listed again before the next one is kept: other hosts keep and drop maps meanwhile.
    pub(crate) fn list_maps_again(&self) {
        *self.map_lengths.lock() = None;
    }

    /// Returns the length of all kept maps but one, in bytes.
    fn other_map_bytes(&self, number: FileNo) -> Result<u64, StateError> {
        let mut lengths = self.map_lengths.lock();
        let known = match &mut *lengths {
            Some(known) => known,
            none => none.insert(self.list_maps()?),
        };
        Ok(known.iter().filter(|(of, _)| **of != number).map(|(_, bytes)| bytes).sum())
    }

    /// Returns the lengths of all kept maps.
    fn list_maps(&self) -> Result<BTreeMap<FileNo, u64>, StateError> {
        let mut bytes = BTreeMap::new();
        for name in self.names(FOLDER)? {
            let Ok(number) = name.parse().map(FileNo) else { continue };
            let path = path(self, number);
            match self.open_own(&path, Access::Read).and_then(|file| self.substrate().stat(&file)) {
                Ok(stat) => drop(bytes.insert(number, stat.length)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(StateError::at(&path)(error)),
            }
        }
        Ok(bytes)
    }

    /// Updates the kept map of a file after sharing. Only these ranges are changed, so that writes of a guest elsewhere
    /// still show. The map grows by the pieces into which the file was shared; without room for them it is dropped. The
    /// caller has the file's lock.
    ///
    /// # Errors
    /// No space; errors of the device. The next scan then reads the ranges without need.
    pub(crate) fn move_kept(&self, number: FileNo, moved: &[MovedRange]) -> Result<(), StateError> {
        if moved.is_empty() {
            return Ok(());
        }
        let Some(mut map) = self.kept_map(number)? else { return Ok(()) };
        let laid = moved.iter().filter_map(|moved| {
            let MovedRange { offset, length, place } = *moved;
            place.map(|place| KeptExtent { offset, length, place: Some(place), is_unwritten: false })
        });
        let emptied = moved.iter().filter(|moved| moved.place.is_none());
        let emptied = Ranges::of(emptied.map(|moved| moved.offset..moved.offset + moved.length));
        map.lay(laid.collect());
        map.empty(&emptied);
        self.keep_map(number, Some(&map))
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
    fn write_map(&self, number: FileNo, map: &KeptMap, bytes_max: u64) -> Result<Option<u64>, StateError> {
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
        self.replace(&scratch, &path(self, number)).inspect_err(|_| self.discard(&scratch))?;
        Ok(Some(bytes))
    }

    /// Drops the kept map of a file.
    pub(crate) fn forget_map(&self, number: FileNo) -> Result<(), StateError> {
        self.remove(&path(self, number))?;
        // A map that could not be removed still counts.
        if let Some(known) = &mut *self.map_lengths.lock() {
            known.remove(&number);
        }
        Ok(())
    }
}

fn path<S: Substrate>(state: &State<'_, S>, number: FileNo) -> PathBuf {
    state.path(FOLDER, number.to_string())
}
