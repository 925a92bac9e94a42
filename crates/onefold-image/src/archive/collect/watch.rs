//! Follows the ledger while a collection decides, so that its entries are right at their own positions.

use crate::archive::ledger;
use crate::archive::rules::{Rule, follows};
use crate::archive::state::ImageRecord;
use crate::archive::tables::is_broken;
use crate::archive::{Archive, ArchiveError};
use crate::format::ledger::Change;
use crate::{ObjectId, UnitName};

/// Number of units of packs that are compared at once with those of new images, apart from those of one pack.
const UNITS_MAX: usize = 500_000;

/// The entries that were read since the needs of all images were determined.
#[derive(Debug)]
pub(super) struct Watch<'w> {
    archive: &'w Archive,
    /// Number of entries that were read.
    position: u64,
    /// Images that these entries added.
    added: Vec<ImageRecord>,
}

/// Whether what was decided before still holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ground {
    /// At most images were added or removed.
    Same,
    /// Another collection or a repair changed the packs.
    Changed,
}

impl<'w> Watch<'w> {
    /// Returns a watch that has read the first `position` entries.
    pub(super) fn from(archive: &'w Archive, position: u64) -> Watch<'w> {
        Watch { archive, position, added: Vec::new() }
    }

    /// Returns the number of entries that were read.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Reads the entries of others that came meanwhile.
    pub(super) fn read_on(&mut self) -> Result<Ground, ArchiveError> {
        self.archive.refresh()?;
        let end = self.archive.state.read().position;
        while self.position < end {
            match ledger::entry(self.archive.store(), self.archive.descriptor().archive, self.position)?.change {
                Change::ImageAdded { image, .. } => {
                    self.added.extend(self.archive.find(&image.name, Some(image.version)))
                }
                Change::PacksRetired { .. } | Change::PacksReplaced { .. } | Change::UnitsLost { .. } => {
                    return Ok(Ground::Changed);
                }
                Change::WriterBegins { .. }
                | Change::ImageRemoved { .. }
                | Change::SegmentsMerged { .. }
                | Change::WriterGivenUp { .. } => {}
            }
            self.position += 1;
        }
        Ok(Ground::Same)
    }

    /// Passes over the entry at this position, which the collection itself has made.
    pub(super) fn pass_own(&mut self) {
        self.position += 1;
    }

    /// Removes those packs from a list that have a unit of an image that was added meanwhile: its capture may rely on
    /// them.
    pub(super) fn spare(&self, packs: &mut Vec<(ObjectId, u64)>) -> Result<(), ArchiveError> {
        if self.added.is_empty() || packs.is_empty() || !follows(Rule::UnneededAtPosition) {
            return Ok(());
        }
        let mut units: Vec<(UnitName, usize)> = Vec::new();
        let mut spared = vec![false; packs.len()];
        let archive = self.archive;
        for (number, (pack, _)) in packs.iter().enumerate() {
            match archive.tables.read(archive.store(), archive.descriptor().archive, *pack) {
                Ok(table) => units.extend(table.iter().map(|unit| (unit.name, number))),
                Err(error) if is_broken(&error) => spared[number] = true,
                Err(error) => return Err(error),
            }
            if units.len() >= UNITS_MAX {
                self.mark(&mut units, &mut spared)?;
            }
        }
        self.mark(&mut units, &mut spared)?;
        let mut spared = spared.into_iter();
        packs.retain(|_| !spared.next().unwrap_or(true));
        Ok(())
    }

    /// Marks the numbers of packs with a unit of an added image. Empties the list of units.
    fn mark(&self, units: &mut Vec<(UnitName, usize)>, spared: &mut [bool]) -> Result<(), ArchiveError> {
        units.sort_unstable();
        let mut spare = |unit: &UnitName| {
            let from = units.partition_point(|(name, _)| name < unit);
            units[from..].iter().take_while(|(name, _)| name == unit).for_each(|(_, number)| spared[*number] = true);
        };
        for record in &self.added {
            each_unit(self.archive, record, &mut spare)?;
        }
        units.clear();
        Ok(())
    }
}

/// Calls `each` with all units of an image and the headers of its chunks; with none of an image that was removed.
fn each_unit(archive: &Archive, record: &ImageRecord, each: &mut dyn FnMut(&UnitName)) -> Result<(), ArchiveError> {
    let chunks = match archive.manifest(record) {
        Ok(manifest) => manifest.chunks,
        Err(ArchiveError::Removed { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    for chunk in &chunks {
        each(chunk);
        match archive.header(chunk).map_err(|error| archive.of_image(&record.image, error)) {
            Ok(header) => header.units.iter().for_each(|unit| each(&unit.name)),
            Err(ArchiveError::Removed { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
