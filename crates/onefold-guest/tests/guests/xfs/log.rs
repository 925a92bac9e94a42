//! A log with changes makes the file system unsure, and nothing of it is free.

use onefold_guest::filesystem::{AllocationClass, Doubt, State};

use super::{empty, prepared, with_xfs};
use crate::fixtures::has;

/// Copies the image while it is mounted and busy, then after it was unmounted, for each of `$1` rounds; prints for each
/// copy its name, and what `xfs_logprint` says: the head of the log, and whether it is clean.
const SNAPSHOTS: &str = r#"
export TEST_DIR=. TEST_DEV=image QA_CHECK_FS=1
truncate -s 100M image
eval "mkfs.xfs -q $2 image"
cp --sparse=always image made-0
mkdir mounted
for ((round = 0; round < $1; round++)); do
    mount -o loop image mounted
    mkdir "mounted/round-$round"
    cp --sparse=always image "early-$round"
    for ((file = 0; file < 600; file++)); do echo "$file" > "mounted/round-$round/a-name-that-fills-the-log-$file"; done
    sync -f mounted
    cp --sparse=always image "synced-$round"
    rm -r "mounted/round-$round"
    sync -f mounted
    for ((file = 0; file < 50; file++)); do echo "$file" > "mounted/late-$round-$file"; done
    cp --sparse=always image "late-$round"
    umount mounted
    cp --sparse=always image "clean-$round"
done
# The checker writes a log of its own, of many records.
cp --sparse=always late-1 clean-repaired
xfs_repair -L -f clean-repaired >/dev/null 2>&1
for copy in made-* early-* synced-* late-* clean-*; do
    device=$(losetup --read-only --find --show "$copy")
    echo "$copy $(xfs_logprint -t "$device" | sed -n 's/.*head: \([0-9]*\) state: <\([A-Z]*\)>/\1 \2/p')"
    losetup --detach "$device"
done
"#;

/// How many copies there were.
#[derive(Debug, Default)]
struct Copies {
    clean: usize,
    dirty: usize,
    /// Clean ones whose head lies before that of the round before.
    wraps: usize,
}

/// Compares the state of each copy with what `xfs_logprint` says.
fn compare(rounds: usize, options: &str) -> Option<Copies> {
    if !has("xfs_logprint") {
        return None;
    }
    let images = empty()?;
    let printed = images.script(&prepared(SNAPSHOTS), [&rounds.to_string(), options]);
    let mut copies = Copies::default();
    let mut heads = vec![0_u64; rounds];
    for line in printed.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, head, state] = words[..] else { panic!("{line}") };
        let is_clean = state == "CLEAN";
        *(if is_clean { &mut copies.clean } else { &mut copies.dirty }) += 1;
        if let Some(Ok(round)) = name.strip_prefix("clean-").map(str::parse::<usize>) {
            heads[round] = head.parse().unwrap();
        }
        let path = images.path(name);
        with_xfs(&path, |xfs| {
            let expected = if is_clean { State::Certain } else { State::Unsure(vec![Doubt::DirtyLog]) };
            assert_eq!(*xfs.state(), expected, "{name}");
            let map = xfs.allocation().unwrap();
            let is_whole = map.len() == 1 && map[0].class == AllocationClass::Doubtful;
            assert_eq!(is_whole, !is_clean, "{name}: {map:?}");
            assert_eq!(xfs.damage().first(), [], "{name}");
        });
    }
    copies.wraps = heads.windows(2).filter(|pair| pair[1] < pair[0]).count();
    Some(copies)
}

#[test]
fn a_dirty_log_makes_everything_unsure() {
    let Some(copies) = compare(3, "") else { return };
    assert!(copies.clean >= 5 && copies.dirty >= 6, "{copies:?}");
}

#[test]
fn the_head_is_found_after_the_log_has_wrapped_and_with_a_stripe_unit() {
    let Some(copies) = compare(10, "-l su=65536,size=5760k -d agcount=2 -b size=1024") else { return };
    assert!(copies.clean >= 12 && copies.dirty >= 20 && copies.wraps > 0, "{copies:?}");
}
