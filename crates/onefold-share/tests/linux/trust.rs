//! State folders that others made, own, may read, or put in place of another one.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use onefold_share::pass::PassError;
use onefold_share::state::trust::{Distrust, writable_root};
use onefold_share::state::{State, StateError};
use onefold_substrate::{Access, Sharing, UserNo};

use crate::ground::{FOLDER, Ground, on_each, random_blocks};
use crate::pass::{EngineRun, USUAL, run, try_run};

const OTHER: u32 = 65534;
const FOLDERS: [&str; 12] = [
    "arena", "batches", "claims", "files", "guests", "locks", "logs", "maps", "requests", "scratch", "shards",
    "watches",
];

fn untrusted(outcome: Result<EngineRun, PassError>) -> (PathBuf, Distrust) {
    match outcome {
        Err(PassError::State(StateError::Untrusted { path, why })) => (path, why),
        other => panic!("{other:?}"),
    }
}

fn try_once(ground: &Ground) -> Result<EngineRun, PassError> {
    try_run(&ground.substrate, USUAL, &|| {})
}

/// Returns all that is below a folder, itself first.
fn tree(folder: &Path) -> Vec<PathBuf> {
    let mut all = vec![folder.to_owned()];
    let mut at = 0;
    while let Some(path) = all.get(at).cloned() {
        at += 1;
        if path.is_dir() {
            all.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    all
}

fn two_copies(ground: &Ground, seed: u64) {
    let content = random_blocks(seed, 64);
    for name in ["one", "two"] {
        let path = ground.root.join(format!("{name}{seed}"));
        fs::write(&path, &content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }
}

/// On a file system whose root folder belonged to an ordinary user, that user made the state folder. Root's run cloned
/// blocks of root's files into the user's arena.
#[test]
fn a_planted_state_folder_gets_no_block_of_roots_files() {
    on_each(|ground| {
        let state = ground.root.join(FOLDER);
        for path in std::iter::once(state.clone()).chain(FOLDERS.map(|name| state.join(name))) {
            fs::create_dir(&path).unwrap();
            chown(&path, Some(OTHER), Some(OTHER)).unwrap();
        }
        let arena = state.join("arena/0");
        fs::write(&arena, "").unwrap();
        chown(&arena, Some(OTHER), Some(OTHER)).unwrap();
        chown(&ground.root, Some(OTHER), Some(OTHER)).unwrap();
        two_copies(ground, 1);
        let (path, why) = untrusted(try_once(ground));
        assert_eq!(path, Path::new(FOLDER));
        assert_eq!(why, Distrust::Owner { owner: UserNo(OTHER), user: UserNo::ROOT });
        assert_eq!(tree(&state).len(), 2 + FOLDERS.len(), "nothing was made in it");
        assert_eq!(fs::metadata(&arena).unwrap().blocks(), 0);
        let looked = State::look(&ground.substrate, &onefold_block::clock::SystemClock, &|_| {});
        assert!(matches!(looked.err(), Some(StateError::Untrusted { .. })));
        // Without it, root has a folder of its own, and says who could take that away.
        fs::rename(&state, ground.root.join("planted")).unwrap();
        let done = run(ground);
        assert!(done.passed.shared.now > 0, "{done:?}");
        let told = "the root folder of the file system belongs to user 65534";
        assert!(done.notices.iter().any(|notice| notice.contains(told)), "{:?}", done.notices);
        assert_eq!(writable_root(&ground.substrate).unwrap().unwrap().owner, UserNo(OTHER));
        assert!(tree(&state).iter().all(|path| fs::metadata(path).unwrap().mode() & 0o077 == 0));
    });
}

#[test]
fn each_kind_of_file_that_belongs_to_another_user_is_refused() {
    on_each(|ground| {
        let state = ground.root.join(FOLDER);
        two_copies(ground, 1);
        run(ground);
        for name in ["logs/1.1.1.1", "requests/1.1.1.1", "scratch/0000000000000001.1"] {
            fs::write(state.join(name), "").unwrap();
            fs::set_permissions(state.join(name), Permissions::from_mode(0o600)).unwrap();
            chown(state.join(name), Some(OTHER), Some(OTHER)).unwrap();
            assert_eq!(untrusted(try_once(ground)).0, Path::new(FOLDER).join(name));
            fs::remove_file(state.join(name)).unwrap();
        }
        let mut refused = Vec::new();
        // Locks last: with those that it does not want, a run succeeds, and the next generation of the index is another
        // file.
        let mut all = tree(&state);
        all.sort_by_key(|path| path.parent() == Some(&state.join("locks")));
        for (nth, path) in all.into_iter().enumerate() {
            if !path.exists() {
                continue;
            }
            chown(&path, Some(OTHER), Some(OTHER)).unwrap();
            // So that there is something to do.
            two_copies(ground, 2 + nth as u64);
            let name = path.strip_prefix(&ground.root).unwrap().to_owned();
            match try_once(ground) {
                // A lock that nobody wanted: that of an image which did not change.
                Ok(_) => assert!(name.to_str().unwrap().contains("/locks/"), "{name:?}"),
                outcome => {
                    let (found, why) = untrusted(outcome);
                    assert_eq!(
                        (found, why),
                        (name.clone(), Distrust::Owner { owner: UserNo(OTHER), user: UserNo::ROOT })
                    );
                    refused.push(name);
                }
            }
            chown(&path, Some(0), Some(0)).unwrap();
        }
        let of = |folder: &str| refused.iter().filter(|path| path.starts_with(Path::new(FOLDER).join(folder))).count();
        for (folder, least) in
            [("arena", 2), ("batches", 2), ("files", 3), ("locks", 2), ("shards", 2), ("identity", 1), ("watches", 1)]
        {
            assert!(of(folder) >= least, "{folder}: {refused:?}");
        }
        run(ground);
    });
}

#[test]
fn links_and_other_things_by_the_names_of_files_are_refused() {
    on_each(|ground| {
        two_copies(ground, 1);
        run(ground);
        let arena = ground.root.join(FOLDER).join("arena/0");
        let name = Path::new(FOLDER).join("arena/0");
        fs::hard_link(&arena, ground.root.join("another")).unwrap();
        two_copies(ground, 2);
        assert_eq!(untrusted(try_once(ground)), (name.clone(), Distrust::Links { links: 2, most: 1 }));
        fs::remove_file(ground.root.join("another")).unwrap();
        run(ground);
        // A secret of root's in the place of a lock, by either kind of link.
        let lock = ground.root.join(FOLDER).join("locks/arena.0");
        let lock_name = Path::new(FOLDER).join("locks/arena.0");
        fs::remove_file(&lock).unwrap();
        symlink("../../one1", &lock).unwrap();
        two_copies(ground, 3);
        assert_eq!(untrusted(try_once(ground)), (lock_name, Distrust::Kind));
        fs::remove_file(&lock).unwrap();
        // The folder itself.
        let state = ground.root.join(FOLDER);
        fs::rename(&state, ground.root.join("elsewhere")).unwrap();
        symlink("elsewhere", &state).unwrap();
        assert_eq!(untrusted(try_once(ground)), (FOLDER.into(), Distrust::Kind));
        fs::remove_file(&state).unwrap();
        fs::write(&state, "").unwrap();
        assert_eq!(untrusted(try_once(ground)), (FOLDER.into(), Distrust::Kind));
    });
}

#[test]
fn after_a_restore_the_rights_of_others_go_and_their_arena_files_are_left() {
    on_each(|ground| {
        two_copies(ground, 1);
        run(ground);
        let state = ground.root.join(FOLDER);
        for path in tree(&state) {
            let mode = if path.is_dir() { 0o755 } else { 0o664 };
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        }
        let arena = state.join("arena/0");
        // A process of another user has it open by now.
        let opened = fs::File::open(&arena).unwrap();
        let before = ground.map(&ground.open(".onefold/arena/0", Access::Read)).0;
        two_copies(ground, 2);
        let done = run(ground);
        assert!(done.passed.shared.now > 0);
        let told = |text: &str| done.notices.iter().filter(|notice| notice.contains(text)).count();
        assert!(told("were taken away") >= 5 && told("nothing more is put into such files") == 1, "{:?}", done.notices);
        // All that was opened. Locks of images that did not change are not.
        let opened_files = tree(&state).into_iter().filter(|path| path.parent() != Some(&state.join("locks")));
        let exposed = opened_files.filter(|path| fs::metadata(path).unwrap().mode() & 0o077 != 0);
        assert_eq!(exposed.collect::<Vec<_>>(), Vec::<PathBuf>::new());
        assert_eq!(fs::metadata(&arena).unwrap().mode() & 0o7777, 0o1600);
        assert!(state.join("arena/1").exists());
        assert_eq!(ground.map(&ground.open(".onefold/arena/0", Access::Read)).0, before, "nothing new is in it");
        drop(opened);
        // What it holds is still a source.
        fs::write(ground.root.join("three"), random_blocks(1, 64)).unwrap();
        let done = run(ground);
        assert_eq!(done.notices, Vec::<String>::new());
        assert_eq!(done.passed.shared.now, 64 * crate::ground::K);
        assert_eq!(ground.map(&ground.open(".onefold/arena/0", Access::Read)).0, before);
    });
}

#[test]
fn a_folder_that_is_put_in_its_place_during_a_run_is_not_used() {
    on_each(|ground| {
        two_copies(ground, 1);
        let state = ground.root.join(FOLDER);
        let replace = || {
            fs::rename(&state, ground.root.join("taken")).unwrap();
            for path in std::iter::once(state.clone()).chain(FOLDERS.map(|name| state.join(name))) {
                fs::create_dir(&path).unwrap();
                chown(&path, Some(OTHER), Some(OTHER)).unwrap();
            }
            let arena = state.join("arena/0");
            fs::write(&arena, "").unwrap();
            chown(&arena, Some(OTHER), Some(OTHER)).unwrap();
        };
        let done = try_run(&ground.substrate, USUAL, &replace).unwrap();
        assert_eq!(done.passed.shared.now, 64 * crate::ground::K, "{done:?}");
        assert_eq!(tree(&state).len(), 2 + FOLDERS.len());
        assert_eq!(fs::metadata(state.join("arena/0")).unwrap().len(), 0);
        assert!(fs::metadata(ground.root.join("taken/arena/0")).unwrap().len() > 0);
        assert_eq!(untrusted(try_once(ground)).0, Path::new(FOLDER));
    });
}

#[test]
fn a_state_says_that_it_is_not_the_present_one_once_a_folder_of_it_was_replaced() {
    on_each(|ground| {
        let (clock, random) = (onefold_block::clock::SystemClock, onefold_block::random::SystemRandom);
        let state = State::open(&ground.substrate, &clock, &random, &|_| {}).unwrap();
        assert!(state.is_current().unwrap());
        let path = ground.root.join(FOLDER);
        for name in ["", "locks"] {
            fs::rename(path.join(name), ground.root.join("away")).unwrap();
            assert!(!state.is_current().unwrap(), "{name} is gone");
            fs::create_dir(path.join(name)).unwrap();
            assert!(!state.is_current().unwrap(), "{name} is another one");
            fs::remove_dir(path.join(name)).unwrap();
            fs::rename(ground.root.join("away"), path.join(name)).unwrap();
            assert!(state.is_current().unwrap());
        }
        let _ = ground.substrate.room();
    });
}
