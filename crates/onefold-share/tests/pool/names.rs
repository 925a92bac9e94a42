//! Names, locks, refusals and errors of a pool as the seam has them.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use onefold_block::BlockDevice;
use onefold_pool::{Ino, OpenOptions, PoolSubstrate};
use onefold_substrate::{
    Access, At, ComparisonResult, Files, ListedKind, Locks, Names, Refusal, ShareError, Sharing, SubstrateKind,
};

use crate::ground::*;

fn path(path: &str) -> &Path {
    Path::new(path)
}

/// Disks of guests are read by threads of their own.
#[test]
fn any_thread_reads_a_file_that_stays_open() {
    let pool = open(new_pool(8192), finding());
    let content = blocks(1..=8);
    put(&pool, Ino::ROOT, "file", &content);
    let substrate = substrate(&pool);
    let file = substrate.open(path("file"), Access::Read).unwrap();
    let reader = substrate.borrowed_reader(&file).unwrap();
    // Its name goes, and the file stays as long as it is open.
    substrate.remove(path("file")).unwrap();
    settle(&pool);
    std::thread::scope(|scope| {
        for offset in [0, K, 7 * K + 5, 8 * K] {
            let (reader, content) = (&reader, &content);
            scope.spawn(move || {
                let rest = &content[usize::try_from(offset).unwrap()..];
                let mut into = vec![0; content.len()];
                assert_eq!(reader.read_at(offset, &mut into).unwrap(), rest.len());
                assert!(into.starts_with(rest));
            });
        }
    });
    assert!(substrate.reader(&file).is_none());
}

