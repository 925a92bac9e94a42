//! The archived properties of a file, in the pax format (POSIX.1-2001, `pax`): a header of ustar, preceded by records
//! for everything that has no field there or does not fit.
//!
//! | kept | in the header | in a record |
//! |---|---|---|
//! | name, target of a link | up to 100 bytes | `path`, `linkpath` |
//! | owner, group, length | up to 7, 7 and 11 octal digits | `uid`, `gid`, `size` |
//! | time of the last change | seconds from 1970 on | `mtime`, with fractions of a second |
//! | extended attributes, ACLs among them | | `SCHILY.xattr.NAME` |
//! | holes | | `GNU.sparse.*`, version 1.0 of GNU tar |

use std::io::{self, Write};

use onefold_guest::filesystem::{ExtendedAttribute, FileKind, FileStat, Timestamp};
use tar::{Builder, EntryType, Header};

/// Maximum number of bytes of a name in a header.
const NAME_BYTES_MAX: usize = 100;
/// The largest owner that fits.
const OWNER_MAX: u32 = 0o7_777_777;
/// The largest length that fits.
const SIZE_MAX: u64 = 0o77_777_777_777;

/// A file in the form that an archive stores.
pub(super) struct TarMember {
    /// Its name in the archive.
    pub(super) name: Vec<u8>,
    pub(super) kind: MemberKind,
    pub(super) stat: FileStat,
    pub(super) attributes: Vec<ExtendedAttribute>,
}

/// The kind of a member.
pub(super) enum MemberKind {
    /// A file of this kind.
    Plain(FileKind),
    /// A symbolic link, with its target.
    SymbolicLink(Vec<u8>),
    /// Another name of a file that the archive already has.
    HardLink(Vec<u8>),
}

/// The stored amount of a member's content.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredSize {
    /// Number of bytes after the header.
    pub(super) bytes: u64,
    /// Whether these bytes are a list of the stored parts and then these parts, with holes elsewhere.
    pub(super) is_sparse: bool,
}

/// Returns the name of a file in an archive: its path without the leading slash, and with a trailing slash for a
/// directory.
pub(super) fn name(path: &[u8], kind: FileKind) -> Vec<u8> {
    let relative = path.strip_prefix(b"/").unwrap_or(path);
    match (relative.is_empty(), kind) {
        (true, _) => b"./".to_vec(),
        (false, FileKind::Directory) => [relative, b"/"].concat(),
        (false, _) => relative.to_vec(),
    }
}

