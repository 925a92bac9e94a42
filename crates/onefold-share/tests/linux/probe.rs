//! What is refused as a substrate, and in which words.

use std::path::Path;

use onefold_block::BLOCK_BYTES;
use onefold_linux::{LinuxSubstrate, ProbeError};
use onefold_substrate::{Abilities, Sharing, SubstrateKind};

use crate::ground::{BTRFS, MIB, PrivateMounts, Recipe, XFS, on, on_each, run};

fn refused(root: &Path, scratch: &str) -> (ProbeError, String) {
    let error = LinuxSubstrate::open(root, Path::new(scratch)).unwrap_err();
    let message = error.to_string();
    assert!(message.contains(root.to_str().unwrap()), "{message}");
    (error, message)
}

#[test]
fn abilities_are_those_of_the_kind() {
    on_each(|ground| {
        let kind = ground.kind();
        let expected = Abilities {
            kind,
            block_bytes: 4096,
            share_bytes_max: 16 * MIB,
            tells_last_reference: kind == SubstrateKind::Xfs,
            frees_whole_extents: kind == SubstrateKind::Btrfs,
            is_clustered: false,
            shares_in_two_steps: false,
            has_own_domains: false,
        };
        assert_eq!(*ground.substrate.abilities(), expected);
        assert_eq!(std::fs::read_dir(&ground.root).unwrap().count(), 0, "nothing is left behind");
        std::fs::create_dir(ground.root.join("scratch")).unwrap();
        LinuxSubstrate::open(&ground.root, Path::new("scratch")).unwrap();
    });
}

#[test]
fn compressing_and_in_place_mounts_share() {
    for options in ["loop,compress-force=zstd", "loop,nodatacow"] {
        on(Recipe { options, ..BTRFS }, |ground| assert_eq!(ground.kind(), SubstrateKind::Btrfs));
    }
}

#[test]
fn file_systems_that_cannot_share_are_named() {
    let Some(place) = PrivateMounts::new() else { return };
    let (error, message) = refused(place.path(), "");
    assert!(matches!(error, ProbeError::Kind { .. }));
    assert!(message.contains("is tmpfs, which cannot share blocks"), "{message}");

    let ext4 = Recipe { mkfs: &["mkfs.ext4", "-q"], options: "loop", device_bytes: 16 * MIB };
    let Some(root) = place.mount("ext4", ext4) else { return };
    let (error, message) = refused(&root, "");
    assert!(matches!(error, ProbeError::Kind { .. }) && message.contains("ext4"), "{message}");
    let (_, message) = refused(Path::new("/proc"), "");
    assert!(message.contains("type 0x9fa0"), "{message}");
}

#[test]
fn xfs_without_reflinks_and_with_other_blocks_is_refused() {
    let Some(place) = PrivateMounts::new() else { return };
    let without = Recipe { mkfs: &["mkfs.xfs", "-q", "-m", "reflink=0"], ..XFS };
    let Some(root) = place.mount("without", without) else { return };
    let (error, message) = refused(&root, "");
    assert!(matches!(error, ProbeError::NoReflinks { kind: SubstrateKind::Xfs, .. }));
    assert!(message.contains("mkfs.xfs -m reflink=1"), "{message}");

    let small_blocks = Recipe { mkfs: &["mkfs.xfs", "-q", "-b", "size=1024"], ..XFS };
    let Some(root) = place.mount("small", small_blocks) else { return };
    let (error, message) = refused(&root, "");
    assert!(matches!(error, ProbeError::BlockBytes { bytes: 1024, .. }));
    assert!(message.contains("1024 bytes") && message.contains("mkfs.xfs -b size=4096"), "{message}");
}

#[test]
fn what_is_mounted_for_reading_only_is_refused() {
    on_each(|ground| {
        let root = ground.root.to_str().unwrap();
        if ground.kind() == SubstrateKind::Btrfs {
            let sub = ground.root.join("sub");
            run("btrfs", ["subvolume", "create", sub.to_str().unwrap()]).unwrap();
            run("btrfs", ["property", "set", sub.to_str().unwrap(), "ro", "true"]).unwrap();
            assert!(matches!(refused(&ground.root, "sub").0, ProbeError::ReadOnly { .. }));
        }
        run("mount", ["-o", "remount,ro", root]).unwrap();
        let (error, message) = refused(&ground.root, "");
        assert!(matches!(error, ProbeError::ReadOnly { .. }) && message.contains("remount,rw"), "{message}");
    });
}

#[test]
fn roots_and_scratch_folders_must_be_folders() {
    on(XFS, |ground| {
        drop(ground.file("file", &[0; BLOCK_BYTES]));
        assert!(matches!(refused(&ground.root.join("file"), "").0, ProbeError::Root { .. }));
        assert!(matches!(refused(&ground.root.join("missing"), "").0, ProbeError::Root { .. }));
        for scratch in ["file", "missing", "..", "/"] {
            let error = LinuxSubstrate::open(&ground.root, Path::new(scratch)).unwrap_err();
            assert!(matches!(error, ProbeError::Io { op: "open the folder", .. }), "{scratch}: {error}");
        }
    });
}
