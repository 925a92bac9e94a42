//! Collections beside captures, readers and other collections, and collections that are killed or find no room.

use super::*;

/// Collects on a store that calls `meanwhile` before the first entry that `is_entry` selects.
fn collect_beside(bench: &Bench, nth: usize, mut meanwhile: impl FnMut() + Send + 'static) -> CollectReport {
    let faulty = Arc::new(FaultyStore::new(Arc::clone(&bench.store) as Arc<dyn Store>, Arc::default(), 1, 0));
    let archive = other(Arc::clone(&faulty) as Arc<dyn Store>);
    let mut entries = 0;
    faulty.meanwhile(Box::new(move |name| {
        if name.as_str().starts_with("ledger/") {
            entries += 1;
            if entries == nth {
                meanwhile();
            }
        }
    }));
    archive.collect(&options(), &*bench.clock, &bench.random, &mut |_, _| ()).unwrap()
}

#[test]
fn packs_on_which_a_new_image_relies_are_spared() {
    // The entry in which packs are retired, then that in which they are replaced.
    for (kept, nth) in [(0, 1), (1, 2)] {
        let bench = Bench::new(7);
        let content = noise(&bench.random, 3);
        let web = bench.capture("web", &content);
        let shared = (kept > 0).then(|| bench.capture("shared", &content[..kept]));
        bench.remove(&web);
        let store = Arc::clone(&bench.store) as Arc<dyn Store>;
        let (captured, wanted) = (content.clone(), bench.clock.now());
        let report = collect_beside(&bench, nth, move || {
            let _ = wanted;
            let archive = other(Arc::clone(&store));
            let (_, stored) = capture(&archive, &SeededRandom::new(99), "mail", &captured);
            assert!(stored < 200, "it relies on all units");
        });
        assert_eq!((report.retired, report.rewritten), (Amount::default(), Amount::default()), "{kept}");
        let mail = bench.other().find(&ImageName::new("mail").unwrap(), None).unwrap().image;
        bench.verify(&[(&mail, &content)]);
        if let Some(shared) = shared {
            bench.verify(&[(&shared, &content[..kept])]);
        }
        assert_eq!(bench.names("packs/").iter().filter(|name| name.as_str().contains("/.")).count(), 0);
    }
}

#[test]
fn a_collection_that_meets_another_decides_anew() {
    let bench = Bench::new(8);
    let content = noise(&bench.random, 10);
    let images = twice(&bench, &content);
    let store = Arc::clone(&bench.store) as Arc<dyn Store>;
    collect_beside(&bench, 1, move || {
        let clock = ManualClock::starting_at(1000);
        other(Arc::clone(&store)).collect(&options(), &clock, &SeededRandom::new(5), &mut |_, _| ()).unwrap();
    });
    bench.verify(&[(&images[0], &content), (&images[1], &content)]);
}

#[test]
fn a_silent_writer_is_given_up_and_what_it_left_comes_free() {
    let bench = Bench::new(9);
    let content = noise(&bench.random, 10);
    let mut writer = bench.writer();
    add_all(&bench.archive, &mut writer, "web", &content);
    writer.put_packs().unwrap();
    let left = bench.names("packs/").len() as u64;
    bench.store.put(&ObjectName::new("probe/0123").unwrap(), &[b"probe"]).unwrap();
    let report = bench.collect(&options());
    assert_eq!((report.running.objects, report.given_up, report.deleted), (left, 0, Amount::default()));
    bench.clock.advance_seconds(80_000);
    // Its newest object counts, and not when it began.
    add(&bench.archive, &mut writer, &noise(&bench.random, 1)[0]);
    writer.put_packs().unwrap();
    bench.clock.advance_seconds(80_000);
    assert_eq!(bench.collect(&options()).given_up, 0);
    bench.clock.advance_seconds(10_000);
    let dry = bench.collect(&CollectOptions { dry_run: true, ..options() });
    let report = bench.collect(&options());
    assert_eq!((dry.given_up, dry.deleted), (1, report.deleted));
    assert_eq!((report.given_up, report.running), (1, Amount::default()));
    assert_eq!(bench.names("packs/"), []);
    assert_eq!(bench.names("probe/"), []);
    // What arrives late is deleted, too, without another entry.
    let entries = bench.names("ledger/").len();
    add(&bench.archive, &mut writer, &noise(&bench.random, 1)[0]);
    writer.put_packs().unwrap();
    assert_eq!(bench.collect(&options()).deleted.objects, 1);
    assert_eq!(bench.names("ledger/").len(), entries);
}

