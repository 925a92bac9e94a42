//! Archives of images through the command line, without a mount and as any user.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{DAMAGE, FAILED, Folder, Run, USAGE, equal, onefold, text};
use serde_json::Value;

/// Runs `onefold` with whole arguments.
fn call(arguments: &[&str]) -> Run {
    Run::of(Command::new(env!("CARGO_BIN_EXE_onefold")).args(arguments).output().unwrap())
}

fn archive(folder: &Folder) -> PathBuf {
    let archive = folder.path("archive");
    onefold("archive create", &[&archive]).done();
    archive
}

fn capture(archive: &Path, image: &Path, name: &str) -> Value {
    let run = call(&["image", "capture", "--json", text(archive), text(image), name]).done();
    run.json()["images"][0].clone()
}

fn number(document: &Value, member: &str) -> u64 {
    document[member].as_u64().unwrap_or_else(|| panic!("no {member} in {document}"))
}

#[test]
fn an_image_goes_in_once_and_comes_out_whole() {
    let folder = Folder::new();
    let archive = archive(&folder);
    let image = folder.image("web.raw", 1, 1);
    let first = capture(&archive, &image, "web");
    assert_eq!((first["image"].as_str(), number(&first, "version")), (Some("web@1"), 1));
    let size = fs::metadata(&image).unwrap().len();
    assert_eq!(number(&first, "size_bytes"), size);
    let parts = ["free_bytes", "zero_bytes", "data_bytes"].map(|member| number(&first, member));
    assert_eq!(parts.iter().sum::<u64>(), size, "{first}");
    assert_eq!(parts[2], 4 << 20, "{first}");
    assert!(number(&first, "new_bytes") <= 2 << 20, "the second half equals the first: {first}");

    // The same content at another place, under another name.
    let other = capture(&archive, &folder.image("db.raw", 1, 2), "db");
    assert!(number(&other, "new_bytes") < 1 << 20, "{other}");
    let again = capture(&archive, &image, "web");
    assert_eq!((number(&again, "version"), number(&again, "new_bytes")), (2, 0), "{again}");

    let list = call(&["image", "list", "--json", text(&archive)]).done().json();
    let names: Vec<&str> =
        list["images"].as_array().unwrap().iter().map(|one| one["image"].as_str().unwrap()).collect();
    assert_eq!(names, ["db@1", "web@1", "web@2"]);
    let show = call(&["image", "show", "--json", text(&archive), "web@1"]).done().json();
    assert_eq!(show["data_bytes"], first["data_bytes"]);
    assert!(show["volumes"].is_array());

    let (new, exported) = (folder.path("new.raw"), folder.path("exported.raw"));
    let installed = call(&["image", "install", "--json", "--verify", text(&archive), "web", text(&new)]).done().json();
    assert_eq!(number(&installed, "written_bytes"), 4 << 20, "{installed}");
    assert_eq!(number(&installed, "verified_bytes"), size, "{installed}");
    assert!(equal(&new, &image));
    call(&["image", "export", text(&archive), "web@1", text(&exported)]).done();
    assert!(equal(&exported, &image));
    let streamed = Command::new(env!("CARGO_BIN_EXE_onefold"))
        .args(["image", "export", text(&archive), "web", "-"])
        .output()
        .unwrap();
    assert!(streamed.status.success() && streamed.stdout == fs::read(&image).unwrap());

    let stat = call(&["archive", "stat", "--json", text(&archive)]).done().json();
    let objects = ["packs", "manifests", "segments", "ledger", "descriptor"];
    let sum: u64 = objects.iter().map(|kind| number(&stat["stored"][kind], "bytes")).sum();
    assert_eq!((number(&stat, "images"), number(&stat, "stored_bytes")), (3, sum), "{stat}");
    let check = call(&["archive", "check", "--data", "--json", text(&archive)]).done().json();
    assert_eq!((number(&check, "images"), check["damages"].as_array().unwrap().len()), (3, 0), "{check}");
}

