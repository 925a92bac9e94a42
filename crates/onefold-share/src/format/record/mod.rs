//! The common format of all files of the state folder: a header, and frames with a checksum each.
//!
//! Header, 64 bytes:
//!
//! | bytes  | field    | notes                                                    |
//! |--------|----------|----------------------------------------------------------|
//! | 0..8   | magic    | `onefold`, 0x1a                                          |
//! | 8..10  | kind     | `RecordKind`                                             |
//! | 10..12 | version  | of the kind's format                                     |
//! | 12..16 | -        | zero                                                     |
//! | 16..32 | identity | UUID of the state folder, to recognise foreign files     |
//! | 32..40 | subject  | subject of the file; its meaning depends on the kind     |
//! | 40..60 | -        | zero                                                     |
//! | 60..64 | checksum | CRC-32C over bytes 0..60                                 |
//!
//! Frame:
//!
//! | bytes  | field    | notes                                                    |
//! |--------|----------|----------------------------------------------------------|
//! | 0..4   | length   | of the payload; the top bit is set in the last frame     |
//! | 4..8   | checksum | CRC-32C over the frame's number (8 bytes) and the payload |
//! | 8..    | payload  | at most 64 KiB                                           |
//!
//! A file without its last frame was not written completely. Integers are little-endian.

mod reader;
mod writer;

pub(crate) use reader::{Frame, RecordReader};
pub(crate) use writer::RecordWriter;

use super::FormatError;

/// Maximum length of a payload, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 10;
/// Length of the header.
pub const HEADER_BYTES: usize = 64;
pub(crate) const FRAME_HEADER_BYTES: usize = 8;
const MAGIC: [u8; 8] = *b"onefold\x1a";
const LAST: u32 = 1 << 31;
/// Size of one read or write, in bytes.
const BUFFER_BYTES: usize = 1 << 20;
const _: () = assert!(BUFFER_BYTES >= FRAME_HEADER_BYTES + PAYLOAD_BYTES_MAX, "a frame fits the buffer");

/// The kind of a file of the state folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// `identity`.
    Identity,
    /// The mark of an image file, in `files/`.
    Mark,
    /// A write log, in `logs/`.
    Log,
    /// A part of the index, in `shards/`.
    Shard,
    /// A merge request, in `requests/`.
    Request,
    /// The status of a watch, in `watches/`.
    Watch,
    /// The shares that a host is about to make, in `intents/`.
    Intent,
    /// The places of an image file's data when it was read, in `maps/`.
    Map,
    /// The file with which the next scan begins.
    Cursor,
    /// Entries that a pass published before its end, in `batches/`.
    Batch,
    /// The files on which a pass works, in `claims/`.
    Claim,
    /// The record of an image's guest, in `guests/`.
    Guest,
    /// The conclusion of a run over guest files.
    FilesRun,
}

impl RecordKind {
    const fn code(self) -> u16 {
        match self {
            RecordKind::Identity => 1,
            RecordKind::Mark => 2,
            RecordKind::Log => 3,
            RecordKind::Shard => 4,
            RecordKind::Request => 5,
            RecordKind::Watch => 6,
            RecordKind::Intent => 7,
            RecordKind::Batch => 8,
            RecordKind::Map => 9,
            RecordKind::Cursor => 10,
            RecordKind::Claim => 11,
            RecordKind::Guest => 12,
            RecordKind::FilesRun => 13,
        }
    }

    /// The newest version of its format.
    const fn version(self) -> u16 {
        match self {
            RecordKind::Identity | RecordKind::Watch | RecordKind::Intent => 1,
            RecordKind::Batch | RecordKind::Claim | RecordKind::Map | RecordKind::Cursor => 1,
            RecordKind::Guest | RecordKind::FilesRun => 1,
            // 2: sharing domains. Marks note them, and all digests are made with their keys.
            RecordKind::Mark | RecordKind::Shard => 2,
            // 2: changed blocks without a digest. 3: sharing domains.
            RecordKind::Log | RecordKind::Request => 3,
        }
    }

    /// The oldest version that is still of use.
    const fn oldest_version(self) -> u16 {
        match self {
            RecordKind::Identity | RecordKind::Watch | RecordKind::Intent => 1,
            RecordKind::Batch | RecordKind::Claim | RecordKind::Map | RecordKind::Cursor => 1,
            RecordKind::Guest | RecordKind::FilesRun => 1,
            RecordKind::Mark | RecordKind::Shard => 2,
            RecordKind::Log | RecordKind::Request => 3,
        }
    }
}

