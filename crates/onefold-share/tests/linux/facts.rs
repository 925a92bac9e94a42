//! What the file system says of files: attributes, owners of locks, refusals; and clones of whole files.

use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use onefold_substrate::{Access, Files, HeldLock, Locks, Names, Refusal, Sharing};

use crate::ground::{BTRFS, K, on, on_each, random_blocks, run, soon};

#[test]
fn attributes_are_set_read_and_removed_of_files_and_folders() {
    on_each(|ground| {
        let (substrate, name) = (&ground.substrate, "user.onefold.test");
        drop(ground.file("file", b"content"));
        std::fs::create_dir(ground.root.join("folder")).unwrap();
        for path in ["file", "folder", ""].map(Path::new) {
            let get = || substrate.attribute(path, name).unwrap();
            assert_eq!(get(), None);
            substrate.set_attribute(path, name, Some(b"one")).unwrap();
            assert_eq!(get().as_deref(), Some(&b"one"[..]));
            let long = [b'x'; 2000];
            substrate.set_attribute(path, name, Some(&long)).unwrap();
            assert_eq!(get().as_deref(), Some(&long[..]));
            substrate.set_attribute(path, name, Some(b"")).unwrap();
            assert_eq!(get().as_deref(), Some(&b""[..]));
            substrate.set_attribute(path, name, None).unwrap();
            substrate.set_attribute(path, name, None).unwrap();
            assert_eq!(get(), None);
        }
        symlink("file", ground.root.join("link")).unwrap();
        run("mkfifo", [ground.root.join("pipe").to_str().unwrap()]).unwrap();
        let kind = |path: &str| substrate.attribute(Path::new(path), name).unwrap_err().kind();
        assert_eq!(kind("link"), std::io::Error::from_raw_os_error(40).kind(), "links are not followed");
        assert_eq!(kind("pipe"), ErrorKind::InvalidInput);
        assert_eq!(kind("none"), ErrorKind::NotFound);
        assert_eq!(kind("../root"), ErrorKind::InvalidInput);
    });
}

#[test]
fn held_locks_are_seen_and_not_touched() {
    on_each(|ground| {
        std::fs::create_dir(ground.root.join("locks")).unwrap();
        let [one, two] = ["locks/one", "locks/two"].map(|name| ground.file(name, b""));
        let held = || ground.substrate.held_locks(Path::new("locks")).unwrap();
        assert_eq!(held(), []);
        assert!(ground.substrate.try_lock(&two).unwrap());
        let expected = HeldLock { name: "two".into(), process: Some(std::process::id()) };
        assert_eq!(held(), [expected]);
        // It is still there, and the other is still free.
        assert!(!ground.substrate.try_lock(&ground.open("locks/two", Access::Read)).unwrap());
        assert!(ground.substrate.try_lock(&one).unwrap());
        drop((one, two));
        assert!(soon(|| held().is_empty()));
        assert_eq!(ground.substrate.held_locks(Path::new("none")).unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn refusals_are_told_without_trying() {
    on_each(|ground| {
        let refusal = |name: &str| ground.substrate.refusal(&ground.open(name, Access::Read)).unwrap();
        drop(ground.file("file", b"content"));
        assert_eq!(refusal("file"), None);
        let path = ground.root.join("file");
        run("chattr", ["+i", path.to_str().unwrap()]).unwrap();
        assert_eq!(refusal("file"), Some(Refusal::Immutable));
        run("chattr", ["-i", path.to_str().unwrap()]).unwrap();
    });
    on(BTRFS, |ground| {
        std::fs::create_dir(ground.root.join("in-place")).unwrap();
        run("chattr", ["+C", ground.root.join("in-place").to_str().unwrap()]).unwrap();
        let file = ground.file("in-place/file", &random_blocks(1, 4));
        assert_eq!(ground.substrate.refusal(&file).unwrap(), Some(Refusal::NoCopyOnWrite));
        // Such a file has clones that are as it is.
        let clone = ground.substrate.create_clone(&file, Path::new("clone")).unwrap();
        assert_eq!(ground.place_of(&clone, 3), ground.place_of(&file, 3));
    });
}

#[test]
fn a_clone_has_the_bytes_the_blocks_and_the_permissions() {
    on_each(|ground| {
        // Its end is within a block.
        let content = &random_blocks(1, 5)[..(4 * K + 100) as usize];
        let source = ground.file("source", content);
        for (mode, expected) in [(0o640, 0o640), (0o4755, 0o755), (0o666, 0o666 & !0o022)] {
            std::fs::set_permissions(ground.root.join("source"), PermissionsExt::from_mode(mode)).unwrap();
            let clone = ground.substrate.create_clone(&source, Path::new("clone")).unwrap();
            assert!(clone.is_writable());
            let found = ground.root.join("clone").metadata().unwrap().permissions().mode() & 0o7777;
            // What a umask of this process takes is not given.
            assert_eq!(found & !0o077, expected & !0o077, "{mode:o}");
            assert_eq!(found & !expected, 0, "{mode:o}");
            assert!(ground.content("clone") == content);
            assert_eq!(ground.place_of(&clone, 2), ground.place_of(&source, 2));
            ground.substrate.write_at(&clone, 0, b"other").unwrap();
            assert!(ground.content("source") == content);
            std::fs::remove_file(ground.root.join("clone")).unwrap();
        }
        drop(ground.file("there", b""));
        let refused = ground.substrate.create_clone(&source, Path::new("there")).unwrap_err();
        assert!(refused.to_string().contains("exists"), "{refused}");
    });
}