#[test]
fn removal_needs_a_version_and_leaves_the_others() {
    let folder = Folder::new();
    let archive = archive(&folder);
    let image = folder.image("web.raw", 1, 1);
    capture(&archive, &image, "web");
    capture(&archive, &image, "web");
    call(&["image", "rm", text(&archive), "web"]).failed(USAGE, "which version");
    call(&["image", "rm", text(&archive), "web@2", "web@3"]).failed(FAILED, "web@3");
    // Both versions have the same content, so only the manifest of one would go.
    let dry = |json: &[&str], images: &[&str]| {
        call(&[json, &["image", "rm", "--dry-run", text(&archive)], images].concat()).done()
    };
    assert!(dry(&[], &["web@1"]).out.ends_with("`archive gc` would free nothing\n"));
    let both = dry(&["--json"], &["web@1", "web@2"]).json();
    assert!(number(&both["gain"], "units") > 1 && number(&both["gain"], "bytes") > 0, "{both}");
    assert_eq!(both["gain"]["bytes"], both["gain"]["least_bytes"], "{both}");
    call(&["image", "rm", text(&archive), "web@1"]).done();
    let run = call(&["image", "show", text(&archive), "web@1"]).failed(FAILED, "web@2");
    assert!(run.err.contains("hint: "), "{run:?}");
    // Its number is never given again.
    assert_eq!(number(&capture(&archive, &image, "web"), "version"), 3);
    call(&["image", "export", text(&archive), "web@2", text(&folder.path("out.raw"))]).done();
    assert!(equal(&folder.path("out.raw"), &image));
}

#[test]
fn targets_are_checked_before_anything_is_written() {
    let folder = Folder::new();
    let archive = archive(&folder);
    let image = folder.image("web.raw", 1, 1);
    capture(&archive, &image, "web");
    let install = |more: &[&str], target: &Path| {
        call(&[&["image", "install"], more, &[text(&archive), "web", text(target)]].concat())
    };
    let full = folder.noise("full.raw", 9);
    let before = fs::read(&full).unwrap();
    let run = install(&[], &full).failed(FAILED, "not blank");
    assert!(run.err.contains("--force"), "{run:?}");
    install(&["--force", "--dry-run"], &full).done();
    assert!(fs::read(&full).unwrap() == before);

    let small = folder.path("small.raw");
    File::create(&small).unwrap().set_len(8 << 20).unwrap();
    let needed = ((8 << 20) + 512).to_string();
    install(&[], &small).failed(FAILED, &needed);
    install(&[], Path::new("/dev/null")).failed(USAGE, "neither a file nor a block device");
    install(&["--memory", "1M"], &full).failed(USAGE, "64.00 MiB");

    // No file system is known on the image, so nothing of it is free.
    install(&["--force"], &full).done();
    let mut expected = before;
    let captured = fs::read(&image).unwrap();
    expected[..captured.len()].copy_from_slice(&captured);
    assert!(fs::read(&full).unwrap() == expected);
}

#[test]
fn a_dry_run_makes_no_file_and_a_failed_install_leaves_none() {
    let folder = Folder::new();
    let archive = archive(&folder);
    capture(&archive, &folder.image("web.raw", 1, 1), "web");
    let target = folder.path("new.raw");
    call(&["image", "install", "--dry-run", text(&archive), "web", text(&target)]).done();
    assert!(!target.exists());
    flip_a_pack(&archive);
    let run = call(&["image", "install", text(&archive), "web", text(&target)]).failed(DAMAGE, "damaged");
    assert!(run.err.contains("hint: `onefold archive check`"), "{run:?}");
    let left: Vec<_> = fs::read_dir(folder.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!target.exists() && left.len() == 2, "{left:?}");
    let run = call(&["archive", "check", "--data", "--json", text(&archive)]);
    assert_eq!(run.code, DAMAGE, "{run:?}");
    let damages = run.json()["damages"].clone();
    assert!(damages[0]["images"].as_array().unwrap().contains(&"web@1".into()), "{damages}");
}

/// Regression: a target of noise was as an image of zeros had been installed.
#[test]
fn a_dry_run_compares_zeros_too() {
    let folder = Folder::new();
    let archive = archive(&folder);
    let (zeros, target) = (folder.path("zeros.raw"), folder.path("target.raw"));
    File::create(&zeros).unwrap().set_len(8 << 20).unwrap();
    capture(&archive, &zeros, "zeros");
    let dry_run = |target: &Path| {
        call(&["image", "install", "--dry-run", "--json", text(&archive), "zeros", text(target)]).done().json()
    };
    fs::write(&target, vec![7; 8 << 20]).unwrap();
    let compared = dry_run(&target)["differences"].clone();
    assert_eq!((number(&compared, "nonzero_bytes"), number(&compared, "other_bytes")), (8 << 20, 0), "{compared}");
    let compared = dry_run(&zeros)["differences"].clone();
    assert_eq!((number(&compared, "nonzero_bytes"), number(&compared, "unlisted_bytes")), (0, 0), "{compared}");
}

