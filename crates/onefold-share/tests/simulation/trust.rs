//! State folders that others made, own, or can read; and hosts that work for users with different rights.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::cell::Cell;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onefold_block::BLOCK_BYTES;
use onefold_share::pass::PassError;
use onefold_share::state::trust::{Distrust, WritableRoot, writable_root};
use onefold_share::state::{Notice, State, StateError, StateFolder};
use onefold_share::status::status;
use onefold_substrate::{Access, Files, ListedKind, Names, Sharing, UserNo};
use onefold_testing::simulated::{Host, HostNo, SimulatedFileSystem, Simulation, SimulationOptions, seeds};

use super::engine::{scan_and_pass, scan_only};
use super::simulate_all_with;
use crate::declared::decode_declared;

const ROOTS: &str = ".onefold";
const OTHER: UserNo = UserNo(7);

/// A file system on which root has shared, with files of all kinds in its state folder.
struct Ground {
    file_system: SimulatedFileSystem,
    host: Host<'static>,
    /// Whether runs find the images as they were. Of an image that was written to, a scan puts another log in place of
    /// the last one.
    are_writers_quiet: Cell<bool>,
}

impl Ground {
    fn new(options: SimulationOptions) -> Ground {
        let options = SimulationOptions {
            hosts: 2,
            images: 8,
            image_blocks_max: 12,
            contents: 10,
            refuses_files: false,
            ..options
        };
        let file_system = SimulatedFileSystem::new(&options);
        let host = file_system.mount(HostNo(0));
        let ground = Ground { file_system, host, are_writers_quiet: Cell::new(false) };
        for _ in 0..3 {
            ground.write();
            scan_and_pass(&ground.host).unwrap();
        }
        ground
    }

    fn write(&self) {
        (0..20).for_each(|_| self.file_system.let_writers_write());
        self.file_system.pass(Duration::from_secs(2));
    }

    /// Makes files of the kinds that a run leaves only when it dies.
    fn leave(&self, names: &[&str]) {
        for name in names {
            drop(self.host.substrate.create(&Path::new(ROOTS).join(name)).unwrap());
        }
    }

    /// Does all that hosts do with a state folder.
    fn use_all(&self) -> Result<(), StateError> {
        let host = &self.host;
        let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {})?;
        state.begin_watch()?.end();
        state.watches()?;
        onefold_share::mend::mend(&state, onefold_share::mend::DoubtfulImagePolicy::Keep)?;
        drop(state);
        if !self.are_writers_quiet.get() {
            self.write();
        }
        match scan_and_pass(host) {
            Err(PassError::State(error)) => Err(error),
            Err(error) => panic!("{error}"),
            Ok(_) => Ok(()),
        }
    }

    fn look(&self) -> Result<(), StateError> {
        let state = State::look(&self.host.substrate, &*self.host.clock, &|_| {})?.unwrap();
        status(&state).map(drop)
    }

    /// Returns all that is in root's state folder, and the folder itself.
    fn all(&self) -> Vec<(PathBuf, ListedKind)> {
        let observer = self.file_system.observe();
        let mut all = vec![(PathBuf::from(ROOTS), ListedKind::Folder)];
        let mut at = 0;
        while let Some((path, kind)) = all.get(at).cloned() {
            at += 1;
            if kind == ListedKind::Folder {
                let mut listed = observer.substrate.list(&path).unwrap();
                listed.sort_by(|one, other| one.name.cmp(&other.name));
                all.extend(listed.into_iter().map(|listed| (path.join(listed.name), listed.kind)));
            }
        }
        all
    }
}

/// Returns what follows the state folder's name, but for the last name of a file in a folder: a kind of file.
fn kind_of(path: &Path, kind: ListedKind) -> PathBuf {
    let within = path.strip_prefix(ROOTS).unwrap();
    match (kind, within.parent()) {
        (ListedKind::File, Some(folder)) if folder != Path::new("") => folder.join("FILE"),
        _ => within.to_owned(),
    }
}

