//! A folder store on real files, compared with the store in memory.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use onefold_block::Clock;
use onefold_block::clock::ManualClock;
use onefold_block::random::SeededRandom;

use super::power_cut::RecordedFiles;
use super::*;
use crate::store::{MemoryStore, PacedStore, RetryPolicy, RetryingStore};

fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

/// Returns names and lengths of the objects whose names begin with `prefix`.
fn names_and_lengths(store: &dyn Store, prefix: &str) -> Vec<(ObjectName, u64)> {
    store.list(prefix, None).unwrap().into_iter().map(|listed| (listed.name, listed.length_bytes)).collect()
}

#[test]
fn objects_are_put_created_read_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let stores: [Box<dyn Store>; 2] =
        [Box::new(FolderStore::open(folder.path()).unwrap()), Box::new(MemoryStore::default())];
    for store in stores {
        let (pack, entry) = (name("packs/00/11"), name("ledger/0"));
        assert!(matches!(store.get(&pack, ByteRange::Whole), Err(StoreError::Missing(_))));
        store.put(&pack, &[b"0123", b"", b"456789"]).unwrap();
        store.put(&pack, &[b"0123", b"", b"4567890"]).unwrap();
        assert_eq!(store.create(&entry, b"first").unwrap(), Creation::New);
        assert_eq!(store.create(&entry, b"second").unwrap(), Creation::Exists);
        assert_eq!(store.get(&entry, ByteRange::Whole).unwrap(), b"first");
        let part = |offset, length_bytes| store.get(&pack, ByteRange::From { offset, length_bytes }).unwrap();
        assert_eq!(part(2, 3), b"234");
        assert_eq!(part(8, u64::MAX), b"890");
        assert_eq!(part(u64::MAX, 1), b"");
        assert_eq!(store.get(&pack, ByteRange::Last { length_bytes: 4 }).unwrap(), b"7890");
        assert_eq!(store.get(&pack, ByteRange::Last { length_bytes: 400 }).unwrap(), b"01234567890");
        store.delete(&pack).unwrap();
        store.delete(&pack).unwrap();
        store.delete(&name("nowhere/at/all")).unwrap();
        assert!(matches!(store.get(&pack, ByteRange::Whole), Err(StoreError::Missing(_))));
        assert_eq!(names_and_lengths(&*store, ""), [(entry, 5)]);
    }
}

#[test]
fn listings_are_in_the_order_of_names_and_continue_behind_one() {
    let folder = tempfile::tempdir().unwrap();
    let (files, memory) = (FolderStore::open(folder.path()).unwrap(), MemoryStore::default());
    let random = SeededRandom::new(3);
    let stores: [&dyn Store; 2] = [&files, &memory];
    let part = |random: &SeededRandom| ["a", "b", "a-b", "a.b", "a0", "0"][usize::try_from(random.below(6)).unwrap()];
    for _ in 0..150 {
        // No object is also a folder: the last part of a name is never the name of a folder.
        let depth = random.below(3);
        let mut text = String::new();
        (0..depth).for_each(|_| text.push_str(&format!("{}/", part(&random))));
        text.push_str(&format!("o{}", random.below(40)));
        stores.iter().for_each(|store| store.put(&name(&text), &[text.as_bytes()]).unwrap());
    }
    let all = memory.list("", None).unwrap();
    assert!(all.len() > 50);
    for prefix in ["", "a", "a/", "a-b/", "o", "a/b/o1", "zz"] {
        for after in std::iter::once(None).chain(all.iter().step_by(3).map(|listed| Some(&listed.name))) {
            let [found, expected] = stores.map(|store| {
                let listed = store.list(prefix, after).unwrap();
                listed.into_iter().map(|listed| (listed.name, listed.length_bytes)).collect::<Vec<_>>()
            });
            assert_eq!(found, expected, "{prefix} {after:?}");
        }
    }
}

#[test]
fn a_listing_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let store = FolderStore::open(folder.path()).unwrap();
    std::fs::create_dir(folder.path().join("ledger")).unwrap();
    for number in 0..1005 {
        std::fs::write(folder.path().join(format!("ledger/{number:016x}")), "").unwrap();
    }
    let first = store.list("ledger/", None).unwrap();
    assert_eq!(first.len(), 1000);
    assert_eq!(store.list("ledger/", Some(&first[999].name)).unwrap().len(), 5);
}

