//! Paths of a set must lead to the same file as each path alone.

use super::*;
use crate::memory::MemoryFileSystem;

fn merged() -> MemoryFileSystem {
    let mut system = MemoryFileSystem::default();
    for path in ["/usr/bin/ls", "/usr/bin/cat", "/usr/bin/cp", "/usr/lib/modules/6.1/a.ko", "/usr/lib/libc.so.6"] {
        system.write(path, path);
    }
    system.symlink("/bin", "usr/bin");
    system.symlink("/lib", "/usr/lib");
    system.symlink("/usr/lib64", "lib");
    system.symlink("/lib64", "usr/lib64");
    system.symlink("/usr/lib/ring", "ring2");
    system.symlink("/usr/lib/ring2", "ring");
    system.symlink("/usr/lib/libc.so", "libc.so.6");
    system
}

const LISTED: [&str; 17] = [
    "/.",
    "/bin",
    "/bin/ls",
    "/bin/cat",
    "/bin/none",
    "/usr/bin/cat",
    "/usr/bin/cp",
    "/lib/modules/6.1/a.ko",
    "/lib64/modules/6.1/a.ko",
    "/usr/lib64/libc.so",
    "lib/libc.so.6",
    "/lib//modules/",
    "/lib/ring/x",
    "/usr/bin/ls/below-a-file",
    "/none/at/all",
    "/lib64",
    "/bin/ls",
];

#[test]
fn paths_lead_to_the_same_files_together_and_alone() {
    let system = merged();
    let tree = Tree::new(&system);
    let (mut set, problems) = (PathSet::new(), ProblemLog::default());
    let ids: Vec<PathId> = LISTED.iter().map(|path| set.add(path.as_bytes()).unwrap()).collect();
    assert_eq!(ids[2], ids[16]);
    set.resolve(&tree, &problems);
    for (path, id) in LISTED.iter().zip(&ids) {
        let added = if *path == "/." { "/".to_owned() } else { format!("/{}", path.trim_matches('/')) };
        assert_eq!(set.added_path(*id), added.replace("//", "/").as_bytes());
        let alone = tree.find(path.trim_end_matches('/').as_bytes(), Links::Keep).ok();
        assert_eq!(set.file(*id), alone.as_ref().map(|found| found.file), "{path}");
        if let Some(alone) = alone {
            assert_eq!(set.path(*id), alone.path, "{path}");
        }
    }
    let noted: Vec<String> = problems.first().iter().map(ToString::to_string).collect();
    assert_eq!(noted, ["/usr/lib/ring: too many levels of symbolic links"]);
}

#[test]
fn paths_that_are_added_later_are_found_by_the_next_call() {
    let system = merged();
    let tree = Tree::new(&system);
    let (mut set, problems) = (PathSet::new(), ProblemLog::default());
    let first = set.add(b"/lib/libc.so.6").unwrap();
    set.resolve(&tree, &problems);
    let second = set.add(b"/lib/modules/6.1/a.ko").unwrap();
    let third = set.add(b"/usr/lib/libc.so.6").unwrap();
    set.resolve(&tree, &problems);
    assert!(set.file(first).is_some() && set.file(second).is_some());
    assert_eq!(set.file(first), set.file(third));
}

#[test]
fn a_link_to_a_directory_above_itself_ends() {
    let mut system = MemoryFileSystem::default();
    system.write("/a/x", "");
    system.symlink("/a/b", "/a");
    let tree = Tree::new(&system);
    let (mut set, problems) = (PathSet::new(), ProblemLog::default());
    let ids = ["/a/b/b/b/x", "/a/b/x", "/a/b/none", "/a/b/b"].map(|path| set.add(path.as_bytes()).unwrap());
    set.resolve(&tree, &problems);
    let alone = |path: &[u8]| tree.find(path, Links::Keep).ok().map(|found| found.file);
    assert_eq!(ids.map(|id| set.file(id)), [alone(b"/a/x"), alone(b"/a/x"), None, alone(b"/a/b")]);
    assert_eq!((set.path(ids[0]), problems.count()), (b"/a/x".to_vec(), 0));
}

/// Each of these paths is different for the set, but all lead to one directory.
#[test]
fn a_directory_that_contains_itself_is_not_read_for_every_path() {
    let mut system = MemoryFileSystem::default();
    let directory = system.directory("/a");
    system.link(directory, b"a", directory);
    let tree = Tree::new(&system);
    let (mut set, problems) = (PathSet::new(), ProblemLog::default());
    let ids: Vec<PathId> = (1..200).map(|count| set.add("/a".repeat(count).as_bytes()).unwrap()).collect();
    set.resolve(&tree, &problems);
    let found = ids.iter().filter(|id| set.file(**id).is_some()).count();
    assert_eq!((found, problems.count()), (65, 1));
}

