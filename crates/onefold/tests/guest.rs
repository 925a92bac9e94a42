//! `onefold guest` as its users have it: what it tells of an image is what the file system's own tools tell, and what goes
//! wrong is told. Images are made by `mke2fs`; `debugfs` is the oracle.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{DAMAGE, DONE, FAILED, Folder, Run, USAGE, has, onefold, run, text};
use onefold_block::shown::is_hidden;
use serde_json::Value;

/// Where the partition of a test image begins: 1 MiB.
const PARTITION_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 4096;
/// A name that forges a line and retitles a terminal, in bytes that are not UTF-8.
const HOSTILE: &[u8] = b"evil\n\x1b]0;title\x07\xff";

/// A folder with an image of a partition with ext4, and the tree that was put into it.
struct Fixture {
    folder: Folder,
    image: PathBuf,
    tree: PathBuf,
}

impl Fixture {
    /// Returns `None`, and says so, where the tools are missing.
    fn new() -> Option<Fixture> {
        Fixture::with(|_| {})
    }

    /// As [`Fixture::new`], with a tree that is changed before it becomes an image.
    fn with(change: impl FnOnce(&Path)) -> Option<Fixture> {
        if !has("mke2fs", "e2fsprogs") || !has("debugfs", "e2fsprogs") {
            return None;
        }
        let folder = Folder::new();
        let tree = folder.path("tree");
        fill(&tree);
        change(&tree);
        let image = folder.path("guest.raw");
        make_image(&image, &tree);
        Some(Fixture { folder, image, tree })
    }

    /// Runs a verb on the image.
    fn guest(&self, verb: &str, paths: &[&str]) -> Run {
        let mut all = vec![self.image.as_path()];
        all.extend(paths.iter().map(Path::new));
        onefold(&format!("guest {verb}"), &all)
    }

    /// Returns what `debugfs` prints for a request.
    fn debugfs(&self, request: &str) -> String {
        let image = format!("{}?offset={PARTITION_BYTES}", text(&self.image));
        run("debugfs", &["-R", request, &image])
    }

    /// Returns the blocks of a file, by `debugfs`.
    fn blocks(&self, path: &str) -> Vec<u64> {
        self.debugfs(&format!("blocks {path}")).split_whitespace().map(|block| block.parse().unwrap()).collect()
    }
}

