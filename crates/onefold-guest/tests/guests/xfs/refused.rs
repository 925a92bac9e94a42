//! Bad input, and what is refused by name.

use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

use onefold_disk::{Disk, FileDisk};
use onefold_guest::content::VolumeContent;
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::{AllocationClass, Doubt, FileSystem, State};
use onefold_guest::volume::{DiskRange, Volume, VolumeOrigin, VolumeReader};

use super::allocation::map_of;
use super::{empty, make, prepared, with_outcome, with_xfs};

fn refusal(path: &Path) -> String {
    with_outcome(path, |outcome| outcome.expect_err("an error").to_string())
}

/// Calls `then` with the file system that is found without its first superblock.
fn with_xfs_by_copy<T>(path: &Path, then: impl FnOnce(&dyn FileSystem) -> T) -> T {
    let disk = FileDisk::new(std::fs::File::open(path).unwrap(), path).unwrap();
    let ranges = vec![DiskRange { start_bytes: 0, length_bytes: disk.size_bytes() }];
    let reader = VolumeReader::new(&disk, &Volume { origin: VolumeOrigin::WholeDisk, ranges });
    match onefold_guest::content::open(&reader, None) {
        VolumeContent::FileSystem(xfs) => then(xfs.as_ref()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn other_bytes_are_no_xfs() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("image");
    for bytes in [&b""[..], b"XFSB", &[0; 4096], b"text".repeat(10_000).as_slice()] {
        std::fs::write(&path, bytes).unwrap();
        assert!(with_outcome(&path, |outcome| outcome.unwrap().is_none()));
    }
    std::fs::write(&path, [b"XFSB".as_slice(), &[0xff; 8192]].concat()).unwrap();
    assert!(refusal(&path).contains("sizes do not fit together"));
}

#[test]
fn parts_on_other_devices_and_unknown_features_are_refused_by_name() {
    let Some(images) = empty() else { return };
    let script = r#"export TEST_DIR=. TEST_DEV=image QA_CHECK_FS=1
        truncate -s 64M log realtime external image; truncate -s 200M realtime-device
        mkfs.xfs -q -l logdev=log external
        mkfs.xfs -q -r rtdev=realtime-device realtime
        mkfs.xfs -q image
        for bit in 100 200 40000000; do
            cp --sparse=always image "feature-$bit"
            xfs_db -x -c 'sb 0' -c "write -d features_incompat 0x$bit" "feature-$bit" >/dev/null
        done
        cp --sparse=always image read-only
        xfs_db -x -c 'sb 0' -c "write -d features_ro_compat 0x8000" read-only >/dev/null"#;
    images.script(&prepared(script), [""; 0]);
    let expected = [
        ("external", "XFS with an external log cannot be read"),
        ("realtime", "XFS with a realtime device cannot be read"),
        ("feature-100", "XFS with a metadata directory cannot be read"),
        ("feature-200", "XFS with zones cannot be read"),
        ("feature-40000000", "XFS with unknown features cannot be read"),
        ("read-only", "XFS with unknown features cannot be read"),
    ];
    for (name, message) in expected {
        assert_eq!(refusal(&images.path(name)), message);
    }
}

#[test]
fn many_groups_that_are_shorter_than_any_are_refused() {
    let Some(images) = make("64M", "-d agcount=2", &["20", "20"]) else { return };
    let script =
        "xfs_db -x -c 'sb 0' -c 'write -d agblocks 2048' -c 'write -d agblklog 11' -c 'write -d agcount 8' image
        xfs_db -r -c 'sb 0' -c 'print agblocks agcount' image | sed 's/.* = //'
        dd if=/dev/zero of=image bs=1M seek=32 count=1 conv=notrunc status=none";
    let printed = images.script(script, [""; 0]);
    assert!(printed.ends_with("2048\n8\n"), "{printed}");
    assert!(refusal(&images.path("image")).contains("sizes do not fit together"));
}

#[test]
fn a_short_volume_and_a_file_system_that_needs_repair_are_unsure() {
    let Some(images) = make("100M", "", &["100", "100"]) else { return };
    let script = "xfs_db -x -c 'sb 0' -c 'write -d features_incompat 0x1b' image >/dev/null";
    let path = images.path("image");
    let whole_in_doubt = |xfs: &dyn FileSystem, size_bytes| {
        let map = map_of(xfs, size_bytes);
        assert!(map.len() == 1 && map[0].class == AllocationClass::Doubtful);
    };
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(80 << 20).unwrap();
    with_xfs(&path, |xfs| {
        assert_eq!(*xfs.state(), State::Unsure(vec![Doubt::LongerThanVolume]));
        whole_in_doubt(xfs, 80 << 20);
    });
    file.set_len(100 << 20).unwrap();
    images.script(script, [""; 0]);
    with_xfs(&path, |xfs| {
        assert_eq!(*xfs.state(), State::Unsure(vec![Doubt::HasErrors]));
        whole_in_doubt(xfs, 100 << 20);
    });
}

/// Flips a bit in the byte at a place.
fn damage(path: &Path, place: u64) {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, place).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], place).unwrap();
}

