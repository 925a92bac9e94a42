//! Files that are opted out are not read, not shared with, and forgotten.

use std::path::Path;

use onefold_share::opt_out::{exclude, include};
use onefold_substrate::Access;

use crate::ground::{Ground, K, on_each, random_blocks};
use crate::pass::run;

fn place(ground: &Ground, name: &str) -> Option<u64> {
    ground.place_of(&ground.open(name, Access::Read), 5)
}

#[test]
fn an_excluded_file_is_neither_source_nor_destination_until_it_is_included() {
    on_each(|ground| {
        let content = random_blocks(1, 50);
        std::fs::create_dir(ground.root.join("private")).unwrap();
        for name in ["a", "b", "private/c", "private/d"] {
            ground.file(name, &content);
        }
        exclude(&ground.substrate, Path::new("b")).unwrap();
        exclude(&ground.substrate, Path::new("private")).unwrap();
        include(&ground.substrate, Path::new("private/d")).unwrap();
        let found = run(ground);
        assert_eq!((found.scanned.files, found.scanned.opted_out), (2, 2), "{found:?}");
        assert_eq!(found.passed.shared.now, 50 * K, "{found:?}");
        assert_eq!(place(ground, "a"), place(ground, "private/d"));
        for name in ["b", "private/c"] {
            assert_ne!(place(ground, name), place(ground, "a"), "{name}");
        }
        include(&ground.substrate, Path::new("b")).unwrap();
        include(&ground.substrate, Path::new("private")).unwrap();
        let found = run(ground);
        assert_eq!((found.scanned.opted_out, found.passed.shared.now), (0, 100 * K), "{found:?}");
        assert_eq!(place(ground, "private/c"), place(ground, "a"));
    });
}

#[test]
fn what_was_known_of_a_file_is_forgotten_when_it_is_excluded_and_found_again_afterwards() {
    on_each(|ground| {
        let content = random_blocks(2, 20);
        std::fs::create_dir(ground.root.join("private")).unwrap();
        ground.file("private/a", &content);
        // A file that changed a moment ago is read again.
        ground.settled_room();
        run(ground);
        assert_eq!(run(ground).scanned.unchanged, 1);
        // By the folder: nothing of the file itself changes.
        exclude(&ground.substrate, Path::new("private")).unwrap();
        ground.file("b", &content);
        let found = run(ground);
        assert_eq!((found.passed.shared.now, found.passed.planned.stale), (0, 20), "{found:?}");
        include(&ground.substrate, Path::new("private")).unwrap();
        let found = run(ground);
        assert_eq!((found.scanned.read_bytes / K % 20, found.passed.shared.now), (0, 20 * K), "{found:?}");
        assert_eq!(place(ground, "private/a"), place(ground, "b"));
        assert!(ground.content("private/a") == content && ground.content("b") == content);
    });
}

#[test]
fn a_file_with_a_name_that_is_not_excluded_is_shared() {
    on_each(|ground| {
        let content = random_blocks(3, 20);
        std::fs::create_dir(ground.root.join("private")).unwrap();
        ground.file("private/a", &content);
        std::fs::hard_link(ground.root.join("private/a"), ground.root.join("a")).unwrap();
        ground.file("b", &content);
        exclude(&ground.substrate, Path::new("private")).unwrap();
        let found = run(ground);
        assert_eq!((found.scanned.files, found.scanned.opted_out), (2, 0), "{found:?}");
        assert_eq!(found.passed.shared.now, 20 * K, "{found:?}");
    });
}
