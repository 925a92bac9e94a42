//! Damaged archives: an error names the object, a check finds each damage, and no read returns a wrong byte.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::store::Refusal;
use crate::store::faulty::FaultyStore;
use crate::store::hooked::{Call, HookedStore, io_error};

pub(super) type Objects = BTreeMap<ObjectName, Vec<u8>>;

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

/// Returns the objects of an archive with two images, and the expected contents of the images.
pub(super) fn sample() -> (Objects, Vec<Image>) {
    let random = SeededRandom::new(21);
    let store = Arc::new(MemoryStore::default());
    let archive = Archive::create(Arc::clone(&store) as Arc<dyn Store>, UNITS, &random).unwrap();
    let mut content = units(&random, 4);
    let (first, _) = capture(&archive, &random, "web", &content);
    let images = vec![(first, content.clone())];
    content.extend(units(&random, 2));
    let (second, _) = capture(&archive, &random, "web", &content);
    (store.objects(), [images, vec![(second, content)]].concat())
}

/// Opens an archive of these objects, and returns how many images read completely. Asserts that all bytes that are read
/// are right.
fn read_all(objects: &Objects, images: &[Image]) -> usize {
    let Ok(archive) = Archive::open(Arc::new(MemoryStore::of(objects.clone()))) else {
        return 0;
    };
    let mut whole = 0;
    for (image, expected) in images {
        if archive.find(&image.name, Some(image.version)).is_some()
            && let Ok(read) = contents(&archive, image)
        {
            assert_eq!(read, *expected);
            whole += 1;
        }
    }
    whole
}

/// Returns the objects that a check of all data finds damaged. If the archive cannot be opened, returns the error,
/// which names an object.
fn damaged_objects(objects: &Objects) -> Vec<Damage> {
    match Archive::open(Arc::new(MemoryStore::of(objects.clone()))) {
        Ok(archive) => archive.check(CheckOptions { data: true }, &mut |_, _| ()).unwrap().damages,
        Err(error) => vec![Damage { object: error.to_string(), what: String::new(), images: Vec::new() }],
    }
}

#[test]
fn a_check_names_each_object_that_is_missing_cut_changed_or_swapped() {
    let (objects, images) = sample();
    assert_eq!(read_all(&objects, &images), 2);
    assert_eq!(damaged_objects(&objects), []);
    let names: Vec<ObjectName> = objects.keys().cloned().collect();
    let last_entry = names.iter().filter(|name| name.as_str().starts_with("ledger/")).max().unwrap();
    for name in &names {
        let object = &objects[name];
        let mut variants: Vec<Option<Vec<u8>>> = vec![
            Some(Vec::new()),
            Some(object[..object.len() / 2].to_vec()),
            Some(object[..object.len() - 1].to_vec()),
            Some([&object[..], &[0]].concat()),
        ];
        for at in (0..object.len()).step_by(object.len() / 60 + 1) {
            let mut changed = object.clone();
            changed[at] ^= 0x10;
            variants.push(Some(changed));
        }
        for other in names.iter().filter(|other| objects[*other] != *object) {
            variants.push(Some(objects[other].clone()));
        }
        // A ledger may be cut after any entry: the result is an older, intact archive.
        if name != last_entry {
            variants.push(None);
        }
        for (number, variant) in variants.into_iter().enumerate() {
            let mut changed = objects.clone();
            match variant {
                Some(bytes) => changed.insert(name.clone(), bytes),
                None => changed.remove(name),
            };
            let whole = read_all(&changed, &images);
            let damages = damaged_objects(&changed);
            let concerned = if name.as_str().starts_with("ledger/") { "ledger" } else { name.as_str() };
            assert!(
                damages.iter().any(|damage| damage.object.contains(concerned)),
                "{name}, variant {number}: {damages:?}"
            );
            let hint = ["segments/", "descriptor"].iter().any(|hint| name.as_str().starts_with(hint));
            if hint {
                assert_eq!(whole, 2, "{name}, variant {number}: what can be rebuilt costs no image");
            } else if !name.as_str().starts_with("ledger/") && whole < 2 {
                let named: usize = damages.iter().map(|damage| damage.images.len()).max().unwrap();
                assert!(named >= 2 - whole, "{name}, variant {number}: {damages:?}");
            }
        }
    }
}

