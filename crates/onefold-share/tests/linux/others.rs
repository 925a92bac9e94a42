//! Passes while guests write, and beside other hosts.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onefold_block::BLOCK_BYTES;
use onefold_block::clock::SystemClock;
use onefold_block::random::{SeededRandom, SystemRandom};
use onefold_linux::LinuxSubstrate;
use onefold_share::state::State;
use onefold_share::state::locks::Subject;
use onefold_substrate::{Access, Files, SubstrateKind};

use crate::ground::{FOLDER, K, on_each, random_blocks};
use crate::pass::{USUAL, run, shuffled, try_run};

/// Ends what others do when it goes.
pub(crate) struct StopGuard<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A guest overwrites blocks with contents that other places have, too, and compares all it reads.
#[test]
fn guests_that_write_all_the_time_read_what_they_wrote() {
    on_each(|ground| {
        const BLOCKS: u64 = 256;
        let contents = random_blocks(25, 24);
        let content = |number: u64| &contents[number as usize * BLOCK_BYTES..][..BLOCK_BYTES];
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let guests: Vec<_> = (0..2)
                .map(|guest| {
                    let path = ground.root.join(format!("guest-{guest}"));
                    let file =
                        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap();
                    let is_over = &is_over;
                    scope.spawn(move || {
                        let random = SeededRandom::new(guest);
                        let mut written: Vec<u64> = (0..BLOCKS).map(|_| random.below(24)).collect();
                        for (block, number) in (0..).zip(&written) {
                            file.write_all_at(content(*number), block * K).unwrap();
                        }
                        let mut read = vec![0; BLOCK_BYTES];
                        let mut writes = 0_u64;
                        while !is_over.load(Ordering::Relaxed) {
                            let (block, number) = (random.below(BLOCKS), random.below(24));
                            file.write_all_at(content(number), block * K).unwrap();
                            written[block as usize] = number;
                            for block in [block, random.below(BLOCKS)] {
                                file.read_exact_at(&mut read, block * K).unwrap();
                                assert!(read == content(written[block as usize]), "block {block}, {writes} writes");
                            }
                            writes += 1;
                        }
                        file.sync_all().unwrap();
                        for (block, number) in (0..).zip(&written) {
                            file.read_exact_at(&mut read, block * K).unwrap();
                            assert!(read == content(*number), "block {block} at the end");
                        }
                    })
                })
                .collect();
            // A failed run ends the test, not only itself.
            let _ends = StopGuard(&is_over);
            let started = Instant::now();
            let (mut runs, mut shared) = (0, 0);
            // Three seconds; on a busy machine longer, until there is something to see.
            let is_enough = |runs, shared| runs > 3 && shared > 0 && started.elapsed() >= Duration::from_secs(3);
            while !is_enough(runs, shared) && started.elapsed() < Duration::from_secs(60) {
                let found = run(ground);
                runs += 1;
                shared += found.passed.shared.now;
            }
            is_over.store(true, Ordering::Relaxed);
            guests.into_iter().for_each(|guest| guest.join().unwrap());
            assert!(runs > 3 && shared > 0, "{runs} runs, {shared} bytes");
        });
    });
}

/// Two hosts, as far as locks are concerned: each has the file system open by itself.
#[test]
fn two_hosts_do_the_work_of_one() {
    on_each(|ground| {
        let content = random_blocks(26, 512);
        let names: Vec<String> = (0..12).map(|number| format!("image-{number}")).collect();
        for (seed, name) in (30..).zip(&names) {
            ground.file(name, &shuffled(&content, seed));
        }
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let substrate = LinuxSubstrate::open(&ground.root, Path::new("")).unwrap();
                    for _ in 0..6 {
                        match try_run(&substrate, USUAL, &|| {}) {
                            Ok(_) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        });
        let found = run(ground);
        for (seed, name) in (30..).zip(&names) {
            assert!(ground.content(name) == shuffled(&content, seed), "{name}");
        }
        assert_eq!(found.passed.shared.differed, 0, "{found:?}");
        if ground.kind() == SubstrateKind::Xfs {
            let file = ground.open(&names[0], Access::Read);
            let (extents, _) = ground.map(&file);
            assert!(extents.iter().all(|extent| extent.is_shared), "{extents:?}");
        }
        assert!(found.notices.is_empty(), "{:?}", found.notices);
    });
}

/// A file that another host has is not touched. That host gets a request for it, and shares.
#[test]
fn a_request_waits_until_its_file_can_be_had() {
    on_each(|ground| {
        let content = random_blocks(44, 256);
        ground.file("guest", &content);
        // Long enough ago that its times tell of the next change.
        std::thread::sleep(Duration::from_millis(50));
        run(ground);
        let door = LinuxSubstrate::open(&ground.root, Path::new("")).unwrap();
        let state = State::open(&door, &SystemClock, &SystemRandom, &|_| {}).unwrap();
        let guest = door.open(Path::new("guest"), Access::Read).unwrap();
        let held = state.try_lock(&Subject::File(door.stat(&guest).unwrap().handle)).unwrap().unwrap();
        for name in ["a", "b"] {
            ground.file(name, &content);
        }
        std::thread::sleep(Duration::from_millis(50));
        let place = || {
            let file = ground.open("guest", Access::Read);
            ground.map(&file).0[0].place
        };
        let before = place();
        let found = run(ground);
        assert_eq!((found.passed.planned.elsewhere, found.passed.shared.now), (256, 256 * K), "{found:?}");
        assert_eq!(place(), before);
        let requests = || fs::read_dir(ground.root.join(FOLDER).join("requests")).unwrap().count();
        assert_eq!(requests(), 1);
        // Nobody else may touch it yet.
        assert_eq!(run(ground).passed.logs_elsewhere, 1);
        drop(held);
        let found = run(ground);
        assert_eq!((found.scanned.read_bytes, found.passed.shared.now), (0, 256 * K), "{found:?}");
        assert_eq!(requests(), 0);
        assert_ne!(place(), before);
        assert!(ground.content("guest") == content);
    });
}
