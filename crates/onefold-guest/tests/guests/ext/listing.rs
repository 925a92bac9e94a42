//! A file system as lines of text, by a reader of ours and by other programs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;

use onefold_guest::filesystem::{Extent, ExtentKind, FileKind, FileNumber, FileStat, FileSystem, Timestamp};

/// Prints the tree below `mounted` as [`tree`] gives it, its extents as [`kernel_extents`] reads them, and its
/// attributes as [`kernel_attributes`] does; leaves a copy of all regular files in `copy`.
pub(super) const ORACLE: &str = r#"
(cd mounted && find . -printf '%P|%y|%m|%n|%U|%G|%s|%b|%T@|%C@|%l\0') >tree
(cd mounted && find . -type f -print0 | xargs -0 filefrag -v -b512) >extents
(cd mounted && getfattr -R -h -d -m - -e hex .) >attributes
rm -rf copy && mkdir copy && (cd mounted && find . -type f -size -500M -print0 | xargs -0 cp --parents -t ../copy)
"#;

/// The tree of a file system, a line for each path.
pub(super) fn tree(fs: &dyn FileSystem) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for (path, file) in paths(fs) {
        let stat = fs.stat(file).unwrap();
        let target = match stat.kind {
            FileKind::SymbolicLink => String::from_utf8(fs.read_link(file).unwrap()).unwrap(),
            _ => String::new(),
        };
        lines.insert(format!("{}|{}|{target}", String::from_utf8_lossy(&path), stat_text(&stat)));
    }
    lines
}

fn stat_text(stat: &FileStat) -> String {
    let letter = match stat.kind {
        FileKind::Regular => 'f',
        FileKind::Directory => 'd',
        FileKind::SymbolicLink => 'l',
        FileKind::CharacterDevice => 'c',
        FileKind::BlockDevice => 'b',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::Other => '?',
    };
    let FileStat { mode, links, user, group, size_bytes, allocated_bytes, .. } = stat;
    let blocks = allocated_bytes / 512;
    let (modified, changed) = (time(stat.modified), time(stat.changed));
    format!("{letter}|{mode:o}|{links}|{user}|{group}|{size_bytes}|{blocks}|{modified}|{changed}")
}

/// Returns a time as `find` prints it.
fn time(time: Timestamp) -> String {
    format!("{}.{:09}0", time.seconds, time.nanoseconds)
}

/// Returns the number of each path, without the first slash. Fails where a directory leads to itself.
pub(super) fn paths(fs: &dyn FileSystem) -> BTreeMap<Vec<u8>, FileNumber> {
    let mut found = BTreeMap::from([(Vec::new(), fs.root())]);
    let mut ahead = vec![(Vec::new(), fs.root())];
    let mut seen = BTreeSet::new();
    while let Some((path, directory)) = ahead.pop() {
        assert!(seen.insert(directory), "a directory twice: {path:?}");
        fs.each_entry(directory, &mut |entry| {
            let separator: &[u8] = if path.is_empty() { b"" } else { b"/" };
            let path = [&path, separator, &entry.name].concat();
            let kind = fs.stat(entry.file).unwrap().kind;
            assert!(entry.kind.is_none_or(|noted| noted == kind));
            if kind == FileKind::Directory {
                ahead.push((path.clone(), entry.file));
            }
            assert!(found.insert(path, entry.file).is_none(), "a name twice");
            ControlFlow::Continue(())
        })
        .unwrap();
    }
    found
}

/// Reads what `find` printed.
pub(super) fn found_tree(printed: &Path) -> BTreeSet<String> {
    let bytes = std::fs::read(printed).unwrap();
    let lines = bytes.split(|byte| *byte == 0).filter(|line| !line.is_empty());
    lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect()
}

/// Extents in sectors: first in the file, first in the volume, count, and whether they are unwritten. Neighbours are
/// one.
pub(super) type Sectors = Vec<(u64, u64, u64, bool)>;

fn push(sectors: &mut Sectors, (first, place, count, is_unwritten): (u64, u64, u64, bool)) {
    if let Some(last) = sectors.last_mut()
        && (last.0 + last.2, last.1 + last.2, last.3) == (first, place, is_unwritten)
    {
        last.2 += count;
        return;
    }
    sectors.push((first, place, count, is_unwritten));
}