/// Fills a folder with files of all sizes that matter, links, and odd names.
fn fill(tree: &Path) {
    let put = |name: &str, bytes: &[u8]| {
        let path = tree.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let noise =
        |length: u32| -> Vec<u8> { (0..length).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect() };
    put("etc/hostname", b"test\n");
    put("etc/passwd", b"root:x:0:0::/root:/bin/sh\n");
    put("empty", b"");
    for length in [1, 4095, 4096, 4097, 300_000] {
        put(&format!("srv/sizes/{length}"), &noise(length));
    }
    put("srv/deep/a/b/c/file", b"deep");
    fs::write(tree.join("srv").join(OsStr::from_bytes(HOSTILE)), b"hostile").unwrap();
    let sparse = fs::File::create(tree.join("srv/sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    sparse.write_all_at(b"middle", 32 << 20).unwrap();
    fs::hard_link(tree.join("srv/sizes/4097"), tree.join("srv/second-name")).unwrap();
    symlink("etc/hostname", tree.join("link")).unwrap();
    symlink("/srv/sizes", tree.join("sizes")).unwrap();
    symlink("ring-b", tree.join("ring-a")).unwrap();
    symlink("ring-a", tree.join("ring-b")).unwrap();
    symlink("../../../../etc/passwd", tree.join("srv/out")).unwrap();
    // Only some file systems below a folder for tests have attributes, and only some machines the tool.
    let _ = Command::new("setfattr").args(["-n", "user.note", "-v", "kept"]).arg(tree.join("etc/hostname")).status();
    fs::set_permissions(tree.join("etc/passwd"), fs::Permissions::from_mode(0o4640)).unwrap();
}

/// Makes an image of 32 MiB with an MBR of one partition, which holds ext4 with a tree.
fn make_image(image: &Path, tree: &Path) {
    fs::File::create(image).unwrap().set_len(32 << 20).unwrap();
    let offset = format!("offset={PARTITION_BYTES}");
    run(
        "mke2fs",
        &["-q", "-F", "-t", "ext4", "-b", "4096", "-L", "system", "-E", &offset, "-d", text(tree), text(image), "31M"],
    );
    let mut table = [0; 512];
    table[446 + 4] = 0x83;
    table[446 + 8..446 + 12].copy_from_slice(&2048_u32.to_le_bytes());
    table[446 + 12..446 + 16].copy_from_slice(&((31 << 20) / 512_u32).to_le_bytes());
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    OpenOptions::new().write(true).open(image).unwrap().write_all_at(&table, 0).unwrap();
}

fn lines(run: &Run) -> Vec<&str> {
    run.out.lines().collect()
}

#[test]
fn info_and_df_tell_what_is_on_the_disk() {
    let Some(fixture) = Fixture::new() else { return };
    let found = fixture.guest("info --json --stale", &[]).done().json();
    let image = &found["images"][0];
    assert_eq!((&image["partition_table"], &image["format"]), (&"MBR".into(), &"raw".into()));
    let volume = &image["volumes"][0];
    assert_eq!((&volume["volume"], &volume["holds"]), (&"partition 1".into(), &"ext4".into()));
    assert_eq!((&volume["state"], &volume["label"]), (&"certain".into(), &"system".into()));
    let number = |value: &Value, name: &str| value[name].as_u64().unwrap();
    let (allocated, free) = (number(volume, "allocated_bytes"), number(volume, "free_bytes"));
    assert_eq!(allocated + free, 31 << 20);
    assert_eq!(number(image, "gaps_bytes"), PARTITION_BYTES);
    let stats = fixture.debugfs("stats -h");
    let of_tool = |name: &str| -> u64 {
        let line = stats.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(free, of_tool("Free blocks:") * BLOCK_BYTES);
    assert_eq!(number(volume, "stale_bytes"), 0);
    let told = fixture.guest("info", &[]).done().out;
    assert!(told.contains("partition 1") && told.contains("ext4") && told.contains("certain"), "{told}");

    let found = fixture.guest("df --json", &[]).done().json();
    let row = &found["file_systems"][0];
    assert_eq!(number(row, "free_bytes"), of_tool("Free blocks:") * BLOCK_BYTES);
    assert_eq!(number(row, "files_max"), of_tool("Inode count:"));
    assert_eq!(number(row, "files_used"), of_tool("Inode count:") - of_tool("Free inodes:"));
    assert!(fixture.guest("df", &[]).done().out.contains("partition 1"));
}

#[test]
fn free_blocks_that_are_not_zero_are_stale() {
    let Some(fixture) = Fixture::new() else { return };
    let free: u64 =
        fixture.debugfs("ffb 3").split(':').nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    let file = OpenOptions::new().write(true).open(&fixture.image).unwrap();
    file.write_all_at(&[1], PARTITION_BYTES + free * BLOCK_BYTES + 77).unwrap();
    let found = fixture.guest("info --json --stale", &[]).done().json();
    assert_eq!(found["images"][0]["stale_bytes"], BLOCK_BYTES);
    assert_eq!(fixture.guest("info --json", &[]).done().json()["images"][0]["stale_bytes"], Value::Null);
}

#[test]
fn ls_shows_names_as_the_guest_has_them() {
    let Some(fixture) = Fixture::new() else { return };
    let root = fixture.guest("ls", &[]).done();
    assert_eq!(lines(&root), ["empty", "etc", "link", "lost+found", "ring-a", "ring-b", "sizes", "srv"]);
    assert_eq!(lines(&fixture.guest("ls", &["/sizes"]).done()), ["1", "300000", "4095", "4096", "4097"]);
    assert_eq!(lines(&fixture.guest("ls", &["/etc/passwd"]).done()), ["/etc/passwd"]);
    let long = fixture.guest("ls -l", &["/etc"]).done().out;
    assert!(long.contains("-rwSr-----   1 ") && long.contains(" passwd"), "{long}");
    assert!(fixture.guest("ls -l", &["/link"]).done().out.ends_with("/link -> etc/hostname\n"));
    let below = fixture.guest("ls -R", &["/srv/deep"]).done().out;
    assert_eq!(below, "/srv/deep:\na\n\n/srv/deep/a:\nb\n\n/srv/deep/a/b:\nc\n\n/srv/deep/a/b/c:\nfile\n");
    let empty = fixture.guest("ls -R", &["/lost+found"]).done().out;
    assert_eq!(empty, "/lost+found:\n");
}

#[test]
fn a_name_that_would_harm_a_terminal_is_escaped_and_programs_get_it_whole() {
    let Some(fixture) = Fixture::new() else { return };
    let told = fixture.guest("ls", &["/srv"]).done().out;
    assert!(told.contains("evil\\n\\x1b]0;title\\x07\\xff\n"), "{told}");
    let raw = Command::new(env!("CARGO_BIN_EXE_onefold"))
        .args(["guest", "ls", "-0", text(&fixture.image), "/srv"])
        .output()
        .unwrap();
    let expected = [b"/srv/", HOSTILE].concat();
    assert!(raw.stdout.split(|byte| *byte == 0).any(|name| name == expected));
    let found = fixture.guest("ls --json", &["/srv"]).done().json();
    let files = found["files"].as_array().unwrap();
    let file = files.iter().find(|file| file.get("path_hex").is_some()).unwrap();
    let hex: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((&file["path_hex"], &file["size_bytes"]), (&hex.into(), &7.into()));
}

#[test]
fn cat_writes_every_file_as_it_was() {
    let Some(fixture) = Fixture::new() else { return };
    for path in
        ["etc/hostname", "empty", "srv/sizes/1", "srv/sizes/4095", "srv/sizes/4097", "srv/sizes/300000", "srv/sparse"]
    {
        let written = Command::new(env!("CARGO_BIN_EXE_onefold"))
            .args(["guest", "cat", text(&fixture.image), path])
            .output()
            .unwrap();
        assert_eq!(written.status.code(), Some(DONE));
        assert!(written.stdout == fs::read(fixture.tree.join(path)).unwrap(), "{path}");
    }
    let both = fixture.guest("cat", &["/link", "/srv/out"]).done().out;
    assert_eq!(both, "test\nroot:x:0:0::/root:/bin/sh\n", "a link out of the root ends at the root");
}

#[test]
fn map_and_who_agree_with_debugfs() {
    let Some(fixture) = Fixture::new() else { return };
    let blocks = fixture.blocks("/srv/sizes/300000");
    let found = fixture.guest("map --json", &["/srv/sizes/300000"]).done().json();
    let mut mapped = Vec::new();
    for extent in found["extents"].as_array().unwrap() {
        assert_eq!(extent["kind"], "written");
        let [place, length] = ["place", "length_bytes"].map(|name| extent[name].as_u64().unwrap());
        assert_eq!(extent["offset"].as_u64().unwrap(), mapped.len() as u64 * BLOCK_BYTES);
        mapped.extend((0..length / BLOCK_BYTES).map(|block| (place - PARTITION_BYTES) / BLOCK_BYTES + block));
    }
    assert_eq!(mapped, blocks);
    let told = fixture.guest("map", &["/srv/sizes/300000"]).done().out;
    let expected = fixture.debugfs("stat /srv/sizes/300000");
    // The line of the tool without its blanks: `(0-73):1234-1307`.
    let line = expected.lines().find(|line| line.starts_with("(0")).unwrap();
    assert!(told.lines().any(|told| told == line), "{line}\n{told}");
    assert!(told.contains("Size: 300000") && told.contains("Mode: 0644"), "{told}");

    let byte = PARTITION_BYTES + blocks[3] * BLOCK_BYTES + 5;
    let owner = &fixture.guest("who --json", &[&byte.to_string()]).done().json()["owners"][0];
    assert_eq!((&owner["class"], &owner["volume"]), (&"file data".into(), &"partition 1".into()));
    assert_eq!(owner["files"][0]["names"][0]["path"], "/srv/sizes/300000");
    assert_eq!(owner["files"][0]["offset"], 3 * BLOCK_BYTES + 5);
    let shared = PARTITION_BYTES + fixture.blocks("/srv/second-name")[0] * BLOCK_BYTES;
    let told = fixture.guest("who", &[&shared.to_string(), "0"]).done().out;
    assert!(
        told.contains("/srv/second-name, /srv/sizes/4097") || told.contains("/srv/sizes/4097, /srv/second-name"),
        "{told}"
    );
    assert!(told.ends_with("\n0: in no volume\n"), "{told}");
    fixture.guest("who", &["64M"]).failed(FAILED, "33554432 bytes long");
}

#[test]
fn du_adds_up_and_counts_a_file_with_two_names_once() {
    let Some(fixture) = Fixture::new() else { return };
    let found = fixture.guest("du --json -d 1", &["/"]).done().json();
    let folders = found["folders"].as_array().unwrap();
    let sum = |path: &str| folders.iter().find(|row| row["path"] == path).unwrap()["allocated_bytes"].as_u64().unwrap();
    let own = 4 * BLOCK_BYTES;
    // Five files, their folder, and one block of the file that is sparse; directories; the first block that debugfs tells.
    assert_eq!(sum("/etc"), own - BLOCK_BYTES, "two files and the folder");
    assert!(folders.iter().all(|row| row["path"].as_str().unwrap().matches('/').count() < 2), "{folders:?}");
    assert!(sum("/") >= sum("/srv") + sum("/etc") + sum("/lost+found"));
    let twice = fixture.guest("du --json", &["/srv/sizes", "/srv/second-name"]).done().json();
    let sizes = fixture.guest("du --json", &["/srv/sizes"]).done().json();
    assert_eq!(twice["folders"][0], sizes["folders"][0]);
    let whole = fixture.guest("du", &["/srv"]).done().out;
    assert!(whole.ends_with("/srv\n"), "{whole}");
}

#[test]
fn find_takes_names_times_and_sizes_of_many_images() {
    let Some(fixture) = Fixture::new() else { return };
    let found = fixture.guest("find --larger 100K --name *0000", &[]).done().out;
    assert_eq!(found, "/srv/sizes/300000\n");
    assert_eq!(fixture.guest("find --name /etc/*", &[]).done().out, "/etc/hostname\n/etc/passwd\n");
    assert_eq!(fixture.guest("find --newer 2999-01-01", &[]).done().out, "");
    assert!(fixture.guest("find --newer 2020-01-01T10:00 --below /etc", &[]).done().out.contains("/etc/passwd\n"));
    fixture.guest("find --newer yesterday", &[]).failed_usage();
    let second = fixture.folder.path("second.raw");
    fs::copy(&fixture.image, &second).unwrap();
    let broken = fixture.folder.path("broken.raw");
    fs::write(&broken, vec![7; 2 << 20]).unwrap();
    let all = onefold("guest find --name passwd", &[&fixture.image, &broken, &second]);
    assert_eq!(all.code, FAILED);
    let expected = [&fixture.image, &second].map(|image| format!("{}:/etc/passwd", text(image)));
    assert_eq!(lines(&all), expected);
    assert!(all.err.contains("broken.raw"), "{all:?}");
}

/// Adds a system with dpkg's database: a program that is found through a link, and a configuration file.
fn add_packages(tree: &Path, version: &str) {
    let put = |name: &str, text: &str| {
        let path = tree.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("etc/os-release", "PRETTY_NAME=\"Test OS\"\n");
    put("usr/bin/tool", "tool\n");
    put("usr/bin/own", "of nobody\n");
    symlink("usr/bin", tree.join("bin")).unwrap();
    put("etc/tool.conf", "changed by the user\n");
    let stanza = |name: &str, version: &str, further: &str| {
        format!(
            "Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {version}\n\
             Maintainer: a\nDescription: b\n{further}\n"
        )
    };
    let conffile = "Conffiles:\n /etc/tool.conf 11111111111111111111111111111111\n";
    put("var/lib/dpkg/status", &[stanza("other", "7", ""), stanza("tool", version, conffile)].concat());
    put("var/lib/dpkg/info/tool.list", "/.\n/bin\n/bin/tool\n/etc\n/etc/tool.conf\n/usr/share/gone\n");
    // The digests of "tool\n" and of nothing.
    let sums = "7cfb3b1aedd632d8ae7cc974271f3652  bin/tool\nd41d8cd98f00b204e9800998ecf8427e  usr/share/gone\n";
    put("var/lib/dpkg/info/tool.md5sums", sums);
    put("var/lib/dpkg/info/other.list", "/.\n");
    put(
        "var/log/dpkg.log",
        "2026-11-01 12:34:56 install tool:amd64 <none> 1.0\n2026-11-01 12:34:57 status installed tool:amd64 1.0\n",
    );
}

#[test]
fn packages_their_files_and_their_history_are_those_of_dpkg() {
    let Some(fixture) = Fixture::with(|tree| add_packages(tree, "1.0")) else { return };
    let listed = fixture.guest("packages", &[]).done();
    if has("dpkg-query", "dpkg") {
        let admin = format!("--admindir={}", text(&fixture.tree.join("var/lib/dpkg")));
        let oracle = run("dpkg-query", &[&admin, "-W", "-f", "${Package} ${Version} ${Architecture}\n"]);
        assert_eq!(listed.out, oracle);
    }
    assert_eq!(lines(&listed), ["other 7 amd64", "tool 1.0 amd64"]);
    let one = fixture.guest("packages --name to* --files --history", &[]).done().out;
    assert!(one.starts_with("tool 1.0 amd64, since 2026-11-01 12:34:5"), "{one}");
    assert!(one.contains("\n  2026-11-01 12:34:56 install 1.0\n"), "{one}");
    assert!(one.contains("\n  /bin/tool\n") && one.contains("\n  /etc/tool.conf (configuration)\n"), "{one}");
    let json = fixture.guest("packages --json --files --name tool", &[]).done().json();
    let files = json["packages"][0]["files"].as_array().unwrap();
    assert!(files.iter().any(|file| file["path"] == "/bin/tool" && file["digest_algorithm"] == "md5"), "{files:?}");
    let verified = fixture.guest("packages --verify", &[]).done();
    let expected = [
        "missing: /usr/share/gone (tool)",
        "changed: /etc/tool.conf (tool, configuration)",
        "1 files are as packaged, 0 are left out of this system",
    ];
    assert_eq!(lines(&verified), expected);
    let unowned = fixture.guest("find --unowned --below /usr/bin", &[]).done().out;
    assert_eq!(unowned, "/usr/bin/own\n", "/bin/tool is /usr/bin/tool");
    let info = fixture.guest("info", &[]).done().out;
    assert!(info.contains("system: Test OS") && info.contains("host name `test`"), "{info}");
    let plain = Fixture::new().unwrap();
    assert!(plain.guest("packages", &[]).done().err.contains("has no package database"));
    plain.guest("find --unowned", &[]).failed(FAILED, "no package database");
}

#[test]
fn diff_tells_packages_first_and_then_files() {
    let Some(one) = Fixture::with(|tree| add_packages(tree, "1.0")) else { return };
    let two = Fixture::with(|tree| {
        add_packages(tree, "1.1");
        fs::remove_dir_all(tree.join("srv/deep")).unwrap();
        fs::write(tree.join("srv/sizes/4096"), [1; 4096]).unwrap();
        fs::write(tree.join("etc/new"), "").unwrap();
        fs::set_permissions(tree.join("etc/hostname"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(tree.join("link")).unwrap();
        symlink("etc/passwd", tree.join("link")).unwrap();
    })
    .unwrap();
    let told = onefold("guest diff", &[&one.image, &two.image]).done().out;
    let expected = "package tool amd64: 1.0 -> 1.1\n\
        changed: /link (target etc/hostname -> etc/passwd)\n\
        changed: /etc/hostname (mode 0644 -> 0600)\n\
        only in the second: /etc/new\n\
        only in the first: /srv/deep/\n\
        changed: /srv/sizes/4096 (content)\n\
        changed: /var/lib/dpkg/status (content)\n";
    assert_eq!(told, expected);
    let json = onefold("guest diff --json --content", &[&one.image, &two.image]).done().json();
    assert_eq!(json["differences"].as_array().unwrap().len(), 7);
    assert_eq!(json["differences"][4]["only_in"], "one");
    let below = onefold("guest diff --below /etc", &[&one.image, &two.image]).done().out;
    assert_eq!(below.lines().count(), 3);
    assert_eq!(onefold("guest diff", &[&one.image, &one.image]).done().out, "");
}

#[test]
fn tar_keeps_all_that_tar_can() {
    let Some(fixture) = Fixture::new() else { return };
    if !has("tar", "tar") || !has("getfattr", "attr") || !rustix::process::geteuid().is_root() {
        return;
    }
    let archive = fixture.folder.path("saved.tar");
    let unpacked = fixture.folder.path("unpacked");
    fs::create_dir(&unpacked).unwrap();
    let script =
        "\"$0\" guest tar \"$1\" / /etc/passwd >\"$2\" && tar -C \"$3\" -xpf \"$2\" --xattrs --xattrs-include='*'";
    run("sh", &["-c", script, env!("CARGO_BIN_EXE_onefold"), text(&fixture.image), text(&archive), text(&unpacked)]);
    fs::remove_dir(unpacked.join("lost+found")).unwrap();
    let list = "cd \"$0\" && find . ! -type d -printf '%P %y %m %U %G %s %n %T@ %l\\n' | sed 's/\\.[0-9]\\{10\\}//' | sort && find . -type d -printf '%P %m %U\\n' | sort";
    let of = |folder: &Path| run("sh", &["-c", list, text(folder)]);
    assert_eq!(of(&unpacked), of(&fixture.tree));
    run("diff", &["-r", "--no-dereference", text(&fixture.tree), text(&unpacked)]);
    let blocks = |path: PathBuf| fs::metadata(path).unwrap().blocks();
    assert!(blocks(unpacked.join("srv/sparse")) < 1000, "the holes are kept");
    let attributes = run(
        "getfattr",
        &["--absolute-names", "--only-values", "-n", "user.note", text(&unpacked.join("etc/hostname"))],
    );
    assert_eq!(attributes, "kept");
    fixture.guest("tar --json", &["/etc"]).failed_usage();
    fixture.guest("tar", &["/gone"]).failed(FAILED, "/gone");
}

#[test]
fn a_qcow2_image_is_the_disk_that_it_holds() {
    let Some(fixture) = Fixture::new() else { return };
    if !has("qemu-img", "qemu-utils") {
        return;
    }
    let qcow2 = fixture.folder.path("guest.qcow2");
    run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", text(&fixture.image), text(&qcow2)]);
    for (verb, path) in [("ls -lR", "/"), ("who", "2M"), ("du", "/srv"), ("cat", "/etc/passwd")] {
        let of = |image: &Path| onefold(&format!("guest {verb}"), &[image, Path::new(path)]).done().out;
        assert_eq!(of(&qcow2), of(&fixture.image), "{verb}");
    }
    // The places in the file are those of the content.
    let map = |image: &Path| onefold("guest map --json", &[image, Path::new("/srv/sizes/300000")]).done().json();
    let content = fs::read(fixture.tree.join("srv/sizes/300000")).unwrap();
    for image in [&qcow2, &fixture.image] {
        let file = fs::File::open(image).unwrap();
        let (map, mut read) = (map(image), 0);
        for extent in map["extents"].as_array().unwrap() {
            let [offset, place, length] = ["offset", "in_file", "length_bytes"]
                .map(|name| usize::try_from(extent[name].as_u64().unwrap()).unwrap());
            let mut bytes = vec![0; length.min(content.len() - offset)];
            file.read_exact_at(&mut bytes, place as u64).unwrap();
            assert!(bytes == content[offset..offset + bytes.len()], "{extent}");
            read += bytes.len();
        }
        assert_eq!(read, content.len());
    }
    let top = fixture.folder.path("top.qcow2");
    run("qemu-img", &["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", "guest.qcow2", text(&top)]);
    assert_eq!(map(&top)["extents"][0]["in_file"], Value::Null, "in another file of the chain");
}

trait FailedUsage {
    fn failed_usage(self);
    fn failed_somehow(self);
}

impl FailedUsage for Run {
    #[track_caller]
    fn failed_somehow(self) {
        assert!((self.code == FAILED || self.code == DAMAGE) && self.err.contains("error: "), "{self:?}");
    }

    #[track_caller]
    fn failed_usage(self) {
        assert_eq!(self.code, USAGE, "{self:?}");
    }
}

#[test]
fn what_is_not_there_is_told_with_what_is() {
    let Some(fixture) = Fixture::new() else { return };
    let missing = fixture.guest("cat", &["/etc/paswd"]).failed(FAILED, "/etc/paswd");
    assert!(missing.err.contains("no such file or directory") && missing.err.contains("`/etc/passwd`"), "{missing:?}");
    fixture.guest("cat", &["/etc"]).failed(FAILED, "it is a directory");
    fixture.guest("cat", &["/ring-a"]).failed(FAILED, "too many levels of symbolic links");
    fixture.guest("ls", &["/etc/passwd/x"]).failed(FAILED, "not a directory");
    fixture.guest("ls --partition 2", &[]).failed(FAILED, "there is no partition 2");
    fixture.guest("ls --volume vg/root", &[]).failed(FAILED, "there is no volume vg/root");
    fixture.guest("ls --partition 1 --volume vg/root", &[]).failed_usage();
    fixture.guest("ls --memory 1M", &[]).failed_usage();
    fixture.guest("ls -0 --json", &[]).failed_usage();
    assert_eq!(lines(&fixture.guest("ls --partition 1", &["/etc"]).done()), ["hostname", "passwd"]);
    let some = fixture.guest("cat", &["/etc/hostname", "/gone", "/srv/deep/a/b/c/file"]);
    assert_eq!((some.code, some.out.as_str()), (FAILED, "test\ndeep"), "the rest goes on");
}

#[test]
fn what_holds_no_guest_is_never_called_empty() {
    let folder = Folder::new();
    let (empty, words, zeros) = (folder.path("empty.raw"), folder.path("words.raw"), folder.path("zeros.raw"));
    fs::write(&empty, "").unwrap();
    fs::write(&words, "just a text\n".repeat(1000)).unwrap();
    fs::write(&zeros, vec![0; 2 << 20]).unwrap();
    for image in [&words, &zeros] {
        let volume = &onefold("guest info --json", &[image]).done().json()["images"][0]["volumes"][0];
        assert_eq!((&volume["state"], &volume["free_bytes"]), (&"unknown".into(), &0.into()), "{volume}");
        onefold("guest ls", &[image]).failed(FAILED, "no file system on this disk can be read");
    }
    let image = &onefold("guest info --json", &[&empty]).done().json()["images"][0];
    assert_eq!(image["volumes"].as_array().map(Vec::len), Some(0));
    onefold("guest ls", &[&empty]).failed(FAILED, "the disk is empty");
    onefold("guest info", &[&folder.path("gone")]).failed(FAILED, "gone");
    onefold("guest ls", &[&folder.path("")]).failed(FAILED, "neither a file");
}

#[test]
fn an_image_that_a_machine_uses_is_read_and_told() {
    let Some(fixture) = Fixture::new() else { return };
    if !has("python3", "python3") {
        return;
    }
    assert_eq!(fixture.guest("df --json", &[]).done().json()["in_use"], false);
    // The lock of QEMU, held until the program is told to end.
    let program = "import fcntl, sys\nfile = open(sys.argv[1], 'r+b')\nfcntl.lockf(file, fcntl.LOCK_SH, 1, 101)\nprint(flush=True)\nsys.stdin.read()";
    let mut holder = Command::new("python3")
        .args(["-c", program, text(&fixture.image)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Read::read(holder.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let used = fixture.guest("df --json", &[]).done();
    assert_eq!((&used.json()["in_use"], &used.json()["file_systems"][0]["in_use"]), (&true.into(), &true.into()));
    assert!(used.err.contains("is in use"), "{used:?}");
    assert!(fixture.guest("cat", &["/etc/hostname"]).done().out == "test\n");
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
}

/// What a guest can do to its own file system, and what breaks on the way.
#[test]
fn a_damaged_guest_is_read_as_far_as_it_goes() {
    let Some(fixture) = Fixture::new() else { return };
    let image = format!("{}?offset={PARTITION_BYTES}", text(&fixture.image));
    let edit = |request: &str| run("debugfs", &["-w", "-R", request, &image]);
    // A folder that contains itself.
    edit("link /srv/deep /srv/deep/a/again");
    let listed = fixture.guest("ls -R", &["/srv/deep"]);
    assert_eq!(listed.code, DAMAGE, "{listed:?}");
    assert!(listed.out.contains("/srv/deep/a/b/c:\nfile") && listed.err.contains("/srv/deep/a/again"), "{listed:?}");
    assert_eq!(fixture.guest("du", &["/srv/deep"]).code, DAMAGE);
    // A file of an absurd length.
    edit("set_inode_field /srv/sizes/1 size 0xfffffffffff");
    let found = fixture.guest("find --larger 1T", &[]);
    assert_eq!(found.out, "/srv/sizes/1\n");
    // An entry that leads nowhere.
    edit("clri /srv/sizes/4095");
    let content = fixture.guest("cat", &["/srv/sizes/4095", "/etc/hostname"]);
    assert!(content.code != DONE && content.out == "test\n" && content.err.contains("/srv/sizes/4095"), "{content:?}");
    // Half an image.
    let file = OpenOptions::new().write(true).open(&fixture.image).unwrap();
    file.set_len(9 << 20).unwrap();
    let info = fixture.guest("info --json", &[]);
    let volume = &info.json()["images"][0]["volumes"][0];
    assert_eq!((&volume["free_bytes"], volume["state"] == "certain"), (&0.into(), false), "{volume}");
    for length in [PARTITION_BYTES + 1500, 513, 512, 100] {
        file.set_len(length).unwrap();
        let info = fixture.guest("info --json", &[]);
        assert_eq!(info.json()["images"][0]["free_bytes"], 0, "{length}");
        fixture.guest("ls", &[]).failed_somehow();
    }
}

/// Names of files, links, packages, labels and images are all somebody else's.
#[test]
fn no_verb_prints_what_controls_a_terminal() {
    let Some(fixture) = Fixture::with(|tree| {
        add_packages(tree, "1.0\u{1b}[2J");
        fs::write(tree.join("etc/hostname"), "host\u{1b}[31m\u{202e}\n").unwrap();
        fs::write(tree.join("etc/os-release"), "PRETTY_NAME=\"\u{1b}]0;title\u{7}\"\n").unwrap();
        symlink(OsStr::from_bytes(HOSTILE), tree.join("srv/to-hostile")).unwrap();
    }) else {
        return;
    };
    let image = fixture.folder.path("image").join(OsStr::from_bytes(HOSTILE));
    fs::create_dir(image.parent().unwrap()).unwrap();
    fs::copy(&fixture.image, &image).unwrap();
    let offset = format!("{}?offset={PARTITION_BYTES}", text(&fixture.image));
    run("debugfs", &["-w", "-R", "set_super_value volume_name \u{1b}[2Jlabel", &offset]);
    let both = [image.as_path(), fixture.image.as_path()];
    let hostile = Path::new(OsStr::from_bytes(b"/srv/evil\n\x1b]0;title\x07\xff"));
    let runs: [(&str, &[&Path]); 16] = [
        ("info --stale", &both),
        ("df", &both),
        ("ls -lR", &both[..1]),
        ("ls", &[&image, hostile]),
        ("ls", &[&image, Path::new("/gone\u{1b}[2J")]),
        ("cat", &[&image, Path::new("/srv/\u{1b}")]),
        ("map", &[&image, hostile]),
        ("who 0", &both[..1]),
        ("du", &both[..1]),
        ("find", &both),
        ("find --unowned --json", &both),
        ("packages --files --history", &both),
        ("packages --verify", &both),
        ("diff", &both),
        ("info --json", &both),
        ("ls --volume \u{1b}[2J/x", &both[..1]),
    ];
    for (verb, paths) in runs {
        let words = verb.split(' ').map(OsStr::new);
        // A place on the disk comes after the image.
        let (before, after): (Vec<_>, Vec<_>) = words.partition(|word| *word != "0");
        let output =
            Command::new(env!("CARGO_BIN_EXE_onefold")).arg("guest").args(before).args(paths).args(after).output();
        let output = output.unwrap();
        for printed in [output.stdout, output.stderr] {
            let printed = String::from_utf8(printed).unwrap_or_else(|error| panic!("{verb}: {error}"));
            let hidden = printed.chars().find(|character| is_hidden(*character) && *character != '\n');
            assert_eq!(hidden, None, "{verb}: {printed:?}");
        }
    }
}

/// A disk with a system on its first partition, and something else on its second.
fn two_partitions(folder: &Folder, name: &str, first: &Path, second: &Path) -> PathBuf {
    let image = folder.path(name);
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let mut table = [0; 512];
    for (slot, (start_mib, tree, label)) in [(1, first, "root"), (33, second, "home")].into_iter().enumerate() {
        let offset = format!("offset={}", start_mib << 20);
        run("mke2fs", &["-q", "-F", "-t", "ext4", "-L", label, "-E", &offset, "-d", text(tree), text(&image), "31M"]);
        let at = 446 + slot * 16;
        table[at + 4] = 0x83;
        table[at + 8..at + 12].copy_from_slice(&(start_mib * 2048_u32).to_le_bytes());
        table[at + 12..at + 16].copy_from_slice(&(31 * 2048_u32).to_le_bytes());
    }
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    OpenOptions::new().write(true).open(&image).unwrap().write_all_at(&table, 0).unwrap();
    image
}

#[test]
fn paths_are_those_of_the_guest_across_its_volumes() {
    if !has("mke2fs", "e2fsprogs") {
        return;
    }
    let folder = Folder::new();
    let (root, home) = (folder.path("root"), folder.path("home"));
    for (tree, file, content) in [
        (&root, "etc/os-release", "ID=test\n"),
        (&root, "etc/fstab", "LABEL=root / ext4 defaults 0 1\nLABEL=home /home ext4 defaults 0 2\n"),
        (&root, "home/hidden", "below the mount"),
        (&home, "user/letter", "dear reader\n"),
    ] {
        let path = tree.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    symlink("/etc/fstab", home.join("user/link")).unwrap();
    let image = two_partitions(&folder, "two.raw", &root, &home);
    let guest = |verb: &str, paths: &[&str]| {
        let paths: Vec<&Path> = std::iter::once(image.as_path()).chain(paths.iter().map(Path::new)).collect();
        onefold(&format!("guest {verb}"), &paths)
    };
    assert_eq!(lines(&guest("ls", &["/home"]).done()), ["lost+found", "user"]);
    assert_eq!(guest("cat", &["/home/user/letter", "/home/user/link"]).done().out.lines().count(), 3);
    let map = guest("map --json", &["/home/user/letter"]).done().json();
    assert_eq!(map["volume"], "partition 2");
    let place = map["extents"][0]["place"].as_u64().unwrap();
    let mut there = [0; 12];
    fs::File::open(&image).unwrap().read_exact_at(&mut there, place).unwrap();
    assert_eq!(&there, b"dear reader\n");
    let owner = guest("who", &[&place.to_string()]).done().out;
    assert!(owner.contains("partition 2, ") && owner.contains("/user/letter (number"), "{owner}");
    assert_eq!(guest("find --name letter", &[]).done().out, "/home/user/letter\n");
    assert_eq!(guest("cat --partition 2", &["/user/letter"]).done().out, "dear reader\n");
    assert_eq!(guest("ls --partition 1", &["/home"]).done().out, "hidden\n");
    let info = guest("info", &[]).done().out;
    assert!(info.contains("  / is partition 1\n") && info.contains("  /home is partition 2\n"), "{info}");
    assert_eq!(guest("df --json --partition 2", &[]).done().json()["file_systems"].as_array().unwrap().len(), 1);

    let twice = two_partitions(&folder, "twice.raw", &root, &root);
    let told = onefold("guest ls", &[&twice]).failed(FAILED, "there are systems on partition 1 and on partition 2");
    assert!(told.err.contains("--partition"), "{told:?}");
    assert_eq!(onefold("guest ls --partition 2", &[&twice, Path::new("/home")]).done().out, "hidden\n");
    let none = two_partitions(&folder, "none.raw", &home, &home);
    let told = onefold("guest ls", &[&none]).failed(FAILED, "several file systems, and no system");
    assert!(told.err.contains("partition 1 (ext4), partition 2 (ext4)"), "{told:?}");
}

#[test]
fn help_lists_the_verbs() {
    let help = onefold("guest --help", &[]).done().out;
    for verb in ["info", "df", "ls", "cat", "map", "who", "du", "find", "packages", "diff", "tar"] {
        assert!(help.contains(&format!("\n  {verb} ")), "{verb} is not in {help}");
    }
}

/// Each kind of file system that is read, from its own tools to a file's owner.
#[test]
fn every_file_system_that_is_read_is_opened_by_what_it_is() {
    let Some(fixture) = Fixture::new() else { return };
    let shell = r#"
        set -e; cd "$0"; image=$1; kind=$2; tree=$3; truncate -s 320M "$image"
        case $kind in
        ext2) mke2fs -q -F -t ext2 -d "$tree" "$image" ;;
        xfs) printf '/\n0 0\nd--755 0 0\nfile ---644 0 0 %s\n$\n' "$tree/file" >proto; mkfs.xfs -q -p proto "$image" ;;
        ntfs) mkntfs -q -F "$image" >/dev/null 2>&1; ntfscp -q "$image" "$tree/file" file ;;
        fat32) mkfs.fat -F 32 "$image" >/dev/null; mcopy -i "$image" "$tree/file" ::/file ;;
        esac"#;
    let tree = fixture.folder.path("one-file");
    fs::create_dir(&tree).unwrap();
    fs::copy(fixture.tree.join("srv/sizes/300000"), tree.join("file")).unwrap();
    let content = fs::read(tree.join("file")).unwrap();
    let tools = [
        ("ext2", ["mke2fs", "debugfs"]),
        ("xfs", ["mkfs.xfs"; 2]),
        ("ntfs", ["mkntfs", "ntfscp"]),
        ("fat32", ["mkfs.fat", "mcopy"]),
    ];
    let are_there = |(_, tools): &(&str, [&str; 2])| tools.iter().all(|tool| has(tool, "and its package"));
    for (kind, _) in tools.into_iter().filter(are_there) {
        let image = fixture.folder.path(kind);
        run("sh", &["-c", shell, text(&fixture.folder.path("")), kind, kind, text(&tree)]);
        let found = onefold("guest df --json", &[&image]).done().json();
        assert_eq!(found["file_systems"][0]["type"], kind);
        let written =
            Command::new(env!("CARGO_BIN_EXE_onefold")).args(["guest", "cat", text(&image), "/file"]).output();
        assert!(written.unwrap().stdout == content, "{kind}");
        let map = onefold("guest map --json", &[&image, Path::new("/file")]).done().json();
        let place = map["extents"][0]["place"].as_u64().unwrap();
        let owner = &onefold("guest who --json", &[&image, Path::new(&place.to_string())]).done().json()["owners"][0];
        assert_eq!(owner["files"][0]["names"][0]["path"], "/file", "{kind}: {owner}");
        let info = onefold("guest info --json", &[&image]).done().json();
        assert!(info["images"][0]["free_bytes"].as_u64().unwrap() > 200 << 20, "{kind}: {info}");
    }
}

/// A reader that has had enough is no failure.
#[test]
fn a_closed_pipe_ends_a_list_quietly() {
    let Some(fixture) = Fixture::new() else { return };
    for verb in [&["ls", "-lR"][..], &["find"], &["cat"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_onefold"))
            .arg("guest")
            .args(verb)
            .arg(&fixture.image)
            .args((verb == ["cat"]).then_some("/srv/sparse"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(DONE), &b""[..]), "{verb:?}");
    }
}
