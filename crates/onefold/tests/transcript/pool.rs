//! Sessions with `onefold pool`, and with its mount helper.

use std::fs;

use crate::common::{Folder, USAGE, onefold};
use crate::transcript::Transcript;

#[test]
fn wrong_mount_options_are_named_as_mount_options() {
    let folder = Folder::new();
    folder.pool();
    fs::create_dir(folder.path("mnt")).unwrap();
    let mut session = Transcript::in_folder(&folder.path(""));
    for options in ["memroy=2G", "memory=much", "memory=1M", "memory", "polling=maybe", "noatime=1", "noexec"] {
        let run = session.run_as("mount.fuse.onefold", &format!("images.pool mnt -o rw,{options}"));
        assert_eq!(run.code, USAGE, "{options}");
    }
    session.assert_kept("mount-options");
}

#[test]
fn a_mount_that_cannot_be_says_what_to_do() {
    let folder = Folder::new();
    folder.pool();
    fs::write(folder.path("file"), "").unwrap();
    let mut session = Transcript::in_folder(&folder.path(""));
    session.run("pool mount images.pool mnt");
    session.run("pool mount images.pool file");
    session.run("pool mount missing.pool .");
    session.run("pool umount images.pool");
    session.assert_kept("mount-refusals");
}

#[test]
fn images_of_a_folder_are_imported_once() {
    let folder = Folder::new();
    folder.pool();
    fs::create_dir(folder.path("images")).unwrap();
    fs::write(folder.path("images/notes.txt"), "no image").unwrap();
    for (name, seed) in [("a.raw", 1), ("b.img", 2)] {
        fs::rename(folder.image(name, seed, 1), folder.path(&format!("images/{name}"))).unwrap();
    }
    let mut session = Transcript::in_folder(&folder.path(""));
    session.run("pool import images.pool images").done();
    session.run("pool import images.pool images");
    session.run("pool import --skip-existing images.pool images").done();
    session.run("pool import images.pool missing.raw images");
    session.run("pool import --skip-existing images.pool missing.raw images");
    session.run("pool import --to other.raw images.pool images/notes.txt");
    fs::write(folder.path("packed.qcow2"), b"\x1f\x8b\x08packed").unwrap();
    session.run("pool import images.pool packed.qcow2");
    session.run("pool dedup images.pool").done();
    session.assert_kept("import-folder");
}

#[test]
fn exports_follow_the_ending_of_the_name() {
    let folder = Folder::new();
    folder.pool();
    for (name, seed) in [("a.raw", 1), ("b.raw", 2)] {
        folder.image(name, seed, 1);
    }
    let mut session = Transcript::in_folder(&folder.path(""));
    session.shell("onefold pool import --quiet images.pool a.raw b.raw >imported").done();
    for arguments in
        ["a.raw copy.qcow2", "a.raw copy.img", "a.raw copy", "--format qcow2 a.raw copy.disk", "a.raw copy.vmdk"]
    {
        session.run(&format!("pool export --quiet images.pool {arguments}")).done();
    }
    session.shell("qemu-img info copy.disk | grep format:");
    session.shell("qemu-img compare -f raw -F vmdk a.raw copy.vmdk").done();
    for arguments in ["a.raw copy.vdi", "--format qcow2 a.raw other.raw", "--format vdi a.raw other.vdi"] {
        let run = session.run(&format!("pool export --quiet images.pool {arguments}"));
        assert_eq!(run.code, USAGE, "{arguments}");
    }
    fs::create_dir(folder.path("out")).unwrap();
    session.run("pool export --quiet images.pool a.raw b.raw out").done();
    session.run("pool export --quiet images.pool a.raw out");
    session.run("pool export --quiet images.pool a.raw b.raw copy.img");
    session.run("pool export --quiet images.pool a.raw b.raw missing");
    session.run("pool export --quiet images.pool a.raw missing/a.raw");
    session.run("pool export --quiet images.pool gone.raw new.raw");
    session.shell("onefold pool export --quiet images.pool a.raw - | cmp - a.raw").done();
    session.run("pool export --quiet images.pool a.raw b.raw -");
    session.run("pool export --quiet --format qcow2 images.pool a.raw -");
    session.run("pool export --quiet --json images.pool a.raw -");
    session.assert_kept("export");
}

