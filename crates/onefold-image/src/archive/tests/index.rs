//! An archive whose index lies in files.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use crate::store::hooked::HookedStore;

/// A room that has memory for hardly any unit.
fn room(folder: &Path) -> IndexRoom {
    let room = IndexRoom::new(1000, folder);
    IndexRoom { cache: Some(folder.join("cache")), ..room }
}

fn open(store: &Arc<dyn Store>, folder: &Path) -> Archive {
    let archive = Archive::open(Arc::clone(store)).unwrap();
    archive.set_index_room(room(folder));
    archive
}

#[test]
fn images_come_back_and_share_units_whatever_happens_to_the_files_of_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let random = SeededRandom::new(1);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    Archive::create(Arc::clone(&store), UNITS, &random).unwrap();
    let mut images: Vec<Image> = Vec::new();
    for number in 0..6 {
        let archive = open(&store, folder.path());
        let mut plain = units(&random, 20);
        plain.extend(images.iter().flat_map(|(_, plain)| plain[..3].to_vec()));
        let (image, _) = capture(&archive, &random, &format!("image{number}"), &plain);
        images.push((image, plain));
    }
    let archive = open(&store, folder.path());
    assert_eq!(archive.check(CheckOptions::default(), &mut |_, _| ()).unwrap().copies, 0, "nothing is stored twice");
    assert!(archive.index_bytes().unwrap() > 0);
    let runs = || -> Vec<std::path::PathBuf> {
        let of = std::fs::read_dir(folder.path().join("cache")).unwrap().map(|entry| entry.unwrap().path());
        of.flat_map(|folder| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path())).collect()
    };
    assert!(!runs().is_empty());
    // The blocks of runs change under an archive that has them open.
    for run in runs() {
        let file = std::fs::OpenOptions::new().write(true).open(&run).unwrap();
        let length = file.metadata().unwrap().len();
        file.write_all_at(&vec![0xa5; usize::try_from(length / 2).unwrap()], length / 4).unwrap();
    }
    for (image, plain) in &images {
        assert_eq!(contents(&archive, image).unwrap(), *plain);
    }
    // Damaged, cut short and gone.
    for change in 0..3 {
        for run in runs() {
            match change {
                0 => std::fs::OpenOptions::new()
                    .write(true)
                    .open(&run)
                    .unwrap()
                    .write_all_at(&[0xff; 100], 5000)
                    .unwrap(),
                1 => std::fs::OpenOptions::new().write(true).open(&run).unwrap().set_len(9000).unwrap(),
                _ => std::fs::remove_file(&run).unwrap(),
            }
        }
        let archive = open(&store, folder.path());
        for (image, plain) in &images {
            assert_eq!(contents(&archive, image).unwrap(), *plain);
        }
        let (_, stored_bytes) = capture(&archive, &random, "again", &images[5].1);
        assert!(stored_bytes < 2000, "{stored_bytes} bytes: only the chunk header may be new");
    }
}

#[test]
fn without_room_for_its_files_the_index_fails_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let random = SeededRandom::new(1);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let archive = Archive::create(Arc::clone(&store), UNITS, &random).unwrap();
    let plain = units(&random, 100);
    let (image, _) = capture(&archive, &random, "image", &plain);
    archive.set_index_room(IndexRoom::new(1000, &folder.path().join("none")));
    let refused = contents(&archive, &image).unwrap_err();
    assert!(matches!(refused, ArchiveError::System { what: "room for the index of units", .. }), "{refused:?}");
    archive.set_index_room(IndexRoom::default());
    assert_eq!(contents(&archive, &image).unwrap(), plain);
}

/// Puts all objects of an archive into another store, with segments that have only half of their units.
fn mirror(archive: &Archive, onto: &dyn Store) {
    let (store, id) = (archive.store(), archive.descriptor().archive);
    for listed in store.list("", None).unwrap() {
        onto.put(&listed.name, &[&store.get(&listed.name, ByteRange::Whole).unwrap()]).unwrap();
    }
    for part in archive.state.read().live_parts() {
        let mut segment = crate::archive::index::read_segment(store, id, &part).unwrap();
        segment.entries.truncate(segment.entries.len() / 2);
        let object = segment.encode(id, part.segment).unwrap();
        onto.put(&Folder::Segments.object(part.segment), &[&object]).unwrap();
    }
}

/// Regression: the cache told archives apart, and not the stores that have them.
#[test]
fn a_capture_stores_no_unit_again_that_another_store_of_the_archive_hides() {
    let folder = tempfile::tempdir().unwrap();
    let random = SeededRandom::new(3);
    let store = |name: &str| -> Arc<dyn Store> { Arc::new(FolderStore::create(&folder.path().join(name)).unwrap()) };
    let (right, other) = (store("right"), store("other"));
    let mut archive = Archive::create(Arc::clone(&right), UNITS, &random).unwrap();
    // Where a pack has many units, the table of the pack makes up for the index.
    archive.limits.pack_bytes = 1;
    let plain = units(&random, 50);
    let (_, stored_bytes) = capture(&archive, &random, "image", &plain);
    mirror(&archive, &*other);
    open(&other, folder.path()).index_bytes().unwrap();
    let (_, again_bytes) = capture(&open(&right, folder.path()), &random, "again", &plain);
    assert!(again_bytes < 100, "{again_bytes} bytes of {stored_bytes} are stored again");
    // Each store has its own part of the cache.
    assert_eq!(std::fs::read_dir(folder.path().join("cache")).unwrap().count(), 2);
}

