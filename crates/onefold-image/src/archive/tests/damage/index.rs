//! An index with false places and lengths, behind right digests.

use super::*;

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
