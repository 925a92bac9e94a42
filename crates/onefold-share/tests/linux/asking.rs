//! Status, index and explanations, and that asking changes nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use onefold_block::clock::SystemClock;
use onefold_block::random::{SeededRandom, SystemRandom};
use onefold_block::{BLOCK_BYTES, Show};
use onefold_linux::LinuxSubstrate;
use onefold_share::explain::{BlockContent, ExplainedBlock, IndexAnswer, Verdict, explain};
use onefold_share::format::entry::ContentPlace;
use onefold_share::opt_out::exclude;
use onefold_share::references;
use onefold_share::state::State;
use onefold_share::state::files::Marks;
use onefold_share::state::locks::Subject;
use onefold_share::status::{LockSubject, Status, status};
use onefold_substrate::Refusal;

use crate::ground::{BTRFS, FOLDER, Ground, K, XFS, no_child, on, on_each, random_blocks, run as run_program};
use crate::others::StopGuard;
use crate::pass::{RunSettings, USUAL, run, try_run};

/// Looks at the state folder, which must be there. Returns what was noticed, too.
fn look<T>(ground: &Ground, work: impl FnOnce(&State<'_, LinuxSubstrate>) -> T) -> (T, Vec<String>) {
    let notices = RefCell::new(Vec::new());
    let notice = |notice: onefold_share::state::Notice| notices.borrow_mut().push(notice.to_string());
    let state = State::look(&ground.substrate, &SystemClock, &notice).unwrap().unwrap();
    let done = work(&state);
    drop(state);
    (done, notices.take())
}

fn ask(ground: &Ground) -> Status {
    let (found, notices) = look(ground, |state| status(state).unwrap());
    assert_eq!(notices, [""; 0]);
    found
}

fn why(ground: &Ground, name: &str, block: u64) -> (Verdict, ExplainedBlock) {
    let quiet = |_| {};
    let state = State::look(&ground.substrate, &SystemClock, &quiet).unwrap();
    let found = explain(&ground.substrate, state.as_ref(), Path::new(name), block * K + 1, None).unwrap();
    (found.verdict(state.is_some()), found)
}

fn verdict(ground: &Ground, name: &str, block: u64) -> Verdict {
    why(ground, name, block).0
}

/// Returns all that is in the state folder, and when it was changed.
fn snapshot(ground: &Ground) -> BTreeMap<PathBuf, (i64, i64, u64)> {
    let mut all = BTreeMap::new();
    let mut ahead = vec![ground.root.join(FOLDER)];
    while let Some(path) = ahead.pop() {
        let stat = path.symlink_metadata().unwrap();
        all.insert(path.clone(), (stat.ctime(), stat.ctime_nsec(), stat.len()));
        if stat.is_dir() {
            ahead.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    all
}

#[test]
fn nothing_is_made_where_nothing_is_known() {
    on_each(|ground| {
        ground.file("a", &random_blocks(1, 4));
        assert!(State::look(&ground.substrate, &SystemClock, &|_| {}).unwrap().is_none());
        assert_eq!(verdict(ground, "a", 0), Verdict::NoState);
        assert!(!ground.root.join(FOLDER).exists());
    });
}

#[test]
fn status_counts_what_is_there_and_changes_nothing() {
    on_each(|ground| {
        let content = random_blocks(2, 64);
        for name in ["a", "b", "c", "d", "e"] {
            ground.file(name, &content);
        }
        ground.file("f", &random_blocks(3, 10));
        ground.settled_room();
        run(ground);
        let found = ask(ground);
        assert_eq!((found.files.known, found.files.current, found.files.bytes), (6, 6, (5 * 64 + 10) * K), "{found:?}");
        let entries = found.entries.unwrap();
        assert_eq!((entries.unique, entries.shared), (10, 64), "{found:?}");
        assert_eq!((found.index.files, found.index.generation, found.waiting.logs), (1, 1, 0), "{found:?}");
        assert!(found.index.bytes >= 10 * 21 + 64 * 17, "{found:?}");
        assert_eq!((found.arena.files, found.arena.slots), (1, 64), "{found:?}");
        assert_eq!((found.locks.as_deref(), found.left_over), (Some(&[][..]), Some(0)), "{found:?}");

        fs::remove_file(ground.root.join("a")).unwrap();
        OpenOptions::new().write(true).open(ground.root.join("b")).unwrap().write_all_at(b"x", 0).unwrap();
        exclude(&ground.substrate, Path::new("c")).unwrap();
        drop(ground.file(".onefold/scratch/0123.1", b"half"));
        ground.file("g", &random_blocks(4, 7));
        ground.settled_room();
        let before = snapshot(ground);
        let found = ask(ground);
        let files = found.files;
        assert_eq!(
            (files.known, files.current, files.changed, files.gone, files.opted_out),
            (6, 3, 1, 1, 1),
            "{found:?}"
        );
        assert_eq!(found.left_over, Some(1));
        why(ground, "d", 3);
        assert_eq!(snapshot(ground), before);
        // Logs that wait.
        try_run(&ground.substrate, RunSettings { is_dry_run: true, ..USUAL }, &|| {}).unwrap();
        let found = ask(ground);
        assert_eq!((found.waiting.logs, found.waiting.files, found.waiting.blocks), (2, 2, 64 + 7), "{found:?}");
        assert_eq!(found.left_over, Some(0));
    });
}

#[test]
fn slots_that_only_the_arena_refers_to_are_told() {
    on_each(|ground| {
        let content = random_blocks(5, 40);
        ground.file("a", &content);
        ground.file("b", &content);
        run(ground);
        assert_eq!(ask(ground).arena.unneeded, Some(0));
        for name in ["a", "b"] {
            fs::remove_file(ground.root.join(name)).unwrap();
        }
        ground.settled_room();
        let unneeded = || ask(ground).arena.unneeded;
        assert!(crate::ground::soon(|| unneeded() == Some(40)), "{:?}", unneeded());
    });
}

#[test]
fn locks_are_told_and_a_host_that_wants_one_gets_it() {
    on_each(|ground| {
        ground.file("a", &random_blocks(6, 8));
        run(ground);
        let _no_child = no_child();
        let quiet = |_| {};
        let state = State::open(&ground.substrate, &SystemClock, &SystemRandom, &quiet).unwrap();
        let files = Marks::load(&state).unwrap();
        let handle = files.iter().next().unwrap().handle.clone();
        let held = [Subject::File(handle), Subject::Arena(7)].map(|subject| state.try_lock(&subject).unwrap().unwrap());
        let locks = ask(ground).locks.unwrap();
        let subjects: Vec<_> = locks.iter().map(|lock| lock.subject.clone()).collect();
        assert_eq!(subjects, [LockSubject::Other("arena.7".into()), LockSubject::Image("a".into())]);
        assert!(locks.iter().all(|lock| lock.process == Some(std::process::id())));
        drop(held);
        // Somebody asks all the time, and no lock is ever refused for it.
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let _ends = StopGuard(&is_over);
                (0..30).for_each(|_| drop(ask(ground)));
            });
            while !is_over.load(Ordering::Relaxed) {
                assert!(state.try_lock(&Subject::Arena(7)).unwrap().is_some());
            }
            asking.join().unwrap();
        });
    });
}

