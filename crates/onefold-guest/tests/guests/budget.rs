//! Allocation maps with little memory: more counts as allocated, and never less. It is no damage.

use onefold_disk::{CachedDisk, FileDisk};
use onefold_guest::budget::Budget;
use onefold_guest::guest::{DiskRun, Guest};

use crate::fixtures::{Images, has};

/// Makes `ext`, `xfs`, `ntfs` and `fat`, each with some files where its tools can put them there.
const MAKE: &str = r#"
mkdir tree; for number in $(seq 200); do mkdir "tree/$number"; echo "$number" >"tree/$number/file"; done
python3 -c 'import os; file = open("tree/holes", "wb"); [os.pwrite(file.fileno(), b"x", n << 14) for n in range(99)]'
truncate -s 64M ext; mke2fs -q -F -t ext4 -b 1024 -d tree ext
truncate -s 320M xfs; mkfs.xfs -q xfs
truncate -s 16M ntfs; mkntfs -q -F -Q ntfs >/dev/null 2>&1
truncate -s 64M fat; mkfs.fat -F 32 fat >/dev/null
for number in $(seq 20); do mmd -i fat "::$number"; mcopy -i fat tree/1/file "::$number/"; done
"#;

fn free_bytes(map: &[DiskRun]) -> u64 {
    map.iter().filter(|run| run.use_.is_free()).map(|run| run.range.length_bytes).sum()
}

#[test]
fn a_map_that_does_not_fit_calls_less_free_and_says_so() {
    let Some(images) = Images::new() else { return };
    if !["mke2fs", "mkfs.xfs", "mkntfs", "mkfs.fat", "mcopy", "python3"].into_iter().all(has) {
        return;
    }
    images.script(MAKE, [""; 0]);
    for name in ["ext", "xfs", "ntfs", "fat"] {
        let path = images.path(name);
        let file = FileDisk::new(std::fs::File::open(&path).unwrap(), &path).unwrap();
        let disk = CachedDisk::new(&file, 16 << 20);
        let map_within = |bytes: usize| {
            let guest = Guest::open(&disk).unwrap().with_budget(Budget::new(bytes));
            let map = guest.disk_map().unwrap();
            let covered: u64 = map.iter().map(|run| run.range.length_bytes).sum();
            assert_eq!(covered, std::fs::metadata(&path).unwrap().len(), "{name}");
            for system in guest.volumes().iter().filter_map(|volume| volume.file_system()) {
                assert_eq!(system.damage().first(), [], "{name}: {bytes} bytes of memory");
            }
            (map, guest.budget().is_short())
        };
        let (whole, is_short) = map_within(64 << 20);
        assert!(free_bytes(&whole) > 0 && !is_short, "{name}");
        assert_eq!(map_within(256 << 20).0, whole, "{name}: more memory changes nothing");
        let (none, is_short) = map_within(0);
        assert!(free_bytes(&none) == 0 && is_short, "{name}");
        for bytes in [100, 1000, 4000, 16_000, 64_000, 256_000] {
            let (map, is_short) = map_within(bytes);
            assert!(is_short || map == whole, "{name}: {bytes} bytes of memory");
            for free in map.iter().filter(|run| run.use_.is_free()) {
                let contains = |run: &&DiskRun| {
                    run.range.start_bytes <= free.range.start_bytes && run.range.end_bytes() >= free.range.end_bytes()
                };
                let is_free = whole.iter().find(contains).is_some_and(|run| run.use_.is_free());
                assert!(is_free, "{name}: {bytes} bytes of memory make {free:?} free");
            }
        }
    }
}
