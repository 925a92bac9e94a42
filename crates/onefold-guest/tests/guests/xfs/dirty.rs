//! Copies of an XFS in use, as a power cut would leave them: unsure as long as the log has changes, and then nothing is
//! free.

use std::ops::ControlFlow;

use onefold_guest::filesystem::{AllocationClass, Doubt, FileKind, FileSystem, State};

use super::{empty, with_xfs};
use crate::fixtures::{BUSY_COPIES, has, seed, tell, times};

/// A busy file system on one that can clone files, cloned `$1` times while it is used, at moments that `$2` is the seed
/// of. Prints the name of each clone, the state of its log, and how many files the kernel finds after it has applied
/// the log.
const BUSY: &str = r#"
export TEST_DIR=. TEST_DEV=image QA_CHECK_FS=1
rm -rf stop outer cloning mounted copy-*
RANDOM=$2; truncate -s 4G outer; mkfs.xfs -q outer; mkdir cloning mounted; mount -o loop outer cloning
truncate -s 100M cloning/image; mkfs.xfs -q cloning/image; mount -o loop cloning/image mounted
work() {
    set +e; cd mounted; n=0
    while [ ! -e ../stop ]; do
        n=$((n + 1)); d=d$((n % 9))
        mkdir -p $d; exec 8>$d/held; head -c 30000 /dev/urandom >&8; rm $d/held; echo "$n" >$d/f$((n % 50))
        head -c $((n * 37 % 90000)) /dev/urandom >$d/g$((n % 13)); rm -f d$(((n + 4) % 9))/f$((n % 29))
        ln -sf "target $n" $d/link; mv -f $d/g$((n % 13)) d0/moved 2>/dev/null
        [ $((n % 40)) != 0 ] || rm -rf d$((n % 7 + 1)); [ $((n % 25)) != 0 ] || sync -f .
        echo "$n" >../done.new; mv ../done.new ../done
    done
}
# Waits for two rounds of changes, and has the log written. Otherwise, on a busy machine, a copy may lack all changes.
changes() {
    local from=$(cat done) tries=0
    until [ "$(cat done)" -ge $((from + 2)) ] || [ $((tries += 1)) -gt 600 ]; do sleep 0.05; done
    sync -f mounted
}
echo 0 >done
work & worker=$!
for copy in $(seq "$1"); do changes; sleep 0.$((RANDOM % 6 + 2)); cp --reflink=always cloning/image cloning/copy-$copy; done
touch stop; wait $worker; umount mounted; cp --reflink=always cloning/image cloning/copy-0
for copy in $(seq 0 "$1"); do cp --sparse=always cloning/copy-$copy .; done
umount cloning
for copy in $(seq 0 "$1"); do
    device=$(losetup --read-only --find --show copy-$copy)
    state=$(xfs_logprint -t "$device" | sed -n 's/.* state: <\([A-Z]*\)>/\1/p'); losetup --detach "$device"
    cp --sparse=always copy-$copy played; mount -o loop,nouuid played mounted
    echo "copy-$copy $state $(find mounted | wc -l)"; umount mounted
done
"#;

#[test]
fn copies_of_a_busy_file_system_are_unsure_and_have_no_free_byte() {
    let Some(images) = empty() else { return };
    if !has("xfs_logprint") {
        return;
    }
    let (mut dirty, mut clean, mut found) = (0, 0, 0);
    for round in 0..times() {
        let moments = seed().wrapping_add(round) % 32_768;
        let printed = images.script(BUSY, ["4".to_owned(), moments.to_string()]);
        for line in printed.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [name, state, files] = words[..] else { panic!("{line}") };
            let is_clean = state == "CLEAN";
            *(if is_clean { &mut clean } else { &mut dirty }) += 1;
            with_xfs(&images.path(name), |xfs| {
                let expected = if is_clean { State::Certain } else { State::Unsure(vec![Doubt::DirtyLog]) };
                assert_eq!(*xfs.state(), expected, "{line}");
                let map = xfs.allocation().unwrap();
                let is_free = map.iter().any(|run| run.class == AllocationClass::Free);
                assert_eq!(is_free, is_clean, "{line}: {map:?}");
                let read = read_all(xfs);
                found += read;
                // A clean file system has what the kernel finds; of a dirty one some is in the log only.
                assert!(!is_clean || read == files.parse::<usize>().unwrap(), "{line}: {read}");
            });
        }
    }
    assert!(dirty >= 2 && clean >= 1 && found > 0, "{dirty} dirty, {clean} clean, {found} files");
    tell(dirty + clean, BUSY_COPIES);
}

/// Reads whatever can be read; returns how many paths there are.
fn read_all(xfs: &dyn FileSystem) -> usize {
    let (mut count, mut folders) = (1, vec![xfs.root()]);
    while let Some(folder) = folders.pop() {
        let _ = xfs.each_entry(folder, &mut |entry| {
            count += 1;
            match xfs.stat(entry.file).map(|stat| stat.kind) {
                Ok(FileKind::Directory) => folders.push(entry.file),
                Ok(FileKind::Regular) => drop(xfs.read(entry.file, 0, &mut [0; 100_000])),
                Ok(_) | Err(_) => {}
            }
            if count > 100_000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }
    count
}
