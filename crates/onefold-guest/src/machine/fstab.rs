//! `/etc/fstab` (fstab(5)): a line for each file system, with fields between blanks.
//!
//! | field | is |
//! |---|---|
//! | 1 | what is mounted, see `device` |
//! | 2 | where |
//! | 3 | the kind of file system, or several with commas |
//! | 4 | options with commas |
//! | 5, 6 | for dump and fsck; not read |
//!
//! In a field, a backslash and three octal digits stand for a byte, usually `\040` for a blank.

use super::VolumeName;
use crate::tree::{PATH_BYTES_MAX, ProblemLog};

/// Path of the table.
pub(super) const PATH: &[u8] = b"/etc/fstab";
/// Maximum number of mounts that are read. No known system has more.
const ENTRIES_MAX: usize = 1000;

/// A line of `/etc/fstab` that mounts something in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FstabEntry {
    /// The mounted volume.
    pub source: VolumeName,
    /// The same as written in the file. Bytes of the guest.
    pub source_text: Vec<u8>,
    /// The mount point: an absolute path.
    pub path: Vec<u8>,
    /// The kind of file system.
    pub kind: Vec<u8>,
    /// The options, separated by commas.
    pub options: Vec<u8>,
}

/// Kinds that have no content on a disk.
const KINDS_WITHOUT_DISK: [&[u8]; 21] = [
    b"swap",
    b"proc",
    b"sysfs",
    b"tmpfs",
    b"devtmpfs",
    b"devpts",
    b"ramfs",
    b"cgroup",
    b"cgroup2",
    b"debugfs",
    b"tracefs",
    b"securityfs",
    b"pstore",
    b"efivarfs",
    b"bpf",
    b"configfs",
    b"mqueue",
    b"hugetlbfs",
    b"binfmt_misc",
    b"usbfs",
    b"autofs",
];

impl FstabEntry {
    /// Returns whether an option is set.
    #[must_use]
    pub fn has_option(&self, option: &str) -> bool {
        self.options.split(|byte| *byte == b',').any(|set| set == option.as_bytes())
    }

    /// Returns whether it is a bind mount.
    #[must_use]
    pub fn is_bind(&self) -> bool {
        self.has_option("bind") || self.has_option("rbind")
    }
}

/// Returns the entries of a table that are mounted at boot and have content on a disk, or a folder as their source, in
/// the order of the table. Invalid lines are recorded and skipped.
pub(super) fn parse(text: &[u8], problems: &ProblemLog) -> Vec<FstabEntry> {
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        if entries.len() == ENTRIES_MAX {
            problems.note_line(PATH, number, "more mounts than are read");
            break;
        }
        match parse_line(line) {
            Ok(Some(entry)) if entry.is_mounted_at_start() => entries.push(entry),
            Ok(_) => {}
            Err(problem) => problems.note_line(PATH, number, problem),
        }
    }
    entries
}

impl FstabEntry {
    fn is_mounted_at_start(&self) -> bool {
        !self.has_option("noauto") && !KINDS_WITHOUT_DISK.contains(&self.kind.as_slice())
    }
}

/// Parses a line. Returns `None` for a comment, an empty line, or an entry without a mount point.
fn parse_line(line: &[u8]) -> Result<Option<FstabEntry>, &'static str> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"#") {
        return Ok(None);
    }
    let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty()).map(unescaped);
    let (Some(source_text), Some(path), Some(kind)) = (fields.next(), fields.next(), fields.next()) else {
        return Err("it has fewer than three fields");
    };
    if path == b"none" || path == b"swap" || kind == b"swap" {
        return Ok(None);
    }
    if !path.starts_with(b"/") {
        return Err("the place of the mount is no absolute path");
    }
    if path.len() > PATH_BYTES_MAX {
        return Err("the place of the mount has a path of more than 4096 bytes");
    }
    let options = fields.next().unwrap_or_default();
    let source = VolumeName::parse(&source_text);
    Ok(Some(FstabEntry { source, source_text, path, kind, options }))
}

/// Decodes the escapes of a field.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        if let [b'\\', high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7', after @ ..] = rest {
            plain.push((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0'));
            rest = after;
        } else {
            plain.push(*first);
            rest = after;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_gives_what_is_mounted_from_a_disk() {
        let text = b"# comment\n\nUUID=1 / ext4 errors=remount-ro 0 1\n  LABEL=boot\t/boot\text4 defaults 0 2\n\
            /dev/sda5 none swap sw 0 0\nproc /proc proc defaults 0 0\ntmpfs /tmp tmpfs size=1G\n\
            /dev/sr0 /media/cdrom udf,iso9660 user,noauto 0 0\n/srv/data /export none bind\n\
            LABEL=a\\040b /mnt/with\\040blank\\134 auto\nbroken\nUUID=2 relative ext4\nserver:/x /net nfs soft,bg";
        let problems = ProblemLog::default();
        let entries = parse(text, &problems);
        let paths: Vec<&[u8]> = entries.iter().map(|entry| entry.path.as_slice()).collect();
        assert_eq!(paths, [&b"/"[..], b"/boot", b"/export", b"/mnt/with blank\\", b"/net"]);
        assert_eq!(entries[0].source, VolumeName::Uuid(b"1".to_vec()));
        assert_eq!(entries[3].source, VolumeName::Label(b"a b".to_vec()));
        assert!(entries[2].is_bind() && entries[4].has_option("bg") && !entries[4].has_option("sof"));
        let noted: Vec<String> = problems.first().iter().map(ToString::to_string).collect();
        let expected = [
            "/etc/fstab, line 11: it has fewer than three fields",
            "/etc/fstab, line 12: the place of the mount is no absolute path",
        ];
        assert_eq!(noted, expected);
    }

    #[test]
    fn a_table_without_end_is_cut() {
        let problems = ProblemLog::default();
        assert_eq!(parse(&b"UUID=1 /x ext4\n".repeat(5000), &problems).len(), ENTRIES_MAX);
        assert_eq!(problems.first()[0].to_string(), "/etc/fstab, line 1001: more mounts than are read");
    }

    #[test]
    fn a_mount_has_a_path_that_programs_can_name() {
        let problems = ProblemLog::default();
        let line = |length: usize| [b"LABEL=a /", b"a/".repeat(length / 2).as_slice(), b" ext4\n"].concat();
        assert_eq!(parse(&[line(4094), line(4096)].concat(), &problems).len(), 1);
        let noted = problems.first()[0].to_string();
        assert_eq!(noted, "/etc/fstab, line 2: the place of the mount has a path of more than 4096 bytes");
    }

    #[test]
    fn escapes_are_three_octal_digits() {
        for (field, plain) in [("a\\040b", "a b"), ("\\134", "\\"), ("\\04", "\\04"), ("\\400", "\\400"), ("\\", "\\")]
        {
            assert_eq!(unescaped(field.as_bytes()), plain.as_bytes(), "{field}");
        }
        assert_eq!(unescaped(b"\\377"), [0xff]);
    }
}
