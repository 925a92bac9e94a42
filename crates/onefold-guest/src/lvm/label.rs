//! Physical volumes of LVM2: their label, header and metadata areas (`lib/format_text/layout.h` of LVM2).
//!
//! | structure | bytes | field |
//! |---|---|---|
//! | label | 0..8, 24..32 | `LABELONE`, `LVM2 001`; in any of the first four sectors |
//! | label | 8..16, 16..20, 20..24 | own sector, checksum of everything from byte 20 on, place of the header |
//! | header | 0..32, 32..40 | UUID, bytes of the device |
//! | header | 40.. | places and lengths of the data areas, ended by a zero place; then of the metadata areas |
//! | metadata area | 0..4, 4..20 | checksum of bytes 4 to 512, magic |
//! | metadata area | 20..24, 24..32, 32..40 | version 1, own place, length |
//! | metadata area | 40.. | place of the text in the area, length, checksum, flags; zero without a text |
//!
//! The text is in a ring: from the end of the area it continues behind the first 512 bytes.

use std::sync::Arc;

use crate::bytes::Bytes;
use crate::error::{Damage, GuestError};
use crate::volume::VolumeReader;

use super::description::Description;

const SECTOR_BYTES: usize = 512;
const LABEL_SECTORS: u64 = 4;
const LABEL_MAGIC: &[u8] = b"LABELONE";
const LABEL_KIND: &[u8; 8] = b"LVM2 001";
const AREA_MAGIC: &[u8; 16] = b" LVM2 x[5A%r0N*>";
const AREA_HEADER_BYTES: u64 = 512;
/// Flag of an area whose text is out of date.
const TEXT_IGNORED: u32 = 1;
/// Maximum length of a text. It suffices for thousands of logical volumes. A parsed text takes up to 30 times its
/// length in memory.
const TEXT_BYTES_MAX: u64 = 4 << 20;
/// Maximum total length of the texts of all physical volumes of a disk.
pub(crate) const TEXT_BYTES_OF_DISK_MAX: u64 = 4 * TEXT_BYTES_MAX;
/// Maximum number of metadata areas of a physical volume that are read. LVM2 makes at most two.
const AREAS_MAX: usize = 4;
const CHECKSUM_START: u32 = 0xf597_a6cf;

/// A physical volume of LVM2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhysicalVolume {
    /// Its UUID as LVM2 prints it.
    pub uuid: String,
    /// The damaged labels and metadata areas. Other copies replaced them, if there were any.
    pub damage: Vec<Damage>,
    /// The newest description of its group that it contains.
    pub(super) description: Option<Arc<Description>>,
    /// Total length of the texts that were read from it.
    pub(super) text_bytes: u64,
    /// Its metadata areas, as its header names them.
    pub(super) areas: Vec<Area>,
}

/// A place in the volume and a length, both in bytes.
type Area = (u64, u64);

impl PhysicalVolume {
    /// Returns the physical volume in a volume; `None` if there is none.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn open(reader: &VolumeReader<'_>) -> Result<Option<PhysicalVolume>, GuestError> {
        let mut damage = Vec::new();
        for sector in 0..LABEL_SECTORS {
            let at = sector * SECTOR_BYTES as u64;
            if at + SECTOR_BYTES as u64 > reader.size_bytes() {
                break;
            }
            let label = reader.bytes(at, SECTOR_BYTES, "LVM2 label")?;
            if !label.starts_with(LABEL_MAGIC) {
                continue;
            }
            match header(Bytes(&label), sector) {
                Some((uuid, areas)) => {
                    let mut found = PhysicalVolume { uuid, damage, description: None, text_bytes: 0, areas };
                    found.read_newest(reader)?;
                    return Ok(Some(found));
                }
                None => damage.push(reader.damage(at, "LVM2 label", "it does not match its checksum")),
            }
        }
        Ok(None)
    }

    /// Keeps the description with the highest sequence number in all areas. Damaged areas are recorded.
    fn read_newest(&mut self, reader: &VolumeReader<'_>) -> Result<(), GuestError> {
        for area in self.areas.iter().take(AREAS_MAX) {
            match read_area(reader, *area, &mut self.text_bytes) {
                Ok(Some(found)) if self.description.as_ref().is_none_or(|known| known.sequence < found.sequence) => {
                    self.description = Some(Arc::new(found));
                }
                Ok(_) => {}
                Err(GuestError::Damaged(found)) => self.damage.push(found),
                Err(error) => return Err(error),
            }
        }
        if let Some((place, _)) = self.areas.get(AREAS_MAX) {
            self.damage.push(reader.damage(*place, "LVM2 metadata area", "it is one of too many, which are not read"));
        }
        Ok(())
    }

    /// Subtracts the length of its texts from the rest of the disk's limit. If they exceed it, drops the description,
    /// which counts as damage.
    pub(crate) fn charge(&mut self, reader: &VolumeReader<'_>, bytes_left: &mut u64) {
        match bytes_left.checked_sub(self.text_bytes) {
            Some(left) => *bytes_left = left,
            None => {
                *bytes_left = 0;
                self.description = None;
                self.damage.push(reader.damage(0, "LVM2 metadata", "the disk has too much of it"));
            }
        }
    }

    /// Returns whether the range from byte `start` up to `end` touches a sector for labels or a metadata area.
    pub(super) fn has_metadata_in(&self, start: u64, end: u64) -> bool {
        let labels = (0, LABEL_SECTORS * SECTOR_BYTES as u64);
        let meets = |(place, length): &Area| *place < end && start < place.saturating_add(*length);
        meets(&labels) || self.areas.iter().any(meets)
    }

    /// Returns the name of its group according to its own metadata.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        self.description.as_ref().map(|description| description.name.as_str())
    }
}