fn files(xfs: &dyn FileSystem) -> usize {
    let mut count = 0;
    xfs.each_file(&mut |_, _| {
        count += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    count
}

#[test]
fn damage_is_noted_with_its_place_and_the_rest_is_read() {
    let Some(images) = make("100M", "-d agcount=4", &["300", "300"]) else { return };
    let path = images.path("image");
    // The header of free space of group 1, the tree of free space of group 2, and the inode of a file.
    let group_bytes = 25 << 20;
    let script = "xfs_db -r -c 'agf 2' -c 'print bnoroot' image | sed 's/.* = //'
        sed -n 's/.*676d656e7473 \\([0-9]*\\) .*/\\1/p' view";
    let printed = images.script(script, [""; 0]);
    let numbers: Vec<u64> = printed.lines().map(|number| number.parse().unwrap()).collect();
    let [root, inode] = numbers[..] else { panic!("{printed}") };
    let all = with_xfs(&path, files);
    let places = [group_bytes + 512 + 53, 2 * group_bytes + root * 4096 + 60, inode * 512 + 40];
    for place in places {
        damage(&path, place);
    }
    with_xfs(&path, |xfs| {
        assert_eq!(*xfs.state(), State::Certain);
        assert_eq!(files(xfs), all - 1);
        let map = map_of(xfs, 100 << 20);
        let free_in = |group: u64| {
            let range = group * group_bytes..(group + 1) * group_bytes;
            map.iter().filter(|run| run.class == AllocationClass::Free && range.contains(&run.start_bytes)).count()
        };
        assert!(free_in(0) > 0 && free_in(3) > 0);
        assert_eq!((free_in(1), free_in(2)), (0, 0));
        let found: Vec<u64> = xfs.damage().first().iter().map(|damage| damage.place).collect();
        let expected = [inode * 512, group_bytes + 512, 2 * group_bytes + root * 4096];
        assert_eq!(found, expected, "{:?}", xfs.damage().first());
        let number = onefold_guest::filesystem::FileNumber(inode);
        assert!(matches!(xfs.stat(number), Err(GuestError::Damaged(damage)) if damage.place == inode * 512));
    });
    let content = |xfs: &dyn FileSystem| (files(xfs), xfs.state().clone());
    let unsure = State::Unsure(vec![Doubt::MetadataDamaged]);
    for place in [60, 0, 84, 4] {
        damage(&path, place);
        assert_eq!(with_xfs_by_copy(&path, content), (all - 1, unsure.clone()), "byte {place}");
    }
    damage(&path, group_bytes + 60);
    assert!(with_outcome(&path, |outcome| outcome.unwrap().is_none()), "neither has a magic");
    damage(&path, 0);
    assert!(refusal(&path).contains("damaged superblock at byte 0 of the disk: its sizes do not fit together"));
}
