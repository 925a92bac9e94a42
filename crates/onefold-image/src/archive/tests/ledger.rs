//! Rules for the content of entries, and how writers react to the entries of others.

use onefold_disk::Disk;

use super::*;
use crate::ArchivedDisk;
use crate::format::ledger::Change;
use crate::store::faulty::FaultyStore;

fn archive(seed: u64) -> (Arc<dyn Store>, Archive, SeededRandom) {
    let random = SeededRandom::new(seed);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let archive = Archive::create(Arc::clone(&store), UNITS, &random).unwrap();
    (store, archive, random)
}

/// The host that collects.
const COLLECTOR: WriterId = WriterId([9; 16]);

/// Adds an entry as another host that collects would.
fn say(store: &Arc<dyn Store>, random: &dyn Random, change: Change) {
    let clock = ManualClock::starting_at(7);
    let archive = Archive::open(Arc::clone(store)).unwrap();
    if archive.state.read().writer(COLLECTOR).is_none() {
        assert!(append(&archive, COLLECTOR, &clock, random, Change::WriterBegins { host: String::new() }).unwrap());
    }
    assert!(append(&archive, COLLECTOR, &clock, random, change).unwrap());
}

/// Adds an entry after those that were read.
fn append(
    archive: &Archive,
    writer: WriterId,
    clock: &dyn Clock,
    random: &dyn Random,
    change: Change,
) -> Result<bool, ArchiveError> {
    let position = archive.state.read().position;
    archive.append(position, writer, clock, random, change)
}

fn packs_of(archive: &Archive) -> Vec<ObjectId> {
    archive.state.read().packs()
}

#[test]
fn a_capture_does_not_rely_on_a_pack_that_was_retired_meanwhile() {
    let (store, archive, random) = archive(1);
    let content = units(&random, 5);
    let (web, _) = capture(&archive, &random, "web", &content);
    let packs = packs_of(&archive);

    let clock = ManualClock::starting_at(5);
    let mut writer = archive.writer(&clock, &random, "host").unwrap();
    let draft = add_all(&archive, &mut writer, "mail", &content);
    assert_eq!(writer.stored_bytes(), 0, "all units are known");
    archive.remove(&web, &clock, &random).unwrap();
    say(&store, &random, Change::PacksRetired { packs: packs.clone() });
    packs.iter().for_each(|pack| store.delete(&Folder::Packs.object(*pack)).unwrap());

    let Err(ArchiveError::Retired(missing)) = writer.commit(draft.clone()) else {
        panic!("the image would be lost");
    };
    assert_eq!(missing, draft.chunks, "units show once their header is there again");
    let again = add_all(&archive, &mut writer, "mail", &content);
    assert_eq!(again, draft);
    let (mail, _) = writer.commit(again).unwrap();
    assert_eq!(contents(&archive, &mail).unwrap(), content);
    assert_eq!(Archive::open(store).unwrap().images().len(), 1);
}

#[test]
fn a_capture_names_each_unit_that_went_where_its_header_stayed() {
    let (store, archive, random) = archive(2);
    let content = units(&random, 5);
    let clock = ManualClock::starting_at(5);
    capture(&archive, &random, "web", &content);
    let old = packs_of(&archive);
    let mut writer = archive.writer(&clock, &random, "host").unwrap();
    // One additional unit makes the header new, so the header is in the writer's own pack.
    let mut more = content.clone();
    more.extend(units(&random, 1));
    let draft = add_all(&archive, &mut writer, "mail", &more);
    say(&store, &random, Change::PacksRetired { packs: old });
    let Err(ArchiveError::Retired(mut missing)) = writer.commit(draft.clone()) else {
        panic!("the image would be lost");
    };
    let mut expected: Vec<UnitName> = content.iter().map(|plain| archive.descriptor().key.name(plain)).collect();
    expected.sort();
    missing.sort();
    assert_eq!(missing, expected);
    content.iter().for_each(|plain| {
        add(&archive, &mut writer, plain);
    });
    let (mail, _) = writer.commit(draft).unwrap();
    assert_eq!(contents(&archive, &mail).unwrap(), more);
}

