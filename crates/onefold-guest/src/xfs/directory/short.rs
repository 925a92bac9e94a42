//! Directories inside their inode.
//!
//! | bytes  | field                | notes                                        |
//! |--------|----------------------|----------------------------------------------|
//! | 0      | entries              |                                              |
//! | 1      | entries with 8-byte inode numbers | 0: all numbers have 4 bytes     |
//! | 2..6, or 2..10 | inode of the parent |                                       |
//!
//! An entry: length of the name (1 byte), its place in a larger directory (2), name, kind of file (1, with that
//! feature), inode number (4 or 8).

use std::ops::ControlFlow;

use super::{EntryVisit, RawEntry, STRUCTURE};
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::xfs::Xfs;
use crate::xfs::inode::Fork;

impl Xfs<'_> {
    /// Visits the entries of an inline directory.
    pub(super) fn short_entries(
        &self,
        fork: &Fork<'_>,
        size_bytes: u64,
        visit: &mut EntryVisit<'_>,
    ) -> Result<(), GuestError> {
        let short = || self.reader.damage(fork.place, STRUCTURE, "it is shorter than its entries");
        let length = usize::try_from(size_bytes).map_err(|_| short())?;
        let bytes = fork.bytes.part(0, length).ok_or_else(short)?;
        let (count, wide) = bytes.u8(0).zip(bytes.u8(1)).ok_or_else(short)?;
        let number_bytes = if wide > 0 { 8 } else { 4 };
        let has_kinds = self.superblock.features.has_file_types();
        let mut at = 2 + number_bytes;
        // The first byte counts all entries, even if some of their numbers are wide.
        for _ in 0..count {
            let (entry, length) = short_entry(bytes, at, number_bytes, has_kinds).ok_or_else(short)?;
            at += length;
            let entry = self.damage.skip(self.new_entry(entry, fork.place).map_err(GuestError::from))?.flatten();
            if entry.is_some_and(|entry| visit(entry) == ControlFlow::Break(())) {
                break;
            }
        }
        Ok(())
    }
}

/// Returns an entry and its length.
fn short_entry(bytes: Bytes<'_>, at: usize, number_bytes: usize, has_kinds: bool) -> Option<(RawEntry<'_>, usize)> {
    let name_bytes = usize::from(bytes.u8(at)?);
    let name = bytes.part(at + 3, name_bytes)?.0;
    let kind_at = at + 3 + name_bytes;
    let number_at = kind_at + usize::from(has_kinds);
    let kind = if has_kinds { Some(bytes.u8(kind_at)?) } else { None };
    let inode = if number_bytes == 8 { bytes.be64(number_at)? } else { u64::from(bytes.be32(number_at)?) };
    Some((RawEntry { name, inode, kind }, number_at + number_bytes - at))
}
