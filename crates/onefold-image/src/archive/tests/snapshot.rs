//! Snapshots of the state: opening reads the newest that counts and later entries only. Whatever is wrong with a
//! snapshot, the state is that of the ledger.

use super::*;
use crate::archive::snapshot::{ENTRIES_BETWEEN, names, prune};
use crate::archive::state::State;
use crate::format::snapshot::Snapshot;
use crate::store::faulty::FaultyStore;
use crate::store::power_cut::{RecordedFiles, every_cut, store_of};

/// Returns an archive with more entries than two snapshots take, and with every kind of change.
fn archive(seed: u64) -> (Arc<MemoryStore>, Archive) {
    let random = SeededRandom::new(seed);
    let store = Arc::new(MemoryStore::default());
    let archive = Archive::create(Arc::clone(&store) as Arc<dyn Store>, UNITS, &random).unwrap();
    let clock = ManualClock::starting_at(5);
    let content = units(&random, 3);
    let mut images = Vec::new();
    let begins = |writer| {
        let position = archive.state.read().position;
        let change = Change::WriterBegins { host: "host".to_owned() };
        assert!(archive.append(position, writer, &clock, &random, change).unwrap());
    };
    let say = |writer, change| {
        let position = archive.state.read().position;
        assert!(archive.append(position, writer, &clock, &random, change).unwrap());
    };
    for number in 0u64.. {
        if archive.state.read().position > 2 * ENTRIES_BETWEEN + 20 {
            break;
        }
        let name = format!("image{}", random.below(9));
        let mut more = content.clone();
        more.extend(units(&random, 1));
        images.push(capture(&archive, &random, &name, &more).0);
        let writer = WriterId([u8::try_from(number % 250).unwrap() + 1; 16]);
        if number < 250 {
            begins(writer);
        }
        match number % 4 {
            0 => archive.remove(&images.remove(0), &clock, &random).unwrap(),
            1 => say(writer, Change::WriterGivenUp { writer }),
            2 => say(writer, Change::UnitsLost { units: vec![archive.descriptor().key.name(&number.to_le_bytes())] }),
            _ => {
                let pack = *archive.state.read().packs().last().unwrap();
                say(writer, Change::PacksRetired { packs: vec![pack] });
            }
        }
    }
    (store, archive)
}

/// Returns the state of all entries, read without snapshots.
fn replayed(store: &Arc<MemoryStore>) -> State {
    let mut objects = store.objects();
    objects.retain(|name, _| !name.as_str().starts_with("snapshots/"));
    let archive = Archive::open(Arc::new(MemoryStore::of(objects))).unwrap();
    let state = archive.state.read();
    state.clone()
}

/// Returns the state of an opened archive, and the number of calls that opening it took.
fn opened(store: &Arc<MemoryStore>) -> (State, u64) {
    let counting = Arc::new(FaultyStore::new(Arc::clone(store) as Arc<dyn Store>, Arc::default(), 1, 0));
    let archive = Archive::open(Arc::clone(&counting) as Arc<dyn Store>).unwrap();
    let state = archive.state.read().clone();
    (state, counting.calls())
}

#[test]
fn an_archive_opens_by_its_newest_snapshot_and_the_entries_after_it() {
    let (store, archive) = archive(1);
    let positions: Vec<u64> = names(&*store).unwrap().into_iter().map(|(position, _)| position).collect();
    assert_eq!(positions, [ENTRIES_BETWEEN, 2 * ENTRIES_BETWEEN]);
    let (state, calls) = opened(&store);
    assert_eq!(state, *archive.state.read());
    assert_eq!(state, replayed(&store));
    assert!(calls < 40, "{calls}");
    let report = archive.check(CheckOptions::default(), &mut |_, _| ()).unwrap();
    assert!(report.damages.iter().all(|damage| !damage.object.contains("snapshots/")), "{:?}", report.damages);
}