/// Stores the units of packs in another one, as a host would that collects, and deletes the old ones.
fn replace(store: &Arc<dyn Store>, archive: &Archive, random: &dyn Random, old: &[ObjectId], number: u8) {
    let new = ObjectId { writer: COLLECTOR, random: [number; 8] };
    let mut pack = PackBuilder::new(archive.descriptor().archive, new);
    let mut entries: Vec<IndexEntry> = Vec::new();
    for id in old {
        let table = archive.table(*id).unwrap();
        let bytes = store.get(&Folder::Packs.object(*id), ByteRange::Whole).unwrap();
        for unit in table.iter() {
            let prefix = unit.name.prefix();
            if entries.iter().any(|entry| entry.prefix == prefix) {
                continue;
            }
            let start = unit.offset as usize;
            let header = UnitHeader::decode(&bytes[start..start + 16]).unwrap();
            let placed = pack.add(unit.name, header, &bytes[start + 16..start + 16 + unit.stored_bytes as usize]);
            let (offset, stored_bytes) = (placed.offset, placed.stored_bytes);
            entries.push(IndexEntry { prefix, pack: 0, offset, stored_bytes });
        }
    }
    entries.sort_by_key(|entry| entry.prefix);
    let segment = Segment { packs: vec![new], entries };
    store.put(&Folder::Packs.object(new), &[&pack.finish().0]).unwrap();
    let object = segment.encode(archive.descriptor().archive, new).unwrap();
    store.put(&Folder::Segments.object(new), &[&object]).unwrap();
    say(store, random, Change::PacksReplaced { old: old.to_vec(), new: vec![new], segment: new });
    old.iter().for_each(|pack| store.delete(&Folder::Packs.object(*pack)).unwrap());
}

#[test]
fn a_reader_looks_all_units_up_anew_where_packs_with_copies_were_replaced() {
    let (store, archive, random) = archive(13);
    let clock = ManualClock::starting_at(5);
    let content = units(&random, 2);
    // The second unit is in two packs, as two writers do not know of each other.
    let mut writers = [(); 2].map(|()| archive.writer(&clock, &random, "host").unwrap());
    let drafts = [&content[..], &content[1..]];
    let drafts = [0, 1].map(|number: usize| add_all(&archive, &mut writers[number], "web", drafts[number]));
    for (writer, draft) in writers.iter_mut().zip(drafts) {
        writer.commit(draft).unwrap();
    }
    let name = |number: usize| archive.descriptor().key.name(&content[number]);
    for (number, order) in (1..).zip([[0, 1], [1, 0]]) {
        let reader = Archive::open(Arc::clone(&store)).unwrap();
        reader.stored(&name(0)).unwrap();
        replace(&store, &archive, &random, &packs_of(&Archive::open(Arc::clone(&store)).unwrap()), number);
        let wanted = order.map(|number| WantedUnit { name: name(number), plain_bytes: None });
        let mut read = [Vec::new(), Vec::new()];
        reader
            .read_units::<ArchiveError>(&wanted, &mut |index, plain| {
                read[order[index]] = plain.to_vec();
                Ok(())
            })
            .unwrap();
        assert_eq!(read[..], content);
    }
}

#[test]
fn a_reader_of_an_image_that_was_removed_and_collected_is_told_so() {
    let (store, archive, random) = archive(14);
    let clock = ManualClock::starting_at(5);
    let (web, _) = capture(&archive, &random, "web", &units(&random, 3));
    let reader = Archive::open(Arc::clone(&store)).unwrap();
    let record = reader.find(&web.name, None).unwrap();
    let manifest = reader.manifest(&record).unwrap();
    let length = manifest.encode().unwrap().len() as u64;
    assert_eq!(reader.manifest_within(&record, length).unwrap().as_ref(), Some(&manifest));
    assert_eq!(reader.manifest_within(&record, length - 1).unwrap(), None);
    archive.remove(&web, &clock, &random).unwrap();
    let packs = packs_of(&archive);
    say(&store, &random, Change::PacksRetired { packs: packs.clone() });
    packs.iter().for_each(|pack| store.delete(&Folder::Packs.object(*pack)).unwrap());
    store.delete(&Folder::Manifests.object(record.manifest)).unwrap();

    assert!(matches!(reader.manifest(&record), Err(ArchiveError::Removed { .. })));
    assert!(matches!(reader.manifest_within(&record, length), Err(ArchiveError::Removed { .. })));
    let disk = ArchivedDisk::new(Arc::new(reader), manifest, 1 << 20);
    let error = disk.read(0, &mut [0; 512]).unwrap_err();
    assert!(format!("{error:?}").contains("Removed"), "{error:?}");
}