/// If the index of the directory is damaged, each look-up may read 256 MiB.
#[test]
fn giant_directories_are_read_until_their_steps_are_used() {
    let mut system = MemoryFileSystem::default();
    for number in 0..100 {
        system.write(&format!("/d{number:02}/x"), "");
        system.write(&format!("/d{number:02}/y"), "");
        let directory = system.directory(&format!("/d{number:02}"));
        system.stat_mut(directory).unwrap().size_bytes = 256 << 20;
    }
    let tree = Tree::new(&system);
    let (mut set, problems) = (PathSet::new(), ProblemLog::default());
    let paths = (0..100).flat_map(|number| ["x", "y"].map(|name| format!("/d{number:02}/{name}")));
    let ids: Vec<PathId> = paths.map(|path| set.add(path.as_bytes()).unwrap()).collect();
    // Two look-ups in a directory read 512 MiB.
    set.resolve(&tree, &problems);
    let found = ids.iter().filter(|id| set.file(**id).is_some()).count();
    assert_eq!((found, problems.count()), (64, 68));
    assert_eq!(problems.first()[0].to_string(), "/d32: a directory after 16 GiB of others cannot be read");
    // With a third name, all names are listed, which reads half as much.
    let mut set = PathSet::new();
    let paths = (0..100).flat_map(|number| ["x", "y", "z"].map(|name| format!("/d{number:02}/{name}")));
    let ids: Vec<PathId> = paths.map(|path| set.add(path.as_bytes()).unwrap()).collect();
    set.resolve(&tree, &problems);
    assert_eq!(ids.iter().filter(|id| set.file(**id).is_some()).count(), 128);
}

#[test]
fn a_name_that_no_directory_can_have_is_no_path() {
    let mut set = PathSet::new();
    assert_eq!(set.add(&[b'n'; 256]), None);
    assert_eq!(set.add(b"/usr/../lib"), None);
    assert!(set.add(b"/usr/lib").is_some());
    assert!(set.add(&[b'n'; 255]).is_some());
    assert_eq!(set.add(b"").unwrap(), set.add(b"/").unwrap());
}

#[test]
fn a_million_equal_paths_take_one_name() {
    let mut set = PathSet::new();
    for _ in 0..1_000_000 {
        set.add(b"/usr/share/doc").unwrap();
    }
    assert!(set.trie.name(3).is_some() && set.trie.name(4).is_none());
}

/// A path through one of these links has 2002 names, so some of the links are not followed.
#[test]
fn links_lead_through_so_many_names_together() {
    let mut system = MemoryFileSystem::default();
    system.write("/d/x", "");
    for link in 0..600 {
        system.symlink(&format!("/l{link}"), &format!("{}d", "./".repeat(2000)));
    }
    let tree = Tree::new(&system);
    let (mut set, problems) = (PathSet::new(), ProblemLog::default());
    let paths: Vec<PathId> = (0..600).map(|link| set.add(format!("/l{link}/x").as_bytes()).unwrap()).collect();
    set.resolve(&tree, &problems);
    let found = paths.iter().filter(|path| set.file(**path).is_some()).count() as u64;
    assert_eq!((found, problems.count()), (LINK_STEPS_MAX / 2002, 600 - found));
}

/// Numbers that look random but are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// Returns a path of up to five existing names.
    fn path(&mut self) -> String {
        (0..1 + self.below(5))
            .map(|_| format!("/{}", ["a", "b", "c", "d"][usize::try_from(self.below(4)).unwrap()]))
            .collect()
    }
}

/// Trees of four names full of links, which lead up, down, around and nowhere.
#[test]
fn random_paths_lead_to_the_same_files_together_and_alone() {
    let (mut found, mut compared) = (0, 0);
    for seed in 0..3000 {
        let mut numbers = Numbers(seed);
        let mut system = MemoryFileSystem::default();
        for _ in 0..3 + numbers.below(12) {
            let path = numbers.path();
            match numbers.below(4) {
                0 => _ = system.symlink(&path, &numbers.path()),
                1 => _ = system.symlink(&path, &format!("..{}", numbers.path())),
                2 => _ = system.write(&path, ""),
                _ => _ = system.directory(&path),
            }
        }
        let tree = Tree::new(&system);
        let (mut set, problems) = (PathSet::new(), ProblemLog::default());
        let mut paths: Vec<(String, PathId)> = Vec::new();
        // The second time, some paths lead through links that were already followed.
        for _ in 0..2 {
            for _ in 0..numbers.below(12) {
                let path = numbers.path();
                let id = set.add(path.as_bytes()).unwrap();
                paths.push((path, id));
            }
            set.resolve(&tree, &problems);
            for (path, id) in &paths {
                let alone = tree.find(path.as_bytes(), Links::Keep).ok();
                assert_eq!(set.file(*id), alone.as_ref().map(|found| found.file), "{path} of seed {seed}");
                compared += 1;
                if let Some(alone) = alone {
                    assert_eq!(set.path(*id), alone.path, "{path} of seed {seed}");
                    found += 1;
                }
            }
        }
    }
    assert!(found > 5_000 && compared - found > 5_000, "{found} of {compared}");
}
