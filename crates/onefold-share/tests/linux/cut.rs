//! A machine that stops in the middle of sharing.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onefold_block::random::SeededRandom;
use onefold_linux::{LinuxFile, LinuxSubstrate};
use onefold_substrate::{At, ComparisonResult, Files, Sharing};

use crate::ground::{K, PrivateMounts, XFS, random_blocks, run, skip, soon};

const BLOCKS: u64 = 1024;
const ROUNDS: u64 = 6;

/// Shares pieces of the second file with equal ones of the first, until nothing works any more, or there is no use in
/// it; returns how many.
fn share_until_it_ends(substrate: &LinuxSubstrate, files: &[LinuxFile; 2], seed: u64, is_over: &AtomicBool) -> u64 {
    let random = SeededRandom::new(seed);
    let mut shared = 0;
    while !is_over.load(Ordering::Relaxed) {
        let length = 1 + random.below(8);
        let offset = random.below(BLOCKS - length) * K;
        let (source, into) = (At { file: &files[0], offset }, At { file: &files[1], offset });
        match substrate.share(source, into, length * K) {
            Ok(ComparisonResult::Shared) => shared += 1,
            Ok(ComparisonResult::Differ) => panic!("equal blocks differ"),
            Err(_) => break,
        }
        // So that the next one shares something: the same bytes in places of their own.
        let mut bytes = vec![0; (length * K) as usize];
        let read = substrate.read_at(&files[1], offset, &mut bytes);
        if read.and_then(|_| substrate.write_at(&files[1], offset, &bytes)).is_err() {
            break;
        }
    }
    shared
}

/// XFS can be told to stop as if the power had failed: nothing more reaches the disk, and its log is replayed at the
/// next mount. Btrfs of this kernel cannot.
#[test]
fn xfs_that_stops_in_the_middle_of_sharing_has_all_bytes() {
    let Some(place) = PrivateMounts::new() else { return };
    let Some(root) = place.mount("root", XFS) else { return };
    let content = random_blocks(1, BLOCKS as usize);
    for round in 0..ROUNDS {
        let substrate = LinuxSubstrate::open(&root, Path::new("")).unwrap();
        let files = ["one", "other"].map(|name| {
            let file = substrate.create(Path::new(&format!("{name}.{round}"))).unwrap();
            substrate.write_at(&file, 0, &content).unwrap();
            substrate.sync(&file).unwrap();
            file
        });
        let is_over = AtomicBool::new(false);
        let (shared, stopped) = std::thread::scope(|scope| {
            let sharer = scope.spawn(|| share_until_it_ends(&substrate, &files, round, &is_over));
            std::thread::sleep(Duration::from_millis(100 + 30 * round));
            // With and without what its log holds in memory.
            let flush = if round % 2 == 0 { "shutdown" } else { "shutdown -f" };
            let stopped = run("xfs_io", ["-x", "-c", flush, root.to_str().unwrap()]);
            is_over.store(stopped.is_err(), Ordering::Relaxed);
            (sharer.join().unwrap(), stopped)
        });
        if let Err(error) = stopped {
            return skip(&error).unwrap_or_default();
        }
        assert!(shared > 10, "{shared} shared");
        drop((files, substrate));
        assert!(soon(|| run("umount", [&root]).is_ok()));
        place.mount_again("root", XFS).unwrap();
        for earlier in 0..=round {
            for name in ["one", "other"] {
                let read = std::fs::read(root.join(format!("{name}.{earlier}"))).unwrap();
                assert!(read == content, "{name}.{earlier} after round {round}");
            }
        }
    }
}