/// Its segments have the same names, and nothing says which store has the right ones: neither has a place.
#[test]
fn what_another_store_of_the_archive_left_in_the_cache_hides_no_unit() {
    let folder = tempfile::tempdir().unwrap();
    let random = SeededRandom::new(2);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let archive = Archive::create(Arc::clone(&store), UNITS, &random).unwrap();
    let plain = units(&random, 100);
    let (image, _) = capture(&archive, &random, "image", &plain);

    let other: Arc<dyn Store> = Arc::new(MemoryStore::default());
    mirror(&archive, &*other);
    open(&other, folder.path()).index_bytes().unwrap();

    let archive = open(&store, folder.path());
    assert_eq!(contents(&archive, &image).unwrap(), plain);
    // The next process finds no such run either.
    assert_eq!(contents(&open(&store, folder.path()), &image).unwrap(), plain);
}

/// Regression: a pack whose table was damaged when its segment could not be read stayed unknown to this process, though
/// the segment could be read later.
#[test]
fn a_segment_that_can_be_read_later_shows_the_units_of_a_pack_without_a_table() {
    let random = SeededRandom::new(91);
    let store = Arc::new(MemoryStore::default());
    let content = units(&random, 4);
    let archive = Archive::create(Arc::clone(&store) as Arc<dyn Store>, UNITS, &random).unwrap();
    let (image, _) = capture(&archive, &random, "web", &content);
    let find = |prefix: &str| store.objects().into_iter().find(|(name, _)| name.as_str().starts_with(prefix)).unwrap();
    let ((segment, bytes), (pack, mut damaged)) = (find("segments/"), find("packs/"));
    store.delete(&segment).unwrap();
    let end = damaged.len() - 20;
    damaged[end] ^= 0x10;
    store.put(&pack, &[&damaged]).unwrap();
    let reader = Archive::open(Arc::clone(&store) as Arc<dyn Store>).unwrap();
    assert!(contents(&reader, &image).is_err(), "nothing says where the units are");
    store.put(&segment, &[&bytes]).unwrap();
    assert_eq!(contents(&reader, &image).unwrap(), content);
}

/// Regression: each look-up of a lost unit read all broken segments and tables again.
#[test]
fn look_ups_of_lost_units_do_not_read_all_that_is_broken_each_time() {
    let random = SeededRandom::new(92);
    let store = Arc::new(MemoryStore::default());
    let mut archive = Archive::create(Arc::clone(&store) as Arc<dyn Store>, UNITS, &random).unwrap();
    archive.limits.pack_bytes = 1000;
    let content = units(&random, 100);
    capture(&archive, &random, "web", &content);
    let packs = archive.state.read().packs().len();
    let lost = store.objects();
    let lost = lost.iter().filter(|(name, _)| ["packs/", "segments/"].iter().any(|of| name.as_str().starts_with(of)));
    let lost: Vec<(&ObjectName, &Vec<u8>)> = lost.collect();
    lost.iter().for_each(|(name, _)| store.delete(name).unwrap());

    let calls = Arc::new(AtomicUsize::new(0));
    let counted = HookedStore::new(Arc::clone(&store) as Arc<dyn Store>, {
        let calls = Arc::clone(&calls);
        move |_, _| {
            calls.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    });
    let reader = Archive::open(Arc::new(counted)).unwrap();
    let wanted = |plain: &Vec<u8>| WantedUnit { name: reader.descriptor().key.name(plain), plain_bytes: None };
    for plain in &content {
        assert!(matches!(reader.find_unit(wanted(plain)), Err(ArchiveError::Lost { .. })));
    }
    let (calls, calls_max) = (calls.load(Ordering::Relaxed), 5 * (content.len() + packs));
    assert!(packs > 20 && calls < calls_max, "{calls} calls for {packs} packs, {calls_max} are allowed");
    // It sees what is put back, after as many look-ups at most.
    lost.iter().for_each(|(name, bytes)| store.put(name, &[bytes]).unwrap());
    assert!((0..packs).any(|_| reader.find_unit(wanted(&content[0])).is_ok()));
    assert!(reader.find_unit(wanted(&content[99])).is_ok());
}

/// Regression: a unit was called lost if the store failed to read its segment, and its pack has no table.
#[test]
fn a_unit_is_not_lost_where_the_store_fails_to_read_its_segment() {
    let random = SeededRandom::new(93);
    let store = Arc::new(MemoryStore::default());
    let content = units(&random, 4);
    let archive = Archive::create(Arc::clone(&store) as Arc<dyn Store>, UNITS, &random).unwrap();
    let (image, _) = capture(&archive, &random, "web", &content);
    let pack = store.objects().into_keys().find(|name| name.as_str().starts_with("packs/")).unwrap();
    let mut damaged = store.objects()[&pack].clone();
    let end = damaged.len() - 20;
    damaged[end] ^= 0x10;
    store.put(&pack, &[&damaged]).unwrap();
    let fails = Arc::new(AtomicBool::new(true));
    let failing = HookedStore::new(store, {
        let fails = Arc::clone(&fails);
        move |_, name| match name.to_string() {
            name if fails.load(Ordering::Relaxed) && name.starts_with("segments/") => {
                Err(StoreError::Io { action: "read", name, source: std::io::Error::other("a bad sector") })
            }
            _ => Ok(()),
        }
    });
    let reader = Archive::open(Arc::new(failing)).unwrap();
    match contents(&reader, &image) {
        Err(ArchiveError::Store(StoreError::Io { name, .. })) => assert!(name.starts_with("segments/"), "{name}"),
        other => panic!("{other:?}"),
    }
    fails.store(false, Ordering::Relaxed);
    assert_eq!(contents(&reader, &image).unwrap(), content);
}