/// Gives each file and folder of the state to another user, one after the other. Whatever uses one of them refuses it,
/// and of each kind at least one is used.
fn refuses_all_kinds(options: SimulationOptions, left: &[&str], expected: &[&str]) {
    let ground = Ground::new(options);
    let (mut refused, mut seen) = (Vec::new(), Vec::new());
    let mut each = |ground: &Ground, path: &Path, kind| {
        let mode = if kind == ListedKind::Folder { 0o700 } else { 0o600 };
        // It may have gone with an earlier run.
        if ground.file_system.protect(path, OTHER, mode).is_err() {
            return;
        }
        let before = refused.len();
        for (used, refusals) in [(ground.look(), &mut seen), (ground.use_all(), &mut refused)] {
            match used {
                Ok(()) => {}
                Err(StateError::Untrusted { path: named, why }) => {
                    assert_eq!(named, path);
                    assert_eq!(why, Distrust::Owner { owner: OTHER, user: UserNo::ROOT });
                    refusals.push(kind_of(path, kind));
                }
                Err(other) => panic!("{path:?}: {other}"),
            }
        }
        // What was refused is not touched.
        let is_there = ground.file_system.protect(path, UserNo::ROOT, mode).is_ok();
        assert!(is_there || refused.len() == before, "{path:?} was refused and is gone");
    };
    for name in left {
        let path = Path::new(ROOTS).join(name);
        // A look sweeps nothing; and a run that goes well does.
        ground.leave(&[name]);
        each(&ground, &path, ListedKind::File);
        let _ = ground.host.substrate.remove(&path);
    }
    for wanted in expected {
        if *wanted == "logs/FILE" {
            // A pass that comes to its end leaves none.
            ground.write();
            scan_only(&ground.host).unwrap();
            ground.are_writers_quiet.set(true);
        }
        // Anew each time: runs that fail in the end may have published another generation of the index.
        let of_kind = ground.all().into_iter().filter(|(path, kind)| kind_of(path, *kind) == Path::new(wanted));
        of_kind.for_each(|(path, kind)| each(&ground, &path, kind));
        ground.are_writers_quiet.set(false);
    }
    ground.use_all().unwrap();
    for kind in expected {
        assert!(
            refused.contains(&PathBuf::from(kind)),
            "{kind} is used although another user owns it; refused: {refused:?}"
        );
    }
    for kind in [
        "",
        "arena",
        "files",
        "logs",
        "shards",
        "batches",
        "identity",
        "files/FILE",
        "shards/FILE",
        "batches/FILE",
        "arena/FILE",
    ] {
        assert!(
            seen.contains(&PathBuf::from(kind)),
            "{kind} is looked at although another user owns it; refused: {seen:?}"
        );
    }
}

const LEFT: [&str; 5] =
    ["scratch/0000000000000001.1", "watches/0000000000000001.2", "logs/1.1.1.1", "requests/1.1.1.1", "cursor"];
const KINDS: [&str; 24] = [
    "",
    "arena",
    "batches",
    "claims",
    "files",
    "guests",
    "locks",
    "logs",
    "maps",
    "requests",
    "scratch",
    "shards",
    "watches",
    "cursor",
    "identity",
    "arena/FILE",
    "batches/FILE",
    "files/FILE",
    "locks/FILE",
    "logs/FILE",
    "requests/FILE",
    "scratch/FILE",
    "shards/FILE",
    "watches/FILE",
];

/// Root accepted any folder by the name of its own, and cloned blocks of files that only root may read into the arena
/// of another user.
#[test]
fn whatever_of_the_state_belongs_to_another_user_is_refused() {
    refuses_all_kinds(SimulationOptions { seed: 3, ..SimulationOptions::default() }, &LEFT, &KINDS);
}

#[test]
fn whatever_belongs_to_another_user_is_refused_where_it_tells_of_holes() {
    let kinds: Vec<&str> = KINDS.into_iter().chain(["intents", "tree", "intents/FILE"]).collect();
    let left: Vec<&str> = LEFT.into_iter().chain(["intents/0000000000000001.3"]).collect();
    let options = SimulationOptions { seed: 4, ..SimulationOptions::default() }.in_two_steps(decode_declared);
    refuses_all_kinds(options, &left, &kinds);
}

