//! The content of a file without its holes, in GNU tar's sparse format: a list of the stored parts in decimal digits,
//! padded to whole blocks of 512 bytes, and then these parts.

use std::io::{self, Read};

use onefold_guest::error::GuestError;
use onefold_guest::filesystem::{FileNumber, FileStat, FileSystem};

use super::header::StoredSize;
use crate::verbs::guest::stored;

const TAR_BLOCK_BYTES: usize = 512;
/// Minimum number of bytes in holes that justifies a list.
const HOLES_BYTES_MIN: u64 = 4096;

/// The content of a file that is being archived.
pub(super) struct MemberContent<'a> {
    system: &'a dyn FileSystem,
    file: FileNumber,
    /// The ranges of the parts in the file, in order.
    parts: Vec<(u64, u64)>,
    /// The list before the parts; empty if there are no holes.
    list: Vec<u8>,
    list_at: usize,
    part: usize,
    /// Number of bytes of the part that were read.
    within: u64,
    /// Why the guest could not be read.
    failed: Option<GuestError>,
    /// Whether some of the content is zeros because the guest could not be read or ended early.
    is_short: bool,
}

impl<'a> MemberContent<'a> {
    /// Returns the content of a file.
    ///
    /// # Errors
    /// When it exists only in another form, its map is damaged, or it has very many parts. Then nothing of it may be
    /// written.
    pub(super) fn of(
        system: &'a dyn FileSystem,
        file: FileNumber,
        stat: &FileStat,
    ) -> Result<MemberContent<'a>, GuestError> {
        if let Some(encoding) = stat.encoding {
            return Err(GuestError::Encoded(encoding));
        }
        let parts = stored::parts(system, file, stat.size_bytes)?;
        let stored: u64 = parts.iter().map(|(start, end)| end - start).sum();
        let is_sparse = stat.size_bytes - stored >= HOLES_BYTES_MIN;
        let list = if is_sparse { list(&parts, stat.size_bytes) } else { Vec::new() };
        let parts = if is_sparse { parts } else { vec![(0, stat.size_bytes)] };
        Ok(MemberContent { system, file, parts, list, list_at: 0, part: 0, within: 0, failed: None, is_short: false })
    }

    /// Returns the amount that is stored.
    pub(super) fn stored(&self) -> StoredSize {
        let parts: u64 = self.parts.iter().map(|(start, end)| end - start).sum();
        StoredSize { bytes: parts + self.list.len() as u64, is_sparse: !self.list.is_empty() }
    }

    /// Returns whether some of the content was filled with zeros.
    pub(super) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Returns why the guest could not be read, if it could not.
    pub(super) fn failure(&self) -> Option<&GuestError> {
        self.failed.as_ref()
    }
}

/// Returns the list of parts. A hole at the end needs an empty part behind it.
fn list(parts: &[(u64, u64)], size_bytes: u64) -> Vec<u8> {
    let ends_with_hole = parts.last().is_none_or(|(_, end)| *end < size_bytes);
    let end = ends_with_hole.then_some((size_bytes, size_bytes));
    let mut list = format!("{}\n", parts.len() + usize::from(ends_with_hole));
    for (start, end) in parts.iter().copied().chain(end) {
        list.push_str(&format!("{start}\n{}\n", end - start));
    }
    let mut list = list.into_bytes();
    list.resize(list.len().next_multiple_of(TAR_BLOCK_BYTES), 0);
    list
}

impl Read for MemberContent<'_> {
    /// Returns exactly as many bytes as [`MemberContent::stored`] promises. If the guest ends early or cannot be read,
    /// the rest is zeros: the archive continues, and the caller reports the failure.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(rest) = self.list.get(self.list_at..).filter(|rest| !rest.is_empty()) {
            let length = rest.len().min(into.len());
            into[..length].copy_from_slice(&rest[..length]);
            self.list_at += length;
            return Ok(length);
        }
        while let Some((start, end)) = self.parts.get(self.part).copied() {
            let left = end - start - self.within;
            if left == 0 {
                self.part += 1;
                self.within = 0;
                continue;
            }
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
            let piece = &mut into[..length];
            let filled = match self.failed {
                Some(_) => 0,
                None => self.system.read(self.file, start + self.within, piece).unwrap_or_else(|error| {
                    self.failed = Some(error);
                    0
                }),
            };
            self.is_short |= filled < length;
            piece[filled.min(length)..].fill(0);
            self.within += length as u64;
            return Ok(length);
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_all_parts_and_ends_at_a_block() {
        let text = |parts: &[(u64, u64)], size| {
            let list = list(parts, size);
            assert!(list.len().is_multiple_of(512));
            String::from_utf8(list).unwrap().trim_end_matches('\0').to_owned()
        };
        assert_eq!(text(&[(4096, 8192)], 8192), "1\n4096\n4096\n");
        assert_eq!(text(&[(0, 10)], 1 << 60), "2\n0\n10\n1152921504606846976\n0\n");
        assert_eq!(text(&[], 5000), "1\n5000\n0\n");
    }
}