#[test]
fn files_are_made_found_moved_and_removed() {
    let pool = open(new_pool(8192), finding());
    let top = folder(&pool, Ino::ROOT, "top");
    put(&pool, top, "file", &blocks([1, 2]));
    pool.create_symlink(Ino::ROOT, b"link", b"top", 0, 0).unwrap();
    let substrate = substrate(&pool);
    assert_eq!(substrate.abilities().kind, SubstrateKind::Pool);

    let file = substrate.open(path("top/file"), Access::Read).unwrap();
    let stat = substrate.stat(&file).unwrap();
    assert_eq!((stat.length, stat.allocated), (2 * K, 2 * K));
    let same = substrate.open(path("./top/./file"), Access::Write).unwrap();
    assert_eq!(substrate.stat(&same).unwrap().handle, stat.handle);
    substrate.link(path("top/file"), path("top/second")).unwrap();
    let error = substrate.link(path("top/file"), path("top/second")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    substrate.rename(path("top/second"), path("third")).unwrap();
    let third = substrate.open(path("third"), Access::Read).unwrap();
    assert_eq!(substrate.stat(&third).unwrap().handle, stat.handle);
    substrate.remove(path("third")).unwrap();
    assert_eq!(substrate.remove(path("third")).unwrap_err().kind(), ErrorKind::NotFound);

    substrate.create_dir(path("top/below")).unwrap();
    assert_eq!(substrate.create_dir(path("top/below")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    let made = substrate.create(path("top/below/made")).unwrap();
    assert_eq!(substrate.create(path("top/below/made")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    substrate.write_at(&made, K, &blocks([3])).unwrap();
    substrate.set_len(&made, 3 * K).unwrap();
    substrate.sync(&made).unwrap();
    let mut read = vec![0xaa; 4 * 4096];
    assert_eq!(substrate.read_at(&made, 0, &mut read).unwrap(), 3 * 4096);
    assert!(read[..3 * 4096] == blocks([0, 3, 0]));
    substrate.punch(&made, 0, 2 * K).unwrap();
    assert_eq!(substrate.extents(&made, 0).unwrap(), []);
    // The owner of the folder owns what is made in it, and nobody else may look.
    let below = pool.lookup(top, b"below").unwrap();
    let attr = pool.lookup(below.ino, b"made").unwrap();
    assert_eq!((below.mode, below.uid, below.gid), (0o700, 5, 6));
    assert_eq!((attr.mode, attr.uid, attr.gid), (0o600, 5, 6));

    let mut listed = substrate.list(path("")).unwrap();
    listed.sort_by(|one, other| one.name.cmp(&other.name));
    let listed: Vec<_> = listed.iter().map(|listed| (listed.name.to_str().unwrap(), listed.kind)).collect();
    assert_eq!(listed, [("link", ListedKind::Other), ("top", ListedKind::Folder)]);
    let room = substrate.room().unwrap();
    assert!(room.free < room.total && room.total < 8192 * K, "{room:?}");
}

#[test]
fn a_file_that_lost_its_name_is_there_until_it_is_closed() {
    let pool = open(new_pool(8192), finding());
    put(&pool, Ino::ROOT, "file", &blocks(1..=10));
    let substrate = substrate(&pool);
    let file = substrate.open(path("file"), Access::Read).unwrap();
    let handle = substrate.stat(&file).unwrap().handle;
    substrate.remove(path("file")).unwrap();
    settle(&pool);
    put(&pool, Ino::ROOT, "file", &blocks(20..=30));
    let mut read = vec![0; 10 * 4096];
    assert_eq!(substrate.read_at(&file, 0, &mut read).unwrap(), read.len());
    assert!(read == blocks(1..=10));
    let later = substrate.open(path("file"), Access::Read).unwrap();
    assert_ne!(substrate.stat(&later).unwrap().handle, handle);
    drop(file);
    settle(&pool);
    assert_eq!(stored_and_saved(&pool).0, 11 * K);
}

#[test]
fn no_path_leads_elsewhere() {
    let pool = open(new_pool(8192), finding());
    let top = folder(&pool, Ino::ROOT, "top");
    put(&pool, top, "file", &blocks([1]));
    put(&pool, Ino::ROOT, "outside", &blocks([1]));
    for (name, target) in [(&b"link"[..], &b"top"[..]), (b"to file", b"top/file")] {
        pool.create_symlink(Ino::ROOT, name, target, 0, 0).unwrap();
    }
    let all = substrate(&pool);
    let kind = |path: &str| all.open(Path::new(path), Access::Read).map(drop).unwrap_err().kind();
    assert_eq!(kind("missing"), ErrorKind::NotFound);
    assert_eq!(kind("top"), ErrorKind::InvalidInput);
    assert_eq!(kind("top/file/below"), ErrorKind::NotADirectory);
    for path in ["", "/top/file", "top/../outside", ".."] {
        assert_eq!(kind(path), ErrorKind::InvalidInput, "{path}");
    }
    assert_eq!(kind(&"x".repeat(300)), ErrorKind::InvalidFilename);
    for path in ["link/file", "to file"] {
        let error = all.open(Path::new(path), Access::Read).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(40), "{path}: {error}");
    }
    let below = PoolSubstrate::open(&pool, path("top")).unwrap();
    below.open(path("file"), Access::Read).unwrap();
    assert_eq!(below.open(path("outside"), Access::Read).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(below.open(path("../outside"), Access::Read).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(PoolSubstrate::open(&pool, path("outside")).unwrap_err().kind(), ErrorKind::NotADirectory);
    assert_eq!(all.list(path("outside")).unwrap_err().kind(), ErrorKind::NotADirectory);
    assert_eq!(all.remove(path("top")).unwrap_err().kind(), ErrorKind::IsADirectory);
}

#[test]
fn one_at_a_time_has_a_file_s_lock() {
    let pool = open(new_pool(8192), finding());
    put(&pool, Ino::ROOT, "file", &blocks([1]));
    // Two hosts, as far as locks are concerned.
    let (one, other) = (substrate(&pool), substrate(&pool));
    let first = one.open(path("file"), Access::Write).unwrap();
    let second = other.open(path("file"), Access::Write).unwrap();
    assert!(one.try_lock(&first).unwrap() && one.try_lock(&first).unwrap());
    assert!(!other.try_lock(&second).unwrap());
    drop(one.open(path("file"), Access::Write).unwrap());
    assert!(!other.try_lock(&second).unwrap(), "closing another opening of the file lets nothing go");
    drop(first);
    assert!(other.try_lock(&second).unwrap());
}

#[test]
fn what_was_opened_for_reading_is_not_changed() {
    let pool = open(new_pool(8192), with_filter(0));
    for name in ["a", "b"] {
        put(&pool, Ino::ROOT, name, &blocks(1..=4));
    }
    let substrate = substrate(&pool);
    let [a, b] = ["a", "b"].map(|name| substrate.open(path(name), Access::Read).unwrap());
    for refused in [substrate.write_at(&a, 0, &[1]), substrate.set_len(&a, 0), substrate.punch(&a, 0, K)] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
    let (source, into) = (At { file: &a, offset: 0 }, At { file: &b, offset: 0 });
    let refused = substrate.share(source, into, 4 * K);
    assert!(matches!(refused, Err(ShareError::Refused(Refusal::NotPermitted))), "{refused:?}");
    let refused = substrate.clone_range(source, into, 4 * K);
    assert!(matches!(refused, Err(ShareError::Refused(Refusal::NotPermitted))), "{refused:?}");
    let b = substrate.open(path("b"), Access::Write).unwrap();
    let into = At { file: &b, offset: 0 };
    assert_eq!(substrate.share(source, into, 4 * K).unwrap(), ComparisonResult::Shared);
    let beyond = substrate.clone_range(At { file: &a, offset: 2 * K }, into, 4 * K);
    assert!(matches!(beyond, Err(ShareError::Io(_))), "{beyond:?}");
}

#[test]
fn a_pool_that_is_open_for_reading_says_so() {
    let device = new_pool(8192);
    let seam: Arc<dyn BlockDevice> = device.clone();
    let pool = open(seam.clone(), finding());
    put(&pool, Ino::ROOT, "a", &blocks(1..=4));
    put(&pool, Ino::ROOT, "b", &blocks(1..=4));
    pool.close().unwrap();
    drop(pool);
    let pool = open(seam, OpenOptions { read_only: true, ..finding() });
    let substrate = substrate(&pool);
    let [a, b] = ["a", "b"].map(|name| substrate.open(path(name), Access::Write).unwrap());
    let refused = substrate.share(At { file: &a, offset: 0 }, At { file: &b, offset: 0 }, 4 * K);
    assert!(
        matches!(&refused, Err(ShareError::Io(error)) if error.kind() == ErrorKind::ReadOnlyFilesystem),
        "{refused:?}"
    );
    assert_eq!(substrate.create(path("c")).unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(run(&substrate).unwrap_err().to_string(), "`.onefold`: the pool is open read-only");
}
