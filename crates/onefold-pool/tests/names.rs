//! Names: the requirements of doors and of other hosts' rules on look-ups and renames.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::sync::Arc;

use onefold_block::BlockDevice;
use onefold_block::clock::ManualClock;
use onefold_block::random::SeededRandom;
use onefold_pool::{
    CreateOptions, Environment, FileKind, Ino, NewFile, OpenOptions, Pool, PoolError, RenameMode, SpaceShown, XattrMode,
};
use onefold_testing::device::MemoryDevice;

fn new_pool() -> Pool {
    let environment =
        || Environment { clock: Arc::new(ManualClock::starting_at(1000)), random: Arc::new(SeededRandom::new(1)) };
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(16_384));
    Pool::create(&device, &CreateOptions::default(), &environment()).unwrap();
    let options = OpenOptions { background: false, memory_bytes: 64 << 20, ..OpenOptions::default() };
    Pool::open(device, options, environment()).unwrap()
}

fn make(pool: &Pool, parent: Ino, name: &str, kind: FileKind) -> Ino {
    let new = NewFile { kind, mode: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0 };
    pool.create_file(parent, name.as_bytes(), &new).unwrap().ino
}

fn make_domain(pool: &Pool, parent: Ino, name: &str, domain: &str) -> Ino {
    let directory = make(pool, parent, name, FileKind::Directory);
    pool.set_xattr(directory, b"user.onefold.domain", domain.as_bytes(), XattrMode::Either).unwrap();
    directory
}

#[test]
fn a_dot_leads_to_any_file_but_two_dots_only_from_directories() {
    // Seen: opening an NFS server's handle of a regular file, after the kernel had dropped the file, returned ENOTDIR.
    // The kernel then looks up `.` in the file itself.
    let pool = new_pool();
    let file = make(&pool, Ino::ROOT, "file", FileKind::Regular);
    assert_eq!(pool.lookup(file, b".").unwrap().ino, file);
    assert!(matches!(pool.lookup(file, b".."), Err(PoolError::NotADirectory)));
    assert!(matches!(pool.lookup(file, b"below"), Err(PoolError::NotADirectory)));
    assert!(matches!(pool.lookup(Ino(9999), b"."), Err(PoolError::NotFound)));
    // Seen: a handle of a removed file could open it again until the inode was reaped.
    pool.unlink(Ino::ROOT, b"file").unwrap();
    assert!(matches!(pool.lookup(file, b"."), Err(PoolError::NotFound)));
}

#[test]
fn a_directory_where_a_domain_begins_moves_between_directories_of_one_domain() {
    // Seen: EXDEV for `mv tenant renamed` in one directory, because the tenant's own domain was compared with it.
    let pool = new_pool();
    let tenant = make_domain(&pool, Ino::ROOT, "tenant", "5");
    let plain = make(&pool, Ino::ROOT, "plain", FileKind::Directory);
    let mv =
        |from, name: &str, to, new_name: &str, mode| pool.rename(from, name.as_bytes(), to, new_name.as_bytes(), mode);
    mv(Ino::ROOT, "tenant", Ino::ROOT, "renamed", RenameMode::Replace).unwrap();
    mv(Ino::ROOT, "renamed", plain, "below", RenameMode::NoReplace).unwrap();
    mv(plain, "below", Ino::ROOT, "plain", RenameMode::Exchange).unwrap_err();
    make(&pool, Ino::ROOT, "file", FileKind::Regular);
    mv(plain, "below", Ino::ROOT, "file", RenameMode::Exchange).unwrap();
    let found = pool.lookup(Ino::ROOT, b"file").unwrap();
    assert_eq!((found.ino, found.domain), (tenant, 5));
}

#[test]
fn nothing_moves_into_another_domain() {
    let pool = new_pool();
    let tenant = make_domain(&pool, Ino::ROOT, "tenant", "5");
    let other = make_domain(&pool, Ino::ROOT, "other", "6");
    make(&pool, tenant, "secret", FileKind::Regular);
    make(&pool, Ino::ROOT, "open", FileKind::Regular);
    for (from, name, to) in [(tenant, "secret", other), (tenant, "secret", Ino::ROOT), (Ino::ROOT, "open", tenant)] {
        for mode in [RenameMode::Replace, RenameMode::NoReplace] {
            let moved = pool.rename(from, name.as_bytes(), to, b"new", mode);
            assert!(matches!(moved, Err(PoolError::CrossDomain)), "{name}: {moved:?}");
        }
    }
    let exchanged = pool.rename(tenant, b"secret", Ino::ROOT, b"open", RenameMode::Exchange);
    assert!(matches!(exchanged, Err(PoolError::CrossDomain)));
    let nested = pool.rename(Ino::ROOT, b"other", tenant, b"other", RenameMode::Replace);
    assert!(matches!(nested, Err(PoolError::CrossDomain)));
}