/// Segments and tables with false content and correct digests: readers look in wrong places, and find the right bytes
/// or none.
#[test]
fn lies_of_the_index_mislead_nobody() {
    let (objects, images) = sample();
    let (mut whole, mut broken) = (0, 0);
    for seed in 0..400 {
        let random = SeededRandom::new(seed);
        let below = |bound: usize| usize::try_from(random.below(bound as u64)).unwrap();
        let mut changed = objects.clone();
        for (name, object) in &mut changed {
            let is_pack = name.as_str().starts_with("packs/");
            if !is_pack && !name.as_str().starts_with("segments/") {
                continue;
            }
            // The part after the units of a pack, or the body of a segment.
            let end = object.len() - 32;
            let footer = u32::from_le_bytes(object[end - 12..end - 8].try_into().unwrap());
            let start = if is_pack { footer as usize } else { 64 };
            for _ in 0..below(3) {
                let at = start + below(end - start);
                match below(3) {
                    0 => object[at] ^= 1 << below(8),
                    1 => object[at] = [0, 1, 0xff][below(3)],
                    _ => {
                        let from = start + below(end - start);
                        let length = 20.min(end - at).min(end - from);
                        object.copy_within(from..from + length, at);
                    }
                }
            }
            let digest = if is_pack {
                let mut hasher = blake3::Hasher::new();
                *hasher.update(&object[..64]).update(&object[start..end]).finalize().as_bytes()
            } else {
                *blake3::hash(&object[..end]).as_bytes()
            };
            object[end..].copy_from_slice(&digest);
        }
        match read_all(&changed, &images) {
            2 => whole += 1,
            _ => broken += 1,
        }
        damaged_objects(&changed);
    }
    assert!(whole > 50 && broken > 50, "{whole} {broken}");
}

/// The index leads to the units, and says that they have another length.
#[test]
fn false_lengths_in_the_index_cost_nothing_and_a_check_names_the_segment() {
    let (objects, images) = sample();
    let archive = Archive::open(Arc::new(MemoryStore::of(objects.clone()))).unwrap();
    let (id, parts) = (archive.descriptor().archive, archive.state.read().live_parts());
    for wrong in [1, 70, 1 << 20] {
        for part in &parts {
            let name = Folder::Segments.object(part.segment);
            let mut segment = Segment::decode(id, part.segment, &objects[&name]).unwrap();
            segment.entries.iter_mut().for_each(|entry| entry.stored_bytes = wrong);
            let mut changed = objects.clone();
            changed.insert(name.clone(), segment.encode(id, part.segment).unwrap());
            assert_eq!(read_all(&changed, &images), 2, "{name}");
            let named: Vec<String> = damaged_objects(&changed).into_iter().map(|damage| damage.object).collect();
            assert_eq!(named, [name.to_string()]);
        }
    }
}

#[test]
fn a_segment_that_lists_the_pack_of_another_hides_no_unit() {
    let (objects, images) = sample();
    let archive = Archive::open(Arc::new(MemoryStore::of(objects.clone()))).unwrap();
    let parts: Vec<_> = archive.state.read().parts.values().cloned().collect();
    let (id, name) = (archive.descriptor().archive, Folder::Segments.object(parts[0].segment));
    let mut segment = Segment::decode(id, parts[0].segment, &objects[&name]).unwrap();
    for more in [parts[1].packs.clone(), segment.packs.clone()] {
        let before = segment.packs.clone();
        segment.packs.extend(more);
        let mut changed = objects.clone();
        changed.insert(name.clone(), segment.encode(id, parts[0].segment).unwrap());
        segment.packs = before;
        assert_eq!(read_all(&changed, &images), 2);
        let damages = damaged_objects(&changed);
        assert!(damages.iter().any(|damage| damage.object == name.as_str()), "{damages:?}");
    }
}

