//! Intents: the shares that a host is about to make in an image, on file systems where an interrupted share leaves a
//! hole. An intent names the blocks from which the hole is filled again.
//!
//! The subject is the number of the image file. One frame, the last. If it is empty, nothing is declared;
//! otherwise:
//!
//! | bytes  | field      | notes                                                                |
//! |--------|------------|----------------------------------------------------------------------|
//! | 0..12  | modified   | when the content of the image last changed: seconds, 8 bytes signed, and nanoseconds, 4 bytes |
//! | 12..14 | handle     | length of the image's handle, at most 132                            |
//! | 14..16 | path       | length of its path, at most 4096                                     |
//! | 16..18 | runs       | how many, 1 to [`RUNS_MAX`]                                          |
//! | 18..24 | -          | zero                                                                 |
//! | 24..   |            | the handle, the path below the root, and the runs                    |
//!
//! A run, 24 bytes:
//!
//! | bytes  | field      | notes                                                                |
//! |--------|------------|----------------------------------------------------------------------|
//! | 0..8   | block      | the first one, in the image                                          |
//! | 8..16  | slot       | the slot to share with; the others follow                            |
//! | 16..20 | count      | of blocks, at least one, all within one arena file                   |
//! | 20..24 | checksum   | CRC-32C over their content                                           |
//!
//! The file is written in place. A host that reads it during a write finds a wrong checksum. So does a host that reads
//! it after its writer died in a write: the writer had not begun to share, or was done.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use onefold_block::Timestamp;
use onefold_substrate::{FileHandle, Substrate};

use super::record::{
    ONLY_FRAME_BYTES_MAX, PAYLOAD_BYTES_MAX, RecordHeader, RecordKind, RecordWriter, header_of, only_frame,
};
use super::{FileBlock, FileNo, FormatError, Slot};

/// Maximum number of runs of one intent.
pub const RUNS_MAX: usize = 2048;

const FIXED_BYTES: usize = 24;
const RUN_BYTES: usize = 24;
const PATH_BYTES_MAX: usize = 4096;
const _: () = assert!(
    FIXED_BYTES + FileHandle::BYTES_MAX + PATH_BYTES_MAX + RUNS_MAX * RUN_BYTES <= PAYLOAD_BYTES_MAX,
    "an intent fits a frame"
);

/// The shares that a host is about to make in one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// The image's number.
    pub number: FileNo,
    /// The image's handle.
    pub handle: FileHandle,
    /// Its path, below the root; for messages, and empty if it was too long.
    pub path: PathBuf,
    /// When its content last changed.
    pub modified: Timestamp,
    /// The blocks, at least one run and at most [`RUNS_MAX`].
    pub runs: Vec<IntentRun>,
}

/// An intent as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredIntent {
    /// The intent.
    pub intent: Intent,
    /// Whether its file names another state folder, because the identity was lost, or replaced. Its holes are holes all
    /// the same.
    pub is_foreign: bool,
}

/// Consecutive blocks that are to share with consecutive slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntentRun {
    /// The first block, in the image.
    pub first: FileBlock,
    /// The first slot.
    pub slot: Slot,
    /// The number of blocks, at least one.
    pub count: u32,
    /// CRC-32C over their content.
    pub checksum: u32,
}

impl IntentRun {
    /// Returns the slots of the run.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        (self.slot.number()..self.slot.number() + u64::from(self.count)).filter_map(Slot::from_number)
    }
}

/// Overwrites the previous intent, with another one or with none, and makes it durable. Returns the file.
///
/// # Errors
/// No space; errors of the device. A reader may then find the old intent, the new one, or a wrong checksum.
pub fn write<S: Substrate>(
    intent: Option<&Intent>,
    substrate: &S,
    file: S::File,
    identity: [u8; 16],
) -> std::io::Result<S::File> {
    let subject = intent.map_or(0, |intent| u64::from(intent.number.0));
    let header = RecordHeader { kind: RecordKind::Intent, identity, subject };
    let payload = intent.map(Intent::encode).unwrap_or_default();
    Ok(RecordWriter::new(substrate, file, &header).finish(&payload)?.0)
}

/// Reads an intent; `None` if nothing is declared.
///
/// # Errors
/// See [`FormatError`].
pub fn read<S: Substrate>(substrate: &S, file: &S::File, identity: &[u8; 16]) -> Result<Option<Intent>, FormatError> {
    own(read_declared(substrate, file, identity)?)
}

/// Reads an intent of any state folder; `None` if nothing is declared.
///
/// # Errors
/// As [`decode_declared`].
pub(crate) fn read_declared<S: Substrate>(
    substrate: &S,
    file: &S::File,
    identity: &[u8; 16],
) -> Result<Option<DeclaredIntent>, FormatError> {
    let mut bytes = vec![0; ONLY_FRAME_BYTES_MAX];
    let length = substrate.read_at(file, 0, &mut bytes)?;
    // An empty file is new: nothing was ever declared in it.
    if length == 0 { Ok(None) } else { decode_declared(&bytes[..length], identity) }
}