#[test]
fn a_whiteout_stays_where_the_source_was() {
    let pool = new_pool();
    let upper = make(&pool, Ino::ROOT, "upper", FileKind::Directory);
    let file = make(&pool, Ino::ROOT, "file", FileKind::Regular);
    make(&pool, upper, "target", FileKind::Regular);
    pool.rename(Ino::ROOT, b"file", upper, b"target", RenameMode::Whiteout { uid: 7, gid: 8 }).unwrap();
    assert_eq!(pool.lookup(upper, b"target").unwrap().ino, file);
    let whiteout = pool.lookup(Ino::ROOT, b"file").unwrap();
    assert_eq!((whiteout.kind, whiteout.rdev, whiteout.mode), (FileKind::CharDevice, 0, 0));
    assert_eq!((whiteout.uid, whiteout.gid, whiteout.link_count), (7, 8, 1));
    pool.close().unwrap();
}

/// A rename walked up to 100,000 parents while all other operations waited: any user can nest directories that deep.
#[test]
fn a_rename_walks_few_parents_and_none_where_no_loop_can_come_of_it() {
    let pool = new_pool();
    let mut deepest = Ino::ROOT;
    for _ in 0..5000 {
        let next = make(&pool, deepest, "d", FileKind::Directory);
        pool.release(next, 1);
        deepest = next;
    }
    let mv = |from, name: &str, to, new_name: &str| {
        pool.rename(from, name.as_bytes(), to, new_name.as_bytes(), RenameMode::Replace)
    };
    make(&pool, Ino::ROOT, "leaf", FileKind::Directory);
    let tree = make(&pool, Ino::ROOT, "tree", FileKind::Directory);
    let below = make(&pool, tree, "below", FileKind::Directory);
    mv(Ino::ROOT, "leaf", deepest, "leaf").expect("a directory without others below");
    let refused = mv(Ino::ROOT, "tree", deepest, "tree").expect_err("too deep to be looked at");
    assert!(matches!(refused, PoolError::Invalid("directories nest too deeply")), "{refused}");
    let leaf = pool.lookup(deepest, b"leaf").unwrap().ino;
    make(&pool, leaf, "more", FileKind::Directory);
    mv(deepest, "leaf", deepest, "renamed").expect("stays in its folder, however deep");
    for (from, name, to) in [(Ino::ROOT, "tree", below), (Ino::ROOT, "tree", tree), (tree, "below", below)] {
        let refused = mv(from, name, to, "loop").expect_err("a loop");
        assert!(matches!(refused, PoolError::Invalid("a directory cannot move below itself")), "{name}: {refused}");
    }
    pool.close().unwrap();
}

#[test]
fn the_space_that_a_file_shows_is_inherited_and_taken_back() {
    const NAME: &[u8] = b"user.onefold.st_blocks";
    let pool = new_pool();
    let folder = make(&pool, Ino::ROOT, "folder", FileKind::Directory);
    pool.set_xattr(folder, NAME, b"mapped", XattrMode::Either).unwrap();
    let file = make(&pool, folder, "file", FileKind::Regular);
    let shown = |ino| pool.attr(ino).unwrap().space_shown;
    assert_eq!((shown(file), shown(Ino::ROOT)), (SpaceShown::Mapped, SpaceShown::ByDoor));
    pool.set_xattr(file, NAME, b"length", XattrMode::Either).unwrap();
    assert!(matches!(pool.set_xattr(file, NAME, b"holes", XattrMode::Either), Err(PoolError::Invalid(_))));
    assert!(pool.xattr_names(file).unwrap().is_empty(), "it is the pool's own");
    assert_eq!((shown(file), pool.xattr(file, NAME).unwrap()), (SpaceShown::Length, b"length".to_vec()));
    pool.remove_xattr(file, NAME).unwrap();
    assert_eq!((shown(file), pool.xattr(file, NAME).unwrap()), (SpaceShown::ByDoor, b"mount".to_vec()));
    assert!(matches!(pool.remove_xattr(file, NAME), Err(PoolError::NoAttribute)));
}
