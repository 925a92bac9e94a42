//! `onefold guest` as its users have it: what it tells of an image is what the file system's own tools tell, and what
//! goes wrong is told. Images are made by `mke2fs`; `debugfs` is the oracle.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bad;
#[path = "../common/mod.rs"]
mod common;
mod disks;
mod files;
mod lvm;
mod memory;
mod packages;
mod places;
mod trouble;
mod unread;

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
pub(crate) const PARTITION_BYTES: u64 = 1 << 20;
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// A name that forges a line and retitles a terminal, in bytes that are not UTF-8.
pub(crate) const HOSTILE: &[u8] = b"evil\n\x1b]0;title\x07\xff";

/// A folder with an image of a partition with ext4, and the tree that was put into it.
pub(crate) struct Fixture {
    pub(crate) folder: Folder,
    pub(crate) image: PathBuf,
    pub(crate) tree: PathBuf,
}

impl Fixture {
    /// Returns `None`, and says so, where the tools are missing.
    pub(crate) fn new() -> Option<Fixture> {
        Fixture::with(|_| {})
    }

    /// As [`Fixture::new`], with a tree that is changed before it becomes an image.
    pub(crate) fn with(change: impl FnOnce(&Path)) -> Option<Fixture> {
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
    pub(crate) fn guest(&self, verb: &str, paths: &[&str]) -> Run {
        let mut all = vec![self.image.as_path()];
        all.extend(paths.iter().map(Path::new));
        onefold(&format!("guest {verb}"), &all)
    }

    /// Returns what `debugfs` prints for a request.
    pub(crate) fn debugfs(&self, request: &str) -> String {
        let image = format!("{}?offset={PARTITION_BYTES}", text(&self.image));
        run("debugfs", &["-R", request, &image])
    }

    /// Returns the blocks of a file, by `debugfs`.
    pub(crate) fn blocks(&self, path: &str) -> Vec<u64> {
        self.debugfs(&format!("blocks {path}")).split_whitespace().map(|block| block.parse().unwrap()).collect()
    }
}

/// Fills a folder with files of all sizes that matter, links, and odd names.
pub(crate) fn fill(tree: &Path) {
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
pub(crate) fn make_image(image: &Path, tree: &Path) {
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

pub(crate) fn lines(run: &Run) -> Vec<&str> {
    run.out.lines().collect()
}

/// Adds a system with dpkg's database: a program that is found through a link, and a configuration file.
pub(crate) fn add_packages(tree: &Path, version: &str) {
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

pub(crate) trait FailedUsage {
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
