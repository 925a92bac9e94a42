//! Takes intact units out of damaged packs, one by one, so that a bad sector costs only the units that lie on it.

use std::collections::BTreeSet;

use crate::archive::check::Survey;
use crate::archive::index::read_segment;
use crate::archive::objects::Folder;
use crate::archive::units::decompressor;
use crate::archive::{Archive, ArchiveError, Writer};
use crate::compress::Decompressor;
use crate::format::pack::{PACK_BYTES_MAX, UNIT_HEADER_BYTES, UNITS_OFFSET, UnitHeader};
use crate::store::{ByteRange, ObjectName};
use crate::{ObjectId, UnitName};

/// A unit that was read and found intact.
struct Intact {
    name: UnitName,
    header: UnitHeader,
    stored: Vec<u8>,
}

/// Adds all intact units of a damaged pack to a writer. Returns their number.
///
/// Where the pack's table is damaged, units are found by their headers, each of which leads to the next, and by the
/// index. The name of a unit is the digest of its bytes, so no table is needed to know it.
pub(super) fn pack(archive: &Archive, writer: &mut Writer<'_>, pack: ObjectId) -> Result<u64, ArchiveError> {
    let object = Folder::Packs.object(pack);
    let mut decompressor = decompressor()?;
    let mut moved = 0;
    if let Ok(table) = archive.table(pack) {
        for entry in table.iter() {
            let found = read(archive, &mut decompressor, &object, entry.offset);
            if let Some(unit) = found.filter(|unit| unit.name == entry.name) {
                writer.add(unit.name, unit.header, &unit.stored)?;
                moved += 1;
            }
        }
        return Ok(moved);
    }
    let mut offsets = indexed(archive, pack);
    offsets.insert(UNITS_OFFSET);
    while let Some(offset) = offsets.pop_first() {
        let Some(unit) = read(archive, &mut decompressor, &object, offset) else {
            continue;
        };
        writer.add(unit.name, unit.header, &unit.stored)?;
        moved += 1;
        let next = u64::from(offset) + u64::from(UNIT_HEADER_BYTES + unit.header.stored_bytes);
        if let Some(next) = u32::try_from(next).ok().filter(|next| u64::from(*next) < PACK_BYTES_MAX) {
            offsets.insert(next);
        }
    }
    Ok(moved)
}

/// Adds the lost units of which a live pack has an intact copy that does not count, because an entry called the unit
/// lost after the pack was added. The pack may have been put back since.
pub(super) fn copies(archive: &Archive, writer: &mut Writer<'_>, survey: &Survey) -> Result<(), ArchiveError> {
    let mut decompressor = decompressor()?;
    for unit in &survey.lost {
        let Some((pack, entry)) = survey.unheld.get(unit) else {
            continue;
        };
        let found = read(archive, &mut decompressor, &Folder::Packs.object(*pack), entry.offset);
        if let Some(found) = found.filter(|found| found.name == *unit) {
            writer.add(found.name, found.header, &found.stored)?;
        }
    }
    Ok(())
}

/// Returns where the index places units in a pack. It is a hint.
fn indexed(archive: &Archive, pack: ObjectId) -> BTreeSet<u32> {
    let parts = archive.state.read().live_parts();
    let Some(part) = parts.iter().find(|part| part.packs.contains(&pack)) else {
        return BTreeSet::new();
    };
    let Ok(segment) = read_segment(archive.store(), archive.descriptor().archive, part) else {
        return BTreeSet::new();
    };
    let is_here = |number: u32| segment.packs.get(number as usize) == Some(&pack);
    segment.entries.iter().filter(|entry| is_here(entry.pack)).map(|entry| entry.offset).collect()
}

/// Reads the unit at an offset of a pack. `None` if there is none, or it cannot be read.
fn read(archive: &Archive, decompressor: &mut Decompressor, pack: &ObjectName, offset: u32) -> Option<Intact> {
    let get = |offset: u64, length_bytes: u64| archive.store().get(pack, ByteRange::From { offset, length_bytes }).ok();
    let header = UnitHeader::decode(&get(u64::from(offset), u64::from(UNIT_HEADER_BYTES))?).ok()?;
    let body = u64::from(offset) + u64::from(UNIT_HEADER_BYTES);
    let stored = get(body, u64::from(header.stored_bytes))?;
    let mut plain = Vec::new();
    if stored.len() != header.stored_bytes as usize || !decompressor.decompress(header, &stored, &mut plain) {
        return None;
    }
    Some(Intact { name: archive.descriptor().key.name(&plain), header, stored })
}
