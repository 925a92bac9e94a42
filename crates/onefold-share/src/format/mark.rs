//! Marks: the knowledge about an image file. Each image has one small file in `files/`, named by its number.
//!
//! The subject is the file's number. One frame, the last:
//!
//! | bytes  | field      | notes                                                            |
//! |--------|------------|------------------------------------------------------------------|
//! | 0..8   | length     | of the file when it was scanned, in bytes                        |
//! | 8..20  | modified   | then: seconds, 8 bytes signed, and nanoseconds, 4 bytes          |
//! | 20..32 | changed    | the same                                                         |
//! | 32     | state      | 1 if a scan noted the above; 0 if no scan was complete           |
//! | 33     | flags      | 1: the file had no hole when it was first read; 2: the time of change above was ahead of the clock then |
//! | 34..36 | handle     | length of the file's handle, at most 132                         |
//! | 36..38 | path       | length of its path, at most 4096                                 |
//! | 38..   |            | the handle, and the path below the root                          |
//! | ..     | fields     | to the end of the frame, in ascending order of their kinds       |
//!
//! A field:
//!
//! | bytes | field  | notes                                                                            |
//! |-------|--------|----------------------------------------------------------------------------------|
//! | 0..2  | kind   | 1: the domain; 2 and 3: how far the file is read ([`super::reading`]); 4: the last log. Readers skip unknown kinds |
//! | 2..4  | length | of the data, in bytes                                                            |
//! | 4..   |        | domain: user numbers of tenant and owner (4 bytes each), and the encoded domain  |
//! |       |        | last log: the number that orders it among the logs of its file, 8 bytes          |
//!
//! Each mark has a domain, and keeps it: a file that comes into another domain gets another mark, with another number.
//!
//! A file that is gone has no path. Its times, if it has any, say when that was seen. Passes then collect its blocks
//! once more.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use onefold_block::Timestamp;
use onefold_substrate::{FileHandle, Substrate};

use super::reading::{AGAIN_FIELD, READING_FIELD, ReadingState};
use super::record::{Frame, RecordHeader, RecordKind, RecordReader, RecordWriter};
use super::stamp::Stamp;
use super::{FileNo, FormatError};
use crate::domain::{Domain, Membership};

const FIXED_BYTES: usize = 38;
const PATH_BYTES_MAX: usize = 4096;
/// Kind of the field with the domain.
const DOMAIN_FIELD: u16 = 1;
/// Kind of the field with the last log.
const LAST_LOG_FIELD: u16 = 4;

/// A mark: the knowledge about an image file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its number.
    pub number: FileNo,
    /// The handle of the file.
    pub handle: FileHandle,
    /// Its path when it was last seen, below the root.
    pub path: PathBuf,
    /// Its stamp before it was last read to its end; `None` before the first time.
    pub scanned: Option<Stamp>,
    /// Further notes.
    pub flags: MarkFlags,
    /// The domain that its number belongs to, and its tenant and owner at the last look.
    pub membership: Membership,
    /// How far it is read, if it has changed.
    pub reading: ReadingState,
    /// The number that orders the last log which the writer of this mark knew, among the logs of the file; `None` if no
    /// scan has noted one. A log with a higher number comes from a host that did not get to write the mark.
    pub last_log: Option<u64>,
}

/// Notes of a mark in single bits. Unknown bits are zero, so that marks of earlier versions have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkFlags {
    /// The file had no hole when it was first read: its space was reserved, and its zeros stay blocks.
    pub is_reserved: bool,
    /// The time of its last change was ahead of the clock when it was read. It is read once more when the clock has
    /// reached that time.
    pub is_ahead: bool,
}

impl MarkFlags {
    const RESERVED: u8 = 1;
    const AHEAD: u8 = 2;

    fn encode(self) -> u8 {
        (u8::from(self.is_reserved) * Self::RESERVED) | (u8::from(self.is_ahead) * Self::AHEAD)
    }

    fn decode(bits: u8) -> MarkFlags {
        MarkFlags { is_reserved: bits & Self::RESERVED != 0, is_ahead: bits & Self::AHEAD != 0 }
    }
}