#[test]
fn a_snapshot_that_is_damaged_lies_or_is_newer_is_as_none() {
    let (store, archive) = archive(2);
    let id = archive.descriptor().archive;
    let (position, name) = names(&*store).unwrap().pop().unwrap();
    let whole = store.get(&name, ByteRange::Whole).unwrap();
    let lie = |change: &dyn Fn(&mut Snapshot)| {
        let mut snapshot = Snapshot::decode(id, position, &whole).unwrap();
        change(&mut snapshot);
        snapshot.encode(id).unwrap()
    };
    let sealed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut object = whole.clone();
        object.truncate(whole.len() - 32);
        change(&mut object);
        let digest = *blake3::hash(&object).as_bytes();
        [&object[..], &digest].concat()
    };
    let wrong: [Vec<u8>; 12] = [
        Vec::new(),
        whole[..whole.len() - 1].to_vec(),
        [&whole[..200], &[whole[200] ^ 1], &whole[201..]].concat(),
        // A newer version of the format, and other rules.
        sealed(&|object| object[10] = 2),
        sealed(&|object| object[64] = 2),
        // It follows another entry, as that of a host whose copy of the archive went another way.
        lie(&|snapshot| snapshot.last[0] ^= 1),
        // What it says contradicts itself.
        lie(&|snapshot| snapshot.newest.clear()),
        lie(&|snapshot| snapshot.live.truncate(1)),
        lie(&|snapshot| snapshot.parts.clear()),
        lie(&|snapshot| snapshot.live[0].brought = u64::MAX),
        lie(&|snapshot| snapshot.writers.clear()),
        lie(&|snapshot| snapshot.lost_until = u64::MAX),
    ];
    let state = replayed(&store);
    for (number, object) in wrong.into_iter().enumerate() {
        store.put(&name, &[&object]).unwrap();
        assert_eq!(opened(&store).0, state, "{number}");
        let archive = Archive::open(Arc::clone(&store) as Arc<dyn Store>).unwrap();
        let damages = archive.check(CheckOptions::default(), &mut |_, _| ()).unwrap().damages;
        let is_named = damages.iter().any(|damage| damage.object == name.as_str());
        assert_eq!(is_named, number != 3, "{number}: {damages:?}");
    }
}

/// Only the ledger can tell that such a snapshot is wrong. A check does, and a repair removes it.
#[test]
fn a_check_compares_snapshots_with_the_ledger_and_a_repair_removes_wrong_ones() {
    let (store, archive) = archive(3);
    let id = archive.descriptor().archive;
    let (position, name) = names(&*store).unwrap().pop().unwrap();
    let mut snapshot = Snapshot::decode(id, position, &store.get(&name, ByteRange::Whole).unwrap()).unwrap();
    snapshot.images.pop().unwrap();
    store.put(&name, &[&snapshot.encode(id).unwrap()]).unwrap();
    let damages = archive.check(CheckOptions::default(), &mut |_, _| ()).unwrap().damages;
    assert!(damages.iter().any(|damage| damage.object == name.as_str()), "{damages:?}");
    let (clock, random) = (ManualClock::starting_at(8), SeededRandom::new(9));
    let options = RepairOptions { clock: &clock, random: &random, host: "host", dry_run: false, accept_cut: false };
    let report = archive.repair::<ArchiveError>(options, None, &mut |_, _| ()).unwrap();
    assert_eq!(report.snapshots, 1);
    assert!(names(&*store).unwrap().iter().all(|(_, other)| *other != name));
    assert_eq!(opened(&store).0, replayed(&store));
}

/// A copy of an archive that was cut before the last entries has snapshots of entries that it lacks.
#[test]
fn a_snapshot_of_entries_that_are_not_there_does_not_count() {
    let (store, _) = archive(4);
    let mut objects = store.objects();
    let cut = LedgerEntry::object_name(ENTRIES_BETWEEN + 5);
    objects.retain(|name, _| !name.as_str().starts_with("ledger/") || *name < cut);
    let store = Arc::new(MemoryStore::of(objects));
    let (state, calls) = opened(&store);
    assert_eq!((state.position, &state), (ENTRIES_BETWEEN + 5, &replayed(&store)));
    assert!(calls < 30, "{calls}: the earlier snapshot counts");
    // Regression: a check called the others damaged, and a collection kept them instead of one that counts.
    let archive = Archive::open(Arc::clone(&store) as Arc<dyn Store>).unwrap();
    let damages = archive.check(CheckOptions::default(), &mut |_, _| ()).unwrap().damages;
    assert!(damages.iter().all(|damage| !damage.object.starts_with("snapshots/")), "{damages:?}");
    for position in [3, 4].map(|number| number * ENTRIES_BETWEEN) {
        store.put(&Snapshot::object_name(position), &[b"later"]).unwrap();
    }
    prune(&*store, state.position).unwrap();
    assert!(names(&*store).unwrap().iter().any(|(position, _)| *position == ENTRIES_BETWEEN));
}

/// Without the snapshot, the archive would end before that entry. A collection deletes nothing then.
#[test]
fn a_missing_or_damaged_entry_before_a_snapshot_is_named() {
    for is_missing in [true, false] {
        let (store, _) = archive(5);
        let entry = LedgerEntry::object_name(40);
        match is_missing {
            true => store.delete(&entry).unwrap(),
            false => store.put(&entry, &[b"damaged"]).unwrap(),
        }
        let archive = Archive::open(Arc::clone(&store) as Arc<dyn Store>).unwrap();
        assert!(archive.state.read().position > 2 * ENTRIES_BETWEEN);
        let damages = archive.check(CheckOptions::default(), &mut |_, _| ()).unwrap().damages;
        assert!(damages.iter().any(|damage| damage.object == entry.as_str()), "{damages:?}");
        assert!(damages.iter().all(|damage| !damage.object.starts_with("snapshots/")), "{damages:?}");
        let folder = tempfile::tempdir().unwrap();
        let (clock, random) = (ManualClock::starting_at(8), SeededRandom::new(9));
        let collected =
            archive.collect(&CollectOptions::new(folder.path()), &clock, &random, &mut |_, _| ()).map(|_| ());
        assert!(matches!(collected, Err(ArchiveError::Ledger { position: 40, .. })), "{collected:?}");
    }
}

