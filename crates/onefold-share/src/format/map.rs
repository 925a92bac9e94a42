//! Kept maps: the places of an image file's data when it was read. Each image has one file in `maps/`, named by the
//! image's number.
//!
//! The subject is the file's number. Each frame but the last holds disjoint extents, in order, each as three numbers:
//!
//! | number | notes                                                                       |
//! |--------|-----------------------------------------------------------------------------|
//! | gap    | bytes from the end of the extent before, or from the file's beginning       |
//! | length | in bytes, not zero, times four; and 1 if the place is known, 2 if the extent is unwritten |
//! | place  | only if it is known: bytes from the end of the last known place, modulo 2^64, zigzag |
//!
//! Numbers are those of `number`, zigzag those that may be negative. The last frame holds the number of extents, 8
//! bytes.
//!
//! So an extent takes about eight bytes. A file with more than [`EXTENTS_MAX`] extents has no kept map.

use onefold_substrate::Substrate;

use super::number::{push_number, take_number, unzigzag, zigzag};
use super::record::{Frame, PAYLOAD_BYTES_MAX, RecordHeader, RecordKind, RecordReader, RecordWriter};
use super::{FileNo, FormatError};

/// Maximum number of extents of a kept map.
pub const EXTENTS_MAX: usize = 1 << 20;
/// Maximum length of an extent, in bytes.
const EXTENT_BYTES_MAX: usize = 30;
const HAS_PLACE: u64 = 1;
const IS_UNWRITTEN: u64 = 2;
/// Maximum end of an extent, in bytes, so that lengths can be written with two more bits.
const END_MAX: u64 = 1 << 62;

/// A run of a file's data, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptExtent {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Place on the device, in bytes, as the file system reports it; `None` if it reports none.
    pub place: Option<u64>,
    /// Whether it is unwritten space, which reads as zeros.
    pub is_unwritten: bool,
}

impl KeptExtent {
    /// Returns the offset of the first byte behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// Returns the place of an offset in it.
    #[must_use]
    pub fn place_of(&self, offset: u64) -> Option<u64> {
        self.place.map(|place| place.wrapping_add(offset - self.offset))
    }
}

/// Writes a kept map to an empty file and makes it durable. Returns its length in bytes.
///
/// # Errors
/// No space; errors of the device.
///
/// # Panics
/// If extents overlap, are not in order, or are too many.
pub fn write<S: Substrate>(
    substrate: &S,
    file: S::File,
    identity: [u8; 16],
    number: FileNo,
    extents: &[KeptExtent],
) -> std::io::Result<u64> {
    assert!(extents.len() <= EXTENTS_MAX, "a map of {} extents", extents.len());
    let header = RecordHeader { kind: RecordKind::Map, identity, subject: u64::from(number.0) };
    let mut record = RecordWriter::new(substrate, file, &header);
    let mut payload = Vec::with_capacity(PAYLOAD_BYTES_MAX);
    let mut position = Position::default();
    for extent in extents {
        assert!(extent.offset >= position.end && extent.length > 0 && extent.end() <= END_MAX, "{extent:?}");
        if payload.len() + EXTENT_BYTES_MAX > PAYLOAD_BYTES_MAX {
            record.frame(&payload)?;
            payload.clear();
        }
        position.encode(extent, &mut payload);
    }
    if !payload.is_empty() {
        record.frame(&payload)?;
    }
    Ok(record.finish(&(extents.len() as u64).to_le_bytes())?.1)
}

/// Reads a kept map. Returns the number of its file, and the extents, disjoint and in order.
///
/// # Errors
/// See [`FormatError`].
pub fn read<S: Substrate>(
    substrate: &S,
    file: S::File,
    identity: &[u8; 16],
) -> Result<(FileNo, Vec<KeptExtent>), FormatError> {
    let mut record = RecordReader::open(substrate, file, RecordKind::Map, Some(identity))?;
    let number = u32::try_from(record.subject()).map_err(|_| FormatError::Damaged("there is no such file number"))?;
    let (mut extents, mut position) = (Vec::new(), Position::default());
    loop {
        match record.next_frame()? {
            Some(Frame::Inner(mut payload)) => {
                while !payload.is_empty() {
                    if extents.len() == EXTENTS_MAX {
                        return Err(FormatError::Damaged("it has too many extents"));
                    }
                    extents.push(position.decode(&mut payload).ok_or(FormatError::Damaged("an extent is none"))?);
                }
            }
            Some(Frame::Last(payload)) if payload == (extents.len() as u64).to_le_bytes() => break,
            _ => return Err(FormatError::Damaged("it has not as many extents as it says")),
        }
    }
    Ok((FileNo(number), extents))
}