/// Flips a bit in the middle of the one pack of an archive.
fn flip_a_pack(archive: &Path) {
    let writer = fs::read_dir(archive.join("packs")).unwrap().next().unwrap().unwrap().path();
    let pack = fs::read_dir(writer).unwrap().next().unwrap().unwrap().path();
    let file = File::options().read(true).write(true).open(pack).unwrap();
    let middle = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle).unwrap();
    file.write_all_at(&[byte[0] ^ 1], middle).unwrap();
}

#[test]
fn each_image_of_a_folder_is_captured_whatever_becomes_of_the_others() {
    let folder = Folder::new();
    let archive = archive(&folder);
    let images = folder.path("images");
    fs::create_dir_all(images.join("sub")).unwrap();
    fs::rename(folder.image("a.raw", 1, 1), images.join("a.raw")).unwrap();
    fs::rename(folder.image("b.raw", 2, 1), images.join("sub/b.raw")).unwrap();
    fs::write(images.join("cut.qcow2"), [&b"QFI\xfb"[..], &[7; 1 << 20]].concat()).unwrap();
    let run = call(&["image", "capture", "--json", text(&archive), "--each", text(&images)]);
    assert_eq!(run.code, FAILED, "{run:?}");
    let json = run.json();
    let names: Vec<&str> =
        json["images"].as_array().unwrap().iter().map(|one| one["image"].as_str().unwrap()).collect();
    assert_eq!(names, ["a@1", "sub/b@1"]);
    assert_eq!(json["failed"].as_array().unwrap().len(), 1, "{json}");
    assert!(json["failed"][0]["source"].as_str().unwrap().ends_with("cut.qcow2"), "{json}");
    assert_eq!(json["left"].as_array().unwrap().len(), 0);
    let empty = folder.path("nothing");
    fs::create_dir(&empty).unwrap();
    call(&["image", "capture", text(&archive), "--each", text(&empty)]).failed(FAILED, "there is no image in it");
}

/// A snapshot of entries that are not there is all that tells a copy that was cut from a whole archive.
#[test]
fn a_copy_that_was_cut_is_repaired_only_if_that_is_accepted() {
    let folder = Folder::new();
    let archive = archive(&folder);
    let snapshots = archive.join("snapshots");
    fs::create_dir_all(&snapshots).unwrap();
    let snapshot = snapshots.join("00000000000000ff");
    fs::write(&snapshot, b"of entries that have not arrived").unwrap();
    for verb in ["gc", "repair"] {
        let run = call(&["archive", verb, text(&archive)]).failed(FAILED, "a copy that was cut");
        assert!(run.err.contains("onefold archive repair --accept-cut"), "{run:?}");
    }
    assert!(snapshot.exists());
    let repaired = call(&["archive", "repair", "--accept-cut", "--json", text(&archive)]).done().json();
    assert_eq!((number(&repaired, "snapshots"), snapshot.exists()), (1, false));
    call(&["archive", "gc", text(&archive)]).done();
}

#[test]
fn what_is_no_archive_is_named() {
    let folder = Folder::new();
    let run = call(&["image", "list", text(&folder.path("gone"))]).failed(FAILED, "gone");
    assert!(run.err.contains("cause: "), "{run:?}");
    fs::create_dir(folder.path("empty")).unwrap();
    let run = call(&["image", "list", text(&folder.path("empty"))]).failed(FAILED, "no archive");
    assert!(run.err.contains("onefold archive create"), "{run:?}");
    fs::write(folder.path("file"), "x").unwrap();
    call(&["archive", "create", text(&folder.path("file"))]).failed(FAILED, "file");
    let archive = archive(&folder);
    call(&["archive", "create", text(&archive)]).failed(FAILED, "there are objects here already");
    call(&["archive", "create", "--unit-size", "5K", text(&folder.path("odd"))]).failed(USAGE, "power of two");
    assert!(!folder.path("odd").exists());
}