impl Mark {
    /// Returns whether the file is gone, and its mark only kept because numbers are given out once.
    #[must_use]
    pub fn is_forgotten(&self) -> bool {
        self.path.as_os_str().is_empty()
    }

    /// Returns since when the file is known to be gone, as long as the blocks that it shared have to be collected.
    #[must_use]
    pub(crate) fn gone_since(&self) -> Option<Timestamp> {
        self.scanned.filter(|_| self.is_forgotten()).map(|stamp| stamp.modified)
    }

    /// Returns whether the mark can be written: paths longer than the kernel accepts cannot.
    #[must_use]
    pub fn is_path_kept(path: &Path) -> bool {
        path.as_os_str().len() <= PATH_BYTES_MAX
    }

    /// Writes the mark to an empty file and makes it durable.
    ///
    /// # Errors
    /// No space; errors of the device.
    ///
    /// # Panics
    /// If the path is longer than any that can be opened.
    pub fn write<S: Substrate>(&self, substrate: &S, file: S::File, identity: [u8; 16]) -> std::io::Result<()> {
        let header = RecordHeader { kind: RecordKind::Mark, identity, subject: u64::from(self.number.0) };
        RecordWriter::new(substrate, file, &header).finish(&self.encode())?;
        Ok(())
    }

    /// Reads a mark.
    ///
    /// # Errors
    /// See [`FormatError`].
    pub fn read<S: Substrate>(substrate: &S, file: S::File, identity: &[u8; 16]) -> Result<Mark, FormatError> {
        let mut reader = RecordReader::open(substrate, file, RecordKind::Mark, Some(identity))?;
        let number =
            u32::try_from(reader.subject()).map_err(|_| FormatError::Damaged("there is no such file number"))?;
        let Some(Frame::Last(payload)) = reader.next_frame()? else {
            return Err(FormatError::Damaged("it has more than one frame"));
        };
        Mark::decode(FileNo(number), payload)
    }

    fn encode(&self) -> Vec<u8> {
        assert!(Mark::is_path_kept(&self.path), "a path of {} bytes", self.path.as_os_str().len());
        let mut bytes = Vec::with_capacity(FIXED_BYTES + PATH_BYTES_MAX);
        let zero = Stamp { length: 0, modified: Timestamp::default(), changed: Timestamp::default() };
        let stamp = self.scanned.unwrap_or(zero);
        bytes.extend_from_slice(&stamp.encode());
        bytes.extend_from_slice(&[u8::from(self.scanned.is_some()), self.flags.encode()]);
        let (handle, path) = (self.handle.as_bytes(), self.path.as_os_str().as_bytes());
        for part in [handle, path] {
            bytes.extend_from_slice(&u16::try_from(part.len()).expect("bounded above").to_le_bytes());
        }
        bytes.extend_from_slice(handle);
        bytes.extend_from_slice(path);
        put_field(&mut bytes, DOMAIN_FIELD, &encode_membership(&self.membership));
        if let Some(field) = self.reading.encode() {
            put_field(&mut bytes, READING_FIELD, &field);
        }
        if let Some(field) = self.reading.encode_again() {
            put_field(&mut bytes, AGAIN_FIELD, &field);
        }
        if let Some(order) = self.last_log {
            put_field(&mut bytes, LAST_LOG_FIELD, &order.to_le_bytes());
        }
        bytes
    }