#[test]
fn a_collection_that_is_killed_at_any_call_leaves_a_sound_archive_and_the_next_goes_on() {
    let mut calls = 0;
    for call in 1.. {
        let bench = Bench::new(13);
        let content = noise(&bench.random, 30);
        let images: Vec<ImageVersion> =
            (0..10).map(|number| bench.capture("web", &content[number * 2..number * 2 + 8])).collect();
        images.iter().step_by(2).for_each(|image| bench.remove(image));
        let mut silent = bench.writer();
        add_all(&bench.archive, &mut silent, "lost", &noise(&bench.random, 3));
        silent.put_packs().unwrap();
        bench.clock.advance_seconds(100_000);
        let faulty = Arc::new(FaultyStore::new(Arc::clone(&bench.store) as Arc<dyn Store>, Arc::default(), call, 0));
        let archive = other(Arc::clone(&faulty) as Arc<dyn Store>);
        let opened = faulty.calls();
        faulty.kill_after(call);
        let collected = archive.collect(&options(), &*bench.clock, &bench.random, &mut |_, _| ());
        let left: Vec<(&ImageVersion, &[Vec<u8>])> = (0..10)
            .filter(|number| number % 2 == 1)
            .map(|number| (&images[number], &content[number * 2..number * 2 + 8]))
            .collect();
        bench.verify(&left);
        bench.clock.advance_seconds(100_000);
        bench.collect(&options());
        bench.verify(&left);
        let state = bench.other().state.read().clone();
        assert_eq!(bench.names("packs/").len(), state.packs().len(), "killed in call {call}");
        assert_eq!(bench.names("segments/").len(), state.live_parts().len());
        assert_eq!(bench.names("manifests/").len(), 5);
        if collected.is_ok() {
            calls = faulty.calls() - opened;
            break;
        }
    }
    assert!(calls > 50, "{calls}");
}

/// Returns a store that collects before its `at`th call to get an object, and counts these calls.
fn collecting_store(memory: &Arc<MemoryStore>, at: u64) -> (Arc<dyn Store>, Arc<AtomicU64>) {
    let (inside, gets) = (Arc::clone(memory), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&gets);
    let store = HookedStore::new(Arc::clone(memory) as Arc<dyn Store>, move |call, _| {
        if matches!(call, Call::Get(_)) && count.fetch_add(1, Ordering::Relaxed) == at {
            let archive = other(Arc::clone(&inside) as Arc<dyn Store>);
            let removed = archive.images()[0].image.clone();
            let (clock, random) = (ManualClock::starting_at(2000), SeededRandom::new(at));
            archive.remove(&removed, &clock, &random).unwrap();
            archive.collect(&options(), &clock, &random, &mut |_, _| ()).unwrap();
        }
        Ok(())
    });
    (Arc::new(store), gets)
}

/// An image is removed and packs are rewritten and deleted at any moment of a check and of reads.
#[test]
fn readers_beside_a_collection_find_everything_in_its_new_place() {
    for data in [false, true] {
        for at in 0.. {
            let bench = Bench::new(17);
            let content = noise(&bench.random, 30);
            // Sorted by name, the first image is the one that is removed.
            bench.capture("a", &content);
            let mail = bench.capture("mail", &content.iter().step_by(3).cloned().collect::<Vec<_>>());
            let (store, gets) = collecting_store(&bench.store, u64::MAX);
            Archive::open(store).unwrap();
            let at_call = gets.load(Ordering::Relaxed) + at;
            let (store, gets) = collecting_store(&bench.store, at_call);
            let archive = Archive::open(store).unwrap();
            let report = archive.check(CheckOptions { data }, &mut |_, _| ()).unwrap();
            assert_eq!(report.damages, [], "collected at call {at}");
            assert_eq!(contents(&archive, &mail).unwrap(), content.iter().step_by(3).cloned().collect::<Vec<_>>());
            if gets.load(Ordering::Relaxed) <= at_call {
                assert!(at > 20, "{at}");
                break;
            }
        }
    }
}

#[test]
fn a_store_without_room_for_rewriting_still_gets_room() {
    let bench = Bench::new(18);
    let content = noise(&bench.random, 40);
    let web = bench.capture("web", &content);
    let gone = bench.capture("gone", &noise(&bench.random, 10));
    let some: Vec<Vec<u8>> = content.iter().step_by(3).cloned().collect();
    let mail = bench.capture("mail", &some);
    [web, gone].iter().for_each(|image| bench.remove(image));
    let before = bench.names("packs/");
    let packs = AtomicU64::new(0);
    let full = HookedStore::new(Arc::clone(&bench.store) as Arc<dyn Store>, move |call, name| {
        let is_pack = call == Call::Put && name.starts_with("packs/");
        if is_pack && packs.fetch_add(1, Ordering::Relaxed) >= 2 {
            let source = std::io::ErrorKind::StorageFull.into();
            return Err(StoreError::Io { action: "write", name: name.to_owned(), source });
        }
        Ok(())
    });
    let archive = other(Arc::new(full));
    let collected = archive.collect(&options(), &*bench.clock, &bench.random, &mut |_, _| ());
    assert!(matches!(collected, Err(ArchiveError::Store(_))), "{collected:?}");
    let left = bench.names("packs/");
    assert!(
        left.len() + 4 <= before.len() && left.iter().all(|name| before.contains(name)),
        "what nothing needs is gone"
    );
    bench.verify(&[(&mail, &some)]);
}
