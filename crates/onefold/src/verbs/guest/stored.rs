//! Which parts of a file are stored; the rest are holes.

use std::ops::ControlFlow;

use onefold_guest::error::GuestError;
use onefold_guest::filesystem::{ExtentKind, FileNumber, FileSystem};

/// Maximum number of parts of a file that are told apart.
const PARTS_MAX: usize = 1 << 18;

/// Returns the ranges of a file of `size_bytes` that are stored, in order and without overlaps. All bytes between them
/// are zeros.
///
/// # Errors
/// When the content exists only in another form, its map is damaged, or it has very many parts.
pub(super) fn parts(system: &dyn FileSystem, file: FileNumber, size_bytes: u64) -> Result<Vec<(u64, u64)>, GuestError> {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    let mut refused = None;
    system.each_extent(file, &mut |extent| {
        let start = extent.offset.min(size_bytes);
        let end = extent.offset.saturating_add(extent.length_bytes).min(size_bytes);
        match extent.kind {
            ExtentKind::Encoded(encoding) => refused = Some(GuestError::Encoded(encoding)),
            ExtentKind::Unwritten => {}
            ExtentKind::Written | ExtentKind::Inline | ExtentKind::Shared => refused = add(&mut parts, start, end),
        }
        if refused.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    refused.map_or(Ok(parts), Err)
}

/// Adds a part. If there are too many, returns why the file is refused.
fn add(parts: &mut Vec<(u64, u64)>, start: u64, end: u64) -> Option<GuestError> {
    let is_full = parts.len() >= PARTS_MAX;
    match parts.last_mut() {
        Some((_, last)) if start <= *last => *last = end.max(*last),
        _ if start >= end => {}
        _ if is_full => return Some(GuestError::Unsupported("a file of more than 262,144 parts")),
        _ => parts.push((start, end)),
    }
    None
}

/// Returns the parts that are stored in one of two files or in both.
pub(super) fn in_either(one: &[(u64, u64)], two: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut all = [one, two].concat();
    all.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in all {
        match merged.last_mut() {
            Some((_, last)) if start <= *last => *last = end.max(*last),
            _ => merged.push((start, end)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_too_many_parts_is_refused_and_no_part_grows_over_a_hole() {
        let mut parts = Vec::new();
        for number in 0..PARTS_MAX as u64 {
            assert!(add(&mut parts, number * 8192, number * 8192 + 4096).is_none());
        }
        assert_eq!(
            add(&mut parts, 1 << 60, (1 << 60) + 4096).map(|error| error.to_string()).as_deref(),
            Some("a file of more than 262,144 parts cannot be read")
        );
        assert_eq!((parts.len(), parts.last()), (PARTS_MAX, Some(&(2_147_475_456, 2_147_479_552))));
    }

    #[test]
    fn parts_of_two_files_are_joined() {
        assert_eq!(
            in_either(&[(0, 5), (20, 30)], &[(3, 8), (30, 31), (1 << 60, 1 << 61)]),
            [(0, 8), (20, 31), (1 << 60, 1 << 61)]
        );
        assert_eq!(in_either(&[], &[]), []);
    }
}
