//! OCFS2: clones of parts of extents, which its kernel code does not reserve enough for, are preceded by clones of the wholes.

use std::io;

use onefold_block::BLOCK_BYTES_U64;
use onefold_block::substrate::{At, ShareError};

use super::file::LinuxFile;
use super::map::{self, Whole};
use super::{share, sys};

/// Clones the extents of which a part is in a range, and that are not marked as shared, as wholes into `scratch`, and cuts that
/// off again.
pub(super) fn clone_whole_extents(
    source: At<'_, LinuxFile>,
    length: u64,
    scratch: &LinuxFile,
) -> Result<(), ShareError> {
    let wholes = map::unmarked(source.file, source.offset, length)?;
    let end = source.file.length()?;
    let mut is_used = false;
    for Whole { offset, length } in wholes {
        // Up to the end of the file, wherever that is within its last block: the call takes the last extent whole then.
        let Some(length) = end.checked_sub(offset).map(|left| left.min(length)).filter(|length| *length > 0) else {
            continue;
        };
        let from = At { file: source.file, offset };
        // Behind the block that keeps the file in its tree of references, so that the file ends with the clone.
        let into = At { file: scratch, offset: BLOCK_BYTES_U64 };
        is_used = true;
        let cloned = sys::clone_range(from, into, length).map_err(|errno| share::meaning(errno, from, into, length));
        let cut = scratch.set_len(BLOCK_BYTES_U64);
        cloned?;
        cut.map_err(full)?;
    }
    debug_assert!(!is_used || scratch.length().is_ok_and(|length| length == BLOCK_BYTES_U64));
    Ok(())
}

fn full(error: io::Error) -> ShareError {
    match error.kind() {
        io::ErrorKind::StorageFull => ShareError::Full,
        _ => ShareError::Io(error),
    }
}