#[test]
fn a_capture_goes_on_where_a_pack_was_replaced() {
    let (store, archive, random) = archive(3);
    let content = units(&random, 5);
    let clock = ManualClock::starting_at(5);
    capture(&archive, &random, "web", &content);
    let old = packs_of(&archive);
    let mut writer = archive.writer(&clock, &random, "host").unwrap();
    let draft = add_all(&archive, &mut writer, "mail", &content);

    // Another host stores the same units in another pack.
    replace(&store, &archive, &random, &old, 1);

    let (mail, _) = writer.commit(draft).unwrap();
    assert_eq!(writer.stored_bytes(), 0);
    assert_eq!(contents(&archive, &mail).unwrap(), content);
}

#[test]
fn a_reader_that_misses_a_pack_reads_the_ledger_on() {
    let (store, archive, random) = archive(4);
    let content = units(&random, 5);
    let (web, _) = capture(&archive, &random, "web", &content);
    let reader = Archive::open(Arc::clone(&store)).unwrap();
    assert_eq!(contents(&reader, &web).unwrap(), content);
    let packs = packs_of(&archive);
    say(&store, &random, Change::PacksRetired { packs: packs.clone() });
    packs.iter().for_each(|pack| store.delete(&Folder::Packs.object(*pack)).unwrap());
    let (mail, _) = capture(&archive, &random, "mail", &content);
    assert_eq!(mail.version, 1);
    assert_eq!(contents(&reader, &web).unwrap(), content, "the units are in another pack now");
}

#[test]
fn a_writer_that_was_given_up_begins_again_and_stores_its_units_again() {
    let (store, archive, random) = archive(5);
    let clock = ManualClock::starting_at(5);
    let content = units(&random, 4);
    let mut writer = archive.writer(&clock, &random, "host").unwrap();
    let first = writer.id();
    let draft = add_all(&archive, &mut writer, "web", &content);
    writer.put_packs().unwrap();
    say(&store, &random, Change::WriterGivenUp { writer: first });
    let left = store.list("packs/", None).unwrap();
    left.iter().for_each(|pack| store.delete(&pack.name).unwrap());
    let Err(ArchiveError::Retired(missing)) = writer.commit(draft.clone()) else {
        panic!("its packs are gone");
    };
    assert!(missing.len() == content.len() + 1 && missing.contains(&draft.chunks[0]));
    assert_eq!(Archive::open(Arc::clone(&store)).unwrap().images(), []);
    assert_ne!(writer.id(), first);
    let again = add_all(&archive, &mut writer, "web", &content);
    assert_eq!(again, draft);
    let (web, _) = writer.commit(again).unwrap();
    let fresh = Archive::open(Arc::clone(&store)).unwrap();
    assert_eq!(contents(&fresh, &web).unwrap(), content);
    assert_eq!(fresh.images()[0].manifest.writer, writer.id());

    // One that had to add nothing loses nothing.
    let draft = add_all(&archive, &mut writer, "web", &content);
    let second = writer.id();
    say(&store, &random, Change::WriterGivenUp { writer: second });
    writer.commit(draft).unwrap();
    assert_ne!(writer.id(), second);
}