/// Returns the checksum of LVM2: CRC-32 with a special initial value, and without the final inversion.
fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(!CHECKSUM_START);
    hasher.update(bytes);
    !hasher.finalize()
}

/// Returns the UUID and the metadata areas from the label in `sector`; `None` if the label is not intact.
fn header(label: Bytes<'_>, sector: u64) -> Option<(String, Vec<Area>)> {
    let is_sound = label.le64(8)? == sector && checksum(label.from(20)?.0) == label.le32(16)?;
    if !is_sound || label.array(24)? != *LABEL_KIND {
        return None;
    }
    let header = label.from(usize::try_from(label.le32(20)?).ok()?)?;
    let uuid = with_dashes(header.array(0)?)?;
    let mut at = 40;
    // The header ends with its sector.
    while header.le64(at)? != 0 {
        at += 16;
    }
    at += 16;
    let mut areas = Vec::new();
    while let Some(place) = header.le64(at).filter(|place| *place != 0) {
        areas.push((place, header.le64(at + 8)?));
        at += 16;
    }
    Some((uuid, areas))
}

/// Returns a UUID in the form in which metadata names it.
fn with_dashes(uuid: [u8; 32]) -> Option<String> {
    let text = std::str::from_utf8(&uuid).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()))?;
    let (mut dashed, mut rest) = (String::with_capacity(38), text);
    for length in [6, 4, 4, 4, 4, 4] {
        let (part, after) = rest.split_at_checked(length)?;
        dashed.push_str(part);
        dashed.push('-');
        rest = after;
    }
    dashed.push_str(rest);
    Some(dashed)
}

/// Returns the description in a metadata area; `None` if the area is empty, or its text is out of date. Adds the length
/// of its text to `text_bytes`.
fn read_area(
    reader: &VolumeReader<'_>,
    (place, length): Area,
    text_bytes: &mut u64,
) -> Result<Option<Description>, GuestError> {
    let structure = "LVM2 metadata area";
    let damage = |problem| GuestError::from(reader.damage(place, structure, problem));
    let header = reader.bytes(place, SECTOR_BYTES, structure)?;
    let Some(text) = text_of(Bytes(&header), place, length) else {
        return Err(damage("its header is not sound"));
    };
    let Some(text) = text else { return Ok(None) };
    let bytes = text.read(reader, place, length).map_err(|_| damage("its text lies outside of it"))??;
    *text_bytes += bytes.len() as u64;
    if checksum(&bytes) != text.checksum {
        return Err(damage("its text does not match its checksum"));
    }
    Description::parse(&bytes).ok_or_else(|| damage("its text describes no volume group")).map(Some)
}

/// Place of the text according to an area's header.
struct TextPlace {
    offset: u64,
    length: u64,
    checksum: u32,
}

/// The text lies outside of its area.
struct OutsideOfArea;

/// Returns the place of the text, or that there is none; `None` if the header of the area is not intact.
fn text_of(header: Bytes<'_>, place: u64, length: u64) -> Option<Option<TextPlace>> {
    let is_sound = checksum(header.part(4, SECTOR_BYTES - 4)?.0) == header.le32(0)?
        && header.array(4)? == *AREA_MAGIC
        && (header.le32(20)?, header.le64(24)?) == (1, place)
        && header.le64(32)? <= length;
    let text = TextPlace { offset: header.le64(40)?, length: header.le64(48)?, checksum: header.le32(56)? };
    let is_there = text.offset != 0 && header.le32(60)? & TEXT_IGNORED == 0;
    is_sound.then_some(is_there.then_some(text))
}

impl TextPlace {
    /// Returns the text, which may continue at the beginning of the area's ring.
    fn read(
        &self,
        reader: &VolumeReader<'_>,
        place: u64,
        area_bytes: u64,
    ) -> Result<Result<Vec<u8>, GuestError>, OutsideOfArea> {
        let ring_bytes = area_bytes.checked_sub(AREA_HEADER_BYTES).ok_or(OutsideOfArea)?;
        let is_inside = (AREA_HEADER_BYTES..area_bytes).contains(&self.offset)
            && self.length <= ring_bytes.min(TEXT_BYTES_MAX)
            && place.checked_add(area_bytes).is_some_and(|end| end <= reader.size_bytes());
        if !is_inside {
            return Err(OutsideOfArea);
        }
        let first = self.length.min(area_bytes - self.offset);
        let part =
            |at: u64, length: u64| reader.bytes(at, usize::try_from(length).unwrap_or(usize::MAX), "LVM2 metadata");
        Ok(part(place + self.offset, first).and_then(|mut text| {
            text.extend(part(place + AREA_HEADER_BYTES, self.length - first)?);
            Ok(text)
        }))
    }
}