/// The fields of a header that differ between files of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    /// The kind of the file.
    pub kind: RecordKind,
    /// UUID of the state folder.
    pub identity: [u8; 16],
    /// The subject of the file.
    pub subject: u64,
}

impl RecordHeader {
    /// Returns the header's bytes.
    #[must_use]
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.kind.code().to_le_bytes());
        bytes[10..12].copy_from_slice(&self.kind.version().to_le_bytes());
        bytes[16..32].copy_from_slice(&self.identity);
        bytes[32..40].copy_from_slice(&self.subject.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Returns the header of a file that should be of this kind. The caller checks the identity.
    ///
    /// # Errors
    /// `Damaged`, `Older` and `Newer`.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES], kind: RecordKind) -> Result<RecordHeader, FormatError> {
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if bytes[..8] != MAGIC {
            return Err(FormatError::Damaged("it does not begin as a file of the state folder"));
        }
        let checksum = u32::from_le_bytes([bytes[60], bytes[61], bytes[62], bytes[63]]);
        if crc32c::crc32c(&bytes[..60]) != checksum {
            return Err(FormatError::Damaged("the header's checksum is wrong"));
        }
        if word(8) != kind.code() {
            return Err(FormatError::Damaged("it is of another kind"));
        }
        if word(10) > kind.version() {
            return Err(FormatError::Newer { found: word(10), known: kind.version() });
        }
        if word(10) < kind.oldest_version() {
            return Err(FormatError::Older { found: word(10), oldest: kind.oldest_version() });
        }
        let identity = bytes[16..32].try_into().expect("sixteen bytes");
        Ok(RecordHeader { kind, identity, subject: long(32) })
    }
}

/// Returns the header of a file with one frame, of any state folder, and the bytes behind it.
///
/// # Errors
/// As [`RecordHeader::decode`].
pub(crate) fn header_of(bytes: &[u8], kind: RecordKind) -> Result<(RecordHeader, &[u8]), FormatError> {
    const CUT: FormatError = FormatError::Damaged("it ends too early");
    let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(CUT)?;
    Ok((RecordHeader::decode(header, kind)?, rest))
}

/// Returns the payload of the only frame of a file, from the bytes behind its header. Bytes behind the frame are left
/// over from a longer one.
///
/// # Errors
/// `Damaged`.
pub(crate) fn only_frame(rest: &[u8]) -> Result<&[u8], FormatError> {
    const CUT: FormatError = FormatError::Damaged("it ends too early");
    let ([a, b, c, d, e, f, g, h], rest) = rest.split_first_chunk::<FRAME_HEADER_BYTES>().ok_or(CUT)?;
    let (length, expected) = (u32::from_le_bytes([*a, *b, *c, *d]), u32::from_le_bytes([*e, *f, *g, *h]));
    let payload = rest.get(..usize::try_from(length & !LAST).unwrap_or(usize::MAX)).ok_or(CUT)?;
    if length & LAST == 0 || payload.len() > PAYLOAD_BYTES_MAX {
        return Err(FormatError::Damaged("it has more than one frame"));
    }
    if checksum(0, payload) != expected {
        return Err(FormatError::Damaged("a frame's checksum is wrong"));
    }
    Ok(payload)
}

/// Maximum length of a file with one frame, in bytes.
pub(crate) const ONLY_FRAME_BYTES_MAX: usize = HEADER_BYTES + FRAME_HEADER_BYTES + PAYLOAD_BYTES_MAX;

fn checksum(number: u64, payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files that were made without domains are dropped, and their contents are found again by reading. Files that do
    /// not depend on domains stay.
    #[test]
    fn files_from_before_there_were_domains_are_of_no_use() {
        for (kind, old, is_older) in [
            (RecordKind::Mark, 1, true),
            (RecordKind::Shard, 1, true),
            (RecordKind::Log, 2, true),
            (RecordKind::Request, 2, true),
            (RecordKind::Identity, 1, false),
            (RecordKind::Intent, 1, false),
            (RecordKind::Watch, 1, false),
        ] {
            let mut bytes = RecordHeader { kind, identity: [1; 16], subject: 7 }.encode();
            bytes[10..12].copy_from_slice(&u16::to_le_bytes(old));
            let checksum = crc32c::crc32c(&bytes[..60]);
            bytes[60..].copy_from_slice(&checksum.to_le_bytes());
            match RecordHeader::decode(&bytes, kind) {
                Ok(_) => assert!(!is_older, "{kind:?}"),
                Err(why) => {
                    assert!(is_older && why.is_worthless(), "{kind:?}: {why}");
                    assert!(matches!(why, FormatError::Older { found, .. } if found == old), "{kind:?}: {why}");
                }
            }
        }
    }
}
