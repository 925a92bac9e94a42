//! The scan cursor: the file with which the next scan begins, in one small file. Only the order of the files depends on
//! it.
//!
//! The subject is zero. One frame, the last: the path below the root, at most 4096 bytes. A scan begins with the first
//! file that is not before that path, and handles the files before it at the end.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use onefold_substrate::Substrate;

use super::FormatError;
use super::mark::Mark;
use super::record::{Frame, RecordHeader, RecordKind, RecordReader, RecordWriter};

/// Writes the cursor to an empty file and makes it durable.
///
/// # Errors
/// No space; errors of the device.
///
/// # Panics
/// If the path is longer than those that marks keep.
pub fn write<S: Substrate>(substrate: &S, file: S::File, identity: [u8; 16], path: &Path) -> std::io::Result<()> {
    assert!(Mark::is_path_kept(path), "a path of {} bytes", path.as_os_str().len());
    let header = RecordHeader { kind: RecordKind::Cursor, identity, subject: 0 };
    RecordWriter::new(substrate, file, &header).finish(path.as_os_str().as_bytes())?;
    Ok(())
}

/// Reads a cursor.
///
/// # Errors
/// See [`FormatError`].
pub fn read<S: Substrate>(substrate: &S, file: S::File, identity: &[u8; 16]) -> Result<PathBuf, FormatError> {
    let mut reader = RecordReader::open(substrate, file, RecordKind::Cursor, Some(identity))?;
    let Some(Frame::Last(payload)) = reader.next_frame()? else {
        return Err(FormatError::Damaged("it has more than one frame"));
    };
    let path = PathBuf::from(OsStr::from_bytes(payload));
    if Mark::is_path_kept(&path) { Ok(path) } else { Err(FormatError::Damaged("its path is longer than any")) }
}