#[test]
fn a_damaged_state_folder_gives_words() {
    on(XFS, |ground| {
        let random = SeededRandom::new(7);
        let content = random_blocks(8, 32);
        ground.file("a", &content);
        ground.file("b", &content);
        run(ground);
        ground.file("c", &content);
        try_run(&ground.substrate, RunSettings { is_dry_run: true, ..USUAL }, &|| {}).unwrap();
        let whole: Vec<(PathBuf, Vec<u8>)> = snapshot(ground)
            .into_keys()
            .filter(|path| path.is_file() && !path.starts_with(ground.root.join(FOLDER).join("arena")))
            .map(|path| (path.clone(), fs::read(&path).unwrap()))
            .filter(|(_, bytes)| !bytes.is_empty())
            .collect();
        assert!(whole.len() >= 6, "{whole:?}");
        for (path, bytes) in &whole {
            for _ in 0..6 {
                let mut damaged = bytes.clone();
                let at = random.below(damaged.len() as u64) as usize;
                match random.below(2) {
                    0 => damaged[at] ^= 1 << random.below(8),
                    _ => damaged.truncate(at),
                }
                fs::write(path, &damaged).unwrap();
                let before = snapshot(ground);
                let notices = RefCell::new(Vec::new());
                let notice = |notice: onefold_share::state::Notice| notices.borrow_mut().push(notice.to_string());
                let state = State::look(&ground.substrate, &SystemClock, &notice);
                match state {
                    Err(error) => assert!(error.to_string().contains("version"), "{error}"),
                    Ok(None) => assert!(path.ends_with("identity")),
                    Ok(Some(state)) => {
                        if let Err(error) = status(&state) {
                            assert!(error.to_string().contains("version"), "{error}");
                        }
                        let _ = explain(&ground.substrate, Some(&state), Path::new("a"), 0, None);
                        let _ = references::count(&state, &Marks::load(&state).unwrap()).unwrap();
                    }
                }
                assert_eq!(snapshot(ground), before, "{}", path.shown());
                fs::write(path, bytes).unwrap();
            }
        }
        // A damaged index is said to be so, and taken for none.
        let shard = whole.iter().find(|(path, _)| path.starts_with(ground.root.join(FOLDER).join("shards"))).unwrap();
        fs::write(&shard.0, b"nonsense").unwrap();
        let (found, notices) = look(ground, |state| status(state).unwrap());
        assert_eq!(found.entries.map(|entries| entries.shared), Some(0));
        assert!(notices.iter().any(|notice| notice.contains("is of no use")), "{notices:?}");
    });
}