#[test]
fn a_listing_asks_only_for_what_it_returns() {
    let store = Folder::new(FailingFiles::default(), Box::new(SeededRandom::new(2)));
    for number in 0..1030 {
        store.put(&name(&format!("ledger/{number:016x}")), &[b"x"]).unwrap();
    }
    let asked = |after: Option<&ObjectName>| {
        *store.files.found.lock() = 0;
        (store.list("ledger/", after).unwrap().len(), *store.files.found.lock())
    };
    let entry = |number: u64| name(&format!("ledger/{number:016x}"));
    // Beside them the folder, and the one behind which the listing begins.
    assert_eq!(asked(None), (1000, 1001));
    assert_eq!(asked(Some(&entry(1000))), (29, 31));
    assert_eq!(asked(Some(&entry(1029))), (0, 2));
}

#[test]
fn the_name_of_a_folder_of_any_maker_is_made_durable() {
    let synced = Mutex::new(0);
    let sync = |answer: io::Result<()>| {
        *synced.lock() += 1;
        answer
    };
    let exists = || Err(ErrorKind::AlreadyExists.into());
    settle(Ok(()), || sync(Ok(()))).unwrap();
    settle(exists(), || sync(Ok(()))).unwrap();
    assert_eq!(*synced.lock(), 2);
    for kind in [ErrorKind::PermissionDenied, ErrorKind::StorageFull] {
        assert_eq!(settle(exists(), || sync(Err(kind.into()))).is_ok(), kind == ErrorKind::PermissionDenied);
        assert!(settle(Ok(()), || sync(Err(kind.into()))).is_err());
        assert!(settle(Err(kind.into()), || panic!("there is none")).is_err());
    }
}

#[test]
fn leftovers_and_foreign_things_are_no_objects() {
    let folder = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    let store = FolderStore::open(folder.path()).unwrap();
    store.put(&name("packs/aa/bb"), &[b"x"]).unwrap();
    std::fs::write(folder.path().join("packs/aa/.new-1"), "half").unwrap();
    std::fs::create_dir(folder.path().join("lost+found")).unwrap();
    std::os::unix::fs::symlink(outside.path(), folder.path().join("linked")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret"), folder.path().join("secret")).unwrap();
    assert_eq!(names_and_lengths(&store, ""), [(name("packs/aa/bb"), 1)]);
    for (object, range) in [("secret", ByteRange::Whole), ("packs/aa", ByteRange::Last { length_bytes: 1 })] {
        let got = store.get(&name(object), range);
        assert!(matches!(got, Err(StoreError::Foreign { .. })), "{got:?}");
    }
    assert!(store.get(&name("linked/secret"), ByteRange::Whole).is_err());
    assert!(store.put(&name("linked/other"), &[b"x"]).is_err());
    assert_eq!(store.create(&name("secret"), b"x").unwrap(), Creation::Exists, "a link has the name");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    assert_eq!(std::fs::read(outside.path().join("secret")).unwrap(), b"secret");
}

#[test]
fn files_are_their_owners_and_nothing_temporary_stays() {
    let above = tempfile::tempdir().unwrap();
    let path = above.path().join("archive");
    assert!(matches!(FolderStore::open(&path), Err(StoreError::Io { .. })));
    let store = FolderStore::create(&path).unwrap();
    FolderStore::create(&path).unwrap();
    store.put(&name("packs/aa/bb"), &[b"x"]).unwrap();
    store.create(&name("packs/aa/cc"), b"x").unwrap();
    store.create(&name("packs/aa/cc"), b"y").unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&path.join("packs"))), (0o700, 0o700));
    assert_eq!((mode(&path.join("packs/aa/bb")), mode(&path.join("packs/aa/cc"))), (0o600, 0o600));
    let mut names: Vec<_> =
        std::fs::read_dir(path.join("packs/aa")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["bb", "cc"]);
}

#[test]
fn a_folder_that_was_removed_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = FolderStore::open(folder.path()).unwrap();
    store.put(&name("packs/aa/bb"), &[b"x"]).unwrap();
    std::fs::remove_dir_all(folder.path().join("packs")).unwrap();
    store.put(&name("packs/aa/cc"), &[b"y"]).unwrap();
    assert_eq!(store.get(&name("packs/aa/cc"), ByteRange::Whole).unwrap(), b"y");
}

