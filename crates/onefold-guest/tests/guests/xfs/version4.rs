//! Version 4, which the kernel here does not mount: `mkfs.xfs` fills such file systems by a protofile, and `xfs_db` and
//! `xfs_repair` know them.

use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;

use onefold_guest::filesystem::{AllocationClass, Extent, FileSystem, State};

use super::allocation::{free_runs, map_of, poison};
use super::dump::dump;
use super::{empty, prepared, with_xfs};
use crate::fixtures::{Images, has};

/// Makes `image` of the length in the second argument with the options in the first, and writes what it holds into
/// `recipe`. Then a file gets attributes, which `attributes` lists: one in the inode, then a leaf, and values of their
/// own blocks.
const MAKE: &str = r#"
export TEST_DIR=. TEST_DEV=image QA_CHECK_FS=1
python3 "$RECIPES/proto.py" 2000 > recipe
truncate -s "$2" image
eval "mkfs.xfs -q $1 -p proto image"
inode() { xfs_db -r -c "path $1" -c inode image | sed 's/.* //'; }
# This xfs_db crashes now and then, depending on the lengths.
set_attribute() {
    for attempt in 1 2 3; do
        xfs_db -x -c "inode $(inode "/$1")" -c "attr_set -${2:0:1} -v $3 ${2#*.}" image 2>/dev/null || continue
        echo "$1 $2 $3" >> attributes
        break
    done
}
: > attributes
set_attribute hello user.short 20
set_attribute second security.two 300
set_attribute second user.three 30000
set_attribute second user.two 301
xfs_db -r -c 'path /large' -c bmap image > bmap
value() { sed 's/.* = //'; }
for ((group = 0; group < $(xfs_db -r -c 'sb 0' -c 'print agcount' image | value); group++)); do
    xfs_db -r -c "sb 0" -c 'print agblocks' -c "agf $group" -c 'print flcount freeblks' image | value | xargs >> groups
done
xfs_db -r -c 'freesp -d' image > freesp
"#;

/// Returns what the protofile says of a file, out of a line of the dump.
fn reduced(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let [path, _, kind, mode, user, group, _, _, _, _, _, ref rest @ ..] = words[..] else { panic!("{line}") };
    let about = match kind {
        "10" => &rest[..2],
        "12" | "2" | "6" => &rest[..1],
        _ => &[],
    };
    [&[path, kind, mode, user, group], about].concat().join(" ")
}

/// Compares everything; returns how many attributes there are.
fn check(images: &Images) -> usize {
    let recipe = std::fs::read_to_string(images.path("recipe")).unwrap();
    with_xfs(&images.path("image"), |xfs| {
        assert_eq!(*xfs.state(), State::Certain);
        let found: Vec<String> = dump(xfs).iter().map(|line| reduced(line)).collect();
        let expected: Vec<&str> = recipe.lines().collect();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(found, expected);
        }
        let attributes = std::fs::read_to_string(images.path("attributes")).unwrap();
        has_attributes(xfs, &attributes);
        has_extents(xfs, &std::fs::read_to_string(images.path("bmap")).unwrap());
        assert_eq!(free_runs(&images.path("image")), listed_free_runs(images, xfs.facts().block_bytes));
        assert_eq!(xfs.damage().first(), []);
        attributes.lines().count()
    })
}

/// Returns start and end of the free runs that `xfs_db` lists: after a header, a line of group, block and count each.
/// The first lines of a group are the blocks that it keeps for its trees.
fn listed_free_runs(images: &Images, block_bytes: u64) -> Vec<(u64, u64)> {
    let numbers = |name: &str| {
        let text = std::fs::read_to_string(images.path(name)).unwrap();
        let lines = text.lines().map(|line| line.split_whitespace().map_while(|word| word.parse().ok()).collect());
        lines.filter(|numbers: &Vec<u64>| !numbers.is_empty()).collect::<Vec<_>>()
    };
    let listed: Vec<_> = numbers("freesp").into_iter().filter(|numbers| numbers.len() == 3).collect();
    let mut runs = Vec::new();
    for (group, header) in (0_u64..).zip(numbers("groups")) {
        let [group_blocks, kept, free_blocks] = header[..] else { panic!("{header:?}") };
        let mut lines: Vec<_> = listed.iter().filter(|line| line[0] == group).collect();
        assert!(lines.drain(..usize::try_from(kept).unwrap()).all(|line| line[2] == 1));
        assert_eq!(lines.iter().map(|line| line[2]).sum::<u64>(), free_blocks, "group {group}");
        let start = |line: &[u64]| (group * group_blocks + line[1]) * block_bytes;
        runs.extend(lines.iter().map(|line| (start(line), start(line) + line[2] * block_bytes)));
    }
    assert!(runs.is_sorted_by(|one, next| one.1 < next.0) && !runs.is_empty(), "{runs:?}");
    runs
}