#[test]
fn units_that_were_lost_are_stored_again() {
    let (store, archive, random) = archive(6);
    let content = units(&random, 3);
    capture(&archive, &random, "web", &content);
    let clock = ManualClock::starting_at(5);
    let lost = archive.descriptor().key.name(&content[1]);
    let mut writer = archive.writer(&clock, &random, "host").unwrap();
    let draft = add_all(&archive, &mut writer, "mail", &content);
    say(&store, &random, Change::UnitsLost { units: vec![lost] });
    let Err(ArchiveError::Retired(missing)) = writer.commit(draft.clone()) else {
        panic!("the image would rely on a lost unit");
    };
    assert_eq!(missing, [lost]);
    add(&archive, &mut writer, &content[1]);
    writer.commit(draft).unwrap();
    assert!(archive.stored(&lost).unwrap().is_some(), "a later pack has it");
}

#[test]
fn a_header_that_no_pack_returns_is_stored_again() {
    let (store, archive, random) = archive(15);
    let content = units(&random, 3);
    capture(&archive, &random, "web", &content);
    let clock = ManualClock::starting_at(5);
    let mut writer = archive.writer(&clock, &random, "host").unwrap();
    let draft = add_all(&archive, &mut writer, "mail", &content);
    // Its bytes are damaged, its table is not, and the writer has a reason to look again.
    let chunk = archive.stored(&draft.chunks[0]).unwrap().unwrap();
    let name = Folder::Packs.object(chunk.pack);
    let mut pack = store.get(&name, ByteRange::Whole).unwrap();
    pack[chunk.offset as usize + 16 + 10] ^= 1;
    store.put(&name, &[&pack]).unwrap();
    say(&store, &random, Change::UnitsLost { units: vec![archive.descriptor().key.name(b"another")] });
    let Err(ArchiveError::Retired(missing)) = writer.commit(draft.clone()) else {
        panic!("nobody could read the image");
    };
    assert_eq!(missing, draft.chunks);
    let again = add_all(&archive, &mut writer, "mail", &content);
    assert_eq!(again, draft);
    let (mail, _) = writer.commit(again).unwrap();
    assert_eq!(contents(&archive, &mail).unwrap(), content);
}

#[test]
fn captures_at_once_do_not_bring_an_archive_beyond_its_bound() {
    let (store, mut archive, random) = archive(16);
    archive.limits.units_max = 10;
    let clock = ManualClock::starting_at(5);
    let mut writers = [(); 2].map(|()| archive.writer(&clock, &random, "host").unwrap());
    let content = [4, 5].map(|count| units(&random, count));
    let drafts = [0, 1].map(|number: usize| add_all(&archive, &mut writers[number], "web", &content[number]));
    let [first, second] = writers.each_mut();
    let (image, _) = first.commit(drafts[0].clone()).unwrap();
    assert!(matches!(second.commit(drafts[1].clone()), Err(ArchiveError::TooLarge { units_max: 10 })));
    assert_eq!(contents(&Archive::open(Arc::clone(&store)).unwrap(), &image).unwrap(), content[0]);
    // The archive has room for exactly five more units, and known units need no room.
    capture(&archive, &random, "web", &content[1][..4]);
    capture(&archive, &random, "web", &content[1][..4]);
    let mut full = archive.writer(&clock, &random, "host").unwrap();
    assert!(matches!(try_add_all(&archive, &mut full, "web", &content[1]), Err(ArchiveError::TooLarge { .. })));
    // What packs had that went needs no room either.
    let packs = packs_of(&archive);
    say(&store, &random, Change::PacksRetired { packs });
    archive.refresh().unwrap();
    capture(&archive, &random, "web", &content[1]);
}

#[test]
fn a_removed_image_is_gone_and_its_version_never_comes_again() {
    let (store, archive, random) = archive(7);
    let clock = ManualClock::starting_at(5);
    let content = units(&random, 3);
    let (web, _) = capture(&archive, &random, "web", &content);
    archive.remove(&web, &clock, &random).unwrap();
    assert!(matches!(archive.remove(&web, &clock, &random), Err(ArchiveError::NoImage { .. })));
    assert_eq!(Archive::open(store).unwrap().images(), []);
    let (again, added) = capture(&archive, &random, "web", &content);
    assert_eq!((again.version, added), (2, 0), "packs stay until they are collected");
}

