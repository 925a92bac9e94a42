//! A collector that works during a capture: it removes packs on which the image relies.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::format::ledger::{Change, LedgerEntry};
use crate::testing::MemoryDisk;
use crate::{ObjectId, WriterId};

/// Retires and deletes packs, like a collector that has read the ledger to its current end.
fn retire(bench: &Bench, packs: &[ObjectId]) {
    say(bench, Change::PacksRetired { packs: packs.to_vec() });
    for pack in packs {
        bench.store.delete(&ObjectName::new(&format!("packs/{pack}")).unwrap()).unwrap();
    }
}

/// Adds an entry to the end of the ledger.
fn say(bench: &Bench, change: Change) {
    let entries = bench.objects().into_iter().filter(|(name, _)| name.as_str().starts_with("ledger/"));
    let entries: Vec<Vec<u8>> = entries.map(|(_, entry)| entry).collect();
    let position = entries.len() as u64;
    let entry = LedgerEntry {
        archive: bench.archive.descriptor().archive,
        position,
        previous: *blake3::hash(entries.last().unwrap()).as_bytes(),
        writer: WriterId([3; 16]),
        token: [4; 16],
        made: ManualClock::starting_at(9).now(),
        change,
    };
    bench.store.create(&LedgerEntry::object_name(position), &entry.encode().unwrap()).unwrap();
}

/// Returns the packs that the last image added.
fn packs_of_last_image(bench: &Bench) -> Vec<ObjectId> {
    let archive = bench.archive.descriptor().archive;
    let entries = bench.objects().into_iter().filter(|(name, _)| name.as_str().starts_with("ledger/"));
    let added = (0..).zip(entries).filter_map(|(position, (_, entry))| {
        match LedgerEntry::decode(archive, position, &entry).unwrap().change {
            Change::ImageAdded { packs, .. } => Some(packs),
            _ => None,
        }
    });
    added.last().unwrap()
}

#[test]
fn units_whose_packs_go_during_a_capture_are_stored_again() {
    let bench = Bench::new(FIXED);
    let disk = MemoryDisk::noise(7 << 20, &bench.random);
    let removed = bench.capture("removed", &disk);
    bench.archive.remove(&removed.image, &ManualClock::starting_at(8), &bench.random).unwrap();
    let packs = packs_of_last_image(&bench);
    // The next image has the same units at different places, so it shares no header of a chunk.
    let disk = MemoryDisk::new([MemoryDisk::noise(32 << 10, &bench.random).bytes, disk.bytes].concat());
    let calls = AtomicUsize::new(0);
    let progress = |_| {
        // The first batch has been looked up by now.
        if calls.fetch_add(1, Ordering::SeqCst) == 1 {
            retire(&bench, &packs);
        }
        ControlFlow::Continue(())
    };
    let captured = bench.try_capture("kept", &disk, false, &progress).unwrap();
    let new_bytes = (7 << 20) + (32 << 10);
    assert_eq!(captured.manifest.totals.new_bytes, new_bytes, "the first unit, and all that had to be stored again");
    bench.assert_installed(&captured.manifest, &disk.bytes);
    let fresh = Archive::open(Arc::clone(&bench.store) as Arc<dyn Store>).unwrap();
    assert_eq!(fresh.images().len(), 1);
}

/// Another host captures the same disk meanwhile, finishes first, and removes its image again.
#[test]
fn a_capture_relies_on_its_own_units_where_another_host_stores_the_same() {
    let bench = Bench::new(FIXED);
    let disk = MemoryDisk::noise(7 << 20, &bench.random);
    let calls = AtomicUsize::new(0);
    let progress = |_| {
        if calls.fetch_add(1, Ordering::SeqCst) == 1 {
            let other = bench.capture("other", &disk);
            let packs = packs_of_last_image(&bench);
            bench.archive.remove(&other.image, &ManualClock::starting_at(8), &bench.random).unwrap();
            retire(&bench, &packs);
        }
        ControlFlow::Continue(())
    };
    let captured = bench.try_capture("kept", &disk, false, &progress).unwrap();
    bench.assert_installed(&captured.manifest, &disk.bytes);
}

#[test]
fn a_capture_that_was_given_up_stores_everything_again_under_a_new_name() {
    let bench = Bench::new(FIXED);
    let disk = MemoryDisk::noise(7 << 20, &bench.random);
    let calls = AtomicUsize::new(0);
    let progress = |_| {
        if calls.fetch_add(1, Ordering::SeqCst) == 1 {
            let position = bench.objects().into_keys().filter(|name| name.as_str().starts_with("ledger/")).count() - 1;
            let archive = bench.archive.descriptor().archive;
            let name = LedgerEntry::object_name(position as u64);
            let began = LedgerEntry::decode(archive, position as u64, &bench.objects()[&name]).unwrap();
            assert!(matches!(began.change, Change::WriterBegins { .. }));
            say(&bench, Change::WriterGivenUp { writer: began.writer });
        }
        ControlFlow::Continue(())
    };
    let captured = bench.try_capture("kept", &disk, false, &progress).unwrap();
    assert_eq!(captured.manifest.totals.new_bytes, 7 << 20, "what was lost is not counted");
    for (name, _) in bench.objects() {
        if name.as_str().starts_with("packs/") && !name.as_str().contains(&captured.manifest.id.writer.to_string()) {
            bench.store.delete(&name).unwrap();
        }
    }
    bench.assert_installed(&captured.manifest, &disk.bytes);
}

/// Regression: a table that was evicted, and could not be read for a moment, had the whole disk read again.
#[test]
fn a_unit_that_a_thread_has_found_needs_no_table_again() {
    use crate::capture::batch::{KnownUnit, Units};
    use crate::capture::collector::Keep;
    use crate::capture::recent::RecentUnits;
    use crate::capture::units::{SharedUnits, ThreadUnits, WriterUnits};

    let bench = Bench::new(FIXED);
    let disks = [0; 2].map(|_| MemoryDisk::noise(32 << 10, &bench.random));
    disks.iter().for_each(|disk| drop(bench.capture("web", disk)));
    bench.archive.limit_tables(0);
    let [name, other] = disks.map(|disk| bench.archive.descriptor().key.name(&disk.bytes));
    let (clock, recent) = (ManualClock::starting_at(9), RecentUnits::new(1000));
    let shared = SharedUnits { archive: &bench.archive, recent: &recent, only: None };
    let mut thread = ThreadUnits::new(shared, 1).unwrap();
    let seen = thread.find(&name).unwrap().unwrap();
    let KnownUnit::Stored(stored) = seen else { panic!("{seen:?}") };
    // Its table is evicted.
    thread.find(&other).unwrap();
    let mut writer = bench.archive.writer(&clock, &bench.random, "host").unwrap();
    let pack = ObjectName::new(&format!("packs/{}", stored.pack)).unwrap();
    bench.store.delete(&pack).unwrap();
    assert_eq!(bench.archive.stored(&name).unwrap(), None);
    let mut kept = WriterUnits::new(&mut writer, ThreadUnits::new(shared, 1).unwrap());
    assert_eq!(kept.rely_on(&name, seen).unwrap(), stored.stored_bytes);
}