#[test]
fn a_full_or_failing_file_system_leaves_nothing_half_written() {
    let files = FailingFiles::default();
    let store = Folder::new(files, Box::new(SeededRandom::new(1)));
    store.put(&name("packs/aa/bb"), &[b"sound"]).unwrap();
    for call in ["write", "sync_file", "rename", "link", "sync_folder"] {
        *store.files.fails.lock() = call;
        let (put, created) = (store.put(&name("packs/aa/cc"), &[b"x"]), store.create(&name("packs/aa/dd"), b"x"));
        assert!(put.is_err() || call == "link", "{call}");
        assert!(created.is_err() || call == "rename", "{call}");
        *store.files.fails.lock() = "";
        let temporary = store.files.names("packs/aa").unwrap().iter().filter(|name| name.starts_with('.')).count();
        assert_eq!(temporary, 0, "{call}");
        for object in ["packs/aa/cc", "packs/aa/dd"] {
            match store.get(&name(object), ByteRange::Whole) {
                Ok(bytes) => assert_eq!(bytes, b"x", "{call}"),
                Err(error) => assert!(matches!(error, StoreError::Missing(_)), "{error}"),
            }
            store.delete(&name(object)).unwrap();
        }
        assert_eq!(store.get(&name("packs/aa/bb"), ByteRange::Whole).unwrap(), b"sound");
    }
}

/// Whether a creation that fails may have made the object. A network file system may lose the answer of `link`.
#[test]
fn a_creation_that_fails_says_whether_it_had_an_effect() {
    let store = Folder::new(FailingFiles::default(), Box::new(SeededRandom::new(2)));
    store.put(&name("ledger/0"), &[b"first"]).unwrap();
    for (call, errno, certain) in [
        ("write", Errno::NOSPC, Some(ErrorKind::StorageFull)),
        ("sync_file", Errno::DQUOT, Some(ErrorKind::QuotaExceeded)),
        ("link", Errno::ACCESS, Some(ErrorKind::PermissionDenied)),
        ("link", Errno::ROFS, Some(ErrorKind::ReadOnlyFilesystem)),
        ("link", Errno::PERM, Some(ErrorKind::Unsupported)),
        ("link", Errno::OPNOTSUPP, Some(ErrorKind::Unsupported)),
        ("link", Errno::IO, None),
        ("link", Errno::TIMEDOUT, None),
        ("sync_folder", Errno::IO, None),
    ] {
        (*store.files.fails.lock(), *store.files.errno.lock()) = (call, Some(errno));
        let error = store.create(&name("ledger/1"), b"second").unwrap_err();
        match &error {
            StoreError::NotMade { source, .. } => assert_eq!(Some(source.kind()), certain, "{call} {errno}"),
            error => assert!(certain.is_none(), "{call} {errno}: {error}"),
        }
        assert_eq!(error.had_no_effect(), certain.is_some());
        *store.files.fails.lock() = "";
        let found = store.get(&name("ledger/1"), ByteRange::Whole);
        assert_eq!(found.is_ok(), call == "sync_folder", "{call} {errno}");
        store.delete(&name("ledger/1")).unwrap();
    }
}

#[test]
fn a_creation_that_cannot_make_an_existing_object_durable_does_not_report_it() {
    let store = Folder::new(FailingFiles::default(), Box::new(SeededRandom::new(3)));
    store.put(&name("ledger/0"), &[b"first"]).unwrap();
    (*store.files.fails.lock(), *store.files.errno.lock()) = ("sync_named", Some(Errno::IO));
    assert!(matches!(store.create(&name("ledger/0"), b"second"), Err(StoreError::Io { .. })));
    // It was removed meanwhile. Its reader finds that out.
    *store.files.errno.lock() = Some(Errno::NOENT);
    assert_eq!(store.create(&name("ledger/0"), b"second").unwrap(), Creation::Exists);
}

/// Files on which one kind of call fails after a part of its bytes is written.
#[derive(Debug, Default)]
struct FailingFiles {
    files: RecordedFiles,
    fails: Mutex<&'static str>,
    /// How it fails, if not for want of room.
    errno: Mutex<Option<Errno>>,
    /// Number of calls of `find`.
    found: Mutex<usize>,
}

impl FailingFiles {
    fn fail(&self, call: &str) -> io::Result<()> {
        match *self.errno.lock() {
            _ if *self.fails.lock() != call => Ok(()),
            Some(errno) => Err(errno.into()),
            None => Err(ErrorKind::StorageFull.into()),
        }
    }
}

impl Files for FailingFiles {
    type File = usize;

    fn make_file(&self, path: &str) -> io::Result<usize> {
        self.files.make_file(path)
    }

    fn write(&self, file: &mut usize, bytes: &[u8]) -> io::Result<()> {
        self.files.write(file, &bytes[..bytes.len() / 2])?;
        self.fail("write")?;
        self.files.write(file, &bytes[bytes.len() / 2..])
    }

