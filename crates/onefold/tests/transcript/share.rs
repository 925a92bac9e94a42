//! Sessions with `onefold share`.

use std::fs;
use std::path::Path;

use onefold_block::random::{Random, SeededRandom};

use crate::common::{Folder, onefold, run, text};
use crate::file_system::FileSystem;
use crate::transcript::Transcript;

/// Writes `mib` MiB of content made from `seed`.
fn image(path: &Path, seed: u64, mib: usize) {
    let mut content = vec![0; mib << 20];
    SeededRandom::new(seed).fill(&mut content).unwrap();
    fs::write(path, content).unwrap();
}

#[test]
fn a_file_system_without_notes() {
    let folder = Folder::new();
    let Some(file_system) = FileSystem::new(&folder, "xfs", "data") else { return };
    image(&file_system.path().join("a.raw"), 1, 1);
    let mut session = Transcript::in_folder(&folder.path(""));
    session.run("share status data").done();
    session.assert_kept("share-nothing-known");
}

/// The file system of the session: two images with equal content, one that differs in its half, and one of its own.
fn images(file_system: &FileSystem) {
    let folder = file_system.path().join("images");
    fs::create_dir(&folder).unwrap();
    image(&folder.join("one.raw"), 1, 4);
    image(&folder.join("two.raw"), 1, 4);
    image(&folder.join("own.raw"), 2, 2);
    let half = fs::read(folder.join("one.raw")).unwrap()[..2 << 20].to_vec();
    fs::write(folder.join("half.raw"), [half, fs::read(folder.join("own.raw")).unwrap()].concat()).unwrap();
    fs::write(folder.join("own.raw"), vec![7; 4096]).unwrap();
}

const VARYING: [&str; 3] = ["free than before", "of the device", "its content is"];

#[test]
fn what_sharing_saves_now() {
    let folder = Folder::new();
    let Some(file_system) = FileSystem::new(&folder, "xfs", "data") else { return };
    images(&file_system);
    // A run takes files that changed a moment ago for changing still.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let mut session = Transcript::in_folder(file_system.path()).masking(&VARYING);
    session.run("share run --quiet images").done();
    session.run("share status images").done();
    session.run("share status --details .").done();
    session.run("share explain images/half.raw").done();
    session.run("share explain images/own.raw").done();
    session.run("share exclude images/own.raw").done();
    session.run("share explain images/own.raw").done();
    session.run("share include images/own.raw").done();
    session.run("share include images/own.raw").done();
    session.run("share run --quiet --dry-run --include *.rwa --include own* images");
    session.assert_kept("share-saves");
}

/// The places on the disk depend on the version of mke2fs, so this is no kept text.
#[test]
fn a_whole_file_is_explained_with_the_files_of_its_guest() {
    let folder = Folder::new();
    let Some(file_system) = FileSystem::new(&folder, "xfs", "data") else { return };
    let tree = folder.path("tree");
    fs::create_dir(&tree).unwrap();
    image(&tree.join("large"), 3, 16);
    let guest = file_system.path().join("guest.raw");
    fs::File::create(&guest).unwrap().set_len(64 << 20).unwrap();
    run("mke2fs", &["-q", "-t", "ext4", "-d", text(&tree), text(&guest)]);
    let explained = onefold("share explain", &[&guest]).done().out;
    assert!(explained.contains("longest stretches that are not shared"), "{explained}");
    assert!(explained.lines().any(|line| line.starts_with("  ") && line.ends_with(": /large")), "{explained}");
    let json = onefold("share explain --json", &[&guest]).done().json();
    let stretch = &json["whole"]["unshared_stretches"][0];
    assert_eq!(stretch["guest"]["files"][0]["names"][0]["path"], "/large", "{json}");
}
