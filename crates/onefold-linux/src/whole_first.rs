//! OCFS2: clones whole extents before parts of them. For a clone of a part alone, its kernel code reserves too little
//! journal space.

use std::io;

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::{At, ShareError};

use crate::file::LinuxFile;
use crate::map::{self, ExtentRange};
use crate::{share, sys};

/// Maximum number of attempts: a process that writes to the extents meanwhile undoes their marks.
const TRIES: u32 = 4;

/// Clones each unmarked extent that overlaps a range into `scratch` as a whole, and cuts the clones off again. If
/// `marks_stay`, checks afterwards that all extents are marked as shared, and repeats. The file counts as busy if it
/// keeps changing.
pub(super) fn clone_whole_extents(
    source: At<'_, LinuxFile>,
    length: u64,
    scratch: &LinuxFile,
    marks_stay: bool,
) -> Result<(), ShareError> {
    for _ in 0..TRIES {
        let end = source.file.length()?;
        let wholes = map::unmarked(source.file, source.offset, length)?;
        if wholes.is_empty() {
            return Ok(());
        }
        for whole in wholes {
            match clone_whole(source.file, whole, end, scratch) {
                // The file's end has moved: the last extent is no longer whole, or no longer the last.
                Err(_) if source.file.length()? != end => break,
                cloned => cloned?,
            }
        }
        if !marks_stay {
            return Ok(());
        }
    }
    Err(ShareError::Busy)
}

/// Clones a whole extent of a file whose length is `end`.
fn clone_whole(file: &LinuxFile, whole: ExtentRange, end: u64, scratch: &LinuxFile) -> Result<(), ShareError> {
    let ExtentRange { offset, length } = whole;
    // Ends at the end of the file, wherever that is within its last block: the call then takes the last extent whole.
    let length = end.saturating_sub(offset).min(length);
    if length == 0 {
        return Ok(());
    }
    let from = At { file, offset };
    // Goes behind the block that keeps the file in its tree of references, so that the clone is the end of the file.
    let into = At { file: scratch, offset: BLOCK_BYTES_U64 };
    let cloned = sys::clone_range(from, into, length).map_err(|errno| share::meaning(errno, from, into, length));
    let cut = scratch.set_len(BLOCK_BYTES_U64);
    cloned?;
    cut.map_err(full)
}

fn full(error: io::Error) -> ShareError {
    match error.kind() {
        io::ErrorKind::StorageFull => ShareError::Full,
        _ => ShareError::Io(error),
    }
}
