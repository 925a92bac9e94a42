//! What verbs need in memory for very many files: as much as for few, beside the cache.

use crate::*;

/// Makes `image` with 100,000 empty files of long names, 30,000 of which have a second name: 26 MB of names.
const MAKE: &str = r#"set -e; umount --all --lazy --types fuse.onefold
cd "$0"; truncate -s 400M image; mke2fs -q -F -t ext4 -N 150000 image; mkdir mounted; mount -o loop image mounted
python3 -c '
import os
for directory in range(100):
    folder = "mounted/%d" % directory
    os.mkdir(folder)
    for number in range(1000):
        name = folder + "/" + "%04d" % number + "n" * 196
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
        if number < 300:
            os.link(name, folder + "/" + "%04d" % number + "m" * 196)
'
umount mounted"#;

/// What a verb with a cache of 8 MiB takes of the address space besides the program itself, in KiB.
const VERB_KIB: u32 = 18_000;
/// The same for an archive, which notes the first name of each file with several.
const TAR_KIB: u32 = 30_000;

/// Returns the address space that the program itself takes, as it is built, in KiB.
fn program_kib(program: &str) -> u32 {
    let starts = |kib: &u32| {
        let started = Command::new("bash")
            .args(["-c", r#"ulimit -v "$0"; exec "$1" --version"#, &kib.to_string(), program])
            .output();
        started.unwrap().status.success()
    };
    (10_000..400_000).step_by(1_000).find(starts).expect("the program starts with 400 MB")
}

#[test]
fn verbs_keep_no_names_of_the_files_that_they_go_through() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can mount");
        return;
    }
    if !has("mke2fs", "e2fsprogs") || !has("python3", "python3") {
        return;
    }
    let folder = Folder::new();
    run("unshare", &["--mount", "--propagation", "private", "bash", "-c", MAKE, text(&folder.path(""))]);
    let image = folder.path("image");
    let program = env!("CARGO_BIN_EXE_onefold");
    let program_kib = program_kib(program);
    let limited = r#"ulimit -v "$0"; program=$1; shift; exec "$program" guest "$@" --memory 32M"#;
    for (verb, further) in [
        (&["info"][..], ""),
        (&["ls", "-R"], "/"),
        (&["ls", "-lR"], "/"),
        (&["find"], ""),
        (&["du"], "/"),
        (&["who"], "5M"),
        (&["diff"], text(&image)),
        (&["tar"], "/"),
    ] {
        let limit_kib = (program_kib + if verb == ["tar"] { TAR_KIB } else { VERB_KIB }).to_string();
        let further: &[&str] = if further.is_empty() { &[] } else { &[further] };
        let command = [&["-c", limited, &limit_kib, program], verb, &[text(&image)], further].concat();
        let ended = Command::new("bash").args(command).stdout(Stdio::null()).output().unwrap();
        assert!(ended.status.success(), "{verb:?}: {}", String::from_utf8_lossy(&ended.stderr));
    }
}

/// Makes an ext4 whose bitmaps call every second block free: with 4 KiB each, 458,752 runs.
const MAKE_FRAGMENTED: &str = include_str!("../common/make_fragmented.py");

/// Such a map was told with a warning only, and as damage where the blocks of the maps of files did not fit.
#[test]
fn a_map_that_needs_more_memory_is_no_damage_and_the_rest_goes_on() {
    let Some(fixture) = Fixture::new() else { return };
    if !has("python3", "python3") {
        return;
    }
    let fragmented = fixture.folder.path("fragmented");
    run("python3", &["-c", MAKE_FRAGMENTED, text(&fragmented)]);
    let told = onefold("guest info --json --memory 32M", &[&fragmented, &fixture.image]);
    assert_eq!(told.code, FAILED, "{}", told.err);
    let failures = &told.json()["failures"];
    assert_eq!(failures.as_array().map(Vec::len), Some(1), "{failures}");
    assert!(failures[0]["error"].as_str().is_some_and(|error| error.contains("fragmented")), "{failures}");
    assert!(failures[0]["causes"][0].as_str().is_some_and(|cause| cause.contains("more memory than --memory allows")));
    assert_eq!(failures[0]["hint"], "give more with --memory");
    assert_eq!(told.json()["images"].as_array().map(Vec::len), Some(2));
    assert_eq!(told.json()["warnings"], serde_json::json!([]));
    assert_eq!(onefold("guest info --memory 256M", &[&fragmented, &fixture.image]).code, DONE);
}

/// Makes `image`: an ext4 of ten million files in use, all of them empty and in the root directory. It writes inodes,
/// names, bitmaps and counts itself, which a kernel would take an hour for.
const MAKE_TEN_MILLION: &str = r#"
import os, struct, subprocess, sys
path, count = sys.argv[1], 10_000_000
with open(path, "wb") as image:
    image.truncate(42 << 30)
