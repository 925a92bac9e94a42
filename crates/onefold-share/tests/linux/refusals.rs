//! Files that the kernel does not share as they are, and those that it shares all the same.

use std::io::ErrorKind;
use std::path::Path;

use onefold_block::BLOCK_BYTES;
use onefold_share::pass::Trouble;
use onefold_substrate::{Access, At, ComparisonResult, Files, Refusal, ShareError, Sharing};

use crate::ground::{BTRFS, Ground, K, MIB, XFS, on, on_each, random_blocks, run, skip};
use crate::pass;

fn refusal(outcome: Result<ComparisonResult, ShareError>) -> Refusal {
    match outcome {
        Err(ShareError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

fn path(ground: &Ground, name: &str) -> String {
    ground.root.join(name).to_str().unwrap().to_owned()
}

#[test]
fn immutable_files_are_sources_only() {
    on_each(|ground| {
        let content = random_blocks(1, 2);
        let one = ground.file("one", &content);
        drop(ground.file("immutable", &content));
        run("chattr", ["+i", &path(ground, "immutable")]).unwrap();
        let immutable = ground.open("immutable", Access::Write);
        assert!(!immutable.is_writable());
        assert_eq!(refusal(ground.share((&one, 0), (&immutable, 0), 2)), Refusal::Immutable);
        assert_eq!(ground.share((&immutable, 0), (&one, 0), 2).unwrap(), ComparisonResult::Shared);
        run("chattr", ["-i", &path(ground, "immutable")]).unwrap();
    });
}

#[test]
fn append_only_files_share() {
    on_each(|ground| {
        let content = random_blocks(1, 2);
        let one = ground.file("one", &content);
        drop(ground.file("append", &content));
        run("chattr", ["+a", &path(ground, "append")]).unwrap();
        let append = ground.open("append", Access::Write);
        assert_eq!(ground.share((&one, 0), (&append, 0), 2).unwrap(), ComparisonResult::Shared);
        run("chattr", ["-a", &path(ground, "append")]).unwrap();
        assert_eq!(ground.content("append"), content);
    });
}

/// Swap space for as long as it lives.
struct Swap(String);

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = run("swapoff", [&self.0]);
    }
}

#[test]
fn swap_files_are_refused() {
    on(XFS, |ground| {
        let content = vec![0; MIB as usize];
        let (one, swap) = (ground.file("one", &content), ground.file("swap", &content));
        let swap_path = path(ground, "swap");
        run("mkswap", [&swap_path]).unwrap();
        if let Err(error) = run("swapon", ["-p", "0", &swap_path]) {
            skip::<()>(&error);
            return;
        }
        let _on = Swap(swap_path);
        assert_eq!(refusal(ground.share((&one, 0), (&swap, 8), 2)), Refusal::Swap);
        assert_eq!(refusal(ground.share((&swap, 8), (&one, 0), 2)), Refusal::Swap);
        let clone = ground.substrate.clone_range(At { file: &swap, offset: 0 }, At { file: &one, offset: 0 }, K);
        assert!(matches!(clone, Err(ShareError::Refused(Refusal::Swap))), "{clone:?}");
    });
}

#[test]
fn files_overwritten_in_place_share_with_each_other_only() {
    on(BTRFS, |ground| {
        let content = random_blocks(1, 2);
        let usual = ground.file("usual", &content);
        std::fs::create_dir(ground.root.join("in-place")).unwrap();
        run("chattr", ["+C", &path(ground, "in-place")]).unwrap();
        let (one, other) = (ground.file("in-place/one", &content), ground.file("in-place/other", &content));
        assert_eq!(refusal(ground.share((&usual, 0), (&one, 0), 2)), Refusal::NoCopyOnWrite);
        assert_eq!(refusal(ground.share((&one, 0), (&usual, 0), 2)), Refusal::NoCopyOnWrite);
        assert_eq!(ground.share((&one, 0), (&other, 0), 2).unwrap(), ComparisonResult::Shared);
        assert_eq!(ground.content("in-place/other"), content);
    });
}

#[test]
fn read_only_snapshots_are_shared_into() {
    on(BTRFS, |ground| {
        let content = random_blocks(1, 64);
        run("btrfs", ["subvolume", "create", &path(ground, "sub")]).unwrap();
        drop(ground.file("sub/file", &content));
        run("btrfs", ["subvolume", "snapshot", "-r", &path(ground, "sub"), &path(ground, "snapshot")]).unwrap();
        let copy = ground.file("copy", &content);
        let (snapshot, origin) = (ground.open("snapshot/file", Access::Write), ground.open("sub/file", Access::Write));
        assert!(!snapshot.is_writable() && origin.is_writable());
        assert_ne!(ground.place_of(&snapshot, 0), ground.place_of(&copy, 0));
        assert_eq!(ground.share((&copy, 0), (&snapshot, 0), 64).unwrap(), ComparisonResult::Shared);
        assert_eq!(ground.place_of(&snapshot, 0), ground.place_of(&copy, 0));
        assert_ne!(ground.place_of(&origin, 0), ground.place_of(&copy, 0));
        assert_eq!(ground.content("snapshot/file"), content);

        let written = ground.substrate.write_at(&snapshot, 0, b"x");
        assert_eq!(written.unwrap_err().kind(), ErrorKind::PermissionDenied);
        let clone = ground.substrate.clone_range(At { file: &copy, offset: 0 }, At { file: &snapshot, offset: 0 }, K);
        assert!(matches!(clone, Err(ShareError::Refused(Refusal::NotPermitted))), "{clone:?}");
        let created = ground.substrate.create(Path::new("snapshot/new"));
        assert_eq!(created.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    });
}

#[test]
fn overlapping_ranges_are_an_error() {
    on_each(|ground| {
        let file = ground.file("file", &vec![3; 8 * BLOCK_BYTES]);
        let again = ground.open("file", Access::Write);
        for into in [1, 2] {
            let overlapping = ground.share((&file, 0), (&again, into), 4);
            assert!(
                matches!(&overlapping, Err(ShareError::Io(error)) if error.kind() == ErrorKind::InvalidInput),
                "{overlapping:?}"
            );
        }
        assert_eq!(ground.share((&file, 0), (&again, 4), 4).unwrap(), ComparisonResult::Shared);
        let beyond = ground.substrate.clone_range(At { file: &file, offset: 8 * K }, At { file: &again, offset: 0 }, K);
        assert!(matches!(&beyond, Err(ShareError::Io(_))), "{beyond:?}");
    });
}

#[test]
fn files_of_two_file_systems_are_apart() {
    on(XFS, |ground| {
        let content = random_blocks(1, 1);
        let one = ground.file("one", &content);
        on(BTRFS, |other_ground| {
            let other = other_ground.file("other", &content);
            assert_eq!(refusal(ground.share((&one, 0), (&other, 0), 1)), Refusal::Apart);
        });
    });
}

/// Returns what is said of a file.
fn word(trouble: &Trouble, name: &str) -> Option<String> {
    trouble.refused.get(Path::new(name)).map(ToString::to_string)
}

#[test]
fn a_pass_shares_around_immutable_files_and_says_which() {
    on_each(|ground| {
        let content = random_blocks(20, 64);
        for name in ["a", "fixed", "z"] {
            ground.file(name, &content);
        }
        run("chattr", ["+i", &path(ground, "fixed")]).unwrap();
        let found = pass::run(ground).passed;
        assert_eq!((found.shared.now, found.shared.refused), (64 * K, 64 * K), "{found:?}");
        assert_eq!(word(&found.trouble, "fixed").unwrap(), "it is immutable");
        assert_eq!(found.trouble.refused.len(), 1);
        run("chattr", ["-i", &path(ground, "fixed")]).unwrap();
        assert!(["a", "fixed", "z"].iter().all(|name| ground.content(name) == content));
    });
}

#[test]
fn a_pass_shares_around_swap_files_and_says_which() {
    on_each(|ground| {
        // Swap space of Btrfs is overwritten in place, and was so before it held anything.
        std::fs::write(ground.root.join("swap"), b"").unwrap();
        if ground.kind() == onefold_substrate::SubstrateKind::Btrfs {
            run("chattr", ["+C", &path(ground, "swap")]).unwrap();
        }
        let content = random_blocks(21, 256);
        std::fs::write(ground.root.join("swap"), &content).unwrap();
        std::fs::set_permissions(ground.root.join("swap"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        run("mkswap", [&path(ground, "swap")]).unwrap();
        let swap_content = std::fs::read(ground.root.join("swap")).unwrap();
        for name in ["a", "z"] {
            ground.file(name, &content);
        }
        rustix::fs::syncfs(std::fs::File::open(&ground.root).unwrap()).unwrap();
        let places = || {
            let swap = ground.open("swap", Access::Read);
            (0..256).map(|block| ground.offset_of(&swap, block)).collect::<Vec<_>>()
        };
        let (places_before, swapped_before) = (places(), swapped_out());
        if let Err(error) = run("swapon", ["-p", "0", &path(ground, "swap")]) {
            skip::<()>(&error);
            return;
        }
        let on = Swap(path(ground, "swap"));
        let found = pass::run(ground).passed;
        assert_eq!(found.shared.now, 256 * K, "{found:?}");
        let said = found.trouble.refused.values().chain([]).map(ToString::to_string).collect::<Vec<_>>();
        let failed = found.trouble.failed.values().map(ToString::to_string).collect::<Vec<_>>();
        assert!(said.iter().chain(&failed).any(|word| word.contains("swap") || word.contains("in place")), "{found:?}");
        drop(on);
        assert!(ground.content("a") == content && ground.content("z") == content);
        // The kernel writes beneath the file system: where it swaps, the content changes, and the places never do.
        assert_eq!(places(), places_before);
        if swapped_out() == swapped_before {
            assert!(ground.content("swap")[4096..] == swap_content[4096..]);
        }
    });
}

/// Returns how many pages the kernel has swapped out since it started.
fn swapped_out() -> u64 {
    let counters = std::fs::read_to_string("/proc/vmstat").unwrap();
    counters.lines().find_map(|line| line.strip_prefix("pswpout ")).unwrap().trim().parse().unwrap()
}

#[test]
fn a_pass_shares_around_files_overwritten_in_place_and_says_which() {
    on(BTRFS, |ground| {
        std::fs::create_dir(ground.root.join("in-place")).unwrap();
        run("chattr", ["+C", &path(ground, "in-place")]).unwrap();
        let content = random_blocks(22, 64);
        for name in ["a", "in-place/b", "z"] {
            ground.file(name, &content);
        }
        let found = pass::run(ground).passed;
        assert_eq!((found.shared.now, found.shared.refused), (64 * K, 64 * K), "{found:?}");
        assert!(word(&found.trouble, "in-place/b").unwrap().contains("in place"), "{found:?}");
        assert!(["a", "in-place/b", "z"].iter().all(|name| ground.content(name) == content));
        // Nothing changed, and nothing is tried again.
        ground.settled_room();
        pass::run(ground);
        let found = pass::run(ground);
        assert_eq!((found.scanned.read_bytes, found.passed.shared.refused), (0, 0), "{found:?}");
    });
}

#[test]
fn a_pass_shares_into_read_only_snapshots() {
    on(BTRFS, |ground| {
        let content = random_blocks(23, 64);
        run("btrfs", ["subvolume", "create", &path(ground, "sub")]).unwrap();
        ground.file("sub/file", &content);
        run("btrfs", ["subvolume", "snapshot", "-r", &path(ground, "sub"), &path(ground, "snapshot")]).unwrap();
        ground.file("copy", &content);
        let found = pass::run(ground).passed;
        assert!(found.trouble.refused.is_empty() && found.trouble.failed.is_empty(), "{found:?}");
        let places =
            ["sub/file", "snapshot/file", "copy"].map(|name| ground.offset_of(&ground.open(name, Access::Read), 5));
        assert!(places.iter().all(|place| place.is_some() && *place == places[0]), "{places:?}");
        assert!(["sub/file", "snapshot/file", "copy"].iter().all(|name| ground.content(name) == content));
    });
}