#[test]
fn the_index_is_asked_for_digests_and_gives_all_its_entries() {
    on_each(|ground| {
        let content = random_blocks(9, 20);
        ground.file("a", &content);
        ground.file("b", &content[..5 * BLOCK_BYTES]);
        run(ground);
        look(ground, |state| {
            let mut entries = Vec::new();
            state
                .each_entry(|entry| {
                    entries.push(entry);
                    ControlFlow::Continue(())
                })
                .unwrap();
            assert_eq!(entries.len(), 20);
            assert!(entries.is_sorted_by_key(|entry| entry.digest));
            for (block, bytes) in content.chunks(BLOCK_BYTES).enumerate() {
                let digest = onefold_share::format::FingerprintPrefix::of(
                    state.key(&onefold_share::domain::Domain::Owner(0)).fingerprint(bytes),
                );
                let found = state.find(digest).unwrap().unwrap();
                assert_eq!(matches!(found, ContentPlace::Shared(_)), block < 5, "{found:?}");
                assert!(entries.iter().any(|entry| (entry.digest, entry.place) == (digest, found)));
                let mut other = digest;
                other.0[11] ^= 1;
                assert_eq!(state.find(other).unwrap(), None);
            }
            let references = references::count(state, &Marks::load(state).unwrap()).unwrap().unwrap();
            assert_eq!(references.slots, [(2, 5)].into());
        });
    });
}

#[test]
fn each_reason_is_told_where_it_holds() {
    on_each(|ground| {
        let content = random_blocks(10, 40);
        ground.file("a", &content);
        // A file that changed a moment ago is read again.
        ground.settled_room();
        run(ground);
        assert_eq!(verdict(ground, "a", 1), Verdict::OnlyCopy);
        // Read, and not taken in.
        ground.file("b", &[&content[..20 * BLOCK_BYTES], &random_blocks(11, 1), b"tail"].concat());
        assert_eq!(verdict(ground, "b", 1), Verdict::NeverSeen);
        ground.settled_room();
        try_run(&ground.substrate, RunSettings { is_dry_run: true, ..USUAL }, &|| {}).unwrap();
        assert_eq!(verdict(ground, "b", 1), Verdict::Waits);
        // Too short to be worth it.
        try_run(&ground.substrate, RunSettings { min_run_bytes: 1 << 20, ..USUAL }, &|| {}).unwrap();
        // One of the two lies at the slot, the other one does not.
        let alone: Vec<_> =
            ["a", "b"].into_iter().filter(|name| verdict(ground, name, 1) == Verdict::LeftAlone).collect();
        assert_eq!(alone.len(), 1, "{:?} {:?}", why(ground, "a", 1), why(ground, "b", 1));
        assert!(["a", "b"].iter().any(|name| verdict(ground, name, 1) == Verdict::OnlyInArena));
        let run_found = why(ground, alone[0], 1).1.run.unwrap();
        assert_eq!((run_found.blocks, run_found.is_cut), (20, false));
        assert_eq!((verdict(ground, "b", 20), verdict(ground, "b", 21)), (Verdict::OnlyCopy, Verdict::PartOfBlock));
        // Shared, when they are looked at again.
        for name in ["a", "b"] {
            OpenOptions::new().write(true).open(ground.root.join(name)).unwrap().write_all_at(b"x", 20 * K).unwrap();
            assert_eq!(verdict(ground, name, 1), Verdict::Changed);
        }
        run(ground);
        let (found, explained) = why(ground, "a", 1);
        assert_eq!(found, Verdict::Shared, "{explained:?}");
        assert_eq!((&explained.sharers.blocks[0].path, explained.sharers.blocks[0].offset), (&PathBuf::from("b"), K));
        assert!(matches!(explained.index, IndexAnswer::Slot { is_equal: true, .. }), "{explained:?}");
        assert_eq!(explained.sharers.slots.len(), 1);
        assert_eq!(explained.place, ground.place_of(&ground.open("b", onefold_substrate::Access::Read), 1));
        // Opted out, and shared all the same.
        exclude(&ground.substrate, Path::new("a")).unwrap();
        assert_eq!((verdict(ground, "a", 1), verdict(ground, "a", 30)), (Verdict::Shared, Verdict::OptedOut));
        // Nothing there.
        let holes = ground.file("holes", &content[..BLOCK_BYTES]);
        onefold_substrate::Files::set_len(&ground.substrate, &holes, 9 * K).unwrap();
        rustix::fs::fallocate(&holes, rustix::fs::FallocateFlags::empty(), 6 * K, K).unwrap();
        assert_eq!((verdict(ground, "holes", 3), verdict(ground, "holes", 6)), (Verdict::Nothing, Verdict::Nothing));
        // A copy that nobody has looked at.
        let clone = onefold_substrate::Sharing::create_clone(
            &ground.substrate,
            &ground.open("holes", onefold_substrate::Access::Read),
            Path::new("clone"),
        );
        drop(clone.unwrap());
        exclude(&ground.substrate, Path::new("holes")).unwrap();
        assert_eq!(verdict(ground, "holes", 0), Verdict::SharedWithOthers);
        let behind = explain(&ground.substrate, None, Path::new("holes"), 9 * K, None);
        assert!(behind.unwrap_err().to_string().contains("ends at byte 36864"));
    });
}