/// Files have exactly the attributes that lines name with file, name and length; `xfs_db` gives them the value
/// `vvv...`.
fn has_attributes(xfs: &dyn FileSystem, lines: &str) {
    let mut found: Vec<String> = Vec::new();
    for name in ["hello", "second"] {
        let file = xfs.look_up(xfs.root(), name.as_bytes()).unwrap().unwrap();
        for attribute in xfs.attributes(file).unwrap() {
            assert!(attribute.value.iter().all(|byte| *byte == b'v'));
            found.push(format!("{name} {} {}", attribute.name.escape_ascii(), attribute.value.len()));
        }
    }
    let mut expected: Vec<&str> = lines.lines().collect();
    found.sort();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

/// The large file has the extents that `xfs_db` prints: `data offset 0 startblock 13 (0/13) count 733 flag 0`.
fn has_extents(xfs: &dyn FileSystem, bmap: &str) {
    let block_bytes = xfs.facts().block_bytes;
    let file = xfs.look_up(xfs.root(), b"large").unwrap().unwrap();
    let mut found: Vec<Extent> = Vec::new();
    xfs.each_extent(file, &mut |extent| {
        found.push(extent);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(found.len(), bmap.lines().count());
    for (found, line) in found.iter().zip(bmap.lines()) {
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [offset, _, count, _] = numbers[..] else { panic!("{line}") };
        assert_eq!((found.offset, found.length_bytes), (offset * block_bytes, count * block_bytes), "{line}");
    }
}

/// Makes a file system of this length with these options, compares it with its protofile, and compares it again after
/// all that is free was overwritten. Returns how many attributes there are.
pub(super) fn compare_with_protofile(length: &str, options: &str) -> usize {
    let Some(images) = empty() else { return 0 };
    images.script(&prepared(MAKE), [options, length]);
    let attributes = check(&images);
    poison(&images.path("image"));
    images.script("xfs_repair -n -f image >repair 2>&1 || { cat repair >&2; false; }", [""; 0]);
    check(&images);
    attributes
}

#[test]
fn version_4_reads_as_its_protofile_says_and_withstands_poison() {
    if !has("xfs_repair") || empty().is_none() {
        return;
    }
    let mut attributes = 0;
    for options in [
        "-m crc=0",
        "-m crc=0 -n ftype=1 -b size=512",
        "-m crc=0 -n size=8192 -b size=1024 -i size=256",
        "-m crc=0 -n version=ci -b size=16384 -i size=2048 -l lazy-count=0",
        "-m crc=0 -i attr=1,projid32bit=0 -s size=4096",
    ] {
        attributes += compare_with_protofile("100M", options);
    }
    assert!(attributes > 8, "{attributes}");
}

#[test]
fn names_that_differ_in_case_are_equal_where_the_file_system_says_so() {
    let Some(images) = empty() else { return };
    images.script(&prepared(MAKE), ["-m crc=0 -n version=ci", "100M"]);
    with_xfs(&images.path("image"), |xfs| {
        let folder = xfs.look_up(xfs.root(), b"MANY").unwrap().unwrap();
        let found = xfs.look_up(folder, b"a-FILE-00000-").unwrap();
        assert!(found.is_some());
        assert_eq!(found, xfs.look_up(folder, b"A-file-00000-").unwrap());
        assert!(xfs.facts().features.contains(&"ascii-ci".to_owned()));
    });
}

/// Without checksums, both trees of free space may list the blocks of a file that cannot be read.
#[test]
fn a_file_that_is_lost_leaves_nothing_free() {
    let Some(images) = empty() else { return };
    images.script(&prepared(MAKE), ["-m crc=0", "100M"]);
    let path = images.path("image");
    let image = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let mut inode_bytes = [0; 2];
    image.read_exact_at(&mut inode_bytes, 104).unwrap();
    let file = with_xfs(&path, |xfs| xfs.look_up(xfs.root(), b"large").unwrap().unwrap());
    let place = file.0 * u64::from(u16::from_be_bytes(inode_bytes));
    let has_free =
        || with_xfs(&path, |xfs| map_of(xfs, 100 << 20).iter().any(|run| run.class == AllocationClass::Free));
    assert!(has_free());
    // The magic of the inode, and the number of extents.
    for (at, length) in [(0, 2), (76, 4)] {
        let mut before = vec![0; length];
        image.read_exact_at(&mut before, place + at).unwrap();
        image.write_all_at(&vec![0x7e; length], place + at).unwrap();
        assert!(!has_free(), "byte {at} of the inode");
        image.write_all_at(&before, place + at).unwrap();
        assert!(has_free());
    }
}