/// Regression: 64 false places, named before the right one, cost the images that need the unit.
#[test]
fn false_places_of_a_segment_cost_no_image_and_a_check_reports_them() {
    let random = SeededRandom::new(28);
    let store = Arc::new(MemoryStore::default());
    let archive = Archive::create(Arc::clone(&store) as Arc<dyn Store>, UNITS, &random).unwrap();
    let content = units(&random, 3);
    capture(&archive, &random, "hostile", &units(&random, 1));
    let part = archive.state.read().parts.values().next().unwrap().clone();
    let (id, name) = (archive.descriptor().archive, Folder::Segments.object(part.segment));
    let mut segment = Segment::decode(id, part.segment, &store.objects()[&name]).unwrap();
    for plain in &content {
        let prefix = archive.descriptor().key.name(plain).prefix();
        let entry = |number: u32| IndexEntry { prefix, pack: 0, offset: 10_000 + number, stored_bytes: 1 };
        segment.entries.extend((0..100).map(entry));
    }
    segment.entries.sort_unstable_by_key(|entry| (entry.prefix, entry.pack, entry.offset));
    store.put(&name, &[&segment.encode(id, part.segment).unwrap()]).unwrap();

    let archive = Archive::open(Arc::clone(&store) as Arc<dyn Store>).unwrap();
    let (image, _) = capture(&archive, &random, "web", &content);
    let reader = Archive::open(store).unwrap();
    assert_eq!(contents(&reader, &image).unwrap(), content);
    for plain in &content {
        let name = archive.descriptor().key.name(plain);
        reader.find_unit(WantedUnit { name, plain_bytes: None }).unwrap();
    }
    let damages = reader.check(CheckOptions { data: true }, &mut |_, _| ()).unwrap().damages;
    let [damage] = &damages[..] else { panic!("{damages:?}") };
    assert!(damage.object == name.as_str() && damage.what.contains("lacks") && damage.images.is_empty(), "{damage:?}");
}

/// Regression: a call that wanted both units read too little of the true one.
#[test]
fn a_false_place_inside_a_true_unit_costs_no_unit() {
    let random = SeededRandom::new(29);
    let store = Arc::new(MemoryStore::default());
    let archive = Archive::create(Arc::clone(&store) as Arc<dyn Store>, UNITS, &random).unwrap();
    let content = units(&random, 3);
    let (image, _) = capture(&archive, &random, "web", &content);
    let part = archive.state.read().parts.values().next().unwrap().clone();
    let (id, name) = (archive.descriptor().archive, Folder::Segments.object(part.segment));
    let mut segment = Segment::decode(id, part.segment, &store.objects()[&name]).unwrap();
    let prefixes: Vec<_> = content.iter().map(|plain| archive.descriptor().key.name(plain).prefix()).collect();
    let entries = segment.entries.iter().filter(|entry| prefixes.contains(&entry.prefix)).copied();
    let first = entries.min_by_key(|entry| entry.offset).unwrap();
    let others = prefixes.into_iter().filter(|prefix| *prefix != first.prefix);
    segment.entries.extend(others.map(|prefix| IndexEntry {
        prefix,
        pack: first.pack,
        offset: first.offset + 1,
        stored_bytes: 1,
    }));
    segment.entries.sort_unstable_by_key(|entry| (entry.prefix, entry.pack, entry.offset));
    store.put(&name, &[&segment.encode(id, part.segment).unwrap()]).unwrap();
    let reader = Archive::open(store).unwrap();
    assert_eq!(contents(&reader, &image).unwrap(), content);
}

