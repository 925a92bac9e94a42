//! Sessions with `onefold share`.

use std::fs;
use std::io::Write;
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
    // The file was not written to, so the next run need not read it.
    session.run("share status images").done();
    session.run("share include images/own.raw").done();
    session.run("share run --quiet --dry-run --include *.rwa --include own* images");
    session.assert_kept("share-saves");
}

/// Fills a file system up to the last block.
fn fill(file_system: &FileSystem) {
    // A full file system makes no new files.
    let files = ["large", "small"].map(|name| fs::File::create(file_system.path().join(name)).unwrap());
    for (mut file, bytes) in files.into_iter().zip([1 << 20, 4096]) {
        let block = vec![0x55; bytes];
        while file.write_all(&block).is_ok() {}
        let _ = file.sync_all();
    }
}

#[test]
fn a_file_system_that_is_full_or_read_only() {
    let folder = Folder::new();
    let Some(file_system) = FileSystem::new(&folder, "xfs", "data") else { return };
    fs::create_dir(file_system.path().join("own")).unwrap();
    image(&file_system.path().join("own/a.raw"), 3, 1);
    images(&file_system);
    fill(&file_system);
    std::thread::sleep(std::time::Duration::from_millis(100));
    let varying = ["need about", "make ", "shared first"];
    let mut session = Transcript::in_folder(&folder.path("")).masking(&varying);
    // Nothing is known yet, and nothing is noted.
    session.run("share status data").done();
    session.run("share index data").done();
    session.run("share explain data/images/one.raw").done();
    // The attribute alone needs room here.
    session.run("share exclude data/images/two.raw");
    session.run("share run --quiet data/own");
    session.shell("onefold share run --quiet data/images | tail -2").done();
    session.run("share exclude data/images/two.raw").done();
    session.run("share include data/images/two.raw").done();
    session.run("share status data/images").done();
    session.shell("mount -o remount,ro data").done();
    session.run("share status data/images").done();
    session.run("share explain data/images/half.raw").done();
    session.shell("onefold share index data | head -2").done();
    session.run("share exclude data/images/two.raw");
    session.run("share include data/images/two.raw");
    session.run("share run --quiet data/images");
    session.run("share clone data/images/one.raw data/images/new.raw");
    session.assert_kept("share-full");
}

#[test]
fn a_state_folder_that_is_not_used_is_named_as_the_user_would() {
    let folder = Folder::new();
    let Some(file_system) = FileSystem::new(&folder, "xfs", "data") else { return };
    images(&file_system);
    std::thread::sleep(std::time::Duration::from_millis(100));
    onefold("share run --quiet", &[&file_system.path().join("images")]).done();
    let mut session = Transcript::in_folder(&folder.path(""));
    session.shell("chown 7 data/.onefold/identity").done();
    session.run("share status data");
    session.run("share run --quiet data/images");
    session.assert_kept("share-untrusted");
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