/// Returns the intent of a whole file; `None` if nothing is declared.
///
/// # Errors
/// See [`FormatError`].
pub fn decode(bytes: &[u8], identity: &[u8; 16]) -> Result<Option<Intent>, FormatError> {
    own(decode_declared(bytes, identity)?)
}

/// Returns the intent of a whole file, of any state folder; `None` if nothing is declared.
///
/// # Errors
/// See [`FormatError`]; `Foreign` for a damaged file of another state folder, because it is unknown what it names.
pub fn decode_declared(bytes: &[u8], identity: &[u8; 16]) -> Result<Option<DeclaredIntent>, FormatError> {
    let (header, rest) = header_of(bytes, RecordKind::Intent)?;
    let is_foreign = header.identity != *identity;
    match only_frame(rest).and_then(|payload| intent_of(header.subject, payload)) {
        Err(FormatError::Damaged(_)) if is_foreign => Err(FormatError::Foreign),
        intent => Ok(intent?.map(|intent| DeclaredIntent { intent, is_foreign })),
    }
}

fn intent_of(subject: u64, payload: &[u8]) -> Result<Option<Intent>, FormatError> {
    let number = u32::try_from(subject).map_err(|_| FormatError::Damaged("there is no such file number"))?;
    if payload.is_empty() { Ok(None) } else { Intent::decode(FileNo(number), payload).map(Some) }
}

fn own(declared: Option<DeclaredIntent>) -> Result<Option<Intent>, FormatError> {
    match declared {
        Some(DeclaredIntent { is_foreign: true, .. }) => Err(FormatError::Foreign),
        declared => Ok(declared.map(|declared| declared.intent)),
    }
}

impl Intent {
    /// Returns the path in a form that can be written.
    #[must_use]
    pub(crate) fn kept_path(path: &Path) -> PathBuf {
        if path.as_os_str().len() <= PATH_BYTES_MAX { path.to_owned() } else { PathBuf::new() }
    }

    fn encode(&self) -> Vec<u8> {
        let (handle, path) = (self.handle.as_bytes(), self.path.as_os_str().as_bytes());
        assert!(path.len() <= PATH_BYTES_MAX, "a path of {} bytes", path.len());
        assert!((1..=RUNS_MAX).contains(&self.runs.len()), "an intent of {} runs", self.runs.len());
        let mut bytes = Vec::with_capacity(FIXED_BYTES + handle.len() + path.len() + self.runs.len() * RUN_BYTES);
        bytes.extend_from_slice(&self.modified.seconds.to_le_bytes());
        bytes.extend_from_slice(&self.modified.nanoseconds.to_le_bytes());
        for length in [handle.len(), path.len(), self.runs.len()] {
            bytes.extend_from_slice(&u16::try_from(length).expect("bounded above").to_le_bytes());
        }
        bytes.resize(FIXED_BYTES, 0);
        bytes.extend_from_slice(handle);
        bytes.extend_from_slice(path);
        for run in &self.runs {
            bytes.extend_from_slice(&run.first.0.to_le_bytes());
            bytes.extend_from_slice(&run.slot.number().to_le_bytes());
            bytes.extend_from_slice(&run.count.to_le_bytes());
            bytes.extend_from_slice(&run.checksum.to_le_bytes());
        }
        bytes
    }

    fn decode(number: FileNo, bytes: &[u8]) -> Result<Intent, FormatError> {
        const CUT: FormatError = FormatError::Damaged("its length is wrong");
        let (fixed, rest) = bytes.split_first_chunk::<FIXED_BYTES>().ok_or(CUT)?;
        let word = |at: usize| usize::from(u16::from_le_bytes([fixed[at], fixed[at + 1]]));
        let seconds = i64::from_le_bytes(fixed[..8].try_into().expect("eight bytes"));
        let nanoseconds = u32::from_le_bytes(fixed[8..12].try_into().expect("four bytes"));
        let (handle, rest) = rest.split_at_checked(word(12)).ok_or(CUT)?;
        let (path, rest) = rest.split_at_checked(word(14)).ok_or(CUT)?;
        let (runs, odd) = rest.as_chunks::<RUN_BYTES>();
        let is_counted = runs.len() == word(16) && (1..=RUNS_MAX).contains(&runs.len());
        if !odd.is_empty() || !is_counted || path.len() > PATH_BYTES_MAX {
            return Err(CUT);
        }
        if fixed[18..].iter().any(|byte| *byte != 0) || nanoseconds >= 1_000_000_000 {
            return Err(FormatError::Damaged("its beginning is wrong"));
        }
        Ok(Intent {
            number,
            handle: FileHandle::new(handle).ok_or(CUT)?,
            path: PathBuf::from(OsStr::from_bytes(path)),
            modified: Timestamp { seconds, nanoseconds },
            runs: runs.iter().map(IntentRun::decode).collect::<Result<_, _>>()?,
        })
    }
}

