//! Descriptions of a guest's files: lines for people, members of documents for programs.

use onefold_block::Show;
use onefold_guest::content::VolumeContent;
use onefold_guest::error::Encoding;
use onefold_guest::filesystem::{AllocationClass, ExtentKind, FileKind, FileStat, TableKind};
use onefold_guest::volume::VolumeOrigin;
use serde_json::{Map, Value, json};

use crate::calendar;

/// Returns the document members for a path of the guest: the path itself, and also its bytes in hexadecimal digits if
/// it is not UTF-8.
pub(in crate::verbs) fn path_members(member: &str, path: &[u8]) -> Map<String, Value> {
    let mut members = Map::new();
    let text = String::from_utf8_lossy(path);
    if std::str::from_utf8(path).is_err() {
        members.insert(format!("{member}_hex"), hex(path).into());
    }
    members.insert(member.to_owned(), text.into());
    members
}

/// Returns bytes in hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Returns everything known about a file, for programs.
pub(super) fn file_members(path: &[u8], stat: &FileStat, target: Option<&[u8]>) -> Map<String, Value> {
    let mut members = path_members("path", path);
    let numbers = json!({
        "kind": kind_name(stat.kind),
        "mode": format!("{:04o}", stat.mode & 0o7777),
        "user": stat.user,
        "group": stat.group,
        "links": stat.links,
        "size_bytes": stat.size_bytes,
        "allocated_bytes": stat.allocated_bytes,
        "modified": calendar::iso(stat.modified.seconds),
        "changed": calendar::iso(stat.changed.seconds),
        "accessed": calendar::iso(stat.accessed.seconds),
        "created": stat.created.map(|time| calendar::iso(time.seconds)),
    });
    if let Value::Object(numbers) = numbers {
        members.extend(numbers);
    }
    if let Some((major, minor)) = stat.device {
        members.insert("device".to_owned(), json!([major, minor]));
    }
    if let Some(encoding) = stat.encoding {
        members.insert("encoding".to_owned(), encoding_name(encoding).into());
    }
    if let Some(target) = target {
        members.extend(path_members("target", target));
    }
    members
}

/// Returns the line of a file in the form of `ls -l`, with its owner as numbers and its time in UTC.
pub(super) fn long_line(name: &[u8], stat: &FileStat, target: Option<&[u8]>) -> String {
    let size = stat.device.map_or_else(|| stat.size_bytes.to_string(), |(major, minor)| format!("{major}, {minor}"));
    let modified = calendar::minute(stat.modified.seconds);
    let mut line = format!(
        "{}{} {:>3} {:>5} {:>5} {size:>12} {modified} {}",
        kind_letter(stat.kind),
        mode_letters(stat.mode),
        stat.links,
        stat.user,
        stat.group,
        name.shown()
    );
    if let Some(target) = target {
        line.push_str(&format!(" -> {}", target.shown()));
    }
    if let Some(encoding) = stat.encoding {
        line.push_str(&format!(" ({encoding})"));
    }
    line
}

/// Returns the name of a volume: `partition 2`, `volume vg/root`, `the whole disk`.
pub(in crate::verbs) fn origin(origin: &VolumeOrigin) -> String {
    match origin {
        VolumeOrigin::WholeDisk => "the whole disk".to_owned(),
        VolumeOrigin::Partition { number } => format!("partition {number}"),
        VolumeOrigin::Logical { group, name } => format!("volume {}/{}", group.shown(), name.shown()),
    }
}

/// Returns the content of a volume in a word or two. Text of the guest in it is escaped.
pub(super) fn content(content: &VolumeContent<'_>) -> String {
    match content {
        VolumeContent::FileSystem(system) => system.facts().kind.name().to_owned(),
        VolumeContent::Swap(swap) if swap.is_hibernated => "swap with a hibernated system".to_owned(),
        VolumeContent::Swap(_) => "swap".to_owned(),
        VolumeContent::PhysicalVolume(_) => "LVM2 physical volume".to_owned(),
        VolumeContent::NotRead(found) if found.detail.is_empty() => found.name.to_owned(),
        VolumeContent::NotRead(found) => format!("{}, {}", found.name, found.detail.shown()),
        VolumeContent::Unknown => "something unknown".to_owned(),
        VolumeContent::Failed(error) => format!("something that cannot be read: {error}"),
    }
}

