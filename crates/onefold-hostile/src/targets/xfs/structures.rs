//! The structures of a sample: their places, and the places of their checksums.

use super::image::{ChangedDisk, Image, SECTOR_BYTES};

/// Block length of all samples.
pub(super) const BLOCK_BYTES: usize = 1024;

/// A kind of structure: its magic, the magic's offset, and the place of its checksum in version 5.
struct Kind {
    at: usize,
    magic: &'static [u8],
    checksum: usize,
    length: usize,
}

const fn kind(at: usize, magic: &'static [u8], checksum: usize, length: usize) -> Kind {
    Kind { at, magic, checksum, length }
}

/// All kinds that readers use, in both versions.
const KINDS: [Kind; 35] = [
    kind(0, b"XFSB", 224, SECTOR_BYTES),
    kind(0, b"XAGF", 216, SECTOR_BYTES),
    kind(0, b"XAGI", 312, SECTOR_BYTES),
    kind(0, b"XAFL", 32, SECTOR_BYTES),
    kind(0, &[0xfe, 0xed, 0xba, 0xbe], 32, SECTOR_BYTES),
    kind(0, b"IN", 100, SECTOR_BYTES),
    kind(0, b"AB3B", 52, BLOCK_BYTES),
    kind(0, b"AB3C", 52, BLOCK_BYTES),
    kind(0, b"IAB3", 52, BLOCK_BYTES),
    kind(0, b"FIB3", 52, BLOCK_BYTES),
    kind(0, b"RMB3", 52, BLOCK_BYTES),
    kind(0, b"R3FC", 52, BLOCK_BYTES),
    kind(0, b"BMA3", 64, BLOCK_BYTES),
    kind(0, b"XDB3", 4, BLOCK_BYTES * 4),
    kind(0, b"XDD3", 4, BLOCK_BYTES * 4),
    kind(0, b"XARM", 12, BLOCK_BYTES),
    kind(0, b"XSLM", 12, BLOCK_BYTES),
    kind(8, &[0x3e, 0xbe, 0, 0], 12, BLOCK_BYTES * 4),
    kind(8, &[0x3d, 0xf1, 0, 0], 12, BLOCK_BYTES * 4),
    kind(8, &[0x3d, 0xff, 0, 0], 12, BLOCK_BYTES * 4),
    // An inner block of attributes is as long as a block of the file system.
    kind(8, &[0x3e, 0xbe, 0, 0], 12, BLOCK_BYTES),
    kind(8, &[0x3b, 0xee, 0, 0], 12, BLOCK_BYTES),
    kind(0, b"ABTB", 0, BLOCK_BYTES),
    kind(0, b"ABTC", 0, BLOCK_BYTES),
    kind(0, b"IABT", 0, BLOCK_BYTES),
    kind(0, b"BMAP", 0, BLOCK_BYTES),
    kind(0, b"XD2B", 0, BLOCK_BYTES * 4),
    kind(0, b"XD2D", 0, BLOCK_BYTES * 4),
    kind(8, &[0xfe, 0xbe, 0, 0], 0, BLOCK_BYTES * 4),
    kind(8, &[0xd2, 0xf1, 0, 0], 0, BLOCK_BYTES * 4),
    kind(8, &[0xd2, 0xff, 0, 0], 0, BLOCK_BYTES * 4),
    kind(8, &[0xfb, 0xee, 0, 0], 0, BLOCK_BYTES),
    kind(0, b"IN", 0, SECTOR_BYTES / 2),
    // Blocks that must not be mistaken for others.
    kind(0, b"XDF3", 4, BLOCK_BYTES * 4),
    kind(0, b"XD2F", 0, BLOCK_BYTES * 4),
];

/// A structure of a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Structure {
    /// Offset of its first byte.
    pub(super) place: u64,
    /// Its length in bytes.
    pub(super) length: usize,
    /// Place of its checksum, if it has one.
    checksum: Option<usize>,
}

/// Returns the structures of an image, grouped by kind.
pub(super) fn structures(image: &Image) -> Vec<Vec<Structure>> {
    let is_v5 = image.bytes(101, 1)[0] & 0xf == 5;
    let sectors = image.sectors();
    let of_kind = |kind: &Kind| -> Vec<Structure> {
        let found = |place: u64| image.bytes(place + kind.at as u64, kind.magic.len()) == kind.magic;
        let halves = [0, SECTOR_BYTES as u64 / 2];
        let step = if kind.length < SECTOR_BYTES { 2 } else { 1 };
        let places = sectors.iter().flat_map(|sector| halves[..step].iter().map(move |half| sector * 512 + half));
        let checksum = (is_v5 && kind.checksum > 0).then_some(kind.checksum);
        let all = places.filter(|place| *place + kind.length as u64 <= image.size_bytes && found(*place));
        all.map(|place| Structure { place, length: kind.length, checksum })
            .filter(|structure| structure.checksum.is_none() || structure.is_sealed(image))
            .collect()
    };
    KINDS.iter().map(of_kind).filter(|all| !all.is_empty()).collect()
}

fn checksum(bytes: &[u8], at: usize) -> u32 {
    let before = crc32c::crc32c_append(crc32c::crc32c(&bytes[..at]), &[0; 4]);
    crc32c::crc32c_append(before, &bytes[at + 4..])
}

impl Structure {
    /// Returns whether its checksum is right, or missing: the log has records without one.
    fn is_sealed(&self, image: &Image) -> bool {
        let Some(at) = self.checksum else { return true };
        let bytes = image.bytes(self.place, self.length);
        let stored = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        stored == 0 || stored == checksum(&bytes, at)
    }

    /// Corrects the checksum. A record of the log gets none, which readers accept.
    pub(super) fn seal(&self, disk: &mut ChangedDisk<'_>) {
        let Some(at) = self.checksum else { return };
        let bytes = disk.bytes(self.place, self.length);
        let is_log = bytes.starts_with(&[0xfe, 0xed, 0xba, 0xbe]);
        let sum = if is_log { 0 } else { checksum(&bytes, at) };
        disk.put(self.place + at as u64, &sum.to_le_bytes());
    }
}