/// State against which the next extent is encoded.
#[derive(Default)]
struct Position {
    end: u64,
    place: u64,
}

impl Position {
    fn encode(&mut self, extent: &KeptExtent, into: &mut Vec<u8>) {
        let flags =
            if extent.place.is_some() { HAS_PLACE } else { 0 } | if extent.is_unwritten { IS_UNWRITTEN } else { 0 };
        push_number(extent.offset - self.end, into);
        push_number(extent.length << 2 | flags, into);
        if let Some(place) = extent.place {
            push_number(zigzag(place.wrapping_sub(self.place)), into);
            self.place = place.wrapping_add(extent.length);
        }
        self.end = extent.end();
    }

    fn decode(&mut self, from: &mut &[u8]) -> Option<KeptExtent> {
        let (gap, head) = (take_number(from)?, take_number(from)?);
        let offset = self.end.checked_add(gap)?;
        let length = head >> 2;
        let end = offset.checked_add(length).filter(|end| length > 0 && *end <= END_MAX)?;
        let place = if head & HAS_PLACE != 0 {
            let place = self.place.wrapping_add(unzigzag(take_number(from)?));
            self.place = place.wrapping_add(length);
            Some(place)
        } else {
            None
        };
        self.end = end;
        Some(KeptExtent { offset, length, place, is_unwritten: head & IS_UNWRITTEN != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_block::random::SeededRandom;
    use onefold_substrate::{Access, Files, Names};
    use onefold_testing::simulated::{SimulatedFileSystem, SimulationOptions};
    use std::path::Path;

    const UUID: [u8; 16] = [7; 16];

    /// These bytes are on disk: they never change.
    #[test]
    fn extents_match_their_stored_vector() {
        let extents = [
            KeptExtent { offset: 4096, length: 8192, place: Some(1 << 20), is_unwritten: false },
            KeptExtent { offset: 12288, length: 4096, place: Some(4096), is_unwritten: true },
            KeptExtent { offset: 20480, length: 1, place: None, is_unwritten: false },
        ];
        let (mut bytes, mut position) = (Vec::new(), Position::default());
        extents.iter().for_each(|extent| position.encode(extent, &mut bytes));
        let expected: [&[u8]; 3] = [
            &[0x80, 0x20, 0x81, 0x80, 0x02, 0x80, 0x80, 0x80, 0x01],
            &[0, 0x83, 0x80, 0x01, 0xff, 0xbf, 0x80, 0x01],
            &[0x80, 0x20, 4],
        ];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn maps_survive_their_encoding() {
        let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..SimulationOptions::default() });
        let substrate = file_system.observe().substrate;
        let (random, path) = (SeededRandom::new(5), Path::new("map"));
        for count in [0, 1, 5, 30_000] {
            let (mut extents, mut end) = (Vec::new(), 0);
            for _ in 0..count {
                let (gap, length) = (random.below(3) * 4096, 1 + random.below(1 << 20));
                let place = (random.below(9) > 0).then(|| random.below(u64::MAX));
                let extent = KeptExtent { offset: end + gap, length, place, is_unwritten: random.below(5) == 0 };
                end = extent.end();
                extents.push(extent);
            }
            let _ = substrate.remove(path);
            let bytes = write(&substrate, substrate.create(path).unwrap(), UUID, FileNo(5), &extents).unwrap();
            let file = substrate.open(path, Access::Read).unwrap();
            assert_eq!(substrate.stat(&file).unwrap().length, bytes);
            assert_eq!(read(&substrate, file, &UUID).unwrap(), (FileNo(5), extents));
        }
    }

    #[test]
    fn extents_that_cannot_be_are_refused() {
        let decoded = |bytes: &[u8]| Position::default().decode(&mut &bytes[..]);
        assert!(decoded(&[0, 5, 2]).is_some());
        for odd in [
            &[][..],
            &[0],
            &[0, 5],
            &[0, 1, 2],
            &[0x80, 0, 4],
            &[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 4],
            &[0xff; 12],
        ] {
            assert_eq!(decoded(odd), None, "{odd:?}");
        }
    }
}
