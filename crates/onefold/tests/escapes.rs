//! Names chosen by somebody else, and what other programs say of them: none of it reaches the terminal as it is.
//!
//! Every run here is over files, pools, folders and images whose names hold escape sequences, newlines, bidirectional
//! controls and bytes that are not UTF-8.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use common::{DAMAGE, Folder, onefold as tame};
use onefold_block::shown::is_hidden;
use serde_json::Value;

/// The beginning of a line that only a name could have brought.
const FORGED: &str = "error: forged";

/// Names that do harm where they are printed.
fn hostile_names() -> Vec<OsString> {
    let names: [&[u8]; 6] = [
        b"a\x1b]0;title\x07\x1b[2J\x1b[31m.raw",
        b"b\nerror: forged\r.raw",
        "c\u{202e}war.d\u{2066}\u{61c}.raw".as_bytes(),
        b"d\xff\x9b31m\xc3.raw",
        "e\u{9b}31m\u{85}\u{7f}\u{8}.raw".as_bytes(),
        "f\u{2028}error: forged\u{200b}\u{feff}.raw".as_bytes(),
    ];
    names.map(|name| OsStr::from_bytes(name).to_owned()).to_vec()
}

/// What a run printed, which is fit for a terminal.
struct PrintedOutput {
    out: String,
    err: String,
    code: i32,
}

impl PrintedOutput {
    /// Returns both streams.
    fn all(&self) -> String {
        format!("{}{}", self.out, self.err)
    }

    #[track_caller]
    fn done(self) -> PrintedOutput {
        assert_eq!(self.code, 0, "{}", self.all());
        self
    }

    #[track_caller]
    fn failed(self) -> PrintedOutput {
        assert!(self.code != 0 && !self.err.is_empty(), "{} {}", self.code, self.all());
        self
    }

    #[track_caller]
    fn found_damage(self) -> PrintedOutput {
        assert_eq!(self.code, DAMAGE, "{}", self.all());
        self
    }

    /// Asserts that `part` is printed: a run that says nothing of a name shows nothing here.
    #[track_caller]
    fn names(self, part: &str) -> PrintedOutput {
        assert!(self.all().contains(part), "{part} is not in {}", self.all());
        self
    }
}

/// Runs the program and asserts that nothing it prints controls a terminal.
#[track_caller]
fn onefold(arguments: &str, names: &[&OsStr]) -> PrintedOutput {
    of(Command::new(env!("CARGO_BIN_EXE_onefold")).args(arguments.split_whitespace()).args(names))
}

#[track_caller]
fn of(command: &mut Command) -> PrintedOutput {
    let output = command.output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            panic!("{command:?} printed what is not UTF-8: {:?}", error.as_bytes().escape_ascii().to_string())
        }
    });
    for text in [&out, &err] {
        let hidden = text.chars().find(|&character| is_hidden(character) && character != '\n');
        assert_eq!(hidden, None, "{command:?} printed {text:?}");
        assert!(!text.lines().any(|line| line.trim_start().starts_with(FORGED)), "{command:?} printed {text}");
    }
    PrintedOutput { out, err, code: output.status.code().unwrap() }
}

/// Makes an image of each name in a folder whose name is hostile too.
fn images(folder: &Folder) -> Vec<PathBuf> {
    let place = folder.path("images\u{1b}[1m\n");
    fs::create_dir(&place).unwrap();
    let image = folder.image("tame.raw", 1, 0);
    let names = hostile_names();
    let made = names.iter().map(|name| {
        let path = place.join(name);
        fs::copy(&image, &path).unwrap();
        path
    });
    made.collect()
}

fn os(path: &impl AsRef<OsStr>) -> &OsStr {
    path.as_ref()
}