#[test]
fn a_pool_that_is_not_mounted_lists_its_files() {
    let folder = Folder::new();
    folder.pool();
    folder.noise("base.raw", 4);
    folder.image("db.raw", 1, 0);
    let mut session = Transcript::in_folder(&folder.path(""));
    session.run("pool ls images.pool").done();
    session.run("pool import --quiet images.pool base.raw db.raw").done();
    session.run("pool clone --quiet images.pool base.raw vm-%d.raw --count 2").done();
    session.run("pool ls images.pool").done();
    session.run("pool ls images.pool missing");
    session.run("pool ls images.pool db.raw");
    session.run("pool ls db.raw");
    session.run("pool stat images.pool db.raw base.raw").done();
    session.run("pool stat images.pool missing.raw");
    session.run("pool stat --files images.pool").done();
    session.run("pool stat --files images.pool db.raw");
    session.run("pool check --quiet images.pool").done();
    session.assert_kept("pool-ls");
}

#[test]
fn numbers_that_are_none_say_which_ones_are_valid() {
    let folder = Folder::new();
    folder.pool();
    folder.image("a.raw", 1, 0);
    fs::create_dir(folder.path("mnt")).unwrap();
    let mut session = Transcript::in_folder(&folder.path(""));
    for arguments in [
        "guest ls --partition x a.raw",
        "guest du --depth all a.raw",
        "pool clone images.pool a.raw vm-%d.raw --count 0",
        "pool mount --threads many images.pool mnt",
        "pool mount --memory 1M images.pool mnt",
    ] {
        assert_eq!(session.run(arguments).code, USAGE, "{arguments}");
    }
    session.run("pool create --size 1M small.pool");
    session.assert_kept("numbers");
}

/// Clones have their blocks in common, so each block is read once, with and without `--files`.
#[test]
fn dedup_reads_each_block_once_and_ends_with_a_verdict() {
    let folder = Folder::new();
    folder.pool();
    folder.noise("base.raw", 16);
    let mut session = Transcript::in_folder(&folder.path(""));
    session.run("pool import --quiet images.pool base.raw").done();
    session.run("pool clone images.pool base.raw vm-%d.raw --count 9").done();
    // A scan takes files that changed a moment ago for changing still, and reads them by themselves.
    std::thread::sleep(std::time::Duration::from_millis(100));
    session.run("pool dedup --quiet images.pool").done();
    session.run("pool dedup --quiet --files images.pool").done();
    session.assert_kept("dedup-clones");
}

/// Other pools of this host are in the list, too, so this is no kept text.
#[test]
fn pools_are_listed_with_their_last_scrub() {
    let folder = Folder::new();
    onefold("pool create --size 64M --label guests", &[&folder.path("images.pool")]).done();
    fs::write(folder.path("other"), [7; 8192]).unwrap();
    let found = || {
        let json = onefold("pool list --json", &[&folder.path("")]).json();
        let pool = fs::canonicalize(folder.path("images.pool")).unwrap();
        let pools = json["pools"].as_array().unwrap().clone();
        assert!(!pools.iter().any(|found| found["pool"].as_str().unwrap().ends_with("/other")), "{pools:?}");
        pools.into_iter().find(|found| found["pool"].as_str() == pool.to_str()).unwrap()
    };
    let fresh = found();
    assert_eq!((&fresh["label"], fresh["device_bytes"].as_u64()), (&"guests".into(), Some(64 << 20)));
    assert!(fresh["mountpoint"].is_null() && fresh["user"].is_null() && fresh["scrubbed_seconds"].is_null(), "{fresh}");
    onefold("pool scrub --quiet", &[&folder.path("images.pool")]).done();
    assert!(found()["scrubbed_seconds"].as_i64().unwrap() > 1_700_000_000);
    let stat = onefold("pool stat", &[&folder.path("images.pool")]).done();
    assert!(stat.out.contains("last scrub: 20"), "{stat:?}");
}
