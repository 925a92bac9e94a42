//! OCFS2: clones of parts of extents, which its kernel code does not reserve enough for, are preceded by clones of the
//! wholes.

use std::io;

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::{At, ShareError};

use crate::file::LinuxFile;
use crate::map::{self, Whole};
use crate::{share, sys};

/// Who writes to the extents meanwhile undoes what is done here. It is looked at so often, at most.
const TRIES: u32 = 4;

/// Clones the extents of which a part is in a range, and that are not marked as shared, as wholes into `scratch`, and
/// cuts that off again. Where marks stay, the function looks whether all extents have one now. The file counts as busy
/// if it changes all the time.
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
                // What was told as the last extent is not the whole any more, or not the end.
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

/// Clones an extent of a file that ends at `end`.
fn clone_whole(file: &LinuxFile, whole: Whole, end: u64, scratch: &LinuxFile) -> Result<(), ShareError> {
    let Whole { offset, length } = whole;
    // Up to the end of the file, wherever that is within its last block: the call takes the last extent whole then.
    let length = end.saturating_sub(offset).min(length);
    if length == 0 {
        return Ok(());
    }
    let from = At { file, offset };
    // Behind the block that keeps the file in its tree of references, so that the file ends with the clone.
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