    fn decode(number: FileNo, bytes: &[u8]) -> Result<Mark, FormatError> {
        const CUT: FormatError = FormatError::Damaged("its length is wrong");
        let fixed: &[u8; FIXED_BYTES] = bytes.first_chunk().ok_or(CUT)?;
        let word = |at: usize| usize::from(u16::from_le_bytes([fixed[at], fixed[at + 1]]));
        let (handle_length, path_length) = (word(34), word(36));
        let (handle, rest) = bytes[FIXED_BYTES..].split_at_checked(handle_length).ok_or(CUT)?;
        if path_length > PATH_BYTES_MAX {
            return Err(CUT);
        }
        let (path, mut rest) = rest.split_at_checked(path_length).ok_or(CUT)?;
        let handle = FileHandle::new(handle).ok_or(CUT)?;
        let stamp = Stamp::decode(fixed.first_chunk().expect("the first of them"));
        let scanned = match fixed[32] {
            0 => None,
            1 => Some(stamp),
            _ => return Err(FormatError::Damaged("its state is none of those that there are")),
        };
        let flags = MarkFlags::decode(fixed[33]);
        let (mut membership, mut reading, mut last_log, mut last) = (None, ReadingState::default(), None, 0);
        while !rest.is_empty() {
            let (kind, field, others) = take_field(rest).ok_or(CUT)?;
            if kind <= last {
                return Err(FormatError::Damaged("its fields are not in order"));
            }
            match kind {
                DOMAIN_FIELD => {
                    membership = Some(decode_membership(field).ok_or(FormatError::Damaged("its domain is none"))?);
                }
                READING_FIELD => reading.decode(field)?,
                AGAIN_FIELD => reading.decode_again(field)?,
                LAST_LOG_FIELD => {
                    let order = field.try_into().map_err(|_| FormatError::Damaged("its last log is none"))?;
                    last_log = Some(u64::from_le_bytes(order));
                }
                _ => {}
            }
            (rest, last) = (others, kind);
        }
        let membership = membership.ok_or(FormatError::Damaged("it has no domain"))?;
        let path = PathBuf::from(OsStr::from_bytes(path));
        Ok(Mark { number, handle, path, scanned, flags, membership, reading, last_log })
    }
}

fn put_field(bytes: &mut Vec<u8>, kind: u16, field: &[u8]) {
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(&u16::try_from(field.len()).expect("fields are short").to_le_bytes());
    bytes.extend_from_slice(field);
}

/// Returns the kind and the bytes of the first field, and the bytes behind it.
fn take_field(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let ([a, b, c, d], rest) = bytes.split_first_chunk()?;
    let (field, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([*c, *d])))?;
    Some((u16::from_le_bytes([*a, *b]), field, rest))
}

fn encode_membership(membership: &Membership) -> Vec<u8> {
    let Membership { domain, tenant, owner } = membership;
    [&tenant.to_le_bytes()[..], &owner.to_le_bytes(), &domain.encode()].concat()
}