#[test]
fn an_analysis_shows_names() {
    let folder = Folder::new();
    let images = images(&folder);
    let all: Vec<&OsStr> = images.iter().map(os).collect();
    let parts = [r"a\x1b]0;title\x07\x1b[2J\x1b[31m.raw", r"b\nerror: forged\r.raw", r"c\u{202e}war.d\u{2066}\u{61c}"];
    let mut printed = onefold("analyze --details", &all).done();
    for part in parts {
        printed = printed.names(part);
    }
    printed.names(r"/images\x1b[1m\n/").names(r"e\u{9b}31m\u{85}\x7f\x08.raw");
    onefold("analyze --details --sample=50%", &all).done().names(parts[0]);
    onefold("analyze --details", &[images[0].parent().unwrap().as_os_str()]).done().names(parts[1]);
    // One twice, and one that is gone.
    let gone = folder.path("gone\u{1b}[31m");
    onefold("analyze", &[all[0], all[0], os(&gone)]).names("is the same as").names(r"gone\x1b[31m: No such file");
    onefold("analyze", &[os(&gone)]).failed().names(r"gone\x1b[31m");
    let group = OsStr::new("--group=g\u{1b}[1m\u{202e}=*");
    onefold("analyze --details", &[group, all[0]]).done().names(r"g\x1b[1m\u{202e}");
    for name in hostile_names() {
        onefold("analyze --temporary", &[&name, all[0]]);
        onefold("analyze --report", &[os(&folder.path("gone").join(&name)), all[0]]).failed().names("cannot write");
    }
}

/// A program that reads a document gets the name itself.
#[test]
fn documents_hold_names_as_they_are() {
    let folder = Folder::new();
    let images = images(&folder);
    let all: Vec<&OsStr> = images.iter().map(os).collect();
    let printed = onefold("analyze --json", &all).done();
    let document: Value = serde_json::from_str(&printed.out).unwrap();
    for (image, path) in document["images"].as_array().unwrap().iter().zip(&images) {
        assert_eq!(image["name"], String::from_utf8_lossy(path.as_os_str().as_bytes()).as_ref());
    }
    let pool = folder.pool();
    let imported = onefold("pool import --json", &[&[os(&pool)], all.as_slice()].concat()).done();
    let imported: Value = serde_json::from_str(&imported.out).unwrap();
    assert_eq!(imported["images"][0]["source"].as_str(), images[0].to_str());
    assert_eq!(imported["images"][0]["name"].as_str(), hostile_names()[0].to_str());
    let failed = onefold("pool import --json", &[os(&pool), all[0]]).failed();
    let failed: Value = serde_json::from_str(&failed.out).unwrap();
    assert!(failed["error"].as_str().unwrap().contains(r"a\x1b]0;title"), "{failed}");
}

#[test]
fn the_page_of_an_analysis_shows_names() {
    let folder = Folder::new();
    let image = folder.image("tame.raw", 1, 0);
    let paths = ["\"><img>\u{202e}\u{2066}.raw", "\u{1b}[31m'\u{9b}\n&.raw"].map(|name| folder.path(name));
    for path in &paths {
        fs::copy(&image, path).unwrap();
    }
    let page = folder.path("page.html");
    let report = [OsStr::new("--report"), os(&page)];
    onefold("analyze", &[&report[..], &paths.each_ref().map(os)].concat()).done();
    let page = fs::read_to_string(page).unwrap();
    let hidden = page.chars().find(|&character| is_hidden(character) && character != '\n');
    assert_eq!(hidden, None, "{page}");
    assert!(page.contains(r"&quot;&gt;&lt;img&gt;\u{202e}\u{2066}.raw") && !page.contains("<img"), "{page}");
}

#[test]
fn the_verbs_of_pools_show_names() {
    let folder = Folder::new();
    let images = images(&folder);
    for place in ["of", "exported"] {
        fs::create_dir(folder.path(place)).unwrap();
    }
    // The verbs wait for seconds in all, so names are tried side by side.
    thread::scope(|scope| {
        for (image, name) in images.iter().zip(hostile_names()) {
            let folder = &folder;
            scope.spawn(move || verbs_of_a_pool_show(folder, image, &name));
        }
    });
}