    fn sync_file(&self, file: &mut usize) -> io::Result<()> {
        self.fail("sync_file")?;
        self.files.sync_file(file)
    }

    fn sync_named(&self, path: &str) -> io::Result<()> {
        self.fail("sync_named")?;
        self.files.sync_named(path)
    }

    fn link(&self, folder: &str, from: &str, to: &str) -> io::Result<()> {
        self.fail("link")?;
        self.files.link(folder, from, to)
    }

    fn rename(&self, folder: &str, from: &str, to: &str) -> io::Result<()> {
        self.fail("rename")?;
        self.files.rename(folder, from, to)
    }

    fn unlink(&self, folder: &str, name: &str) -> io::Result<()> {
        self.files.unlink(folder, name)
    }

    fn make_folder(&self, folder: &str, name: &str) -> io::Result<()> {
        self.files.make_folder(folder, name)
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.fail("sync_folder")?;
        self.files.sync_folder(folder)
    }

    fn read(&self, path: &str, range: ByteRange) -> io::Result<Option<Vec<u8>>> {
        self.files.read(path, range)
    }

    fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        self.files.names(folder)
    }

    fn find(&self, folder: &str, name: &str) -> io::Result<EntryKind> {
        *self.found.lock() += 1;
        self.files.find(folder, name)
    }
}

#[test]
fn of_many_creations_one_wins() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let object = name(&format!("ledger/{round}"));
        let stores: Vec<Arc<FolderStore>> =
            (0..8).map(|_| Arc::new(FolderStore::open(folder.path()).unwrap())).collect();
        let answers: Vec<(usize, Creation)> = std::thread::scope(|scope| {
            let calls = stores.iter().enumerate().map(|(number, store)| {
                let object = &object;
                scope.spawn(move || (number, store.create(object, number.to_string().as_bytes()).unwrap()))
            });
            let calls: Vec<_> = calls.collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        let winners: Vec<usize> =
            answers.iter().filter(|(_, created)| *created == Creation::New).map(|(number, _)| *number).collect();
        assert_eq!(winners.len(), 1, "{answers:?}");
        assert_eq!(stores[0].get(&object, ByteRange::Whole).unwrap(), winners[0].to_string().as_bytes());
    }
}

#[test]
fn listings_say_when_objects_were_stored_and_old_temporary_files_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = FolderStore::open(folder.path()).unwrap();
    store.put(&name("packs/aa/bb"), &[b"x"]).unwrap();
    let modified = store.list("", None).unwrap()[0].modified;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(modified.seconds.abs_diff(i64::try_from(now).unwrap()) < 100, "{modified:?}");
    for leftover in [".new-0", "packs/.new-1", "packs/aa/.new-2", "packs/aa/.other"] {
        std::fs::write(folder.path().join(leftover), "half").unwrap();
    }
    std::fs::create_dir(folder.path().join("packs/.new-3")).unwrap();
    let seconds = |seconds| Timestamp { seconds: modified.seconds + seconds, nanoseconds: 0 };
    assert_eq!(store.remove_leftovers(seconds(-100)).unwrap(), 0, "a writer may be at work on them");
    assert_eq!(store.remove_leftovers(seconds(100)).unwrap(), 12);
    assert_eq!(names_and_lengths(&store, ""), [(name("packs/aa/bb"), 1)]);
    assert!(folder.path().join("packs/aa/.other").exists() && folder.path().join("packs/.new-3").exists());
}

#[test]
fn the_place_of_a_folder_is_its_path_without_links_whatever_wraps_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("archive"), folder.path().join("link"));
    let store: Arc<dyn Store> = Arc::new(FolderStore::create(&path).unwrap());
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_eq!(store.place(), std::fs::canonicalize(&path).unwrap().as_os_str().as_encoded_bytes());
    assert_eq!(FolderStore::open(&link).unwrap().place(), store.place());
    assert_ne!(FolderStore::create(&folder.path().join("other")).unwrap().place(), store.place());
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::starting_at(0));
    let paced = PacedStore::new(Arc::clone(&store), Arc::clone(&clock), std::num::NonZeroU64::MIN);
    let random = Arc::new(SeededRandom::new(1));
    let retrying = RetryingStore::new(Arc::clone(&store), clock, random, RetryPolicy::default(), Box::new(|_, _| ()));
    assert_eq!((paced.place(), retrying.place()), (store.place(), store.place()));
}
