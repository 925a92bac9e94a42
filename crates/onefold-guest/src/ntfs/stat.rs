//! Metadata of a file.
//!
//! | bytes of the standard information | field |
//! |---|---|
//! | 0..8, 8..16, 16..24, 24..32 | made, content changed, record changed, read: 100 ns since 1601 |

use super::content::{self, Content};
use super::directory::INDEX_OF_NAMES;
use super::extended;
use super::file::MftFile;
use super::mft::Mft;
use super::record::{AttributeBody, DATA, EXTENDED, INDEX_ALLOCATION, STANDARD_INFORMATION};
use super::reparse::Reparse;
use crate::error::GuestError;
use crate::filesystem::{FileKind, FileStat, Timestamp};

/// The default mode of a mount, because NTFS has no such bits.
const MODE: u16 = 0o777;
const TICKS_PER_SECOND: u64 = 10_000_000;
const NANOSECONDS_PER_TICK: u32 = 100;
/// Seconds from 1601 to 1970.
const EPOCH_SECONDS: i64 = 11_644_473_600;

/// Returns the metadata and the content of a file, or of its alternate stream `stream` (a name in UTF-16). A device
/// without a number is [`FileKind::Other`].
pub(super) fn stat(file: &MftFile, stream: &[u8], mft: &Mft<'_>) -> Result<(FileStat, Content), GuestError> {
    let mut device = None;
    let (kind, content) = if stream.is_empty() {
        let reparse = content::reparse_of(file, mft)?;
        let content = Content::of(file, reparse.as_ref(), mft)?;
        let kind = kind_of(file, reparse.as_ref());
        device = device_of(file, kind, mft)?;
        let is_unknown = device.is_none() && is_device(kind);
        (if is_unknown { FileKind::Other } else { kind }, linked(content, reparse))
    } else {
        (FileKind::Regular, Content::of_stream(file.stream(DATA, stream, mft)?))
    };
    let mut found = with_content(&FileStat { device, ..of_kind(file, kind) }, &content);
    if kind == FileKind::Directory {
        found.size_bytes = index_bytes(file);
    }
    Ok((found, content))
}

/// Returns the length of a directory's index outside of its record, which is the directory's length in a mount.
fn index_bytes(file: &MftFile) -> u64 {
    let parts = file.attributes().filter(|(_, found)| found.is(INDEX_ALLOCATION, INDEX_OF_NAMES));
    let mapped = parts.filter_map(|(_, found)| match found.body {
        AttributeBody::Mapped(part) if part.first == 0 => Some(part.size_bytes),
        AttributeBody::Mapped(_) | AttributeBody::Resident { .. } => None,
    });
    mapped.max().unwrap_or(0)
}

/// Returns the metadata of a file of a kind, without its content.
pub(super) fn of_kind(file: &MftFile, kind: FileKind) -> FileStat {
    let information = file.value(STANDARD_INFORMATION);
    let time = |at| information.and_then(|found| found.le64(at)).map(timestamp);
    FileStat {
        kind,
        mode: MODE,
        user: 0,
        group: 0,
        links: u32::try_from(file.names().count()).unwrap_or(u32::MAX),
        size_bytes: 0,
        allocated_bytes: 0,
        modified: time(8).unwrap_or_default(),
        changed: time(16).unwrap_or_default(),
        accessed: time(24).unwrap_or_default(),
        created: time(0),
        device: None,
        generation: u64::from(file.base.sequence),
        encoding: None,
    }
}

/// Returns the metadata of a file, completed by that of its content.
pub(super) fn with_content(stat: &FileStat, content: &Content) -> FileStat {
    FileStat {
        size_bytes: content.size_bytes,
        allocated_bytes: content.stream.as_ref().map_or(0, |stream| stream.stored_bytes),
        encoding: content.encoding(),
        ..stat.clone()
    }
}

fn is_device(kind: FileKind) -> bool {
    matches!(kind, FileKind::CharacterDevice | FileKind::BlockDevice)
}

/// Returns the number of a device, if the file is one and has a number. Without the number, the device cannot be
/// created.
fn device_of(file: &MftFile, kind: FileKind, mft: &Mft<'_>) -> Result<Option<(u32, u32)>, GuestError> {
    if !is_device(kind) {
        return Ok(None);
    }
    let Some(stream) = file.stream(EXTENDED, &[], mft)? else { return Ok(None) };
    Ok(extended::device(&stream.read_all(mft.clusters(), extended::BYTES_MAX)?))
}

fn kind_of(file: &MftFile, reparse: Option<&Reparse>) -> FileKind {
    match reparse {
        Some(Reparse::Link(_)) => FileKind::SymbolicLink,
        Some(Reparse::Special(kind)) => *kind,
        _ if file.base.is_directory => FileKind::Directory,
        Some(Reparse::Unknown) => FileKind::Other,
        Some(Reparse::Compressed | Reparse::Deduplicated) | None => FileKind::Regular,
    }
}

/// Returns the content with the length of the target, if the file is a link.
fn linked(content: Content, reparse: Option<Reparse>) -> Content {
    match reparse {
        Some(Reparse::Link(target)) => Content { size_bytes: target.len() as u64, ..content },
        _ => content,
    }
}

fn timestamp(ticks: u64) -> Timestamp {
    let seconds = i64::try_from(ticks / TICKS_PER_SECOND).unwrap_or(0) - EPOCH_SECONDS;
    let nanoseconds = u32::try_from(ticks % TICKS_PER_SECOND).unwrap_or(0) * NANOSECONDS_PER_TICK;
    Timestamp { seconds, nanoseconds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_1601() {
        let at = |ticks| (timestamp(ticks).seconds, timestamp(ticks).nanoseconds);
        assert_eq!(at(0), (-EPOCH_SECONDS, 0));
        assert_eq!(at(116_444_736_000_000_001), (0, 100));
        assert_eq!(at(u64::MAX), (1_833_029_933_770, 955_161_500));
    }
}