/// Returns the extents of all regular files that have any with blocks.
pub(super) fn extents(fs: &dyn FileSystem) -> BTreeMap<String, Sectors> {
    let mut all = BTreeMap::new();
    for (path, file) in paths(fs) {
        if fs.stat(file).unwrap().kind != FileKind::Regular {
            continue;
        }
        let mut sectors = Sectors::new();
        fs.each_extent(file, &mut |Extent { offset, length_bytes, place, kind }| {
            if kind != ExtentKind::Inline {
                let is_unwritten = kind == ExtentKind::Unwritten;
                push(&mut sectors, (offset / 512, place / 512, length_bytes / 512, is_unwritten));
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        if !sectors.is_empty() {
            all.insert(String::from_utf8_lossy(&path).into_owned(), sectors);
        }
    }
    all
}

/// Reads what `filefrag -v -b512` printed.
pub(super) fn kernel_extents(printed: &Path) -> BTreeMap<String, Sectors> {
    let text = String::from_utf8_lossy(&std::fs::read(printed).unwrap()).into_owned();
    let mut all = BTreeMap::new();
    for file in text.split("File size of ./").skip(1) {
        let (name, rest) = file.split_once(" is ").unwrap();
        let mut sectors = Sectors::new();
        for line in rest.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit())) {
            let fields: Vec<&str> = line.split(':').map(str::trim).collect();
            let [_, logical, physical, count, rest @ ..] = &fields[..] else { continue };
            let number = |text: &str| text.trim().trim_end_matches("..").parse::<u64>().unwrap();
            let first = |range: &str| number(range.split("..").next().unwrap());
            let flags = rest.last().copied().unwrap_or("");
            if !flags.contains("inline") {
                push(&mut sectors, (first(logical), first(physical), number(count), flags.contains("unwritten")));
            }
        }
        if !sectors.is_empty() {
            all.insert(name.to_owned(), sectors);
        }
    }
    all
}

/// Reads what `stat` of `debugfs` printed of numbered files, in blocks of this length: after `EXTENTS:` or `BLOCKS:`, a
/// line such as `(0-2):10-12, (ETB0):9, (3[u]):20`. Blocks of the map have names instead of numbers.
pub(super) fn debugfs_extents(printed: &str, block_bytes: u64) -> BTreeMap<FileNumber, Sectors> {
    let mut all = BTreeMap::new();
    for file in printed.split("\nInode: ").skip(1) {
        let number = FileNumber(file.split(' ').next().unwrap().parse().unwrap());
        let lists = file.split_once("\nEXTENTS:\n").or_else(|| file.split_once("\nBLOCKS:\n"));
        let Some(list) = lists.and_then(|(_, lists)| lists.lines().next()) else { continue };
        let mut sectors = Sectors::new();
        for (blocks, places) in list.split(", ").filter_map(|extent| extent.strip_prefix('(')?.split_once("):")) {
            let is_unwritten = blocks.ends_with("[u]");
            let ends = |range: &str| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                Some((first.parse::<u64>().ok()?, last.parse::<u64>().ok()?))
            };
            let Some((first, last)) = ends(blocks.trim_end_matches("[u]")) else { continue };
            let (place, last_place) = ends(places).unwrap();
            assert_eq!(last - first, last_place - place, "{list}");
            let unit = block_bytes / 512;
            push(&mut sectors, (first * unit, place * unit, (last - first + 1) * unit, is_unwritten));
        }
        if !sectors.is_empty() {
            all.insert(number, sectors);
        }
    }
    all
}

/// Returns the extended attributes of all paths that have any.
pub(super) fn attributes(fs: &dyn FileSystem) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for (path, file) in paths(fs) {
        for attribute in fs.attributes(file).unwrap() {
            let hex: String = attribute.value.iter().map(|byte| format!("{byte:02x}")).collect();
            let name = String::from_utf8(attribute.name).unwrap();
            lines.insert(format!("{}|{name}|{hex}", String::from_utf8_lossy(&path)));
        }
    }
    lines
}

/// Reads what `getfattr -d -e hex` printed.
pub(super) fn kernel_attributes(printed: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(printed).unwrap();
    let mut lines = BTreeSet::new();
    let mut path = String::new();
    for line in text.lines() {
        if let Some(file) = line.strip_prefix("# file: ") {
            file.trim_start_matches("./").clone_into(&mut path);
        } else if !line.is_empty() {
            let (name, value) = line.split_once('=').unwrap_or((line, ""));
            let path = if path == "." { "" } else { &path };
            lines.insert(format!("{path}|{name}|{}", value.trim_start_matches("0x")));
        }
    }
    lines
}

/// Compares the content of all regular files with their copies, but for what is longer than `bytes_max`.
pub(super) fn compare_content(fs: &dyn FileSystem, copies: &Path, bytes_max: u64) {
    use std::os::unix::ffi::OsStrExt;
    for (path, file) in paths(fs) {
        let stat = fs.stat(file).unwrap();
        if stat.kind != FileKind::Regular || stat.size_bytes > bytes_max {
            continue;
        }
        let copy = std::fs::read(copies.join(std::ffi::OsStr::from_bytes(&path)));
        let copy = copy.unwrap_or_else(|error| panic!("{}: {error}", String::from_utf8_lossy(&path)));
        let mut content = vec![0xaa; copy.len() + 1];
        assert_eq!(fs.read(file, 0, &mut content).unwrap(), copy.len(), "{}", String::from_utf8_lossy(&path));
        assert!(content[..copy.len()] == copy, "content of {}", String::from_utf8_lossy(&path));
        // Any part reads as the same bytes.
        let (start, end) = (copy.len() / 3, copy.len() / 3 * 2);
        let mut part = vec![0xaa; end - start];
        assert_eq!(fs.read(file, start as u64, &mut part).unwrap(), part.len());
        assert!(part == copy[start..end], "a part of {}", String::from_utf8_lossy(&path));
    }
}

/// Asserts that two sets of lines are equal; shows what differs.
pub(super) fn assert_same(what: &str, ours: &BTreeSet<String>, theirs: &BTreeSet<String>) {
    let missing: Vec<_> = theirs.difference(ours).take(10).collect();
    let extra: Vec<_> = ours.difference(theirs).take(10).collect();
    assert!(missing.is_empty() && extra.is_empty(), "{what}: missing {missing:#?}, instead {extra:#?}");
}