#[test]
fn an_archive_is_made_once() {
    let (store, archive, random) = archive(8);
    assert!(matches!(Archive::create(Arc::clone(&store), UNITS, &random), Err(ArchiveError::NotEmpty { .. })));
    store.delete(&descriptor_name("descriptor")).unwrap();
    assert_eq!(Archive::open(Arc::clone(&store)).unwrap().descriptor(), archive.descriptor());
    store.delete(&descriptor_name("descriptor.copy")).unwrap();
    assert!(matches!(Archive::open(store), Err(ArchiveError::NoArchive)));
}

#[test]
fn a_ledger_with_a_missing_entry_is_read_up_to_it_and_takes_no_other() {
    let (store, archive, random) = archive(9);
    let content = units(&random, 1);
    let (web, _) = capture(&archive, &random, "web", &content);
    capture(&archive, &random, "web", &units(&random, 1));
    let (missing, second) = (LedgerEntry::object_name(2), LedgerEntry::object_name(1));
    let entry = store.get(&missing, ByteRange::Whole).unwrap();
    store.delete(&missing).unwrap();
    let older = Archive::open(Arc::clone(&store)).unwrap();
    assert_eq!(contents(&older, &web).unwrap(), content);
    assert_eq!(older.images().len(), 1);
    let clock = ManualClock::starting_at(5);
    let is_refused = |added: Option<ArchiveError>| matches!(added, Some(ArchiveError::Ledger { position: 2, .. }));
    assert!(is_refused(older.writer(&clock, &random, "host").err()));
    assert!(is_refused(older.remove(&web, &clock, &random).err()));
    let damages = older.check(CheckOptions::default(), &mut |_, _| ()).unwrap().damages;
    assert_eq!(damages.iter().map(|damage| damage.object.as_str()).collect::<Vec<_>>(), [missing.as_str()]);
    store.delete(&second).unwrap();
    assert_eq!(Archive::open(Arc::clone(&store)).unwrap().images(), []);
    store.put(&missing, &[&entry]).unwrap();
    assert_eq!(Archive::open(store).unwrap().images(), [], "the first hole counts");
}

#[test]
fn files_beside_the_entries_are_no_entries() {
    let (store, archive, random) = archive(13);
    let (web, _) = capture(&archive, &random, "web", &units(&random, 1));
    for stray in ["ledger/0000000000000002.bak", "ledger/0000000000000005.bak", "ledger/00000000000000ag", "ledger/a"] {
        store.put(&ObjectName::new(stray).unwrap(), &[b"stray"]).unwrap();
    }
    let archive = Archive::open(store).unwrap();
    assert_eq!(archive.check(CheckOptions::default(), &mut |_, _| ()).unwrap().damages, []);
    archive.remove(&web, &ManualClock::starting_at(5), &random).unwrap();
}

