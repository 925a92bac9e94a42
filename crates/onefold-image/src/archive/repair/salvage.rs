//! Takes intact units out of damaged packs, one by one, so that a bad sector costs only the units that lie on it.

use std::collections::BTreeSet;

use crate::archive::check::Survey;
use crate::archive::index::{ClaimedPlace, read_segment};
use crate::archive::objects::{Folder, is_missing};
use crate::archive::tables::{entry_at, is_broken};
use crate::archive::units::decompressor;
use crate::archive::{Archive, ArchiveError, Writer};
use crate::compress::Decompressor;
use crate::format::pack::{PACK_BYTES_MAX, UNIT_HEADER_BYTES, UNITS_OFFSET, UnitHeader};
use crate::store::{ByteRange, ObjectName};
use crate::{ObjectId, UnitName};

/// A unit that was read and found intact.
struct IntactUnit {
    name: UnitName,
    header: UnitHeader,
    stored: Vec<u8>,
}

/// The intact units of a damaged pack.
pub(super) struct SalvagedUnits {
    units: Vec<IntactUnit>,
    /// Whether all of the pack was read. If not, there may be more.
    pub(super) is_read: bool,
}

impl SalvagedUnits {
    /// Leaves out the units that a pack has which is not in `damaged`.
    pub(super) fn retain_new(&mut self, archive: &Archive, damaged: &[ObjectId]) -> Result<(), ArchiveError> {
        let mut units = Vec::new();
        for unit in self.units.drain(..) {
            let is_there = |place: &ClaimedPlace| {
                let table = archive.table(place.pack);
                !damaged.contains(&place.pack)
                    && table.is_ok_and(|table| entry_at(&table, place.offset).is_some_and(|at| at.name == unit.name))
            };
            if !archive.places(unit.name)?.iter().any(is_there) {
                units.push(unit);
            }
        }
        self.units = units;
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// Adds the units to a writer. Returns their number.
    pub(super) fn add(&self, writer: &mut Writer<'_>) -> Result<u64, ArchiveError> {
        for unit in &self.units {
            writer.add(unit.name, unit.header, &unit.stored)?;
        }
        Ok(self.units.len() as u64)
    }
}

/// Returns all intact units of a damaged pack.
///
/// Where the pack's table is damaged, units are found by their headers, each of which leads to the next, and by the
/// index. The name of a unit is the digest of its bytes, so no table is needed to know it.
pub(super) fn pack(archive: &Archive, pack: ObjectId) -> Result<SalvagedUnits, ArchiveError> {
    let object = Folder::Packs.object(pack);
    let mut decompressor = decompressor()?;
    let mut salvaged = SalvagedUnits { units: Vec::new(), is_read: true };
    if let Some(table) = readable(archive.table(pack), &mut salvaged.is_read)? {
        for entry in table.iter() {
            let found = readable(read(archive, &mut decompressor, &object, entry.offset), &mut salvaged.is_read)?;
            salvaged.units.extend(found.flatten().filter(|unit| unit.name == entry.name));
        }
        return Ok(salvaged);
    }
    let mut offsets = readable(indexed(archive, pack), &mut salvaged.is_read)?.unwrap_or_default();
    offsets.insert(UNITS_OFFSET);
    while let Some(offset) = offsets.pop_first() {
        let found = readable(read(archive, &mut decompressor, &object, offset), &mut salvaged.is_read)?;
        let Some(unit) = found.flatten() else {
            continue;
        };
        let next = u64::from(offset) + u64::from(UNIT_HEADER_BYTES + unit.header.stored_bytes);
        if let Some(next) = u32::try_from(next).ok().filter(|next| u64::from(*next) < PACK_BYTES_MAX) {
            offsets.insert(next);
        }
        salvaged.units.push(unit);
    }
    Ok(salvaged)
}

/// Returns what was read; `None` of what is damaged. Notes in `is_read` if it could not be read, and may be whole.
fn readable<T>(result: Result<T, ArchiveError>, is_read: &mut bool) -> Result<Option<T>, ArchiveError> {
    match result {
        Ok(read) => Ok(Some(read)),
        Err(ArchiveError::Damaged { .. }) => Ok(None),
        Err(error) if is_broken(&error) => {
            *is_read = false;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Adds the lost units of which a live pack has an intact copy that does not count, because an entry called the unit
/// lost after the pack was added. The pack may have been put back since.
pub(super) fn copies(archive: &Archive, writer: &mut Writer<'_>, survey: &Survey) -> Result<(), ArchiveError> {
    let mut decompressor = decompressor()?;
    for unit in &survey.lost {
        for (pack, entry) in survey.unheld.get(unit).into_iter().flatten() {
            let found = read(archive, &mut decompressor, &Folder::Packs.object(*pack), entry.offset);
            // If it cannot be read now, the next repair tries again.
            let found = readable(found, &mut true)?.flatten();
            if let Some(found) = found.filter(|found| found.name == *unit) {
                writer.add(found.name, found.header, &found.stored)?;
                break;
            }
        }
    }
    Ok(())
}

/// Returns where the index places units in a pack. It is a hint.
fn indexed(archive: &Archive, pack: ObjectId) -> Result<BTreeSet<u32>, ArchiveError> {
    let parts = archive.state.read().live_parts();
    let Some(part) = parts.iter().find(|part| part.packs.contains(&pack)) else {
        return Ok(BTreeSet::new());
    };
    let segment = match read_segment(archive.store(), archive.descriptor().archive, part) {
        Err(error) if is_missing(&error) || matches!(error, ArchiveError::Newer { .. }) => return Ok(BTreeSet::new()),
        segment => segment?,
    };
    let is_here = |number: u32| segment.packs.get(number as usize) == Some(&pack);
    Ok(segment.entries.iter().filter(|entry| is_here(entry.pack)).map(|entry| entry.offset).collect())
}

/// Reads the unit at an offset of a pack. `None` if there is none.
fn read(
    archive: &Archive,
    decompressor: &mut Decompressor,
    pack: &ObjectName,
    offset: u32,
) -> Result<Option<IntactUnit>, ArchiveError> {
    let get = |offset: u64, length_bytes: u64| archive.store().get(pack, ByteRange::From { offset, length_bytes });
    let Ok(header) = UnitHeader::decode(&get(u64::from(offset), u64::from(UNIT_HEADER_BYTES))?) else {
        return Ok(None);
    };
    let body = u64::from(offset) + u64::from(UNIT_HEADER_BYTES);
    let stored = get(body, u64::from(header.stored_bytes))?;
    let mut plain = Vec::new();
    if stored.len() != header.stored_bytes as usize || !decompressor.decompress(header, &stored, &mut plain) {
        return Ok(None);
    }
    Ok(Some(IntactUnit { name: archive.descriptor().key.name(&plain), header, stored }))
}