/// What a restore from a backup leaves: rights of the group and of others, on everything.
#[test]
fn rights_of_others_are_taken_away_and_their_arena_files_not_filled_again() {
    let ground = Ground::new(SimulationOptions { seed: 5, ..SimulationOptions::default() });
    let protect_all = |folder, file| {
        for (path, kind) in ground.all() {
            let mode = if kind == ListedKind::Folder { folder } else { file };
            ground.file_system.protect(&path, UserNo::ROOT, mode).unwrap();
        }
    };
    protect_all(0o755, 0o644);
    let arenas = || -> Vec<PathBuf> {
        let arenas = ground.all().into_iter().map(|(path, _)| path);
        arenas.filter(|path| path.parent() == Some(Path::new(".onefold/arena"))).collect()
    };
    let before = arenas();
    assert!(!before.is_empty());
    let notices = RefCell::new(Vec::new());
    let take = |notice: Notice| notices.borrow_mut().push(notice);
    // A look reports them, and changes nothing.
    let state = State::look(&ground.host.substrate, &*ground.host.clock, &take).unwrap().unwrap();
    status(&state).unwrap();
    let exposed = |notice: &Notice| matches!(notice, Notice::Exposed { .. });
    assert!(notices.take().iter().filter(|notice| exposed(notice)).count() >= 5);
    drop(state);
    let protection = |path: &Path| {
        let observer = ground.file_system.observe();
        observer.substrate.protection(&observer.substrate.open(path, Access::Read).unwrap()).unwrap()
    };
    assert_eq!(protection(&before[0]).mode, 0o644);
    let open = || State::open(&ground.host.substrate, &*ground.host.clock, &*ground.host.random, &take).unwrap();
    let state = open();
    before.iter().for_each(|path| {
        let number = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
        assert!(state.open_arena(number, Access::Read).unwrap().is_some(), "it may still be a source");
    });
    let retired = |notice: &Notice| matches!(notice, Notice::Tightened { is_retired: true, .. });
    assert_eq!(notices.take().iter().filter(|notice| retired(notice)).count(), 1, "once for the folder");
    assert_eq!(protection(&before[0]).mode, 0o1600);
    drop(state);
    // What is shared from now on goes into another file, whatever room the old one has. That nothing is cloned into the
    // old one is an invariant of the file system here.
    for path in ["images/new", "images/newer"] {
        ground.file_system.write_image(HostNo(0), path, 0, &[200; 2 * BLOCK_BYTES]).unwrap();
    }
    ground.use_all().unwrap();
    assert!(arenas().iter().any(|path| !before.contains(path)), "{:?}", arenas());
    assert!(notices.take().is_empty());
    drop(open());
    assert!(notices.take().is_empty(), "nothing is left to report");
}

#[test]
fn a_second_name_is_refused_where_none_is_ever_made() {
    let ground = Ground::new(SimulationOptions { seed: 6, ..SimulationOptions::default() });
    let arena =
        ground.all().into_iter().map(|(path, _)| path).find(|path| path.parent() == Some(Path::new(".onefold/arena")));
    let arena = arena.unwrap();
    ground.file_system.observe().substrate.link(&arena, Path::new("images/second")).unwrap();
    let error = ground.use_all().unwrap_err();
    let expected = Distrust::Links { links: 2, most: 1 };
    assert!(matches!(&error, StateError::Untrusted { path, why } if *path == arena && *why == expected), "{error}");
}

/// Where a file of the state is more than a hint, others may have said in it what root is to write.
#[test]
fn rights_to_write_are_refused_where_the_state_tells_of_holes() {
    for (path, mode) in [(ROOTS, 0o770), (".onefold/intents", 0o702), (".onefold/identity", 0o620)] {
        let ground =
            Ground::new(SimulationOptions { seed: 7, ..SimulationOptions::default() }.in_two_steps(decode_declared));
        ground.file_system.protect(path, UserNo::ROOT, mode).unwrap();
        let error = ground.use_all().unwrap_err();
        assert!(
            matches!(error, StateError::Untrusted { why: Distrust::Writable { mode: found }, .. } if found == mode)
        );
        ground.file_system.protect(path, UserNo::ROOT, mode & 0o755).unwrap();
        ground.use_all().unwrap();
    }
}

