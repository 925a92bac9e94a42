//! The descriptor and its copy: which one counts where they differ, and which one a repair writes again.

use super::repair::try_repair;
use super::*;
use crate::store::hooked::{Call, HookedStore, io_error};

/// Returns a store with an archive of one image.
fn stored(seed: u64) -> (Arc<MemoryStore>, ArchiveId, Image) {
    let random = SeededRandom::new(seed);
    let store = Arc::new(MemoryStore::default());
    let archive = Archive::create(Arc::clone(&store) as Arc<dyn Store>, UNITS, &random).unwrap();
    let content = units(&random, 5);
    let (web, _) = capture(&archive, &random, "web", &content);
    (store, archive.descriptor().archive, (web, content))
}

fn opened(store: &Arc<MemoryStore>) -> Result<Archive, ArchiveError> {
    Archive::open(Arc::clone(store) as Arc<dyn Store>)
}

/// An administrator who copies the wrong file over one of the two must not lose the key of all units.
#[test]
fn of_two_different_descriptors_that_of_the_ledger_counts() {
    for wrong in DESCRIPTORS {
        let (store, id, (web, content)) = stored(51);
        let (other, ..) = stored(52);
        let object = other.get(&descriptor_name(wrong), ByteRange::Whole).unwrap();
        store.put(&descriptor_name(wrong), &[&object]).unwrap();
        let archive = opened(&store).unwrap();
        assert_eq!(archive.descriptor().archive, id, "{wrong}");
        assert_eq!(contents(&archive, &web).unwrap(), content);
        let report = archive.check(CheckOptions::default(), &mut |_, _| ()).unwrap();
        assert_eq!(report.damages.iter().map(|damage| &damage.object[..]).collect::<Vec<_>>(), [wrong]);
        try_repair(&archive, 53, None).unwrap();
        assert_eq!(store.get(&descriptor_name(wrong), ByteRange::Whole).unwrap(), object, "a repair leaves it");
        assert_eq!(contents(&opened(&store).unwrap(), &web).unwrap(), content);
    }
}

#[test]
fn without_its_first_entry_nobody_tells_which_descriptor_is_right() {
    let (store, ..) = stored(54);
    let (other, ..) = stored(55);
    let object = other.get(&descriptor_name(DESCRIPTORS[0]), ByteRange::Whole).unwrap();
    store.put(&descriptor_name(DESCRIPTORS[0]), &[&object]).unwrap();
    for entry in [Some(&b"damaged"[..]), None] {
        match entry {
            Some(bytes) => store.put(&LedgerEntry::object_name(0), &[bytes]).unwrap(),
            None => store.delete(&LedgerEntry::object_name(0)).unwrap(),
        }
        let refused = opened(&store).unwrap_err();
        assert!(matches!(refused, ArchiveError::Ambiguous), "{refused:?}");
    }
}

/// A damaged descriptor may be all that is left of the key, so that of another archive does not replace it.
#[test]
fn the_descriptor_of_another_archive_does_not_replace_a_damaged_or_missing_one() {
    let (other, ..) = stored(61);
    for (right, wrong) in [(0, 1), (1, 0)] {
        for cut in [None, Some(1)] {
            let (store, ..) = stored(62);
            let [right, wrong] = [right, wrong].map(|number| descriptor_name(DESCRIPTORS[number]));
            let object = store.get(&right, ByteRange::Whole).unwrap();
            let foreign = other.get(&wrong, ByteRange::Whole).unwrap();
            store.put(&wrong, &[&foreign]).unwrap();
            match cut {
                Some(cut) => store.put(&right, &[&object[..object.len() - cut]]).unwrap(),
                None => store.delete(&right).unwrap(),
            }
            let refused = opened(&store).unwrap_err();
            assert!(matches!(refused, ArchiveError::Ambiguous), "{refused:?}");
            store.put(&right, &[&object]).unwrap();
            assert_eq!(opened(&store).unwrap().images().len(), 1);
        }
    }
}

/// Then nothing proves that the whole one is the right one. Reading may go on, as far as it can.
#[test]
fn without_the_first_entry_a_repair_writes_no_descriptor() {
    for entry in [Some(&b"damaged"[..]), None] {
        let (store, ..) = stored(63);
        let copy = descriptor_name(DESCRIPTORS[1]);
        store.put(&copy, &[b"almost the key"]).unwrap();
        match entry {
            Some(bytes) => store.put(&LedgerEntry::object_name(0), &[bytes]).unwrap(),
            None => store.delete(&LedgerEntry::object_name(0)).unwrap(),
        }
        let repaired = try_repair(&opened(&store).unwrap(), 64, None);
        assert!(repaired.is_ok_and(|report| report.descriptors == 0));
        assert_eq!(store.get(&copy, ByteRange::Whole).unwrap(), b"almost the key");
    }
    // An archive without any entry has no images either.
    let store = Arc::new(MemoryStore::default());
    Archive::create(Arc::clone(&store) as Arc<dyn Store>, UNITS, &SeededRandom::new(65)).unwrap();
    store.put(&descriptor_name(DESCRIPTORS[0]), &[b"damaged"]).unwrap();
    assert_eq!(try_repair(&opened(&store).unwrap(), 66, None).unwrap().descriptors, 1);
}

/// One that cannot be read now may be whole: perhaps it is the only one of another archive.
#[test]
fn a_repair_does_not_write_over_a_descriptor_that_cannot_be_read() {
    let (store, ..) = stored(56);
    let copy = descriptor_name(DESCRIPTORS[1]);
    let unreadable = HookedStore::new(Arc::clone(&store) as Arc<dyn Store>, {
        let copy = copy.clone();
        move |call, name| match matches!(call, Call::Get(_)) && name == copy.as_str() {
            true => Err(io_error("read", name, "EIO")),
            false => Ok(()),
        }
    });
    store.put(&copy, &[b"not ours"]).unwrap();
    let archive = Archive::open(Arc::new(unreadable)).unwrap();
    assert_eq!(try_repair(&archive, 57, None).unwrap().descriptors, 0);
    assert_eq!(store.get(&copy, ByteRange::Whole).unwrap(), b"not ours");
    // A damaged one is written again.
    assert_eq!(try_repair(&opened(&store).unwrap(), 58, None).unwrap().descriptors, 1);
}
