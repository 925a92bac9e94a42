//! Several writers on a store that loses, delays and doubles answers, with kills and power cuts at any call.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::collect::options;
use super::*;
use crate::store::faulty::{FaultyStore, Late};
use crate::store::hooked::{Call, HookedStore, io_error};
use crate::store::power_cut::{RecordedFiles, every_cut, store_of};

/// Two or three units fill a pack, so that a thread puts it while the next one is filled.
const PACK_BYTES: u64 = 700;

/// Tries to capture an image of units of a common set, so that captures rely on each other's units. Asserts that one
/// that fails leaves no image in `truth`, which is the store without faults.
fn try_capture(
    store: Arc<dyn Store>,
    truth: &Arc<dyn Store>,
    random: &SeededRandom,
    common: &[Vec<u8>],
) -> Result<Image, ArchiveError> {
    let mut archive = Archive::open(store)?;
    archive.limits.pack_bytes = PACK_BYTES;
    let clock = ManualClock::starting_at(9);
    let mut chosen: Vec<Vec<u8>> = common.iter().filter(|_| random.below(5) == 0).cloned().collect();
    chosen.extend(units(random, 1));
    let mut writer = archive.writer(&clock, random, "host")?;
    let name = ["web", "mail"][usize::try_from(random.below(2)).unwrap()];
    loop {
        let draft = try_add_all(&archive, &mut writer, name, &chosen)?;
        match writer.commit(draft) {
            Ok((image, _)) => return Ok((image, chosen)),
            Err(ArchiveError::Retired(_)) => {}
            Err(error @ ArchiveError::Doubtful(_)) => return Err(error),
            Err(error) => {
                let images = Archive::open(Arc::clone(truth)).unwrap().images();
                let left = images.iter().find(|record| record.manifest.writer == writer.id());
                assert_eq!(left, None, "the capture failed: {error}");
                return Err(error);
            }
        }
    }
}

/// Collects, and deletes at once. One time in three, writers are given up at once, too, though they are at work.
/// Returns the number of deleted objects.
fn collect(store: &Arc<dyn Store>, random: &SeededRandom) -> Result<u64, ArchiveError> {
    let archive = Archive::open(Arc::clone(store))?;
    let silence = if random.below(3) == 0 { Duration::ZERO } else { Duration::from_secs(1000) };
    let options = CollectOptions { silence, ..options() };
    let report = archive.collect(&options, &ManualClock::starting_at(20), random, &mut |_, _| ())?;
    Ok(report.deleted.objects)
}

/// Removes an image that was acknowledged. Where the removal fails, the image stays, unless nobody can know.
fn remove_one(store: &Arc<dyn Store>, random: &SeededRandom, acknowledged: &Mutex<CapturedImages>) {
    let mut acknowledged = acknowledged.lock();
    if acknowledged.is_empty() {
        return;
    }
    let number = usize::try_from(random.below(acknowledged.len() as u64)).unwrap();
    let (image, content) = acknowledged.swap_remove(number);
    let removed = Archive::open(Arc::clone(store))
        .and_then(|archive| archive.remove(&image, &ManualClock::starting_at(9), random));
    if !matches!(removed, Ok(()) | Err(ArchiveError::Doubtful(_))) {
        acknowledged.push((image, content));
    }
}

/// Returns a store that creates each object but loses the first answer, and rejects the first put of each pack.
fn lossy_store(inner: Arc<dyn Store>) -> Arc<dyn Store> {
    let changed: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    // Fails on the first change of an object.
    let lose = move |name: &str| match changed.lock().insert(name.to_owned()) {
        true => Err(io_error("write", name, "the answer is lost")),
        false => Ok(()),
    };
    let reject = lose.clone();
    let store = HookedStore::new(inner, move |call, name| match call {
        Call::Put if name.starts_with("packs/") => reject(name),
        _ => Ok(()),
    });
    Arc::new(store.and_after(move |call, name, _| if call == Call::Create { lose(name) } else { Ok(()) }))
}