#[test]
fn a_manifest_that_names_a_chunk_again_and_again_is_damage() {
    let (objects, _) = sample();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::of(objects));
    let archive = Archive::open(store).unwrap();
    let (clock, random) = (ManualClock::starting_at(5), SeededRandom::new(24));
    let mut writer = archive.writer(&clock, &random, "host").unwrap();
    let mut draft = add_all(&archive, &mut writer, "mail", &units(&random, 3));
    draft.chunks = vec![draft.chunks[0]; 500_000];
    let (mail, manifest) = writer.commit(draft).unwrap();
    let damages = archive.check(CheckOptions::default(), &mut |_, _| ()).unwrap().damages;
    let [damage] = &damages[..] else { panic!("{damages:?}") };
    assert_eq!(damage.object, Folder::Manifests.object(manifest.id).to_string());
    assert_eq!((damage.what.as_str(), &damage.images), ("two of its chunks have the same sectors", &vec![mail]));
}

/// Regression: a check compared neither the sectors of two chunks nor the totals of a manifest.
#[test]
fn a_check_finds_chunks_that_overlap_and_totals_that_the_chunks_do_not_have() {
    let random = SeededRandom::new(26);
    let (clock, store) = (ManualClock::starting_at(5), Arc::new(MemoryStore::default()));
    let archive = Archive::create(store, UNITS, &random).unwrap();
    let mut writer = archive.writer(&clock, &random, "host").unwrap();
    let unit = |archive: &Archive, writer: &mut Writer<'_>, start| {
        let mut plain = vec![0; 8 * 512];
        random.fill(&mut plain).unwrap();
        let runs = vec![SectorRun { start, count: 8 }];
        PlacedUnit { name: add(archive, writer, &plain), plain_bytes: 8 * 512, runs }
    };
    let run = |start, count| SectorRun { start, count };
    let mut expected = Vec::new();
    for (number, (start, zeros, zero_bytes, what)) in [
        (8, vec![run(16, 4)], 4 * 512, None),
        (4, vec![], 0, Some("two of its chunks have the same sectors")),
        (8, vec![run(7, 1)], 512, Some("two of its chunks have the same sectors")),
        (8, vec![run(16, 4)], 0, Some("its totals differ from those of its chunks")),
        (8, vec![], 512, Some("its totals differ from those of its chunks")),
    ]
    .into_iter()
    .enumerate()
    {
        let mut draft = add_all(&archive, &mut writer, &format!("image-{number}"), &[vec![1; 20 * 512]]);
        let first = ChunkHeader { units: vec![unit(&archive, &mut writer, 0)], ..ChunkHeader::default() };
        let second = ChunkHeader { units: vec![unit(&archive, &mut writer, start)], zeros, ..ChunkHeader::default() };
        draft.chunks = [first, second].map(|header| add(&archive, &mut writer, &header.encode().unwrap())).to_vec();
        let (data_bytes, size_bytes) = (16 * 512, draft.size_bytes);
        draft.totals =
            Totals { data_bytes, zero_bytes, free_bytes: size_bytes - data_bytes - zero_bytes, ..Totals::default() };
        let (image, manifest) = writer.commit(draft).unwrap();
        expected.extend(what.map(|what| (Archive::manifest_name(&manifest), what.to_owned(), vec![image])));
    }
    expected.sort();
    for data in [false, true] {
        let damages = archive.check(CheckOptions { data }, &mut |_, _| ()).unwrap().damages;
        let found: Vec<_> = damages.into_iter().map(|damage| (damage.object, damage.what, damage.images)).collect();
        assert_eq!(found, expected);
    }
}

/// Makes an object one of version 2, as a newer version of Onefold would write it.
fn newer(name: &ObjectName, object: &mut [u8]) {
    let end = object.len() - 32;
    object[10] = 2;
    let digest = if name.as_str().starts_with("packs/") {
        object[end - 4] = 2;
        let table = u32::from_le_bytes(object[end - 12..end - 8].try_into().unwrap()) as usize;
        let mut hasher = blake3::Hasher::new();
        *hasher.update(&object[..64]).update(&object[table..end]).finalize().as_bytes()
    } else {
        *blake3::hash(&object[..end]).as_bytes()
    };
    object[end..].copy_from_slice(&digest);
}