#[test]
fn a_folder_that_takes_the_name_of_the_state_folder_is_not_used_by_a_run() {
    let ground = Ground::new(SimulationOptions { seed: 8, ..SimulationOptions::default() });
    let host = &ground.host;
    let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
    assert!(state.is_current().unwrap());
    let arenas = |state: &State<'_, _>| {
        let mut numbers = state.arenas().unwrap();
        numbers.sort_unstable();
        numbers
    };
    let before = arenas(&state);
    // The owner of the root folder moves it away, and puts another one there.
    ground.file_system.rename_folder(ROOTS, "taken").unwrap();
    let hostile = ground.file_system.mount_for(HostNo(1), OTHER);
    for folder in [
        "",
        "/arena",
        "/batches",
        "/claims",
        "/files",
        "/locks",
        "/logs",
        "/requests",
        "/scratch",
        "/shards",
        "/watches",
    ] {
        hostile.substrate.create_dir(Path::new(&format!("{ROOTS}{folder}"))).unwrap();
    }
    drop(hostile.substrate.create(&Path::new(ROOTS).join("arena/99")).unwrap());
    assert_eq!(arenas(&state), before);
    assert!(state.open_arena(99, Access::Read).unwrap().is_none());
    assert!(!state.is_current().unwrap(), "the next run looks for itself");
    let error = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).err().unwrap();
    assert!(matches!(error, StateError::Untrusted { why: Distrust::Owner { owner: OTHER, .. }, .. }), "{error}");
}

#[test]
fn a_root_folder_that_others_may_write_is_reported() {
    let ground = Ground::new(SimulationOptions { seed: 9, ..SimulationOptions::default() });
    let host = &ground.host;
    for (owner, mode, is_reported) in [
        (UserNo::ROOT, 0o755, false),
        (UserNo::ROOT, 0o1777, false),
        (UserNo::ROOT, 0o777, true),
        (UserNo::ROOT, 0o775, true),
        (OTHER, 0o755, true),
        (OTHER, 0o1700, true),
    ] {
        ground.file_system.protect("", owner, mode).unwrap();
        let expected = is_reported.then_some(WritableRoot { owner, mode, user: UserNo::ROOT });
        assert_eq!(writable_root(&host.substrate).unwrap(), expected);
        let notices = RefCell::new(Vec::new());
        let take = |notice: Notice| notices.borrow_mut().push(notice.to_string());
        drop(State::open(&host.substrate, &*host.clock, &*host.random, &take).unwrap());
        assert_eq!(notices.take().len(), usize::from(is_reported), "{owner} {mode:o}");
    }
    // A user trusts itself, and root.
    ground.file_system.protect("", OTHER, 0o755).unwrap();
    let own = ground.file_system.mount_for(HostNo(1), OTHER);
    assert_eq!(writable_root(&own.substrate).unwrap(), None);
}

#[test]
fn each_user_has_a_state_of_its_own_and_images_are_nobodys_state() {
    let options = SimulationOptions { seed: 1, users: vec![UserNo::ROOT, OTHER], ..SimulationOptions::default() };
    let ground = Ground::new(options);
    let own = ground.file_system.mount(HostNo(1));
    assert_eq!(own.substrate.user(), OTHER);
    for _ in 0..2 {
        ground.write();
        scan_and_pass(&own).unwrap();
        scan_and_pass(&ground.host).unwrap();
    }
    let observer = ground.file_system.observe();
    let folder = StateFolder::of(&own.substrate);
    assert_eq!(folder.path(), Path::new(".onefold-7"));
    for (folder, owner) in [(ROOTS, UserNo::ROOT), (".onefold-7", OTHER)] {
        let arena = observer.substrate.list(&Path::new(folder).join("arena")).unwrap();
        assert!(!arena.is_empty(), "{folder}");
        let file =
            observer.substrate.open(&Path::new(folder).join("arena").join(&arena[0].name), Access::Read).unwrap();
        assert_eq!(observer.substrate.protection(&file).unwrap().owner, owner);
    }
    // Neither has read the other's, nor its own.
    for (host, folder) in [(&ground.host, ROOTS), (&own, ".onefold-7")] {
        let state = State::open(&host.substrate, &*host.clock, &*host.random, &|_| {}).unwrap();
        let files = onefold_share::state::files::Marks::load(&state).unwrap();
        assert!(files.iter().count() > 0, "{folder}");
        assert!(files.iter().all(|mark| !StateFolder::has(&mark.path)), "{folder}");
    }
    let denied = own.substrate.list(Path::new(ROOTS)).unwrap_err();
    assert_eq!(denied.kind(), std::io::ErrorKind::PermissionDenied);
}

