//! Reparse points: files that represent something else.
//!
//! After MS-FSCC 2.1.2.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4, 4..6 | tag, bytes of the data, which begin at 8 |
//! | link, junction: 8..10, 10..12 | offset and bytes of the target in the names that follow |
//! | link: 16..20 | flags: 1 relative |
//! | link: 20.., junction: 16.. | names in UTF-16 |
//! | link of Linux: 8..12, 12.. | version, target in UTF-8 |

use super::names::Units;
use crate::bytes::Bytes;
use crate::filesystem::FileKind;

const MOUNT_POINT: u32 = 0xa000_0003;
const SYMBOLIC_LINK: u32 = 0xa000_000c;
const LINUX_LINK: u32 = 0xa000_001d;
const LINUX_SOCKET: u32 = 0x8000_0023;
const LINUX_FIFO: u32 = 0x8000_0024;
const LINUX_CHARACTER_DEVICE: u32 = 0x8000_0025;
const LINUX_BLOCK_DEVICE: u32 = 0x8000_0026;
const WINDOWS_OVERLAY: u32 = 0x8000_0017;
const DEDUPLICATED: u32 = 0x8000_0013;

/// Start of the names of a link and of a junction in their data.
const LINK_NAMES: usize = 12;
const JUNCTION_NAMES: usize = 8;

/// Maximum length of the value of a reparse point.
pub(super) const BYTES_MAX: u64 = 16 << 10;
/// Maximum length of a target, in bytes.
const TARGET_BYTES_MAX: usize = 4096;

/// Meaning of a reparse point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reparse {
    /// The file is a link to this target, in the form of [`target_of`].
    Link(Vec<u8>),
    /// The file is a device, pipe or socket of Linux.
    Special(FileKind),
    /// The content is compressed in the stream `WofCompressedData` (or in an archive, if there is no such stream).
    Compressed,
    /// The content is in the chunk store of Windows' own deduplication.
    Deduplicated,
    /// A driver provides the content, for example of a cloud.
    Unknown,
}

/// Decodes a reparse point; `None` if it is truncated.
pub(super) fn decode(value: &[u8]) -> Option<Reparse> {
    let value = Bytes(value);
    let tag = value.le32(0)?;
    let data = value.part(8, usize::from(value.le16(4)?))?;
    Some(match tag {
        SYMBOLIC_LINK => Reparse::Link(target_of(data, LINK_NAMES)?),
        MOUNT_POINT => Reparse::Link(target_of(data, JUNCTION_NAMES)?),
        LINUX_LINK => Reparse::Link(checked(data.from(4)?.0.to_vec())?),
        LINUX_SOCKET => Reparse::Special(FileKind::Socket),
        LINUX_FIFO => Reparse::Special(FileKind::Fifo),
        LINUX_CHARACTER_DEVICE => Reparse::Special(FileKind::CharacterDevice),
        LINUX_BLOCK_DEVICE => Reparse::Special(FileKind::BlockDevice),
        WINDOWS_OVERLAY => Reparse::Compressed,
        DEDUPLICATED => Reparse::Deduplicated,
        _ => Reparse::Unknown,
    })
}

/// Returns the target of a link whose names begin at `names`, with slashes and without the prefix `\??\` of kernel
/// names: `../x`, `/x`, `C:/x`, `Volume{...}/`.
fn target_of(data: Bytes<'_>, names: usize) -> Option<Vec<u8>> {
    let name = data.part(names + usize::from(data.le16(0)?), usize::from(data.le16(2)?))?;
    let mut target = Units(name.0).to_utf8();
    if let Some(rest) = target.strip_prefix(br"\??\") {
        target = rest.to_vec();
    }
    target.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
    checked(target)
}

/// Returns a target if it is valid.
fn checked(target: Vec<u8>) -> Option<Vec<u8>> {
    (!target.is_empty() && target.len() <= TARGET_BYTES_MAX && !target.contains(&0)).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(tag: u32, target: &str) -> Vec<u8> {
        let units: Vec<u8> = target.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let length = u16::try_from(units.len()).unwrap();
        let head = if tag == SYMBOLIC_LINK { 12 } else { 8 };
        let mut value = tag.to_le_bytes().to_vec();
        value.extend((length + head).to_le_bytes());
        value.extend([0, 0, 0, 0]);
        value.extend(length.to_le_bytes());
        value.resize(8 + usize::from(head), 0);
        value.extend(units);
        value
    }

    #[test]
    fn targets_of_windows_have_slashes_and_no_prefix() {
        let target = |tag, text: &str| match decode(&link(tag, text)) {
            Some(Reparse::Link(target)) => String::from_utf8(target).unwrap(),
            other => format!("{other:?}"),
        };
        assert_eq!(target(SYMBOLIC_LINK, r"..\Common Files\x"), "../Common Files/x");
        assert_eq!(target(SYMBOLIC_LINK, r"\??\C:\Users"), "C:/Users");
        assert_eq!(target(MOUNT_POINT, r"\??\C:\ProgramData"), "C:/ProgramData");
        assert_eq!(target(MOUNT_POINT, r"\??\Volume{1-2}\"), "Volume{1-2}/");
        assert_eq!(target(SYMBOLIC_LINK, ""), "None");
        assert_eq!(target(SYMBOLIC_LINK, &"x".repeat(4097)), "None");
    }

    #[test]
    fn cut_off_points_are_none() {
        let whole = link(SYMBOLIC_LINK, "target");
        for length in 0..whole.len() {
            assert_eq!(decode(&whole[..length]), None, "{length}");
        }
        let mut beyond = whole.clone();
        beyond[8] = 200;
        assert_eq!(decode(&beyond), None);
    }

    #[test]
    fn tags_tell_what_becomes_of_the_content() {
        let of = |tag: u32| decode(&[&tag.to_le_bytes()[..], &[8, 0, 0, 0, 2, 0, 0, 0], b"/etc"].concat()).unwrap();
        assert_eq!(of(0x8000_0017), Reparse::Compressed);
        assert_eq!(of(0x8000_0013), Reparse::Deduplicated);
        assert_eq!(of(0x8000_0024), Reparse::Special(FileKind::Fifo));
        assert_eq!(of(0xa000_001d), Reparse::Link(b"/etc".to_vec()));
        assert_eq!(of(0x9000_001a), Reparse::Unknown);
    }
}