#[test]
fn a_lost_answer_makes_neither_a_failure_nor_a_second_image() {
    let random = SeededRandom::new(8);
    let memory = Arc::new(MemoryStore::default());
    let store = lossy_store(Arc::clone(&memory) as Arc<dyn Store>);
    let archive = Archive::create(Arc::clone(&store), UNITS, &random).unwrap();
    let clock = ManualClock::starting_at(5);
    for version in 1..=3 {
        let content = units(&random, 2);
        let mut writer = archive.writer(&clock, &random, "host").unwrap();
        let draft = add_all(&archive, &mut writer, "web", &content);
        assert!(matches!(writer.commit(draft.clone()), Err(ArchiveError::Store(_))), "the pack is not put");
        let (image, _) = writer.commit(draft).unwrap();
        assert_eq!(image.version, version);
        assert_eq!(contents(&archive, &image).unwrap(), content);
    }
    let entries = memory.objects().keys().filter(|name| name.as_str().starts_with("ledger/")).count();
    assert_eq!((archive.images().len(), entries), (3, 6));
}

/// Returns a store that fails the first read of the ledger after it has made an entry, unless the flag is taken back.
fn blind_after_entry(is_blind: &Arc<AtomicBool>) -> Arc<dyn Store> {
    let [read, made] = [Arc::clone(is_blind), Arc::clone(is_blind)];
    let store = HookedStore::new(Arc::new(MemoryStore::default()), move |call, name| match call {
        Call::Get(_) if name.starts_with("ledger/") && read.swap(false, Ordering::Relaxed) => {
            Err(io_error("read", name, "a fault"))
        }
        _ => Ok(()),
    });
    Arc::new(store.and_after(move |call, name, _| {
        if call == Call::Create {
            made.store(name.starts_with("ledger/"), Ordering::Relaxed);
        }
        Ok(())
    }))
}

#[test]
fn a_change_that_was_made_is_no_failure_whatever_the_next_read_says() {
    let random = SeededRandom::new(9);
    let is_blind = Arc::new(AtomicBool::new(false));
    let archive = Archive::create(blind_after_entry(&is_blind), UNITS, &random).unwrap();
    let sees = || is_blind.store(false, Ordering::Relaxed);
    let clock = ManualClock::starting_at(5);
    let mut writer = archive.writer(&clock, &random, "host").unwrap();
    for version in 1..=2 {
        sees();
        let content = units(&random, 2);
        let draft = add_all(&archive, &mut writer, "web", &content);
        let (image, _) = writer.commit(draft).unwrap();
        sees();
        assert_eq!(image.version, version);
        assert_eq!(contents(&archive, &image).unwrap(), content);
    }
    let first = archive.images()[0].image.clone();
    archive.remove(&first, &clock, &random).unwrap();
    assert_eq!(archive.images().len(), 1);
}

#[test]
fn an_archive_that_was_not_made_for_certain_is_not_there() {
    let random = SeededRandom::new(10);
    let mut failed = 0;
    for call in 1.. {
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let faulty = FaultyStore::new(Arc::clone(&memory), Arc::default(), call, 0);
        faulty.kill_after(call);
        match Archive::create(Arc::new(faulty), UNITS, &random) {
            Ok(_) => break,
            Err(ArchiveError::Doubtful(_)) => {}
            Err(_) => assert!(matches!(Archive::open(memory), Err(ArchiveError::NoArchive)), "killed in call {call}"),
        }
        failed += 1;
    }
    assert!(failed > 8, "{failed}");
}

/// What happened in a round.
#[derive(Debug, Default)]
struct RoundCounts {
    captured: AtomicUsize,
    failed: AtomicUsize,
    /// Objects that were deleted.
    collected: AtomicU64,
}