/// Another user's block does not become readable by a run of root's, even where that user has made all that it can.
#[test]
fn a_planted_state_folder_gets_no_block_of_roots() {
    let options = SimulationOptions { images: 0, hosts: 2, ..SimulationOptions::default() };
    let file_system = SimulatedFileSystem::new(&options);
    let (root, user) = (file_system.mount(HostNo(0)), file_system.mount_for(HostNo(1), OTHER));
    // An earlier version had users make the folder that root uses later.
    for folder in [
        "",
        "/arena",
        "/batches",
        "/claims",
        "/files",
        "/locks",
        "/logs",
        "/requests",
        "/scratch",
        "/shards",
        "/watches",
    ] {
        user.substrate.create_dir(Path::new(&format!("{ROOTS}{folder}"))).unwrap();
    }
    let arena = user.substrate.create(Path::new(".onefold/arena/0")).unwrap();
    let secret = [9; 4 * BLOCK_BYTES];
    for path in ["images/one", "images/two"] {
        file_system.write_image(HostNo(0), path, 0, &secret).unwrap();
    }
    file_system.pass(Duration::from_secs(2));
    let error = scan_and_pass(&root).unwrap_err();
    let PassError::State(StateError::Untrusted { path, why }) = &error else { panic!("{error}") };
    assert_eq!((path.as_path(), *why), (Path::new(ROOTS), Distrust::Owner { owner: OTHER, user: UserNo::ROOT }));
    assert!(user.substrate.extents(&arena, 0).unwrap().is_empty());
    file_system.rename_folder(ROOTS, "planted").unwrap();
    scan_and_pass(&root).unwrap();
    assert!(user.substrate.extents(&arena, 0).unwrap().is_empty());
}

/// What the simulations rely on, to find a file that is used by whatever way before it was checked.
#[test]
#[should_panic(expected = "uses .onefold/arena/0 and has not looked whose it is")]
fn a_file_of_the_state_that_is_used_unchecked_is_found() {
    let options = SimulationOptions { seed: 2, wants_checks: true, ..SimulationOptions::default() };
    let ground = Ground::new(options);
    let arena = ground.host.substrate.open(Path::new(".onefold/arena/0"), Access::Read).unwrap();
    let _ = ground.host.substrate.read_at(&arena, 0, &mut [0; 16]);
}

fn work(host: &Host<'_>) {
    drop(scan_and_pass(host));
}

fn of_users(seed: u64) -> SimulationOptions {
    let hosts = 2 + u32::try_from(seed % 5).expect("below 5");
    SimulationOptions {
        users: vec![UserNo::ROOT, UserNo(1000), OTHER],
        ..SimulationOptions::drawn(seed, hosts, 10_000)
    }
}

#[test]
fn images_read_as_written_while_hosts_work_for_several_users() {
    simulate_all_with(seeds(9100, 30), of_users, work);
}

/// Without root's help nobody shares what another user has.
#[test]
fn hosts_of_several_users_share_beside_each_other() {
    let mut folders = 0;
    for seed in seeds(9200, 4) {
        let mut simulation = Simulation::new(&of_users(seed), work);
        simulation.run(10_000).unwrap_or_else(|failure| panic!("{failure}"));
        let observer = simulation.file_system().observe();
        let listed = observer.substrate.list(Path::new("")).unwrap();
        folders += listed.iter().filter(|listed| StateFolder::has(&listed.name)).count();
    }
    assert!(folders >= 8, "{folders} state folders");
}