/// Calls each verb of pools with a name, in places of its own.
fn verbs_of_a_pool_show(folder: &Folder, image: &Path, name: &OsStr) {
    let pool = folder.path("of").join(name);
    onefold("pool create --size 64M", &[os(&pool)]).done().names("created a pool");
    onefold("pool create --size 64M", &[os(&pool)]).failed();
    onefold("pool import", &[os(&pool), os(&image)]).done();
    onefold("pool import", &[os(&pool), os(&image)]).failed().names("cannot import");
    onefold("pool stat", &[os(&pool), name]).done();
    onefold("pool stat", &[os(&pool), OsStr::new("x\u{1b}[31m")]).failed().names(r"x\x1b[31m");
    let pattern = [name.as_bytes(), b"%d"].concat();
    onefold("pool clone --count 2", &[os(&pool), name, OsStr::from_bytes(&pattern)]).done();
    onefold("pool clone", &[os(&pool), name, name]).failed().names("cannot clone");
    onefold("pool clone --count 2", &[os(&pool), name, name]).failed().names("cannot number");
    let export = folder.path("exported").join(name);
    let nowhere = folder.path("gone").join(name);
    onefold("pool export", &[os(&pool), name, os(&nowhere)]).failed().names("cannot write");
    onefold("pool export", &[os(&pool), name, os(&export)]).done();
    for verb in ["check", "scrub", "trim", "grow", "dedup"] {
        onefold(&format!("pool {verb}"), &[os(&pool)]);
        onefold(&format!("pool {verb}"), &[os(&folder.path("gone").join(name))]).failed();
    }
    onefold("pool umount", &[os(&pool)]).failed();
    onefold("pool mount", &[os(&pool), os(&folder.path("gone").join(name))]).failed().names("cannot use");
    onefold("pool mount", &[os(&folder.path("gone").join(name)), os(&folder.path("of"))]).failed();
    onefold("man-pages", &[os(&image.join(name))]).failed();
    fs::remove_file(pool).unwrap();
}

#[test]
fn the_verbs_of_sharing_show_names() {
    let folder = Folder::new();
    let images = images(&folder);
    for (image, name) in images.iter().zip(hostile_names()) {
        let gone = folder.path("gone").join(&name);
        for verb in ["run", "status", "index", "explain", "exclude", "include", "mend", "watch"] {
            onefold(&format!("share {verb}"), &[os(&gone)]).failed();
        }
        // Whether it is done is the file system's affair; a folder without any state is told of.
        onefold("share status", &[os(image)]);
        onefold("share status --json", &[os(image)]);
        onefold("share explain", &[os(image)]);
        onefold("share explain --json", &[os(image)]);
        onefold("share clone", &[os(image), os(&gone)]).failed().names("cannot open");
        onefold("share run", &[os(image), OsStr::new("/proc")]).failed().names("different file systems");
    }
}

#[test]
fn errors_of_usage_show_arguments() {
    for name in hostile_names() {
        for words in ["", "pool", "share", "pool create --size", "pool create x --no-such", "analyze --format"] {
            onefold(words, &[&name, OsStr::new("x")]).failed();
        }
        let flag = [b"--".as_slice(), name.as_bytes()].concat();
        onefold("pool stat", &[OsStr::from_bytes(&flag), OsStr::new("x")]).failed();
    }
    onefold("pool", &[OsStr::new("\u{1b}[31mx")]).failed().names(r"'\x1b[31mx'");
    let mut helper = Command::new(env!("CARGO_BIN_EXE_onefold"));
    std::os::unix::process::CommandExt::arg0(&mut helper, "mount.fuse.onefold");
    of(helper.args(["x", "/gone", "-o", "\u{1b}[31mx\u{202e}"])).failed().names(r"\x1b[31mx\u{202e}");
}