fn decode_membership(bytes: &[u8]) -> Option<Membership> {
    let (tenant, rest) = bytes.split_first_chunk()?;
    let (owner, domain) = rest.split_first_chunk()?;
    let [tenant, owner] = [tenant, owner].map(|user| u32::from_le_bytes(*user));
    Some(Membership { domain: Domain::decode(domain)?, tenant, owner })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(scanned: Option<Stamp>) -> Mark {
        let handle = FileHandle::new(&[1, 2, 3]).unwrap();
        let membership = Membership { domain: "staff".parse().unwrap(), tenant: 1000, owner: 64055 };
        Mark {
            number: FileNo(7),
            handle,
            path: PathBuf::from("vm/disk.raw"),
            scanned,
            flags: MarkFlags::default(),
            membership,
            reading: ReadingState::default(),
            last_log: None,
        }
    }

    #[test]
    fn marks_survive_their_encoding() {
        let time = Timestamp { seconds: -5, nanoseconds: 999_999_999 };
        for scanned in [None, Some(Stamp { length: u64::MAX, modified: time, changed: Timestamp::default() })] {
            for domain in [Domain::Owner(u32::MAX), "n".repeat(64).parse().unwrap()] {
                let membership = Membership { domain, tenant: 0, owner: u32::MAX };
                let mark = Mark { membership, ..mark(scanned) };
                assert_eq!(Mark::decode(FileNo(7), &mark.encode()).unwrap(), mark);
            }
        }
    }

    /// These bytes are on disk: they never change.
    #[test]
    fn marks_match_the_stored_vector() {
        let fields: &[u8] = &[1, 0, 14, 0, 232, 3, 0, 0, 55, 250, 0, 0, 1, b's', b't', b'a', b'f', b'f'];
        let expected = [&[0; 34][..], &[3, 0, 11, 0, 1, 2, 3], b"vm/disk.raw", fields].concat();
        assert_eq!(mark(None).encode(), expected);
        let reading = ReadingState { is_known: true, cursor: 4096, ..ReadingState::default() };
        let field = [&[2, 0, 64, 0, 1][..], &[0; 16], &[16], &[0; 46]].concat();
        let expected = [expected, field].concat();
        let read = Mark { reading, ..mark(None) };
        assert_eq!(read.encode(), expected);
        let field = [4, 0, 8, 0, 8, 7, 6, 5, 4, 3, 2, 1];
        let logged = Mark { last_log: Some(0x0102_0304_0506_0708), ..read };
        assert_eq!(logged.encode(), [&expected[..], &field].concat());
        assert_eq!(Mark::decode(FileNo(7), &logged.encode()).unwrap(), logged);
    }

    /// A later revision of the same version adds fields; an unknown field is skipped.
    #[test]
    fn fields_come_in_order_and_unknown_ones_are_skipped() {
        let with = |fields: &[(u16, &[u8])]| {
            let mut bytes = mark(None).encode();
            bytes.truncate(38 + 3 + 11);
            fields.iter().for_each(|(kind, field)| put_field(&mut bytes, *kind, field));
            Mark::decode(FileNo(7), &bytes)
        };
        let domain = encode_membership(&mark(None).membership);
        assert_eq!(with(&[(1, &domain)]).unwrap(), mark(None));
        assert_eq!(with(&[(1, &domain), (9, b"news"), (10, b"")]).unwrap(), mark(None));
        let reading = ReadingState { cursor: 4096, ..ReadingState::default() };
        let known = reading.encode().unwrap();
        let expected = Mark { reading, ..mark(None) };
        assert_eq!(with(&[(1, &domain), (2, &known), (900, b"")]).unwrap(), expected);
        let damaged: [&[(u16, &[u8])]; 13] = [
            &[(2, &known), (1, &domain)],
            &[(1, &domain), (2, &known), (2, &known)],
            &[(1, &domain), (2, &known[1..])],
            &[(1, &domain), (3, b"short")],
            &[(1, &domain), (4, b"7 bytes")],
            &[],
            &[(9, b"news")],
            &[(0, b""), (1, &domain)],
            &[(1, &domain), (1, &domain)],
            &[(2, b""), (1, &domain)],
            &[(1, &domain[..8])],
            &[(1, &domain[..7])],
            &[(1, b"")],
        ];
        for damaged in damaged {
            with(damaged).unwrap_err();
        }
    }

    #[test]
    fn flags_are_bits_of_a_byte_that_was_zero() {
        for (bits, is_reserved, is_ahead) in [(0, false, false), (1, true, false), (2, false, true), (3, true, true)] {
            let flagged = Mark { flags: MarkFlags { is_reserved, is_ahead }, ..mark(None) };
            let bytes = flagged.encode();
            assert_eq!((bytes[33], Mark::decode(FileNo(7), &bytes).unwrap()), (bits, flagged));
        }
        let mut later = mark(None).encode();
        later[33] = 0xf1;
        assert!(Mark::decode(FileNo(7), &later).unwrap().flags.is_reserved, "other bits are somebody else's");
    }

    #[test]
    fn how_far_a_file_is_read_survives_with_its_mark() {
        for reading in ReadingState::samples() {
            let mark = Mark { reading, ..mark(None) };
            assert_eq!(Mark::decode(FileNo(7), &mark.encode()).unwrap(), mark);
        }
    }

    #[test]
    fn damaged_marks_are_refused() {
        let bytes = mark(None).encode();
        for length in 0..bytes.len() {
            assert!(Mark::decode(FileNo(7), &bytes[..length]).is_err(), "{length} bytes");
        }
        let mut state = bytes.clone();
        state[32] = 2;
        assert!(Mark::decode(FileNo(7), &state).is_err());
        let mut long = bytes;
        long.push(0);
        assert!(Mark::decode(FileNo(7), &long).is_err());
    }
}
