//! What a reader shows of a file system, in the words of `view.py`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::ControlFlow;

use onefold_guest::filesystem::{Extent, ExtentKind, FileKind, FileNumber, FileStat, FileSystem, Timestamp};

/// The longest file that is read as a whole.
const WHOLE_BYTES_MAX: u64 = 64 << 20;

/// Returns a line for each path that the root leads to, in order. Also checks that each name is found by looking it up.
pub(super) fn dump(xfs: &dyn FileSystem) -> Vec<String> {
    let mut lines = BTreeMap::new();
    let mut folders = vec![(Vec::new(), xfs.root())];
    lines.insert(b".".to_vec(), line(xfs, xfs.root()));
    while let Some((path, folder)) = folders.pop() {
        let mut entries = Vec::new();
        xfs.each_entry(folder, &mut |entry| {
            entries.push(entry);
            ControlFlow::Continue(())
        })
        .unwrap();
        for entry in entries {
            assert_eq!(xfs.look_up(folder, &entry.name).unwrap(), Some(entry.file), "{}", shown(&entry.name));
            let kind = xfs.stat(entry.file).unwrap().kind;
            assert!(entry.kind.is_none_or(|noted| noted == kind));
            let separator: &[u8] = if path.is_empty() { b"" } else { b"/" };
            let path = [&path, separator, &entry.name].concat();
            lines.insert(path.clone(), line(xfs, entry.file));
            if kind == FileKind::Directory {
                folders.push((path, entry.file));
            }
        }
        assert_eq!(xfs.look_up(folder, b"no such name").unwrap(), None);
    }
    lines.into_iter().map(|(path, line)| format!("{} {line}", hex(&path))).collect()
}

fn line(xfs: &dyn FileSystem, file: FileNumber) -> String {
    let stat = xfs.stat(file).unwrap();
    let FileStat { mode, user, group, links, allocated_bytes, .. } = stat;
    let mut line = format!("{} {} {mode:o} {user} {group} {links} {allocated_bytes}", file.0, kind_number(stat.kind));
    for time in [stat.accessed, stat.modified, stat.changed] {
        write!(line, " {}", nanoseconds(time)).unwrap();
    }
    match stat.kind {
        FileKind::Regular => {
            let runs = extents(xfs, file);
            write!(
                line,
                " {} {:08x} {}",
                stat.size_bytes,
                content(xfs, file, stat.size_bytes, &runs),
                runs_text(&runs)
            )
            .unwrap();
        }
        FileKind::SymbolicLink => write!(line, " {}", hex(&xfs.read_link(file).unwrap())).unwrap(),
        FileKind::CharacterDevice | FileKind::BlockDevice => {
            let (major, minor) = stat.device.unwrap();
            write!(line, " {major}:{minor}").unwrap();
        }
        _ => {}
    }
    let mut attributes = xfs.attributes(file).unwrap();
    attributes.sort_by(|one, other| one.name.cmp(&other.name));
    for attribute in attributes {
        write!(line, " {}={}", hex(&attribute.name), hex(&attribute.value)).unwrap();
    }
    line
}

fn kind_number(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Fifo => "1",
        FileKind::CharacterDevice => "2",
        FileKind::Directory => "4",
        FileKind::BlockDevice => "6",
        FileKind::Regular => "10",
        FileKind::SymbolicLink => "12",
        FileKind::Socket => "14",
        FileKind::Other => "other",
    }
}

fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
}

/// Returns the extents of a file; neighbours of a kind are joined.
fn extents(xfs: &dyn FileSystem, file: FileNumber) -> Vec<Extent> {
    let mut runs: Vec<Extent> = Vec::new();
    xfs.each_extent(file, &mut |extent| {
        match runs.last_mut() {
            Some(last)
                if last.offset + last.length_bytes == extent.offset
                    && last.place + last.length_bytes == extent.place
                    && last.kind == extent.kind =>
            {
                last.length_bytes += extent.length_bytes;
            }
            _ => runs.push(extent),
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    runs
}

fn runs_text(runs: &[Extent]) -> String {
    let text = |run: &Extent| {
        let kind = match run.kind {
            ExtentKind::Unwritten => "u",
            ExtentKind::Shared => "s",
            ExtentKind::Written => "w",
            ExtentKind::Inline | ExtentKind::Encoded(_) => "?",
        };
        format!("{}+{}@{}{kind}", run.offset, run.length_bytes, run.place)
    };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}

/// Returns the CRC-32 of the content, or of its written parts where it is long.
fn content(xfs: &dyn FileSystem, file: FileNumber, size: u64, runs: &[Extent]) -> u32 {
    if size <= WHOLE_BYTES_MAX {
        return crc32(&read(xfs, file, 0, size), 0);
    }
    let written = runs.iter().filter(|run| run.kind != ExtentKind::Unwritten);
    written.fold(0, |sum, run| crc32(&read(xfs, file, run.offset, run.length_bytes.min(size - run.offset)), sum))
}

/// Reads a part of a file in pieces that fit no block.
fn read(xfs: &dyn FileSystem, file: FileNumber, offset: u64, length: u64) -> Vec<u8> {
    let mut content = vec![0; usize::try_from(length).unwrap()];
    let mut at = offset;
    for piece in content.chunks_mut(1_000_001) {
        assert_eq!(xfs.read(file, at, piece).unwrap(), piece.len());
        at += piece.len() as u64;
    }
    content
}

/// Continues a CRC-32 as `zlib.crc32` does.
pub(super) fn crc32(bytes: &[u8], start: u32) -> u32 {
    let table: Vec<u32> = (0..256)
        .map(|byte| (0..8).fold(byte, |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 }))
        .collect();
    !bytes.iter().fold(!start, |sum, byte| table[usize::from(sum.to_le_bytes()[0] ^ byte)] ^ sum >> 8)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn shown(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}
