//! Objects that cannot be read, entries of the ledger that hide later ones, and stores that fail as a whole.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::store::Refusal;
use crate::store::faulty::FaultyStore;
use crate::store::hooked::{Call, HookedStore, io_error};

/// Returns a store of these objects that makes only reads for which `before` returns no error, and all other calls.
fn failing_reads(
    objects: Objects,
    before: impl Fn(&str) -> Result<(), StoreError> + Send + Sync + 'static,
) -> Arc<dyn Store> {
    Arc::new(HookedStore::new(Arc::new(MemoryStore::of(objects)), move |call, name| match call {
        Call::Get(_) => before(name),
        _ => Ok(()),
    }))
}

/// Returns a store of these objects that cannot read one of them.
fn unreadable(objects: Objects, bad: &ObjectName) -> Arc<dyn Store> {
    let bad = bad.to_string();
    failing_reads(objects, move |name| match name == bad {
        true => Err(io_error("read", name, "a bad sector")),
        false => Ok(()),
    })
}

/// Regression: one damaged entry made the whole archive unreadable. Entries are those of two writers and two images.
#[test]
fn an_entry_that_is_damaged_or_cannot_be_read_costs_only_later_images() {
    let (objects, images) = sample();
    let random = SeededRandom::new(27);
    let clock = ManualClock::starting_at(5);
    for position in 0..4 {
        let name = LedgerEntry::object_name(position);
        let object = &objects[&name];
        let with = |bytes: Vec<u8>| {
            let mut changed = objects.clone();
            changed.insert(name.clone(), bytes);
            Arc::new(MemoryStore::of(changed)) as Arc<dyn Store>
        };
        let mut flipped = object.clone();
        flipped[70] ^= 1;
        let entry = LedgerEntry::decode(
            Descriptor::decode(&objects[&descriptor_name("descriptor")]).unwrap().archive,
            position,
            object,
        );
        let astray = LedgerEntry { previous: [7; 32], ..entry.unwrap() };
        let stores = [
            with(flipped),
            with(object[..100].to_vec()),
            with(objects[&LedgerEntry::object_name((position + 1) % 4)].clone()),
            with(astray.encode().unwrap()),
            unreadable(objects.clone(), &name),
        ];
        for (number, store) in stores.into_iter().enumerate() {
            let archive = Archive::open(store).unwrap();
            let hole = archive.hole().unwrap().clone();
            assert_eq!((hole.position, hole.object()), (position, name.to_string()), "{number}");
            let added = usize::try_from(position / 2).unwrap();
            assert_eq!(archive.images().len(), added, "{position} {number}");
            for (image, expected) in &images[..added] {
                assert_eq!(contents(&archive, image).unwrap(), *expected);
                assert!(archive.remove(image, &clock, &random).is_err());
            }
            assert!(archive.writer(&clock, &random, "host").is_err());
            let report = archive.check(CheckOptions { data: true }, &mut |_, _| ()).unwrap();
            let [damage] = &report.damages[..] else { panic!("{position} {number}: {:?}", report.damages) };
            assert_eq!((&damage.object, &damage.what), (&name.to_string(), &hole.what));
        }
    }
}

#[test]
fn an_object_that_cannot_be_read_costs_what_no_other_has() {
    let (objects, images) = sample();
    let random = SeededRandom::new(24);
    for name in objects.keys().filter(|name| !name.as_str().starts_with("ledger/")) {
        let archive = Archive::open(unreadable(objects.clone(), name)).unwrap();
        let mut unread = Vec::new();
        for (image, expected) in &images {
            match contents(&archive, image) {
                Ok(read) => assert_eq!(read, *expected, "{name}"),
                Err(ArchiveError::Store(StoreError::Io { .. })) => unread.push(image.clone()),
                Err(error) => panic!("{name}: {error}"),
            }
        }
        let is_needed = ["packs/", "manifests/"].iter().any(|folder| name.as_str().starts_with(folder));
        assert_eq!(!unread.is_empty(), is_needed, "{name}");
        for data in [false, true] {
            let report = archive.check(CheckOptions { data }, &mut |_, _| ()).unwrap();
            let damage = report.damages.iter().find(|damage| damage.object == name.as_str()).unwrap();
            assert!(damage.what.contains("a bad sector"), "{damage:?}");
            assert_eq!(damage.images, unread, "{name}");
        }
        // What cannot be read is stored again.
        let (again, _) = capture(&archive, &random, "mail", &images[1].1);
        assert_eq!(contents(&archive, &again).unwrap(), images[1].1, "{name}");
    }
}

/// The index is read while the store fails, and lacks these packs. That must not outlast the failure.
#[test]
fn packs_that_could_not_be_read_for_a_while_are_read_once_the_store_answers() {
    let (objects, images) = sample();
    let fails = Arc::new(AtomicBool::new(true));
    let store = failing_reads(objects, {
        let fails = Arc::clone(&fails);
        move |name| {
            let is_hint_or_pack = ["packs/", "segments/"].iter().any(|folder| name.starts_with(folder));
            match is_hint_or_pack && fails.load(Ordering::Relaxed) {
                true => Err(io_error("read", name, "no route to host")),
                false => Ok(()),
            }
        }
    });
    let archive = Archive::open(store).unwrap();
    for (image, _) in &images {
        let error = contents(&archive, image).unwrap_err();
        assert!(matches!(error, ArchiveError::Store(StoreError::Io { .. })), "{error}");
    }
    fails.store(false, Ordering::Relaxed);
    for (image, expected) in &images {
        assert_eq!(contents(&archive, image).unwrap(), *expected, "{image}");
    }
}

#[test]
fn a_check_that_the_store_fails_ends() {
    let (objects, _) = sample();
    for call in 1.. {
        let store = Arc::new(MemoryStore::of(objects.clone()));
        let faulty = Arc::new(FaultyStore::new(store, Arc::default(), call, 0));
        let archive = Archive::open(Arc::clone(&faulty) as Arc<dyn Store>).unwrap();
        faulty.kill_after(call);
        match archive.check(CheckOptions { data: call % 2 == 0 }, &mut |_, _| ()) {
            Ok(report) => {
                assert_eq!(report.damages, [], "an error of the store is no damage");
                assert!(call > 8, "{call}");
                break;
            }
            Err(error) => assert!(matches!(error, ArchiveError::Store(StoreError::Unavailable { .. })), "{error}"),
        }
    }
}

#[test]
fn a_store_that_refuses_its_user_is_no_damage() {
    let (objects, images) = sample();
    // It no longer accepts its user when packs are read.
    let refusing = failing_reads(objects, |name| match name.starts_with("packs/") {
        true => {
            let (name, source) = (name.to_owned(), std::io::Error::other("403"));
            Err(StoreError::Refused { action: "read", name, why: Refusal::Expired, source })
        }
        false => Ok(()),
    });
    let archive = Archive::open(refusing).unwrap();
    let is_refusal =
        |error: &ArchiveError| matches!(error, ArchiveError::Store(StoreError::Refused { why: Refusal::Expired, .. }));
    for data in [false, true] {
        let error = archive.check(CheckOptions { data }, &mut |_, _| ()).unwrap_err();
        assert!(is_refusal(&error), "{error}");
    }
    let error = contents(&archive, &images[0].0).unwrap_err();
    assert!(is_refusal(&error), "{error}");
}