/// Regression: a change was made, and its host wrote a snapshot before it said so, which may take minutes.
#[test]
fn a_snapshot_is_written_before_the_next_entry_and_not_behind_the_last() {
    let random = SeededRandom::new(6);
    let store = Arc::new(MemoryStore::default());
    let archive = Archive::create(Arc::clone(&store) as Arc<dyn Store>, UNITS, &random).unwrap();
    let clock = ManualClock::starting_at(5);
    while archive.state.read().position < ENTRIES_BETWEEN {
        archive.writer(&clock, &random, "host").unwrap();
    }
    assert_eq!(names(&*store).unwrap(), []);
    archive.writer(&clock, &random, "host").unwrap();
    assert_eq!(names(&*store).unwrap().len(), 1);
    assert_eq!(opened(&store).0, replayed(&store));
}

/// A copy that was cut may be continued: no collection makes an entry in it. A repair that accepts the cut says that it
/// will not be. Regression: any repair removed the snapshots that tell of the cut, without a question.
#[test]
fn a_copy_that_was_cut_is_collected_only_after_a_repair_that_accepts_it() {
    let (store, archive) = archive(7);
    let folder = tempfile::tempdir().unwrap();
    let (clock, random) = (ManualClock::starting_at(8), SeededRandom::new(9));
    let options = CollectOptions::new(folder.path());
    let mut objects = store.objects();
    let cut = LedgerEntry::object_name(ENTRIES_BETWEEN + 5);
    objects.retain(|name, _| !name.as_str().starts_with("ledger/") || *name < cut);
    let copy = Arc::new(MemoryStore::of(objects.clone()));
    let collect = || {
        let archive = Archive::open(Arc::clone(&copy) as Arc<dyn Store>).unwrap();
        archive.collect(&options, &clock, &random, &mut |_, _| ())
    };
    let refused = collect().unwrap_err();
    assert!(matches!(refused, ArchiveError::Cut { entries } if entries == ENTRIES_BETWEEN + 5), "{refused:?}");
    assert_eq!(copy.objects(), objects, "nothing was changed");
    let of_copy = Archive::open(Arc::clone(&copy) as Arc<dyn Store>).unwrap();
    let repair = |dry_run, accept_cut| {
        let options = RepairOptions { clock: &clock, random: &random, host: "host", dry_run, accept_cut };
        of_copy.repair::<ArchiveError>(options, None, &mut |_, _| ())
    };
    for dry_run in [true, false] {
        let refused = repair(dry_run, false).unwrap_err();
        assert!(matches!(refused, ArchiveError::Cut { entries } if entries == ENTRIES_BETWEEN + 5), "{refused:?}");
    }
    assert_eq!(repair(true, true).unwrap().snapshots, 1);
    assert_eq!(copy.objects(), objects, "nothing was changed");
    assert_eq!(repair(false, true).unwrap().snapshots, 1);
    assert!(!matches!(collect(), Err(ArchiveError::Cut { .. })));
    let whole = archive.collect(&options, &clock, &random, &mut |_, _| ());
    assert!(!matches!(whole, Err(ArchiveError::Cut { .. })), "the original is whole");
}

/// Regression: a host was killed before its entry was durable. Another read the entry, and its snapshot behind it
/// survived a power cut which the entry did not. Then the archive passed for a copy that was cut.
#[test]
fn no_snapshot_outlives_its_entries() {
    let random = SeededRandom::new(11);
    let files = RecordedFiles::default();
    let archive = Archive::create(Arc::new(store_of(files.clone(), 1)), UNITS, &random).unwrap();
    let clock = ManualClock::starting_at(5);
    while archive.state.read().position < 3 {
        archive.writer(&clock, &random, "host").unwrap();
    }
    let before = files.changes();
    archive.writer(&clock, &random, "host").unwrap();
    let mut survived = 0;
    for killed in before..=files.changes() {
        let files = RecordedFiles::of(files.after(killed));
        let mut other = Archive::open(Arc::new(store_of(files.clone(), 2))).unwrap();
        other.limits.snapshot_entries = 4;
        let random = SeededRandom::new(12);
        while other.state.read().position < 5 {
            other.writer(&clock, &random, "other").unwrap();
        }
        every_cut(&files, 2, |changes, disk| {
            let archive = Archive::open(Arc::new(store_of(RecordedFiles::of(disk), 3))).unwrap();
            assert_eq!(archive.early_snapshots().unwrap(), [], "killed after {killed}, cut after {changes}");
            survived += names(archive.store()).unwrap().len();
        });
    }
    assert!(survived > 20, "{survived}");
}