/// One round: captures fail or are killed at any call, while other captures, removals and collections run. The seed
/// does not repeat a round exactly, because a thread puts packs.
fn simulate(seed: u64, happened: &Arc<RoundCounts>) {
    let random = Arc::new(SeededRandom::new(seed));
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::default());
    Archive::create(Arc::clone(&memory), UNITS, &*random).unwrap();
    let common = Arc::new(units(&random, 12));
    let late = Arc::new(Late::default());
    let acknowledged: Arc<Mutex<CapturedImages>> = Arc::default();
    for step in 0..12 {
        let faulty =
            FaultyStore::new(Arc::clone(&memory), Arc::clone(&late), random.next_u64(), 10 + random.below(300));
        if random.below(3) == 0 {
            faulty.kill_after(1 + random.below(60));
        }
        {
            let (memory, late, random) = (Arc::clone(&memory), Arc::clone(&late), Arc::clone(&random));
            let (common, acknowledged) = (Arc::clone(&common), Arc::clone(&acknowledged));
            let happened = Arc::clone(happened);
            faulty.meanwhile(Box::new(move |_| {
                if random.below(3) > 0 {
                    return;
                }
                let other = FaultyStore::new(Arc::clone(&memory), Arc::clone(&late), random.next_u64(), 200);
                let other: Arc<dyn Store> = Arc::new(other);
                match random.below(4) {
                    0 => remove_one(&other, &random, &acknowledged),
                    1 => {
                        let collected = collect(&other, &random).unwrap_or(0);
                        happened.collected.fetch_add(collected, Ordering::Relaxed);
                    }
                    _ => acknowledged.lock().extend(try_capture(other, &memory, &random, &common)),
                }
            }));
        }
        match try_capture(Arc::new(faulty), &memory, &random, &common) {
            Ok(captured) => {
                acknowledged.lock().push(captured);
                happened.captured.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {
                happened.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        verify(&memory, &acknowledged.lock(), &format!("seed {seed}, step {step}"));
    }
}

#[test]
fn acknowledged_images_stay_whatever_the_store_answers() {
    let happened = Arc::default();
    (0..300).for_each(|seed| simulate(seed, &happened));
    let RoundCounts { captured, failed, collected } = &*happened;
    for (count, least) in [(captured, 1500), (failed, 500)] {
        assert!(count.load(Ordering::Relaxed) > least, "{happened:?}");
    }
    assert!(collected.load(Ordering::Relaxed) > 1000, "{happened:?}");
}

#[test]
fn a_writer_that_is_killed_at_any_call_leaves_a_sound_archive() {
    let random = SeededRandom::new(5);
    let common = units(&random, 12);
    for call in 1.. {
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let archive = Archive::create(Arc::clone(&memory), UNITS, &random).unwrap();
        let (first, _) = capture(&archive, &random, "web", &common[..6]);
        let acknowledged = vec![(first, common[..6].to_vec())];
        let faulty = Arc::new(FaultyStore::new(Arc::clone(&memory), Arc::default(), call, 0));
        faulty.kill_after(call);
        let killed = try_capture(Arc::clone(&faulty) as Arc<dyn Store>, &memory, &random, &common);
        let mut acknowledged: CapturedImages = acknowledged;
        let is_over = faulty.calls() < call;
        acknowledged.extend(killed);
        verify(&memory, &acknowledged, &format!("killed in call {call}"));
        acknowledged.push(try_capture(Arc::clone(&memory), &memory, &random, &common).unwrap());
        verify(&memory, &acknowledged, &format!("captured again after a kill in call {call}"));
        if is_over {
            assert!(call > 12, "{call}");
            break;
        }
    }
}

#[test]
fn writers_of_one_name_at_once_get_a_version_each() {
    let random = SeededRandom::new(6);
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::default());
    Archive::create(Arc::clone(&memory), UNITS, &random).unwrap();
    let common = units(&random, 6);
    let barrier = Barrier::new(8);
    let mut images = std::thread::scope(|scope| {
        let threads = (0..8u64).map(|seed| {
            let (memory, common, barrier) = (Arc::clone(&memory), &common, &barrier);
            scope.spawn(move || {
                let random = SeededRandom::new(100 + seed);
                let archive = Archive::open(memory).unwrap();
                let captured = (0..5).map(|_| {
                    let mut chosen = common.clone();
                    chosen.extend(units(&random, 1));
                    let clock = ManualClock::starting_at(5);
                    let mut writer = archive.writer(&clock, &random, "host").unwrap();
                    let draft = add_all(&archive, &mut writer, "web", &chosen);
                    barrier.wait();
                    (writer.commit(draft).unwrap().0, chosen)
                });
                captured.collect::<CapturedImages>()
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<CapturedImages>()
    });
    verify(&memory, &images, "after a race");
    images.sort_by_key(|(image, _)| image.version);
    let versions: Vec<u32> = images.iter().map(|(image, _)| image.version).collect();
    assert_eq!(versions, (1..=40).collect::<Vec<u32>>());
}

#[test]
fn power_cuts_at_any_call_of_the_file_system_keep_acknowledged_images() {
    let random = SeededRandom::new(7);
    let files = RecordedFiles::default();
    let store: Arc<dyn Store> = Arc::new(store_of(files.clone(), 1));
    let mut archive = Archive::create(Arc::clone(&store), UNITS, &random).unwrap();
    archive.limits.pack_bytes = PACK_BYTES;
    let created = files.changes();
    let common = units(&random, 5);
    let mut acknowledged: Vec<(usize, Image)> = Vec::new();
    for (count, name) in [(3, "web"), (5, "web"), (1, "mail")] {
        let (image, _) = capture(&archive, &random, name, &common[..count]);
        acknowledged.push((files.changes(), (image, common[..count].to_vec())));
    }
    assert!(archive.images().iter().any(|record| record.packs > 1), "a pack was put while another one was filled");
    let mut opened = 0;
    every_cut(&files, 2, |changes, disk| {
        if changes < created {
            return;
        }
        let store: Arc<dyn Store> = Arc::new(store_of(RecordedFiles::of(disk), 2));
        let durable = acknowledged.iter().filter(|(at, _)| *at <= changes).map(|(_, image)| image.clone());
        verify(&store, &durable.collect(), &format!("power cut after {changes} changes"));
        opened += 1;
    });
    assert!(opened > 300, "{opened}");
}

/// Returns a store that makes no object, and says so, after its first answers were lost.
fn refusing_store(inner: &Arc<dyn Store>, kind: std::io::ErrorKind, lost: u32) -> Arc<dyn Store> {
    let lost = Mutex::new(lost);
    Arc::new(HookedStore::new(Arc::clone(inner), move |call, name| {
        if call != Call::Create {
            return Ok(());
        }
        let mut lost = lost.lock();
        if let Some(left) = lost.checked_sub(1) {
            *lost = left;
            return Err(io_error("write", name, "the answer is lost"));
        }
        Err(StoreError::NotMade { name: name.to_owned(), source: kind.into() })
    }))
}

/// Regression: a user who may not write heard, after five attempts, that the change may have been made.
#[test]
fn a_change_that_the_store_refuses_is_certainly_not_made() {
    use std::io::ErrorKind;
    let random = SeededRandom::new(51);
    let clock = ManualClock::starting_at(5);
    let empty: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let created = Archive::create(refusing_store(&empty, ErrorKind::PermissionDenied, 0), UNITS, &random);
    assert!(matches!(created, Err(ArchiveError::Store(StoreError::NotMade { .. }))), "{created:?}");
    let created = Archive::create(refusing_store(&empty, ErrorKind::Unsupported, 0), UNITS, &random);
    assert!(matches!(created, Err(ArchiveError::Unfit { .. })), "{created:?}");

    let inner: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let archive = Archive::create(Arc::clone(&inner), UNITS, &random).unwrap();
    let (image, _) = capture(&archive, &random, "web", &units(&random, 2));
    for kind in [ErrorKind::PermissionDenied, ErrorKind::StorageFull, ErrorKind::ReadOnlyFilesystem] {
        let archive = Archive::open(refusing_store(&inner, kind, 0)).unwrap();
        let began = archive.writer(&clock, &random, "host").map(drop);
        for refused in [began, archive.remove(&image, &clock, &random)] {
            assert!(
                matches!(&refused, Err(ArchiveError::Store(StoreError::NotMade { source, .. })) if source.kind() == kind),
                "{refused:?}"
            );
        }
    }
    // An attempt whose answer is lost may still be made.
    for lost in 1..4 {
        let archive = Archive::open(refusing_store(&inner, ErrorKind::PermissionDenied, lost)).unwrap();
        let removed = archive.remove(&image, &clock, &random);
        assert!(matches!(removed, Err(ArchiveError::Doubtful(_))), "{lost}: {removed:?}");
    }
}

/// Regression: after a creation that was killed before the copy, nothing made it, and each check reported it.
#[test]
fn a_capture_makes_the_copy_of_the_descriptor_that_is_missing() {
    let random = SeededRandom::new(52);
    let store = Arc::new(MemoryStore::default());
    Archive::create(Arc::clone(&store) as Arc<dyn Store>, UNITS, &random).unwrap();
    store.delete(&descriptor_name("descriptor.copy")).unwrap();
    let archive = Archive::open(Arc::clone(&store) as Arc<dyn Store>).unwrap();
    assert_eq!(archive.check(CheckOptions::default(), &mut |_, _| ()).unwrap().damages.len(), 1);
    capture(&archive, &random, "web", &units(&random, 2));
    assert_eq!(archive.check(CheckOptions::default(), &mut |_, _| ()).unwrap().damages, []);
}
