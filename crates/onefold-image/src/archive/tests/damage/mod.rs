//! Damaged archives: an error names the object, a check finds each damage, and no read returns a wrong byte.

mod index;
mod unreadable;

use std::collections::BTreeMap;

use super::*;

pub(super) type Objects = BTreeMap<ObjectName, Vec<u8>>;

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