/// Returns the name of a use of bytes.
pub(super) fn class_name(class: AllocationClass) -> &'static str {
    match class {
        AllocationClass::Free => "free",
        AllocationClass::Data => "file data",
        AllocationClass::Table(TableKind::Superblock) => "superblocks",
        AllocationClass::Table(TableKind::Bitmap) => "bitmaps",
        AllocationClass::Table(TableKind::Inodes) => "inode tables",
        AllocationClass::Table(TableKind::Tree) => "trees",
        AllocationClass::Table(TableKind::Directory) => "directories",
        AllocationClass::Table(TableKind::Journal) => "journal",
        AllocationClass::Doubtful => "in doubt",
        AllocationClass::Outside => "outside of the file system",
    }
}

/// Returns the name of a kind of file, for programs.
pub(super) fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::SymbolicLink => "link",
        FileKind::CharacterDevice => "character_device",
        FileKind::BlockDevice => "block_device",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::Other => "other",
    }
}

/// Returns the letter of a kind of file, as in `ls -l`.
fn kind_letter(kind: FileKind) -> char {
    match kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::SymbolicLink => 'l',
        FileKind::CharacterDevice => 'c',
        FileKind::BlockDevice => 'b',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::Other => '?',
    }
}

/// Returns permission bits in the form of `ls -l`: `rwxr-sr-t`.
fn mode_letters(mode: u16) -> String {
    let mut letters = String::with_capacity(9);
    for (at, special) in [(6, 's'), (3, 's'), (0, 't')] {
        let bits = mode >> at;
        letters.push(if bits & 4 != 0 { 'r' } else { '-' });
        letters.push(if bits & 2 != 0 { 'w' } else { '-' });
        let is_special = mode & (0o1000 << (at / 3)) != 0;
        letters.push(match (is_special, bits & 1 != 0) {
            (true, true) => special,
            (true, false) => special.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    letters
}

/// Returns the name of a form of content, for programs.
pub(super) fn encoding_name(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Encrypted => "encrypted",
        Encoding::Compressed => "compressed",
        Encoding::Deduplicated => "deduplicated",
    }
}

/// Returns the name of the way in which a part of a file is stored.
pub(super) fn extent_kind_name(kind: ExtentKind) -> &'static str {
    match kind {
        ExtentKind::Written => "written",
        ExtentKind::Unwritten => "unwritten",
        ExtentKind::Encoded(encoding) => encoding_name(encoding),
        ExtentKind::Inline => "inline",
        ExtentKind::Shared => "shared",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_guest::filesystem::Timestamp;

    fn stat() -> FileStat {
        FileStat {
            kind: FileKind::Regular,
            mode: 0o4755,
            user: 0,
            group: 42,
            links: 1,
            size_bytes: 98_136,
            allocated_bytes: 98_304,
            modified: Timestamp { seconds: 1_793_491_200, nanoseconds: 5 },
            changed: Timestamp::default(),
            accessed: Timestamp::default(),
            created: None,
            device: None,
            generation: 0,
            encoding: None,
        }
    }

    #[test]
    fn a_line_is_that_of_ls() {
        let line = long_line(b"su\n", &stat(), None);
        assert_eq!(line, r"-rwsr-xr-x   1     0    42        98136 2026-11-01 00:00 su\n");
        let link = FileStat { kind: FileKind::SymbolicLink, mode: 0o777, size_bytes: 3, ..stat() };
        let line = long_line(b"lib", &link, Some(b"usr/\x1b"));
        assert_eq!(line, r"lrwxrwxrwx   1     0    42            3 2026-11-01 00:00 lib -> usr/\x1b");
        let device = FileStat { kind: FileKind::BlockDevice, mode: 0o660, device: Some((8, 17)), ..stat() };
        assert!(long_line(b"sda1", &device, None).starts_with("brw-rw----   1     0    42        8, 17 "));
    }

    #[test]
    fn special_bits_stand_where_ls_has_them() {
        for (mode, letters) in [
            (0o7777, "rwsrwsrwt"),
            (0o7000, "--S--S--T"),
            (0o1777, "rwxrwxrwt"),
            (0o2755, "rwxr-sr-x"),
            (0o4644, "rwSr--r--"),
            (0o640, "rw-r-----"),
        ] {
            assert_eq!(mode_letters(mode), letters, "{mode:o}");
        }
    }

    #[test]
    fn a_name_that_is_not_utf8_has_its_bytes_too() {
        let members = Value::Object(path_members("path", b"a\xff"));
        assert_eq!(members, json!({ "path": "a\u{fffd}", "path_hex": "61ff" }));
        let members = file_members("ä".as_bytes(), &stat(), None);
        assert_eq!(members["path"], "ä");
        assert_eq!((members["mode"].as_str(), members.get("path_hex")), (Some("4755"), None));
        assert_eq!(members["modified"], "2026-11-01T00:00:00Z");
    }
}
