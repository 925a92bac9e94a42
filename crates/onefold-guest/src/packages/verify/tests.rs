//! Tests of verification.

use super::super::open;
use super::*;
use crate::error::Encoding;
use crate::memory::MemoryFileSystem;

/// The digest of `hello\n`.
const HELLO: &str = "b1946ac92492d2347c6235b4d2611184";

/// Returns a system with a package in which all files have this digest.
fn system(files: &[&str]) -> MemoryFileSystem {
    let mut system = MemoryFileSystem::default();
    let status = "Package: a\nStatus: install ok installed\nArchitecture: all\nVersion: 1\nConffiles:\n /etc/a ";
    system.write("/var/lib/dpkg/status", format!("{status}{HELLO}\n"));
    let lines = |before: &str| files.iter().map(|file| format!("{before}{file}\n")).collect::<String>();
    system.write("/var/lib/dpkg/info/a.list", lines("/") + "/etc/a\n");
    system.write("/var/lib/dpkg/info/a.md5sums", lines(&format!("{HELLO}  ")));
    system.write("/etc/dpkg/dpkg.cfg", "path-exclude=/doc/*\n");
    system
}

fn differences(system: &MemoryFileSystem) -> (Verification, Vec<String>) {
    let tree = Tree::new(system);
    let database = open(&tree).unwrap().unwrap();
    let found = verify(&tree, database.as_ref(), &mut |_, _| ControlFlow::Continue(()));
    let lines = found.differences.iter().map(|one| {
        let what = match &one.kind {
            DifferenceKind::Changed { .. } => "changed".to_owned(),
            DifferenceKind::Missing => "missing".to_owned(),
            DifferenceKind::NotRegular(kind) => format!("{kind:?}"),
            DifferenceKind::Unreadable(reason) => reason.clone(),
        };
        let mark = if one.is_configuration { "c" } else { "-" };
        format!("{mark} {} {what}", String::from_utf8_lossy(&one.path))
    });
    let lines = lines.collect();
    (found, lines)
}

#[test]
fn each_way_to_differ_has_its_own_word() {
    let mut system =
        system(&["same", "linked", "folder", "changed", "claimed", "locked", "holes", "long", "gone", "doc/gone"]);
    for path in ["/same", "/elsewhere", "/doc/kept"] {
        system.write(path, "hello\n");
    }
    system.symlink("/linked", "elsewhere");
    system.directory("/folder");
    system.write("/changed", "hello");
    system.write("/etc/a", "set\n");
    let locked = system.write("/locked", "hello\n");
    system.stat_mut(locked).unwrap().encoding = Some(Encoding::Encrypted);
    let holes = system.write("/holes", "hello\n");
    system.stat_mut(holes).unwrap().size_bytes = 1 << 60;
    let claimed = system.write("/claimed", "hello\n");
    let stat = system.stat_mut(claimed).unwrap();
    (stat.size_bytes, stat.allocated_bytes) = (1 << 29, 1 << 29);
    let long = system.write("/long", "hello\n");
    let stat = system.stat_mut(long).unwrap();
    (stat.size_bytes, stat.allocated_bytes) = (1 << 50, 1 << 50);
    let (found, lines) = differences(&system);
    let expected = [
        "- /changed changed",
        "- /claimed it consists of holes mostly, which no package has",
        "c /etc/a changed",
        "- /folder Directory",
        "- /gone missing",
        "- /holes it consists of holes mostly, which no package has",
        "- /locked the content is encrypted, and is not decoded",
        "- /long the files are longer together than the disk",
    ];
    assert_eq!(lines, expected);
    assert_eq!((found.equal_count, found.excluded_count), (2, 1));
}

#[test]
fn a_link_that_cannot_be_followed_is_a_problem_and_no_missing_file() {
    let mut system = system(&["ring", "nowhere"]);
    system.symlink("/ring", "ring");
    system.symlink("/nowhere", "none");
    system.write("/etc/a", "hello\n");
    let tree = Tree::new(&system);
    let database = open(&tree).unwrap().unwrap();
    let found = verify(&tree, database.as_ref(), &mut |_, _| ControlFlow::Continue(()));
    let kinds: Vec<_> = found.differences.into_iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [DifferenceKind::Missing, DifferenceKind::NotRegular(FileKind::SymbolicLink)]);
    let problem = database.problems().first()[0].to_string();
    assert_eq!(problem, "/ring: too many levels of symbolic links");
}

#[test]
fn a_verification_ends_when_it_is_told_to() {
    let system = system(&["one", "two", "three"]);
    let tree = Tree::new(&system);
    let database = open(&tree).unwrap().unwrap();
    let mut calls = Vec::new();
    let found = verify(&tree, database.as_ref(), &mut |done, total| {
        calls.push((done, total));
        if done < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert_eq!(calls, [(0, 4), (1, 4), (2, 4)]);
    assert_eq!(found.differences.len(), 2);
}

/// Returns a file system that claims this length.
fn claimed(size_bytes: u64, state: State) -> MemoryFileSystem {
    let mut system = MemoryFileSystem::default();
    system.facts_mut().size_bytes = size_bytes;
    system.set_state(state);
    system
}

#[test]
fn only_bytes_of_volumes_count_and_each_volume_once() {
    let (certain, long) = (State::Certain, State::Unsure(vec![Doubt::InUse, Doubt::LongerThanVolume]));
    let one = claimed(1 << 32, certain.clone());
    let in_use = claimed(1 << 33, State::Unsure(vec![Doubt::InUse]));
    let (too_long, endless) = (claimed(1 << 50, long), claimed(u64::MAX, certain));
    assert_eq!(bytes_max(&[&one, &in_use, &one, &too_long]), 4 * ((1 << 32) + (1 << 33)) + (1 << 30));
    assert_eq!(bytes_max(&[&too_long]), 1 << 30);
    assert_eq!(bytes_max(&[&one, &endless]), 1 << 40);
}