#[test]
fn what_is_newer_is_no_damage() {
    let (objects, images) = sample();
    for name in objects.keys().filter(|name| !name.as_str().starts_with("manifests/")) {
        let mut changed = objects.clone();
        newer(name, changed.get_mut(name).unwrap());
        let opened = Archive::open(Arc::new(MemoryStore::of(changed.clone())));
        if name.as_str().starts_with("segments/") {
            assert_eq!(read_all(&changed, &images), 2, "tables say what it says");
            assert_eq!(damaged_objects(&changed), []);
            continue;
        }
        let error = match opened {
            Err(error) => error,
            Ok(archive) => {
                assert!(name.as_str().starts_with("packs/"), "{name}");
                // Units whose form this version does not know: they are rejected, and the table says why.
                for object in changed.iter_mut().filter(|(other, _)| *other == name).map(|(_, object)| object) {
                    object[64 + 4] = 1;
                }
                let strange = Archive::open(Arc::new(MemoryStore::of(changed))).unwrap();
                let read = contents(&strange, &images[1].0);
                assert!(matches!(read, Err(ArchiveError::Newer { .. })), "{read:?}");
                archive.check(CheckOptions { data: true }, &mut |_, _| ()).unwrap_err()
            }
        };
        assert!(matches!(&error, ArchiveError::Newer { name: named, .. } if named == name.as_str()), "{error}");
    }
}

#[test]
fn a_check_without_data_finds_packs_that_are_missing_or_cut() {
    let (objects, images) = sample();
    for name in objects.keys().filter(|name| name.as_str().starts_with("packs/")) {
        let mut missing = objects.clone();
        missing.remove(name);
        let mut cut = objects.clone();
        // The middle is missing, the table is complete.
        cut.get_mut(name).unwrap().drain(100..150);
        for changed in [missing, cut] {
            let archive = Archive::open(Arc::new(MemoryStore::of(changed))).unwrap();
            let report = archive.check(CheckOptions::default(), &mut |_, _| ()).unwrap();
            let damage = report.damages.iter().find(|damage| damage.object == name.as_str()).unwrap();
            assert!(damage.images.contains(&images[1].0), "the second image needs both packs: {damage:?}");
        }
    }
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
fn a_check_finds_units_that_an_entry_calls_lost_and_chunks_that_do_not_fit_their_disk() {
    let (objects, images) = sample();
    let random = SeededRandom::new(25);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::of(objects));
    let archive = Archive::open(store).unwrap();
    let clock = ManualClock::starting_at(5);
    let mut writer = archive.writer(&clock, &random, "host").unwrap();
    let mut draft = add_all(&archive, &mut writer, "odd", &[vec![7; 1024]]);
    // The disk ends within the second sector, and the unit does not.
    draft.size_bytes = 1000;
    draft.totals.data_bytes = 1000;
    let (odd, _) = writer.commit(draft).unwrap();
    let lost = archive.descriptor().key.name(&images[0].1[2]);
    let position = archive.state.read().position;
    assert!(archive.append(position, writer.id(), &clock, &random, Change::UnitsLost { units: vec![lost] }).unwrap());

    let damages = archive.check(CheckOptions::default(), &mut |_, _| ()).unwrap().damages;
    let found: Vec<(&str, &[ImageVersion])> =
        damages.iter().map(|damage| (damage.object.as_str(), &damage.images[..])).collect();
    let both: Vec<ImageVersion> = images.iter().map(|(image, _)| image.clone()).collect();
    assert_eq!(found, [("chunk 0 of odd@1", &[odd][..]), (&format!("unit {lost}"), &both)]);
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

#[test]
fn a_check_counts_copies_and_leftovers_and_calls_them_no_damage() {
    let (objects, _) = sample();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::of(objects));
    let random = SeededRandom::new(22);
    let archive = Archive::open(Arc::clone(&store)).unwrap();
    let clock = ManualClock::starting_at(5);
    let before = archive.check(CheckOptions::default(), &mut |_, _| ()).unwrap();
    assert_eq!((before.images, before.packs, before.copies, before.leftovers), (2, 2, 0, 0));
    assert_eq!(before.units, 6 + 2, "units and headers of chunks");

    // Two writers that do not know of each other store the same unit.
    let mut writers = [(); 2].map(|()| archive.writer(&clock, &random, "host").unwrap());
    let content = units(&random, 1);
    let drafts = writers.each_mut().map(|writer| add_all(&archive, writer, "mail", &content));
    for (writer, draft) in writers.iter_mut().zip(drafts) {
        writer.commit(draft).unwrap();
    }
    let mut killed = archive.writer(&clock, &random, "host").unwrap();
    add_all(&archive, &mut killed, "mail", &units(&random, 1));
    killed.put_packs().unwrap();
    let after = archive.check(CheckOptions { data: true }, &mut |_, _| ()).unwrap();
    assert_eq!((after.images, after.packs, after.copies, after.leftovers), (4, 4, 2, 1));
    assert_eq!(after.units, 6 + 2 + 2);
    assert_eq!(after.damages, []);
}

