//! Inodes that their tree calls free, though they are in use.

use super::allocation::{free_runs, poison};
use super::{empty, prepared, with_xfs};

/// Makes a file system in which the tree of inodes calls the file `victim` free, and both trees of free space list its
/// extent, with right sums and checksums. Linux reads the file nevertheless.
const MAKE: &str = r#"
head -c 40960 /dev/urandom >victim
printf '/\n0 0\nd--755 0 0\nvictim ---644 0 0 victim\n$\n' >proto
truncate -s 320M image
eval "mkfs.xfs -q $1 -p proto image" 2>log || { cat log >&2; false; }
python3 - <<'END'
import re, subprocess
def ask(*commands):
    arguments = [part for command in commands for part in ("-c", command)]
    return subprocess.run(["xfs_db", "-r", *arguments, "image"], check=True, capture_output=True, text=True).stdout
def write(*commands):
    arguments = [part for command in commands for part in ("-c", command)]
    subprocess.run(["xfs_db", "-x", *arguments, "image"], check=True, capture_output=True)
def records(*path):
    found = re.findall(r"(\d+):\[(\w+(?:,\w+)*)\]", ask(*path, "print recs"))
    return {int(at): [int(number, 0) for number in fields.split(",")] for at, fields in found}
inode = int(ask("path /victim", "inode").split()[-1])
extent = re.search(r"count|startblock (\d+) \(0/(\d+)\) count (\d+)", ask(f"inode {inode}", "bmap"))
start, count = int(extent[2]), int(extent[3])
for root in "bnoroot", "cntroot":
    place = "agf 0", f"addr {root}"
    at, (first, length) = next((at, run) for at, run in records(*place).items() if run[0] == start + count)
    write(*place, f"write recs[{at}].startblock {start}", f"write recs[{at}].blockcount {length + count}")
header = dict(line.split(" = ") for line in ask("agf 0", "print freeblks longest").splitlines())
longest = max(int(header["longest"]), length + count)
write("agf 0", f"write freeblks {int(header['freeblks']) + count}", f"write longest {longest}")
place = "agi 0", "addr root"
at, chunk = next((at, chunk) for at, chunk in records(*place).items() if chunk[0] <= inode < chunk[0] + 64)
free = chunk[-1] | 1 << inode - chunk[0]
write(*place, f"write recs[{at}].free #{free:016x}", f"write recs[{at}].freecount {chunk[-2] + 1}")
END
"#;

#[test]
fn an_inode_that_its_tree_calls_free_keeps_its_blocks() {
    for options in ["-m crc=1,finobt=0,rmapbt=0,reflink=0 -i sparse=0", "-m crc=1", "-m crc=0,finobt=0"] {
        let Some(images) = empty() else { return };
        images.script(&prepared(MAKE), [options]);
        let path = images.path("image");
        let victim = with_xfs(&path, |xfs| {
            let (victim, mut is_listed) = (xfs.look_up(xfs.root(), b"victim").unwrap().unwrap(), false);
            xfs.each_file(&mut |file, _| {
                is_listed |= file == victim;
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
            assert!(is_listed, "{options}: a mount has the file");
            assert_eq!(xfs.damage().first()[0].problem, "an inode in use is free in its tree");
            let mut extents = Vec::new();
            xfs.each_extent(victim, &mut |extent| {
                extents.push(extent.place..extent.place + extent.length_bytes);
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
            extents
        });
        let free = free_runs(&path);
        assert!(!free.is_empty());
        for extent in victim {
            assert!(free.iter().all(|(start, end)| extent.end <= *start || *end <= extent.start), "{options}");
        }
        poison(&path);
        let script = "mkdir mounted; mount -o loop,ro image mounted || exit 77
            cmp victim mounted/victim; umount mounted";
        let outcome = images.try_script(&prepared(script), [""; 0]);
        // Not every kernel mounts version 4.
        let is_unknown = options.contains("crc=0") && outcome.status.code() == Some(77);
        assert!(is_unknown || outcome.status.success(), "{options}: {outcome:?}");
    }
}