#[test]
fn an_entry_that_makes_no_sense_is_not_made() {
    let (store, archive, random) = archive(10);
    let (web, _) = capture(&archive, &random, "web", &units(&random, 3));
    let clock = ManualClock::starting_at(5);
    let writer = archive.writer(&clock, &random, "host").unwrap().id();
    let given_up = archive.writer(&clock, &random, "host").unwrap().id();
    say(&store, &random, Change::WriterGivenUp { writer: given_up });
    let image = |version| ImageVersion { name: web.name.clone(), version };
    let id = |writer| ObjectId { writer, random: [5; 8] };
    let added = |version, manifest, packs: &[ObjectId], segment| Change::ImageAdded {
        image: image(version),
        manifest,
        digest: [0; 32],
        packs: packs.to_vec(),
        segment,
    };
    let known = packs_of(&archive)[0];
    archive.refresh().unwrap();
    let position = archive.state.read().position;
    let wrong = [
        (WriterId([7; 16]), added(2, id(writer), &[], None)),
        (given_up, added(2, id(writer), &[], None)),
        (writer, added(2, id(given_up), &[], None)),
        (writer, added(1, id(writer), &[], None)),
        (writer, added(3, id(writer), &[], None)),
        (writer, added(2, id(writer), &[known], Some(id(writer)))),
        (writer, added(2, id(writer), &[id(writer)], None)),
        (writer, added(2, id(writer), &[id(writer), id(writer)], Some(id(writer)))),
        (writer, added(2, id(writer), &[id(given_up)], Some(id(writer)))),
        (writer, added(2, id(writer), &[id(writer)], Some(id(WriterId([7; 16]))))),
        (writer, Change::WriterBegins { host: String::new() }),
        (writer, Change::ImageRemoved { image: image(2) }),
        (writer, Change::PacksRetired { packs: vec![id(writer)] }),
        (writer, Change::PacksRetired { packs: vec![known, known] }),
        (writer, Change::PacksRetired { packs: vec![known, id(writer)] }),
        (writer, Change::PacksReplaced { old: vec![known], new: vec![known], segment: id(writer) }),
        (writer, Change::PacksReplaced { old: vec![known, known], new: vec![id(writer)], segment: id(writer) }),
        (writer, Change::SegmentsMerged { old: vec![id(writer)], new: id(writer) }),
        (writer, Change::WriterGivenUp { writer: WriterId([7; 16]) }),
    ];
    let before = archive.state.read().clone();
    for (writer, change) in wrong {
        let (previous, made) = (before.last, clock.now());
        let archive_id = archive.descriptor().archive;
        let entry = LedgerEntry {
            archive: archive_id,
            position,
            previous,
            writer,
            token: [0; 16],
            made,
            change: change.clone(),
        };
        let mut state = before.clone();
        assert!(state.apply(&entry, [1; 32]).is_err());
        assert_eq!(state, before, "{change:?} leaves everything as it was");
        let appended = append(&archive, writer, &clock, &random, change.clone());
        assert!(matches!(appended, Err(ArchiveError::Ledger { .. })), "{change:?}: {appended:?}");
    }
    assert_eq!(archive.state.read().position, position);
    assert!(append(&archive, writer, &clock, &random, added(2, id(writer), &[], None)).unwrap());
}

#[test]
fn segments_become_one() {
    let (store, archive, random) = archive(11);
    let content = units(&random, 3);
    let (web, _) = capture(&archive, &random, "web", &content[..2]);
    let (mail, _) = capture(&archive, &random, "mail", &content);
    let clock = ManualClock::starting_at(5);
    let writer = archive.writer(&clock, &random, "host").unwrap().id();
    let old: Vec<ObjectId> = archive.state.read().parts.values().map(|part| part.segment).collect();
    assert_eq!(old.len(), 2);
    let new = ObjectId { writer, random: [1; 8] };
    // The merged segment is lost. The tables of both packs still hold its content.
    assert!(append(&archive, writer, &clock, &random, Change::SegmentsMerged { old: old.clone(), new }).unwrap());
    old.iter().for_each(|segment| store.delete(&Folder::Segments.object(*segment)).unwrap());
    for archive in [archive, Archive::open(store).unwrap()] {
        assert_eq!(contents(&archive, &web).unwrap(), content[..2]);
        assert_eq!(contents(&archive, &mail).unwrap(), content);
    }
}

#[test]
fn a_pack_that_is_retired_while_the_manifest_is_written_is_noticed_though_another_thread_reads_the_ledger() {
    let (store, archive, random) = archive(12);
    let content = units(&random, 5);
    capture(&archive, &random, "web", &content);
    let packs = packs_of(&archive);
    let faulty = Arc::new(FaultyStore::new(Arc::clone(&store), Arc::default(), 1, 0));
    let shared = Arc::new(Archive::open(Arc::clone(&faulty) as Arc<dyn Store>).unwrap());
    let clock = ManualClock::starting_at(5);
    let mut writer = shared.writer(&clock, &random, "host").unwrap();
    let draft = add_all(&shared, &mut writer, "mail", &content);
    let other = Arc::clone(&shared);
    let mut packs = Some(packs);
    faulty.meanwhile(Box::new(move |name| {
        if name.as_str().starts_with("manifests/")
            && let Some(packs) = packs.take()
        {
            say(&store, &SeededRandom::new(99), Change::PacksRetired { packs });
            other.refresh().unwrap();
        }
    }));
    assert!(matches!(writer.commit(draft), Err(ArchiveError::Retired(_))));
}
