//! Sharing domains: which users' files share blocks with each other.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use onefold_linux::LinuxSubstrate;
use onefold_share::clone::{CloneOptions, ExistingFilePolicy, Registration, ScanReason, clone};
use onefold_share::domain::Domain;
use onefold_share::domain::label::{self, Label};
use onefold_share::scan::ScanReport;
use onefold_share::state::State;
use onefold_substrate::{Access, Names};

use crate::ground::{Ground, K, PrivateMounts, XFS, no_child, on, on_each, random_blocks};
use crate::pass::{EngineRun, USUAL, run, try_run};

/// Root's state folder.
const FOLDER: &str = ".onefold";

/// Two tenants, and the user that machines run as.
const ALICE: u32 = 1000;
const MALLORY: u32 = 1001;
const QEMU: u32 = 900;
const BLOCKS: usize = 40;

/// Makes files of users that hold the same.
fn files(ground: &Ground, owners: &[(&str, u32)]) {
    let content = random_blocks(1, BLOCKS);
    for (name, owner) in owners {
        ground.file(name, &content);
        chown(ground.root.join(name), Some(*owner), None).unwrap();
    }
    // A file that changed a moment ago is read again.
    ground.settled_room();
}

fn give(ground: &Ground, name: &str, owner: u32) {
    chown(ground.root.join(name), Some(owner), None).unwrap();
    ground.settled_room();
}