impl TarMember {
    /// Writes the records and the header. The content comes next.
    pub(super) fn write(
        &self,
        builder: &mut Builder<impl Write>,
        stored: StoredSize,
        content: impl io::Read,
    ) -> io::Result<()> {
        let records = self.records(stored);
        if !records.is_empty() {
            let mut header = plain_header(EntryType::XHeader, b"PaxHeaders/file", records.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            builder.append(&header, records.as_slice())?;
        }
        builder.append(&self.header(stored), content)
    }

    fn header(&self, stored: StoredSize) -> Header {
        let (entry_type, target) = match &self.kind {
            MemberKind::SymbolicLink(target) => (EntryType::Symlink, target.as_slice()),
            MemberKind::HardLink(first) => (EntryType::Link, first.as_slice()),
            MemberKind::Plain(kind) => (entry_type(*kind), &b""[..]),
        };
        let sparse_name = [b"GNUSparseFile.0/", self.name.as_slice()].concat();
        let mut header =
            plain_header(entry_type, if stored.is_sparse { &sparse_name } else { &self.name }, stored.bytes);
        fill(&mut header.as_old_mut().linkname, target);
        header.set_mode(u32::from(self.stat.mode & 0o7777));
        header.set_uid(u64::from(self.stat.user.min(OWNER_MAX)));
        header.set_gid(u64::from(self.stat.group.min(OWNER_MAX)));
        header.set_mtime(u64::try_from(self.stat.modified.seconds).unwrap_or(0).min(SIZE_MAX));
        if let (Some((major, minor)), Some(header)) = (self.stat.device, header.as_ustar_mut()) {
            header.set_device_major(major.min(OWNER_MAX));
            header.set_device_minor(minor.min(OWNER_MAX));
        }
        header.set_cksum();
        header
    }

    fn records(&self, stored: StoredSize) -> Vec<u8> {
        let mut records = PaxRecords::default();
        if self.name.len() > NAME_BYTES_MAX && !stored.is_sparse {
            records.add("path", &self.name);
        }
        if let MemberKind::SymbolicLink(target) | MemberKind::HardLink(target) = &self.kind
            && target.len() > NAME_BYTES_MAX
        {
            records.add("linkpath", target);
        }
        let FileStat { user, group, modified, size_bytes, .. } = &self.stat;
        for (name, number) in [("uid", user), ("gid", group)] {
            if *number > OWNER_MAX {
                records.add(name, number.to_string().as_bytes());
            }
        }
        if stored.bytes > SIZE_MAX {
            records.add("size", stored.bytes.to_string().as_bytes());
        }
        if modified.nanoseconds != 0 || !(0..1 << 33).contains(&modified.seconds) {
            records.add("mtime", time(*modified).as_bytes());
        }
        if stored.is_sparse {
            records.add("GNU.sparse.major", b"1");
            records.add("GNU.sparse.minor", b"0");
            records.add("GNU.sparse.name", &self.name);
            records.add("GNU.sparse.realsize", size_bytes.to_string().as_bytes());
        }
        for attribute in &self.attributes {
            records.add(&format!("SCHILY.xattr.{}", attribute_name(&attribute.name)), &attribute.value);
        }
        records.0
    }
}

fn entry_type(kind: FileKind) -> EntryType {
    match kind {
        FileKind::Directory => EntryType::Directory,
        FileKind::SymbolicLink => EntryType::Symlink,
        FileKind::CharacterDevice => EntryType::Char,
        FileKind::BlockDevice => EntryType::Block,
        FileKind::Fifo => EntryType::Fifo,
        FileKind::Regular | FileKind::Socket | FileKind::Other => EntryType::Regular,
    }
}

/// Returns a header of ustar without an owner, with a longer name cut off.
fn plain_header(entry_type: EntryType, name: &[u8], size_bytes: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(entry_type);
    fill(&mut header.as_old_mut().name, name);
    header.set_size(size_bytes.min(SIZE_MAX));
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn fill(field: &mut [u8; NAME_BYTES_MAX], text: &[u8]) {
    field.iter_mut().zip(text).for_each(|(byte, from)| *byte = *from);
}

/// Returns a time in seconds with fractions.
fn time(time: Timestamp) -> String {
    match (time.seconds < 0, time.nanoseconds) {
        // Before 1970, the fraction counts in the other direction in decimal digits.
        (true, 1..) => format!("-{}.{:09}", (time.seconds + 1).unsigned_abs(), 1_000_000_000 - time.nanoseconds),
        (_, nanoseconds) => format!("{}.{nanoseconds:09}", time.seconds),
    }
}

/// Returns the name of an attribute in the form of GNU tar, because a `=` would end the name of a record.
fn attribute_name(name: &[u8]) -> String {
    String::from_utf8_lossy(name).replace('%', "%25").replace('=', "%3D")
}

/// Records of pax: `LENGTH NAME=VALUE` and a newline each. The length includes itself.
#[derive(Default)]
struct PaxRecords(Vec<u8>);

impl PaxRecords {
    fn add(&mut self, name: &str, value: &[u8]) {
        let rest = name.len() + value.len() + 3;
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        self.0.extend_from_slice(format!("{length} {name}=").as_bytes());
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_record_counts_itself() {
        for length in [0, 1, 83, 84, 85, 86, 87, 88, 980, 981, 982, 983, 984, 985, 986, 987] {
            let mut records = PaxRecords::default();
            records.add("path", &vec![b'x'; length]);
            let told: usize = std::str::from_utf8(&records.0).unwrap().split(' ').next().unwrap().parse().unwrap();
            assert_eq!(told, records.0.len(), "{length}");
        }
    }

    #[test]
    fn times_before_1970_are_the_same_times() {
        let at = |seconds, nanoseconds| time(Timestamp { seconds, nanoseconds });
        assert_eq!(at(5, 7), "5.000000007");
        assert_eq!(at(-1, 500_000_000), "-0.500000000");
        assert_eq!(at(-2, 0), "-2.000000000");
        assert_eq!(at(i64::MIN, 1), "-9223372036854775807.999999999");
    }

    #[test]
    fn names_lose_their_first_slash_only() {
        assert_eq!(name(b"/", FileKind::Directory), b"./");
        assert_eq!(name(b"/etc", FileKind::Directory), b"etc/");
        assert_eq!(name(b"/etc/passwd", FileKind::Regular), b"etc/passwd");
        assert_eq!(attribute_name(b"user.a=b%c"), "user.a%3Db%25c");
    }
}