impl IntentRun {
    fn decode(bytes: &[u8; RUN_BYTES]) -> Result<IntentRun, FormatError> {
        const NO_RUN: FormatError = FormatError::Damaged("a run of it is of no blocks that there can be");
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let (first, count) = (long(0), half(16));
        let slot = Slot::from_number(long(8)).ok_or(NO_RUN)?;
        let is_within = first.checked_add(count.into()).is_some_and(|end| end <= FileBlock::LIMIT)
            && slot.index() + u64::from(count) <= Slot::IN_FILE;
        if count == 0 || !is_within {
            return Err(NO_RUN);
        }
        Ok(IntentRun { first: FileBlock(first), slot, count, checksum: half(20) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intent(runs: usize) -> Intent {
        let run = |at: u32| IntentRun {
            first: FileBlock(u64::from(at) * 8),
            slot: Slot::new(3, u64::from(at)).unwrap(),
            count: 1 + at % 8,
            checksum: at ^ 0xdead_beef,
        };
        Intent {
            number: FileNo(7),
            handle: FileHandle::new(&[1, 2, 3]).unwrap(),
            path: PathBuf::from("vm/disk.raw"),
            modified: Timestamp { seconds: -5, nanoseconds: 999_999_999 },
            runs: (0..u32::try_from(runs).unwrap()).map(run).collect(),
        }
    }

    #[test]
    fn intents_survive_their_encoding() {
        for runs in [1, 2, RUNS_MAX] {
            let intent = intent(runs);
            assert_eq!(Intent::decode(FileNo(7), &intent.encode()).unwrap(), intent);
        }
    }

    #[test]
    fn the_layout_is_that_of_the_table() {
        let bytes = intent(2).encode();
        assert_eq!(
            bytes[..24],
            [251, 255, 255, 255, 255, 255, 255, 255, 255, 201, 154, 59, 3, 0, 11, 0, 2, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(bytes[24..38], *b"\x01\x02\x03vm/disk.raw");
        assert_eq!(
            bytes[38 + 24..],
            [8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 12, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0xee, 0xbe, 0xad, 0xde]
        );
    }

    #[test]
    fn damaged_intents_are_refused() {
        let bytes = intent(2).encode();
        for length in 0..bytes.len() {
            assert!(Intent::decode(FileNo(7), &bytes[..length]).is_err(), "{length} bytes");
        }
        let longer = [bytes.clone(), vec![0; 24]].concat();
        assert!(Intent::decode(FileNo(7), &longer).is_err());
        // Nanoseconds, lengths, padding; a block, a slot and a count beyond their limits.
        for (at, value) in
            [(11, 0xff), (12, 200), (13, 1), (15, 0xff), (16, 3), (20, 1), (45, 1), (53, 1), (54, 0), (57, 1)]
        {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            assert!(Intent::decode(FileNo(7), &damaged).is_err(), "byte {at} is {value}");
        }
        let mut none = bytes[..38].to_vec();
        none[16] = 0;
        assert!(Intent::decode(FileNo(7), &none).is_err(), "no runs");
    }

    #[test]
    fn whole_files_are_read_whatever_is_behind_them() {
        let identity = [9; 16];
        let header = RecordHeader { kind: RecordKind::Intent, identity, subject: 7 };
        let file = |payload: &[u8]| {
            let mut frame = 0u64.to_le_bytes().to_vec();
            frame.extend_from_slice(payload);
            let length = u32::try_from(payload.len()).unwrap() | 1 << 31;
            let mut bytes = header.encode().to_vec();
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(&crc32c::crc32c(&frame).to_le_bytes());
            bytes.extend_from_slice(payload);
            bytes
        };
        let whole = file(&intent(1).encode());
        assert_eq!(decode(&whole, &identity).unwrap(), Some(intent(1)));
        assert!(matches!(decode(&whole, &[8; 16]), Err(FormatError::Foreign)));
        let declared = |bytes: &[u8], identity| decode_declared(bytes, &identity);
        assert_eq!(declared(&whole, identity).unwrap(), Some(DeclaredIntent { intent: intent(1), is_foreign: false }));
        assert_eq!(declared(&whole, [8; 16]).unwrap(), Some(DeclaredIntent { intent: intent(1), is_foreign: true }));
        let cut = &whole[..whole.len() - 1];
        assert!(matches!(declared(cut, identity), Err(FormatError::Damaged(_))));
        assert!(matches!(declared(cut, [8; 16]), Err(FormatError::Foreign)), "nobody knows what it names");
        let mut retired = whole.clone();
        retired[..72].copy_from_slice(&file(&[]));
        assert_eq!(decode(&retired, &identity).unwrap(), None);
        assert_eq!(declared(&retired, [8; 16]).unwrap(), None);
        for at in 0..whole.len() {
            assert!(decode(&whole[..at], &identity).is_err(), "{at} bytes");
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            assert!(decode(&damaged, &identity).is_err(), "byte {at}");
        }
    }
}