/// Returns a qcow2 image of a mebibyte, of the second version of the format, that names a backing file.
fn qcow2_upon(backing: &[u8]) -> Vec<u8> {
    let mut image = vec![0; 4 << 16];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"QFI\xfb");
    put(4, &2_u32.to_be_bytes());
    put(8, &512_u64.to_be_bytes());
    put(16, &u32::try_from(backing.len()).unwrap().to_be_bytes());
    put(20, &16_u32.to_be_bytes());
    put(24, &(1_u64 << 20).to_be_bytes());
    put(36, &1_u32.to_be_bytes());
    put(40, &(3_u64 << 16).to_be_bytes());
    put(48, &(1_u64 << 16).to_be_bytes());
    put(56, &1_u32.to_be_bytes());
    put(512, backing);
    put(1 << 16, &(2_u64 << 16).to_be_bytes());
    for cluster in 0..4 {
        put((2 << 16) + cluster * 2, &1_u16.to_be_bytes());
    }
    image
}

#[test]
fn backing_files_that_an_image_names_are_shown() {
    let folder = Folder::new();
    let pool = folder.pool();
    let image = folder.path("top.qcow2");
    for name in hostile_names() {
        fs::write(&image, qcow2_upon(name.as_bytes())).unwrap();
        onefold("analyze", &[os(&image)]).failed().names("top.qcow2");
        onefold("analyze --json", &[os(&image)]).failed();
        onefold("pool import", &[os(&pool), os(&image)]).failed().names("top.qcow2");
        onefold("pool import --json", &[os(&pool), os(&image)]).failed();
    }
    fs::write(&image, qcow2_upon(b"\x1b[31mbacking")).unwrap();
    onefold("pool import", &[os(&pool), os(&image)]).failed().names(r"\x1b[31mbacking");
}

/// A program in the place of `qemu-img`, which quotes names of files in its messages.
#[test]
fn messages_of_other_programs_are_shown() {
    let folder = Folder::new();
    let pool = folder.pool();
    let programs = folder.path("programs");
    fs::create_dir(&programs).unwrap();
    let program = programs.join("qemu-img");
    let complaint = r"printf 'qemu-img: \033]0;x\007\033[31m\nerror: forged\r\342\200\256 \377\nlast' >&2; exit 1";
    fs::write(&program, format!("#!/bin/sh\n{complaint}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let image = folder.image("a.vdi", 1, 0);
    let run = |arguments: &str, paths: &[&Path]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onefold"));
        of(command.env("PATH", &programs).args(arguments.split_whitespace()).args(paths)).failed()
    };
    let shown = r"qemu-img: \x1b]0;x\x07\x1b[31m; error: forged";
    run("pool import --format vdi", &[&pool, &image]).names(shown).names("; last");
    run("analyze --format vdi", &[&image]).names(shown);
    run("analyze --json --format vdi", &[&image]);
}

/// Names of files in a damaged pool.
#[test]
fn a_check_shows_the_names_of_damaged_files() {
    let folder = Folder::new();
    let pool = folder.pool();
    let image = folder.path("a\u{1b}[31m\u{202e}\nb.raw");
    let content: Vec<u8> = (0..1 << 18).flat_map(|number: u32| number.to_le_bytes()).collect();
    fs::write(&image, &content).unwrap();
    tame("pool import", &[&pool, &image]);
    let mut bytes = fs::read(&pool).unwrap();
    let block = &content[512 << 10..(512 << 10) + 4096];
    let at = bytes.chunks_exact(4096).position(|chunk| chunk == block).unwrap() * 4096;
    bytes[at] ^= 0xff;
    fs::write(&pool, bytes).unwrap();
    onefold("pool check --data", &[os(&pool)]).found_damage().names(r"a\x1b[31m\u{202e}\nb.raw");
    onefold("pool check --data --json", &[os(&pool)]).found_damage();
    onefold("pool scrub", &[os(&pool)]).found_damage().names(r"a\x1b[31m\u{202e}\nb.raw");
}