/// To write back what is in memory would have a guest wait. The map is taken as it is.
#[test]
fn an_answer_writes_nothing_back() {
    on_each(|ground| {
        let content = random_blocks(7, 64);
        let file = ground.file("a", &content);
        // Set aside, and written since: the map shows the one only.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 64 * K, 64 * K).unwrap();
        onefold_substrate::Files::sync(&ground.substrate, &file).unwrap();
        onefold_substrate::Files::write_at(&ground.substrate, &file, 70 * K, &content[..BLOCK_BYTES]).unwrap();
        onefold_substrate::Files::write_at(&ground.substrate, &file, 200 * K, &content[..BLOCK_BYTES]).unwrap();
        let map = || ground.map(&file).0;
        let before = map();
        for block in [3, 70, 200] {
            let (_, explained) = why(ground, "a", block);
            assert_eq!(explained.held, BlockContent::Data, "{explained:?}");
            assert_eq!(explained.place.is_some(), block == 3, "{explained:?}");
        }
        assert!(map() == before, "{before:?} {:?}", map());
        onefold_substrate::Files::sync(&ground.substrate, &file).unwrap();
        assert!(map() != before, "that is what writing back does");
        assert!([3, 70, 200].iter().all(|block| why(ground, "a", *block).1.place.is_some()));
    });
}

#[test]
fn refused_and_compressed_files_are_told() {
    on_each(|ground| {
        let content = random_blocks(12, 10);
        ground.file("a", &content);
        run(ground);
        ground.file("b", &content);
        ground.file("c", &content);
        for name in ["a", "b"] {
            run_program("chattr", ["+i", ground.root.join(name).to_str().unwrap()]).unwrap();
        }
        ground.settled_room();
        run(ground);
        // One of them became the source of the others.
        let found = ["a", "b"].map(|name| verdict(ground, name, 2));
        assert!(found.contains(&Verdict::Refused(Refusal::Immutable)), "{found:?}");
        for name in ["a", "b"] {
            run_program("chattr", ["-i", ground.root.join(name).to_str().unwrap()]).unwrap();
        }
    });
    on(BTRFS, |ground| {
        let content = b"again ".repeat(50_000);
        for name in ["one", "two"] {
            let file = ground.file(name, b"");
            run_program("chattr", ["+c", ground.root.join(name).to_str().unwrap()]).unwrap();
            onefold_substrate::Files::write_at(&ground.substrate, &file, 0, &content).unwrap();
            onefold_substrate::Files::sync(&ground.substrate, &file).unwrap();
        }
        ground.settled_room();
        run(ground);
        let (found, explained) = why(ground, "two", 3);
        assert_eq!((found, explained.place), (Verdict::NoPlace, None), "{explained:?}");
    });
}