features = "^metadata_csum,^uninit_bg,^has_journal,^resize_inode,^flex_bg,^dir_index"
options = ["-I", "128", "-b", "4096", "-N", str(count + 100_000), "-m", "0"]
subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-O", features, *options, path], check=True)
image = open(path, "r+b")
image.seek(1024)
superblock = bytearray(image.read(1024))
(blocks_per_group, inodes_per_group), size = struct.unpack_from("<I4xI", superblock, 0x20), 4096
descriptor_bytes = struct.unpack_from("<H", superblock, 0xFE)[0] or 32
inodes, = struct.unpack_from("<I", superblock, 0)
image.seek(size)
groups = inodes // inodes_per_group
descriptors = image.read(groups * descriptor_bytes)
places = [struct.unpack_from("<III", descriptors, group * descriptor_bytes) for group in range(groups)]
file = bytearray(128)
struct.pack_into("<H24xH4xI", file, 0, 0o100644, 1, 0x80000)
struct.pack_into("<HHHH", file, 0x28, 0xF30A, 0, 4, 0)
used = 11 + count
for group, (_, bitmap, table) in enumerate(places):
    here = max(0, min(inodes_per_group, used - group * inodes_per_group))
    first = 11 if group == 0 else 0
    image.seek(bitmap * size)
    image.write((((1 << here) - 1) | ((1 << 8 * size) - (1 << inodes_per_group))).to_bytes(size, "little"))
    image.seek(table * size + first * 128)
    image.write(bytes(file) * max(0, here - first))
    free = inodes_per_group - here
    image.seek(size + group * descriptor_bytes + 0xE)
    image.write(struct.pack("<H", free))
# Names of eight letters: 256 of them fill a block.
names = [struct.pack("<IHBB8s", number, 16, 8, 1, b"%08x" % number) for number in range(12, used + 1)]
head = struct.pack("<IHBB4s", 2, 12, 1, 2, b".") + struct.pack("<IHBB4s", 2, 12, 2, 2, b"..")
head += struct.pack("<IHBB12s", 11, 20, 10, 2, b"lost+found")
short = bytearray(names[252])
struct.pack_into("<H", short, 4, 20)
content = head + b"".join(names[:252]) + bytes(short) + bytes(4) + b"".join(names[253:])
rest = -len(content) % size
if rest:
    content += struct.pack("<IHBB", 0, rest, 0, 0) + bytes(rest - 8)
blocks, done, extents = len(content) // size, 0, []
for group in (1, 2):
    first = places[group][2] + (inodes_per_group * 128 + size - 1) // size
    many = min(blocks - done, (group + 1) * blocks_per_group - first)
    image.seek(first * size)
    image.write(content[done * size:(done + many) * size])
    within = first - group * blocks_per_group
    image.seek(places[group][0] * size)
    bitmap = int.from_bytes(image.read(size), "little") | ((1 << many) - 1) << within
    image.seek(places[group][0] * size)
    image.write(bitmap.to_bytes(size, "little"))
    counted_at = size + group * descriptor_bytes + 0xC
    image.seek(counted_at)
    free, = struct.unpack("<H", image.read(2))
    image.seek(counted_at)
    image.write(struct.pack("<H", free - many))
    extents.append((done, many, first))
    done += many
assert done == blocks
root = places[0][2] * size + 128
image.seek(root)
inode = bytearray(image.read(128))
struct.pack_into("<I", inode, 4, len(content) & 0xFFFFFFFF)
struct.pack_into("<I", inode, 0x1C, blocks * 8)
struct.pack_into("<HHHH", inode, 0x28, 0xF30A, 2, 4, 0)
for index, (at, many, first) in enumerate(extents):
    struct.pack_into("<IHHI", inode, 0x28 + 12 * (index + 1), at, many, 0, first)
image.seek(root)
image.write(inode)
struct.pack_into("<I", superblock, 0x10, inodes - used)
image.seek(1024)
image.write(superblock)
"#;

/// Prints the exit code of a command and its highest resident memory in KiB.
const MEASURE: &str = "import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss)";

#[test]
#[ignore = "an image of ten million files, for make test-guest"]
fn ten_million_files_stay_within_the_memory_that_is_the_default() {
    if !has("mke2fs", "e2fsprogs") || !has("python3", "python3") {
        return;
    }
    let folder = Folder::new();
    let image = folder.path("image");
    run("python3", &["-c", MAKE_TEN_MILLION, text(&image)]);
    let df = onefold("guest df --json", &[&image]).done().json();
    assert!(df["file_systems"][0]["files_used"].as_u64().unwrap() >= 10_000_000, "{df}");
    let found = onefold("guest find --name 00989680", &[&image]).done();
    assert_eq!(found.out, "/00989680\n", "the last but ten of the names");
    // `diff` leaves out most names of such a folder.
    for (verb, further, expected) in [
        ("info", "", DONE),
        ("find", "", DONE),
        ("du", "/", DONE),
        ("who", "1G", DONE),
        ("ls", "/", DONE),
        ("tar", "/", DONE),
        ("diff", text(&image), DAMAGE),
    ] {
        let program = env!("CARGO_BIN_EXE_onefold");
        let further: &[&str] = if further.is_empty() { &[] } else { &[further] };
        let told = run("python3", &[&["-c", MEASURE, program, "guest", verb, text(&image)], further].concat());
        let told: Vec<u64> = told.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let [code, peak_kib] = told[..] else { panic!("{told:?}") };
        assert_eq!(i32::try_from(code), Ok(expected), "{verb}");
        assert!(peak_kib < 256 << 10, "{verb} took {peak_kib} KiB");
        eprintln!("guest {verb} of ten million files: at most {} MiB", peak_kib >> 10);
    }
}
