//! ext4: real file systems that its own tools make without root, and check after installation.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::testing::MemoryDisk;

/// A folder with images. It is deleted on drop.
pub(super) struct Images {
    folder: tempfile::TempDir,
}

impl Images {
    /// Returns an empty folder. If the programs of ext are missing, reports that and returns `None`.
    pub(super) fn new() -> Option<Images> {
        Images::with(&["mke2fs", "debugfs", "e2fsck"])
    }

    /// Returns an empty folder. If one of the programs is missing, reports that and returns `None`.
    pub(super) fn with(programs: &[&str]) -> Option<Images> {
        let has = |program: &str| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
        };
        if let Some(missing) = programs.iter().find(|program| !has(program)) {
            let thread = std::thread::current();
            let _ =
                writeln!(std::io::stderr(), "skipped: {}: there is no {missing}", thread.name().unwrap_or("a test"));
            return None;
        }
        Some(Images { folder: tempfile::tempdir().unwrap() })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a script in the folder. Fails the test if the script fails.
    pub(super) fn script(&self, script: &str, arguments: &[&str]) -> String {
        let output = Command::new("bash")
            .args(["-c", &format!("set -euo pipefail; export LC_ALL=C\n{script}"), "script"])
            .args(arguments)
            .current_dir(self.folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{script}\n{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Makes a folder with random files: small and large ones, some compressible, with names that sort differently from
    /// the order of creation.
    pub(super) fn files(&self, name: &str, random: &SeededRandom, count: u64) {
        let folder = self.path(name);
        for number in 0..count {
            let inner = folder.join(format!("d{}", random.below(4)));
            fs::create_dir_all(&inner).unwrap();
            let most = [5_000, 70_000, 700_000][usize::try_from(random.below(3)).unwrap()];
            let mut content = vec![b'a'; usize::try_from(1 + random.below(most)).unwrap()];
            let noise = content.len() / usize::try_from(1 + random.below(3)).unwrap();
            random.fill(&mut content[..noise]).unwrap();
            fs::write(inner.join(format!("f{}-{number}", random.below(1000))), content).unwrap();
        }
    }

    pub(super) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }
}

/// Makes `$1` with options `$2` from the files in `$3`, of `$4` mebibytes, and removes every third file. Their content
/// stays in free blocks.
pub(super) const MAKE: &str = "rm -f $1; truncate -s ${4}M $1; mke2fs -q -F $2 -d $3 $1 2>/dev/null
    find $3 -type f -printf '/%P\\n' | sort | awk 'NR % 3 == 0 { print \"rm \" $0 }' >commands
    debugfs -w -f commands $1 >/dev/null 2>&1
    find $3 -type f -printf '%P\\n' | sort | awk 'NR % 3 == 0' | (cd $3 && xargs -r rm)
    e2fsck -fy $1 >/dev/null || [ $? = 1 ]";

/// Reads the files of the file system in `$1` into the folder `$2`, as `CHECK` does: `debugfs` returns 60 bytes of each
/// inline file.
const READ: &str = "rm -rf $2; mkdir $2; debugfs -R \"rdump / $2\" $1 2>/dev/null; rmdir $2/lost+found";

/// Asserts that the file system in `$1` is sound and has the files in `$2`.
const CHECK: &str = "e2fsck -fn $1 >&2; rm -rf found; mkdir found; debugfs -R 'rdump / found' $1 2>/dev/null
    rmdir found/lost+found; diff -r found $2 >&2";

const MADE: [&str; 6] = [
    "-t ext4",
    "-t ext4 -b 1024 -O ^metadata_csum",
    "-t ext3 -b 2048",
    "-t ext2 -b 1024 -g 2048",
    "-t ext4 -O bigalloc -C 16384",
    "-t ext4 -O inline_data,^resize_inode,meta_bg -b 1024",
];

/// Returns a disk with one partition that begins at a sector, behind a boot loader of noise, and noise behind it.
pub(super) fn partitioned(file_system: &[u8], start: usize, random: &SeededRandom) -> MemoryDisk {
    let mut disk = MemoryDisk::noise(start * 512 + file_system.len() + 70_000, random);
    disk.bytes[446..510].fill(0);
    disk.bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk.bytes[450] = 0x83;
    disk.bytes[454..458].copy_from_slice(&u32::try_from(start).unwrap().to_le_bytes());
    let sectors = u32::try_from(file_system.len() / 512).unwrap();
    disk.bytes[458..462].copy_from_slice(&sectors.to_le_bytes());
    disk.bytes[start * 512..start * 512 + file_system.len()].copy_from_slice(file_system);
    disk
}

/// Installs an image over noise, asserts that the gaps match those of the disk, and returns the partition.
fn partition_installed(bench: &Bench, manifest: &Manifest, disk: &MemoryDisk, start: usize, length: usize) -> Vec<u8> {
    let installed = bench.assert_installed(manifest, &disk.bytes);
    let (from, to) = (start * 512, start * 512 + length);
    assert!(installed[..from] == disk.bytes[..from] && installed[to..] == disk.bytes[to..], "gaps");
    installed[from..to].to_vec()
}

fn by_map(manifest: &Manifest) -> bool {
    manifest.volumes.iter().all(|volume| volume.way == CaptureWay::Map && volume.content.starts_with("ext"))
}

#[test]
fn clean_file_systems_outlive_a_target_full_of_noise() {
    let Some(images) = Images::new() else { return };
    let seeds = seeds(84);
    for ((at, seed), options) in (0..).zip(seeds.clone()).zip(MADE.into_iter().cycle()) {
        let random = SeededRandom::new(seed);
        let _ = fs::remove_dir_all(images.path("files"));
        images.files("files", &random, 60);
        images.script(MAKE, &["image", options, "files", "24"]);
        images.script(READ, &["image", "expected"]);
        let file_system = images.read("image");
        let start = [63, 2048, 101][at % 3];
        let disk = partitioned(&file_system, start, &random);
        let bench = Bench::new(if at % 4 == 3 { FIXED } else { FILES });
        let manifest = bench.capture("web", &disk);
        assert!(by_map(&manifest), "{options}: {:?}", manifest.volumes);
        assert!(manifest.totals.free_bytes > 4 << 20, "{options}");
        let installed = partition_installed(&bench, &manifest, &disk, start, file_system.len());
        fs::write(images.path("installed"), installed).unwrap();
        images.script(CHECK, &["installed", "expected"]);
        if at < 2 {
            let bench = Bench { scope: Scope::All, ..bench };
            let all = bench.capture("all", &disk);
            assert_eq!(all.totals.free_bytes, 0);
            assert!(matches!(all.volumes[0].way, CaptureWay::Raw(_)));
            assert!(all.totals.data_bytes > manifest.totals.data_bytes, "removed files are still in free blocks");
            bench.assert_installed(&all, &disk.bytes);
        }
    }
    tell(seeds.end - seeds.start, "clean file systems");
}

/// A journal that must be replayed: two blocks of a file, and the noise of the free blocks around them.
#[test]
fn a_file_system_that_was_not_unmounted_recovers_as_it_would_have() {
    let Some(images) = Images::new() else { return };
    let seeds = seeds(16);
    for (seed, make) in
        seeds.clone().zip(["-b 1024 -O ^metadata_csum,^64bit", "-b 4096 -O metadata_csum,64bit"].into_iter().cycle())
    {
        let random = SeededRandom::new(seed);
        let _ = fs::remove_dir_all(images.path("files"));
        images.files("files", &random, 30);
        fs::write(images.path("files/d0/journaled"), MemoryDisk::noise(30_000, &random).bytes).unwrap();
        let script = "rm -f image; truncate -s 32M image; mke2fs -q -F -t ext4 $1 -d files image 2>/dev/null
            set -- $(debugfs -R 'blocks /d0/journaled' image 2>/dev/null); head -c 8192 /dev/urandom >noise
            printf '%s\\n' 'jo' \"jw -b $2,$3 noise\" jc >commands; debugfs -w -f commands image >/dev/null 2>&1
            cp image recovered; e2fsck -fy recovered >/dev/null || [ $? = 1 ]; rm -rf expected; mkdir expected
            debugfs -R 'rdump / expected' recovered 2>/dev/null; rmdir expected/lost+found
            ! diff -r expected files >/dev/null";
        images.script(script, &[make]);
        let file_system = images.read("image");
        let bench = Bench { exact: false, ..Bench::new(FILES) };
        let disk = partitioned(&file_system, 63, &random);
        let manifest = bench.capture("running", &disk);
        assert!(by_map(&manifest), "{make}: {:?}", manifest.volumes);
        assert_eq!(manifest.volumes[0].unread_bytes, 0, "its journal is read at the next mount");
        let installed = partition_installed(&bench, &manifest, &disk, 63, file_system.len());
        fs::write(images.path("installed"), installed).unwrap();
        images.script("e2fsck -fy installed >&2 || [ $? = 1 ]", &[]);
        images.script(CHECK, &["installed", "expected"]);
    }
    tell(seeds.end - seeds.start, "file systems with a journal");
}

/// Noise in the log of a clean journal, and in inodes that were never used.
#[test]
fn places_that_nothing_reads_become_zeros_unless_the_capture_is_exact() {
    let Some(images) = Images::new() else { return };
    for (seed, options) in (0..).zip(MADE) {
        let random = SeededRandom::new(seed);
        let _ = fs::remove_dir_all(images.path("files"));
        images.files("files", &random, 20);
        images.script(MAKE, &["image", options, "files", "24"]);
        let file_system = images.read("image");
        let mut noisy = partitioned(&file_system, 63, &random);
        let mut zeroed = noisy.clone();
        let guest = Guest::open(&zeroed).unwrap();
        let places: Vec<Range<usize>> = (guest.unread().unwrap().iter())
            .map(|(range, _)| [range.start_bytes, range.end_bytes()].map(|at| usize::try_from(at).unwrap()))
            .map(|[start, end]| start..end)
            .collect();
        drop(guest);
        for place in &places {
            random.fill(&mut noisy.bytes[place.clone()]).unwrap();
            zeroed.bytes[place.clone()].fill(0);
        }
        let unread_bytes = places.iter().map(|place| place.len() as u64).sum::<u64>();
        // A journal has at least 1024 blocks, and such a small disk has blocks of 1 KiB unless others are asked for.
        let least = match options.contains("ext2") {
            true => 0,
            false => 1023 * if options.contains("-b 2048") { 2048 } else { 1024 },
        };
        assert!(unread_bytes >= least && (unread_bytes > 0) == (least > 0), "{options}: {unread_bytes}");
        let check = |disk: &[u8]| {
            fs::write(images.path("checked"), &disk[63 * 512..][..file_system.len()]).unwrap();
            images.script(CHECK, &["checked", "files"]);
        };
        // Its own tools do not read these places.
        check(&noisy.bytes);
        let bench = Bench { exact: true, ..Bench::new(FILES) };
        let exact = bench.capture("exact", &noisy);
        assert_eq!(exact.volumes[0].unread_bytes, 0);
        bench.assert_installed(&exact, &noisy.bytes);
        let bench = Bench { exact: false, ..bench };
        let manifest = bench.capture("usual", &noisy);
        assert_eq!(manifest.volumes[0].unread_bytes, unread_bytes, "{options}");
        assert_eq!(manifest.totals.free_bytes, exact.totals.free_bytes, "zeros are not free");
        // Parts of units count as data.
        assert!(manifest.totals.data_bytes <= exact.totals.data_bytes - least / 2, "{options}");
        check(&bench.assert_installed(&manifest, &zeroed.bytes));
        let all = Bench { scope: Scope::All, ..bench };
        assert_eq!(all.capture("all", &noisy).volumes[0].unread_bytes, 0);
    }
}

/// Descriptors and maps, with right checksums, that call places unread that something else has. On a new file system
/// all places that nothing reads are zeros, so any other byte there would be lost.
#[test]
fn what_something_reads_is_not_unread_whatever_descriptors_and_maps_say() {
    let Some(images) = Images::new() else { return };
    let random = SeededRandom::new(7);
    images.files("files", &random, 40);
    fs::write(images.path("files/0whole"), MemoryDisk::noise(300_000, &random).bytes).unwrap();
    let ext4 = "-t ext4 -b 1024 -g 2048 -N 192";
    let cases = [
        ("the first group is unused", ext4, "set_bg 0 flags 0x5|set_bg 0 checksum calc"),
        ("a group with files is unused", ext4, "set_bg 1 flags 0x5|set_bg 1 checksum calc"),
        ("inodes with links are unused", ext4, "set_bg 1 itable_unused 16|set_bg 1 checksum calc"),
        ("a table is the first group's", ext4, "set_bg 11 inode_table TABLE|set_bg 11 checksum calc"),
        ("a table is a bitmap", ext4, "set_bg 11 inode_table BITMAP|set_bg 11 checksum calc"),
        ("a table is a file's", ext4, "set_bg 11 inode_table FILE|set_bg 11 checksum calc"),
        ("the log is a file's", "-t ext3 -b 1024 -g 2048", "sif <8> block[3] FILE"),
        ("the log is a table", "-t ext3 -b 1024 -g 2048", "sif <8> block[3] TABLE"),
    ];
    for (what, options, commands) in cases {
        images.script(MAKE, &["image", options, "files", "24"]);
        let sound = images.read("image");
        let script = "set -- \"$1\" $(debugfs -R 'blocks /0whole' image 2>/dev/null)
            field() { dumpe2fs image 2>/dev/null | grep -o \"$1 at [0-9]*\" | head -1 | grep -o '[0-9]*$'; }
            commands=${1//FILE/$6}; commands=${commands//TABLE/$(field 'Inode table')}
            commands=${commands//BITMAP/$(field 'Block bitmap')}
            tr '|' '\n' <<<\"$commands\" >commands; debugfs -w -f commands image >said 2>&1; cat said >&2";
        images.script(script, &[commands]);
        let image = images.read("image");
        assert!(image != sound, "{what}");
        let unread = |image: &[u8]| {
            let disk = MemoryDisk::new(image.to_vec());
            let guest = Guest::open(&disk).unwrap();
            let found = guest.unread().unwrap();
            let place = |at: u64| usize::try_from(at).unwrap();
            found.iter().map(|(range, _)| place(range.start_bytes)..place(range.end_bytes())).collect::<Vec<_>>()
        };
        assert!(!unread(&sound).is_empty(), "{what}");
        for place in unread(&image) {
            assert!(image[place.clone()].iter().all(|byte| *byte == 0), "{what}: {place:?}");
        }
    }
}

/// The map is made after the unread places were chosen, and finds a bitmap with a wrong checksum.
#[test]
fn a_volume_in_doubt_is_read_whole() {
    let Some(images) = Images::new() else { return };
    let random = SeededRandom::new(8);
    images.files("files", &random, 20);
    images.script(MAKE, &["image", "-t ext4 -b 1024 -g 2048", "files", "24"]);
    let bench = Bench { exact: false, ..Bench::new(FILES) };
    let sound = bench.capture("sound", &MemoryDisk::new(images.read("image")));
    assert!(sound.volumes[0].unread_bytes > 1 << 20, "{:?}", sound.volumes);
    let script = "dumpe2fs image 2>/dev/null | grep -o 'Block bitmap at [0-9]*' | head -1 | grep -o '[0-9]*$'";
    let block: usize = images.script(script, &[]).trim().parse().unwrap();
    let mut disk = MemoryDisk::new(images.read("image"));
    disk.bytes[block * 1024 + 200] ^= 0x10;
    let doubtful = bench.capture("doubtful", &disk);
    assert_eq!(doubtful.volumes[0].unread_bytes, 0, "{:?}", doubtful.volumes);
    bench.assert_installed(&doubtful, &disk.bytes);
}

/// Builds of the same files with different places, groups, partitions and orders.
#[test]
fn images_with_the_same_files_share_nearly_all_units() {
    let Some(images) = Images::new() else { return };
    let random = SeededRandom::new(5);
    images.files("files", &random, 80);
    let bench = Bench::new(FILES);
    let builds = [("", 2048), ("", 2048), ("-g 4096", 63), ("-E stride=64 -O ^metadata_csum,bigalloc", 77)];
    for (at, (options, start)) in builds.into_iter().enumerate() {
        let options = format!("-t ext4 -b 4096 {options}");
        // A different order of files, and one file before all others.
        let script = "rm -rf copy; mkdir copy; head -c $((100000 * $2 + 5)) /dev/urandom >copy/0
            (cd files; find . -type f | shuf --random-source=<(yes $2) | cpio -pdm ../copy 2>/dev/null)
            rm -f image; truncate -s $((40 + $2))M image; mke2fs -q -F $1 -d copy image 2>/dev/null";
        images.script(script, &[&options, &at.to_string()]);
        let manifest = bench.capture("build", &partitioned(&images.read("image"), start, &random));
        assert!(by_map(&manifest));
        let totals = manifest.totals;
        // The file before the others, the gaps, and metadata.
        let own = 100_005 * at as u64 + start as u64 * 512 + 70_000 + (800 << 10);
        assert!(totals.data_bytes > 12 << 20, "{options}: {totals:?}");
        assert!((totals.new_bytes < own) == (at > 0), "{options}: {totals:?}");
    }
}

/// The same files in many pieces and in one piece.
#[test]
fn a_fragmented_file_gives_the_units_of_a_whole_one() {
    let Some(images) = Images::new() else { return };
    let random = SeededRandom::new(6);
    fs::write(images.path("large"), MemoryDisk::noise(4_000_001, &random).bytes).unwrap();
    let script = "truncate -s 16M whole pieces; mke2fs -q -F -t ext4 -N 4000 whole; mke2fs -q -F -t ext4 -N 4000 pieces
        debugfs -w -R 'write large large' whole >/dev/null 2>&1
        head -c 5000 /dev/urandom >small
        for at in $(seq 1200); do echo \"write small s$at\"; done >commands
        for at in $(seq 1 2 1200); do echo \"rm s$at\"; done >>commands
        echo 'write large large' >>commands; debugfs -w -f commands pieces >/dev/null 2>&1
        debugfs -R 'dump large out' pieces >/dev/null 2>&1; cmp out large
        debugfs -R 'stat large' pieces 2>/dev/null | grep -c -E '\\([0-9]+-[0-9]+\\):' >&2
        debugfs -R 'stat large' pieces 2>/dev/null | grep -o -E '\\([0-9]+(-[0-9]+)?\\):' | wc -l";
    let extents: u64 = images.script(script, &[]).trim().parse().unwrap();
    assert!(extents > 200, "{extents} extents");
    let bench = Bench::with_regions(FILES, 512 << 10);
    let whole = bench.capture("whole", &MemoryDisk::new(images.read("whole")));
    assert!(whole.totals.new_bytes > 4_000_000);
    let pieces = bench.capture("pieces", &MemoryDisk::new(images.read("pieces")));
    // All small files have the same content, and the large file is the same in both images.
    assert!(pieces.totals.new_bytes < 1 << 20, "{:?}", pieces.totals);
    assert!(pieces.totals.data_bytes > 4_000_000 + 600 * 5000);
    let installed = bench.assert_installed(&pieces, &images.read("pieces"));
    fs::write(images.path("installed"), installed).unwrap();
    images
        .script("e2fsck -fn installed >&2; debugfs -R 'dump large out' installed >/dev/null 2>&1; cmp out large", &[]);
}

/// Holes of the image, and noise behind the ends of files, change no unit of a file.
#[test]
fn neither_holes_nor_what_lies_behind_ends_change_units_of_files() {
    let Some(images) = Images::new() else { return };
    let random = SeededRandom::new(8);
    images.files("files", &random, 50);
    fs::create_dir_all(images.path("files/zero")).unwrap();
    let zeros = [MemoryDisk::noise(40_000, &random).bytes, vec![0; 300_000], vec![1; 1000]].concat();
    fs::write(images.path("files/zero/within"), zeros).unwrap();
    images.script(MAKE, &["image", "-t ext4 -b 4096", "files", "32"]);
    let mut disk = MemoryDisk::new(images.read("image"));
    let bench = Bench::new(FILES);
    let full = bench.capture("image", &disk);
    let zero_blocks: Vec<usize> = (0..disk.bytes.len() / 4096)
        .filter(|at| disk.bytes[at * 4096..][..4096].iter().all(|byte| *byte == 0))
        .collect();
    zero_blocks.iter().for_each(|at| disk.punch(at * 4096..(at + 1) * 4096));
    let sparse = bench.capture("image", &disk);
    assert_eq!((sparse.totals.new_units, &sparse.chunks), (0, &full.chunks));
    // The last block of each file gets noise in its last byte, which changes the form of all last units.
    let mut disk = MemoryDisk::new(disk.bytes);
    let ends = make_noisy(&images.path("image"), &mut disk.bytes, 0);
    assert!(ends > 20, "{ends} files end within a block");
    let noisy = bench.capture("image", &disk);
    assert!((ends..=2 * ends).contains(&noisy.totals.new_units), "{:?}", noisy.totals);
    // Different noise gives the same form.
    assert_eq!(make_noisy(&images.path("image"), &mut disk.bytes, 100), ends);
    let noisier = bench.capture("image", &disk);
    assert!(noisier.totals.new_units <= ends && noisier.totals.new_bytes <= ends * 3584, "{:?}", noisier.totals);
    let installed = bench.assert_installed(&noisier, &disk.bytes);
    let mut again = installed.clone();
    make_noisy(&images.path("image"), &mut again, 100);
    assert!(again == installed, "the noise is part of the image");
}

/// Puts noise into the last byte of the last block of each file that ends before the last sector of that block. Returns
/// the number of these files.
fn make_noisy(image: &Path, disk: &mut [u8], noise: u8) -> u64 {
    let file = onefold_disk::FileDisk::new(fs::File::open(image).unwrap(), image).unwrap();
    let guest = Guest::open(&file).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut ends = 0;
    for extent in guest.files_in_order(folder.path(), 1 << 20).unwrap() {
        let extent = extent.unwrap();
        let behind = extent.range.length_bytes - extent.used_bytes;
        if extent.used_bytes > 0 && behind > 512 {
            let last = usize::try_from(extent.range.end_bytes()).unwrap() - 1;
            disk[last] = 1 + noise + u8::try_from(ends % 100).unwrap();
            ends += 1;
        }
    }
    ends
}