#[test]
fn of_two_copies_the_sound_one_is_read() {
    let (objects, _) = sample();
    let store = Arc::new(MemoryStore::of(objects));
    let random = SeededRandom::new(23);
    let archive = Archive::open(Arc::clone(&store) as Arc<dyn Store>).unwrap();
    let clock = ManualClock::starting_at(5);
    let mut writers = [(); 2].map(|()| archive.writer(&clock, &random, "host").unwrap());
    let content = units(&random, 3);
    let drafts = writers.each_mut().map(|writer| add_all(&archive, writer, "mail", &content));
    let mut images = Vec::new();
    for (writer, draft) in writers.iter_mut().zip(drafts) {
        images.push(writer.commit(draft).unwrap().0);
    }
    for writer in writers {
        let prefix = format!("packs/{}/", writer.id());
        let mut objects = store.objects();
        let (name, pack) = objects.iter_mut().find(|(name, _)| name.as_str().starts_with(&prefix)).unwrap();
        let name = name.clone();
        (64..pack.len()).step_by(97).for_each(|at| pack[at] ^= 1);
        let changed = Archive::open(Arc::new(MemoryStore::of(objects.clone()))).unwrap();
        images.iter().for_each(|image| assert_eq!(contents(&changed, image).unwrap(), content));
        objects.remove(&name);
        let missing = Archive::open(Arc::new(MemoryStore::of(objects))).unwrap();
        images.iter().for_each(|image| assert_eq!(contents(&missing, image).unwrap(), content));
    }
}

/// Samples with many seeds find the one damaged unit as often as their part is.
#[test]
fn a_sample_reads_a_part_that_its_seed_decides() {
    let random = SeededRandom::new(26);
    let store = Arc::new(MemoryStore::default());
    let archive = Archive::create(Arc::clone(&store) as Arc<dyn Store>, UNITS, &random).unwrap();
    for number in 0..10 {
        capture(&archive, &random, &format!("web{number}"), &units(&random, 30));
    }
    let mut objects = store.objects();
    let pack = objects.keys().filter(|name| name.as_str().starts_with("packs/")).nth(4).unwrap().clone();
    objects.get_mut(&pack).unwrap()[100] ^= 1;
    let archive = Archive::open(Arc::new(MemoryStore::of(objects))).unwrap();
    let check = |millionths, seed| archive.check_sample(Sample { millionths, seed }, &mut |_, _| ()).unwrap();
    let whole = archive.check(CheckOptions { data: true }, &mut |_, _| ()).unwrap();
    assert_eq!(check(1_000_000, 7).damages, whole.damages);
    assert!(!whole.damages.is_empty() && whole.lost.len() == 1);
    let found = (0..200).filter(|seed| !check(300_000, *seed).damages.is_empty()).count();
    assert!((30..90).contains(&found), "{found} of 200");
    let part = check(300_000, 7);
    assert_eq!(part, check(300_000, 7), "a seed repeats a check");
    assert!((whole.verified_bytes / 5..whole.verified_bytes / 2).contains(&part.verified_bytes));
    assert!(check(0, 7).verified_bytes > 0, "one pack at least");
}