fn settings(ground: &Ground, text: &str) {
    fs::create_dir_all(ground.root.join(FOLDER)).unwrap();
    fs::set_permissions(ground.root.join(FOLDER), Permissions::from_mode(0o700)).unwrap();
    let path = ground.root.join(FOLDER).join("domains");
    fs::write(&path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

fn label(ground: &Ground, path: &str, text: &str) {
    let label = Label::parse(text.as_bytes()).unwrap();
    label::set(&ground.substrate, Path::new(path), Some(&label)).unwrap();
}

/// Tells whether two files share all of their blocks.
fn share(ground: &Ground, one: &str, other: &str) -> bool {
    let place = |name: &str, block| ground.offset_of(&ground.open(name, Access::Read), block).unwrap();
    let shared = (0..BLOCKS as u64).filter(|block| place(one, *block) == place(other, *block)).count();
    assert!(shared == 0 || shared == BLOCKS, "{shared} of {BLOCKS} blocks of {one} and {other} are shared");
    shared > 0
}

/// Tells whether any block of a file is shared with anything, as its owner would see it.
fn looks_shared(ground: &Ground, name: &str) -> bool {
    ground.map(&ground.open(name, Access::Read)).0.iter().any(|extent| extent.is_shared)
}

fn domains(run: &EngineRun) -> Vec<String> {
    run.scanned.domains.iter().map(|(domain, counts)| format!("{domain}: {}", counts.files)).collect()
}

fn quiet(found: &EngineRun) {
    assert!(found.notices.is_empty(), "{found:?}");
}

/// Seen: a user wrote a guess into a file of his own, root's next pass made it share with the file that held it, and
/// `filefrag` told the user so.
#[test]
fn a_guess_of_another_user_is_not_shared_until_a_rule_joins_the_two() {
    on_each(|ground| {
        files(ground, &[("secret", ALICE), ("guess", MALLORY), ("roots", 0)]);
        let found = run(ground);
        assert_eq!(domains(&found), ["0: 1", "1000: 1", "1001: 1"]);
        assert_eq!(found.passed.shared.now, 0, "{found:?}");
        for name in ["secret", "guess", "roots"] {
            assert!(!looks_shared(ground, name), "{name}");
        }
        // Within each domain all is shared.
        files(ground, &[("copy", MALLORY)]);
        run(ground);
        assert!(share(ground, "guess", "copy") && !looks_shared(ground, "secret") && !looks_shared(ground, "roots"));

        settings(ground, "join 1000 1001 = staff\n");
        let found = run(ground);
        assert_eq!(domains(&found), ["0: 1", "staff: 3"]);
        assert!(share(ground, "secret", "guess") && share(ground, "secret", "copy") && !looks_shared(ground, "roots"));
        quiet(&found);
    });
}

/// libvirt gives an image to the user of its machines when a machine starts, and back when it stops.
#[test]
fn an_image_keeps_its_domain_while_its_machine_runs_and_is_not_read_anew() {
    on_each(|ground| {
        settings(ground, "machine-users 900\n");
        files(ground, &[("image", ALICE), ("other", MALLORY)]);
        run(ground);
        assert_eq!(run(ground).scanned.unchanged, 2);
        for owner in [QEMU, 0, QEMU, ALICE, 0, ALICE] {
            give(ground, "image", owner);
            let found = run(ground);
            assert_eq!((found.scanned.read_bytes, found.scanned.unchanged), (0, 2), "user {owner}: {found:?}");
            assert_eq!(domains(&found), ["1000: 1", "1001: 1"], "user {owner}");
            // The next look finds nothing to be noted either.
            assert_eq!(run(ground).scanned.read_bytes, 0, "user {owner}");
        }
        give(ground, "image", QEMU);
        files(ground, &[("clone", ALICE)]);
        run(ground);
        assert!(share(ground, "image", "clone") && !looks_shared(ground, "other"));
        // What the user of the machines makes is nobody else's.
        files(ground, &[("new", QEMU)]);
        assert_eq!(domains(&run(ground)), ["900: 1", "1000: 2", "1001: 1"]);
        assert!(!looks_shared(ground, "new"));
    });
}

#[test]
fn a_file_that_another_tenant_gets_leaves_its_domain() {
    on_each(|ground| {
        settings(ground, "machine-users 900\n");
        files(ground, &[("given", ALICE)]);
        run(ground);
        // By way of the machines' user, too: only the owner in the end counts.
        give(ground, "given", QEMU);
        run(ground);
        give(ground, "given", MALLORY);
        files(ground, &[("hers", ALICE)]);
        let found = run(ground);
        assert_eq!(domains(&found), ["1000: 1", "1001: 1"]);
        assert_eq!((found.scanned.read_bytes, found.passed.shared.now), (2 * 40 * K, 0), "{found:?}");
        assert!(!share(ground, "given", "hers") && !looks_shared(ground, "hers"));
        files(ground, &[("his", MALLORY)]);
        run(ground);
        assert!(share(ground, "given", "his") && !looks_shared(ground, "hers"));
        quiet(&found);
    });
}

/// The pass looks again: between the scan and the pass, as between a scan of one root and one of another, files change
/// hands.
#[test]
fn a_file_that_changes_hands_after_it_was_read_is_left_alone_until_it_is_read_again() {
    on_each(|ground| {
        files(ground, &[("known", ALICE)]);
        run(ground);
        files(ground, &[("new", ALICE)]);
        let found = try_run(&ground.substrate, USUAL, &|| give(ground, "known", MALLORY)).unwrap();
        assert_eq!(found.passed.shared.now, 0, "{found:?}");
        assert!(!looks_shared(ground, "known") && !looks_shared(ground, "new"));
        let found = try_run(&ground.substrate, USUAL, &|| give(ground, "new", MALLORY)).unwrap();
        assert_eq!(found.passed.shared.now, 0, "{found:?}");
        run(ground);
        assert!(share(ground, "known", "new"));
    });
}

#[test]
fn folders_and_files_have_the_domain_that_an_administrator_gave_them() {
    on_each(|ground| {
        for folder in ["a", "a/b", "a/b/c"] {
            fs::create_dir(ground.root.join(folder)).unwrap();
        }
        let names =
            [("a/one", ALICE), ("a/b/c/two", MALLORY), ("a/b/c/own", MALLORY), ("three", 0), ("mallorys", MALLORY)];
        files(ground, &names);
        label(ground, "a", "staff");
        let found = run(ground);
        assert_eq!(domains(&found), ["0: 1", "1001: 1", "staff: 3"]);
        assert!(share(ground, "a/one", "a/b/c/two") && !looks_shared(ground, "three"));
        // A folder's label alone changes nothing of a file, and moves it all the same. What is shared stays shared.
        label(ground, "a/b", "lab");
        label(ground, "a/b/c/own", "owner");
        label(ground, "three", "staff");
        let found = run(ground);
        assert_eq!(domains(&found), ["1001: 2", "lab: 1", "staff: 2"]);
        assert!(share(ground, "a/one", "three") && share(ground, "a/b/c/own", "mallorys"));
        label::set(&ground.substrate, Path::new("a/b"), None).unwrap();
        assert_eq!(domains(&run(ground)), ["1001: 2", "staff: 3"]);
        // Users' numbers are domains, too, and settings join labels.
        label(ground, "a", "1001");
        settings(ground, "join 1001 staff = all");
        let found = run(ground);
        assert_eq!(domains(&found), ["all: 5"]);
        assert!(names.iter().all(|(name, _)| share(ground, "three", name)));
        quiet(&found);
    });
}

/// With `fs.protected_hardlinks=0` anybody can give a file of others a name in a folder of his own.
#[test]
fn a_name_in_a_folder_of_another_domain_does_not_take_a_file_there() {
    on(XFS, |ground| {
        fs::create_dir(ground.root.join("a")).unwrap();
        files(ground, &[("a/guess", MALLORY), ("secret", ALICE)]);
        label(ground, "a", "1001");
        fs::hard_link(ground.root.join("secret"), ground.root.join("a/0-link")).unwrap();
        ground.settled_room();
        assert_eq!(domains(&run(ground)), ["1000: 1", "1001: 1"]);
        assert!(!looks_shared(ground, "secret"));
    });
}

#[test]
fn a_file_whose_label_names_no_domain_is_left_alone_and_named() {
    on(XFS, |ground| {
        files(ground, &[("one", ALICE), ("two", ALICE)]);
        ground.substrate_label("two", b"no domain");
        let found = run(ground);
        assert_eq!((found.scanned.passed_over, found.passed.shared.now), (1, 0), "{found:?}");
        assert!(found.notices[0].contains("`trusted.onefold.domain` of `two` names no domain"), "{found:?}");
        label(ground, "two", "owner");
        run(ground);
        assert!(share(ground, "one", "two"));
    });
}

impl Ground {
    fn substrate_label(&self, path: &str, value: &[u8]) {
        self.substrate.set_attribute(Path::new(path), label::ATTRIBUTE, Some(value)).unwrap();
    }
}

#[test]
fn machines_in_libvirts_folders_are_one_domain_if_root_alone_may_write_there() {
    on_each(|ground| {
        settings(ground, "machine-users 900\n");
        fs::create_dir_all(ground.root.join("lib/libvirt/images/pool")).unwrap();
        fs::create_dir_all(ground.root.join("home/libvirt/images")).unwrap();
        // As an ordinary user can make it.
        chown(ground.root.join("home/libvirt/images"), Some(MALLORY), None).unwrap();
        let names = [
            ("lib/libvirt/images/template", 0),
            ("lib/libvirt/images/pool/running", QEMU),
            ("lib/libvirt/images/guess", MALLORY),
            ("home/libvirt/images/roots", 0),
            ("elsewhere", 0),
        ];
        files(ground, &names);
        assert_eq!(domains(&run(ground)), ["0: 2", "1001: 1", "libvirt: 2"]);
        assert!(share(ground, "lib/libvirt/images/template", "lib/libvirt/images/pool/running"));
        assert!(!looks_shared(ground, "lib/libvirt/images/guess"));
        assert!(!share(ground, "lib/libvirt/images/template", "elsewhere"));
        // Told otherwise, by folder; and once others may write there.
        label(ground, "lib/libvirt/images/pool", "tenant-7");
        assert_eq!(domains(&run(ground)), ["0: 2", "1001: 1", "libvirt: 1", "tenant-7: 1"]);
        label(ground, "lib/libvirt/images/pool", "owner");
        fs::set_permissions(ground.root.join("lib/libvirt/images"), Permissions::from_mode(0o775)).unwrap();
        assert_eq!(domains(&run(ground)), ["0: 3", "900: 1", "1001: 1"]);
    });
}

#[test]
fn the_mount_point_is_a_part_of_libvirts_path() {
    let Some(place) = PrivateMounts::new() else { return };
    let Some(root) = place.mount("libvirt", XFS) else { return };
    let substrate = LinuxSubstrate::open(&root, Path::new("")).unwrap();
    let ground = Ground { substrate, root, place };
    fs::create_dir(ground.root.join("images")).unwrap();
    files(&ground, &[("images/one", 0), ("images/two", 0), ("three", 0)]);
    assert_eq!(domains(&run(&ground)), ["0: 1", "libvirt: 2"]);
    // An owner of the root could put a folder of his own in place of `images`.
    chown(&ground.root, Some(MALLORY), None).unwrap();
    let rules = onefold_share::domain::DomainRules::new(&ground.substrate, Default::default());
    let file = ground.open("images/one", Access::Read);
    let stat = onefold_substrate::Files::stat(&ground.substrate, &file).unwrap();
    assert_eq!(rules.membership(Path::new("images/one"), &file, &stat, None).unwrap().domain, Domain::Owner(0));
}

#[test]
fn a_clone_in_another_domain_is_read_like_a_new_file() {
    on_each(|ground| {
        for folder in ["a", "b"] {
            fs::create_dir(ground.root.join(folder)).unwrap();
        }
        label(ground, "b", "other");
        files(ground, &[("a/template", 0)]);
        run(ground);
        let known = |target: &str| {
            let _no_child = no_child();
            let state = State::open(&ground.substrate, &SystemClock, &SystemRandom, &|_| {}).unwrap();
            let options = CloneOptions {
                existing: ExistingFilePolicy::Keep,
                temporary_folder: Path::new("/var/tmp"),
                memory_bytes: 1 << 20,
                clock: &SystemClock,
                random: &SystemRandom,
            };
            clone(&ground.substrate, Some(&state), Path::new("a/template"), Path::new(target), &options).unwrap().known
        };
        assert!(matches!(known("a/clone"), Registration::Blocks(40)));
        assert!(matches!(known("b/clone"), Registration::LeftToScan(ScanReason::OtherDomain)));
        ground.settled_room();
        let found = run(ground);
        assert_eq!((found.scanned.files, found.scanned.read_bytes), (3, 40 * K), "{found:?}");
        assert_eq!(domains(&found), ["0: 2", "other: 1"]);
        // Nor is it known there from the template.
        files(ground, &[("b/new", 0)]);
        run(ground);
        assert!(share(ground, "b/clone", "b/new"));
    });
}

#[test]
fn settings_that_others_may_have_written_or_that_are_not_clear_stop_the_run() {
    on(XFS, |ground| {
        files(ground, &[("one", ALICE), ("two", ALICE)]);
        let fails_with = |expected: &str| {
            let error = try_run(&ground.substrate, USUAL, &|| {}).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(!looks_shared(ground, "one"));
        };
        let path = ground.root.join(FOLDER).join("domains");
        settings(ground, "join 1000 = staff");
        chown(&path, Some(MALLORY), None).unwrap();
        fails_with("it belongs to user 1001, not to user 0");
        chown(&path, Some(0), None).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        fails_with("others may write to it (mode 666)");
        settings(ground, "# two rules\n\njoin 1000 staff\n");
        fails_with("line 3: lines are `join DOMAIN... = NAME`");
        settings(ground, "join 1000 = staff");
        assert_eq!(domains(&run(ground)), ["staff: 2"]);
        assert!(share(ground, "one", "two"));
    });
}

/// Marks and shards of the version before, as an upgrade finds them.
#[test]
fn what_was_known_before_there_were_domains_is_read_anew_once() {
    on_each(|ground| {
        files(ground, &[("one", ALICE), ("two", ALICE)]);
        run(ground);
        assert!(share(ground, "one", "two"));
        let mut count = 0;
        for folder in ["files", "shards"] {
            for entry in fs::read_dir(ground.root.join(FOLDER).join(folder)).unwrap() {
                let path = entry.unwrap().path();
                let mut bytes = fs::read(&path).unwrap();
                bytes[10..12].copy_from_slice(&1_u16.to_le_bytes());
                let checksum = crc32c::crc32c(&bytes[..60]);
                bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
                fs::write(&path, bytes).unwrap();
                count += 1;
            }
        }
        assert!(count >= 3);
        let found = run(ground);
        assert!(found.notices[0].contains("all images are read anew, once"), "{found:?}");
        // What they share is read once, unless their times are of a moment ago.
        let ScanReport { read_bytes, once_bytes, .. } = found.scanned;
        assert_eq!((found.notices.len(), read_bytes + once_bytes), (1, 80 * K), "{found:?}");
        assert!(share(ground, "one", "two"));
        // Sharing has changed their times a moment ago.
        ground.settled_room();
        quiet(&run(ground));
        files(ground, &[("three", ALICE)]);
        let found = run(ground);
        assert!(share(ground, "one", "three") && found.scanned.unchanged == 2, "{found:?}");
    });
}
