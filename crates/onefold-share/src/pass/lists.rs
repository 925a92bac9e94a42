//! The lists that a pass sorts before it works: the contents of logs, and the planned work.
//!
//! Each takes its memory with its first row. The contents of logs keep half of their memory while the plan reads them
//! and fills the other lists.

use std::io;
use std::path::Path;

use onefold_sort::{Merge, Row, SortWriter, Spool, SpoolWriter};

use super::PassOptions;
use super::written::WrittenRanges;

/// The contents of logs, as `intake` reads them.
pub(super) struct LogContents {
    /// Contents and their places; in order of the contents.
    pub(super) seen: SortWriter,
    /// All blocks that were written.
    pub(super) written: WrittenRanges,
}

/// The planned work, as `plan` decides it.
pub(super) struct Lists {
    /// Blocks that are to be put into slots.
    pub(super) candidates: SortWriter,
    /// Places that are to share with the slots of candidates.
    pub(super) others: SortWriter,
    /// Places that are to share with slots in the index, or to become holes: logs name the latter.
    pub(super) targets: SortWriter,
    /// Places in files outside the selection whose entries are replaced by a place inside.
    pub(super) requests: SortWriter,
}

impl LogContents {
    pub(super) fn new(options: &PassOptions<'_>) -> LogContents {
        let seen = SortWriter::new(options.temporary_folder, part_bytes(options));
        LogContents { seen, written: WrittenRanges::default() }
    }
}

impl Lists {
    pub(super) fn new(options: &PassOptions<'_>) -> Lists {
        let part = part_bytes(options);
        let list = |memory_bytes| SortWriter::new(options.temporary_folder, memory_bytes);
        Lists { candidates: list(part / 2), others: list(part / 2), targets: list(part), requests: list(part / 8) }
    }
}

/// Returns the part of the memory for sorting that a long list may take, in bytes.
pub(super) fn part_bytes(options: &PassOptions<'_>) -> usize {
    options.memory_bytes / 4
}

/// Stores rows that come in order.
pub(super) fn spool(
    rows: impl Iterator<Item = io::Result<Row>>,
    folder: &Path,
    memory_bytes: usize,
) -> io::Result<Spool> {
    let mut writer = SpoolWriter::new(folder, memory_bytes);
    for row in rows {
        writer.push(row?)?;
    }
    writer.finish()
}

/// Stores the rows of two lists, each of which comes in order.
pub(super) fn spool_both(planned: &Spool, entered: Merge, folder: &Path, memory_bytes: usize) -> io::Result<Spool> {
    let (mut planned, mut entered) = (planned.read(0, planned.len()).peekable(), entered.peekable());
    let both = std::iter::from_fn(|| match (planned.peek(), entered.peek()) {
        // Rows of one digest may come in any order; an error comes first.
        (Some(Ok(one)), Some(Ok(other))) if one > other => entered.next(),
        (Some(Ok(_)), Some(Err(_))) | (None, Some(_)) => entered.next(),
        _ => planned.next(),
    });
    spool(both, folder, memory_bytes)
}
