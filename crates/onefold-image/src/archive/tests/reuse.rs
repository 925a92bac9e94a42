//! Packs of interrupted captures: the next one of the same host uses them, as far as that is safe.

use super::*;
use crate::format::ledger::Change;
use crate::store::hooked::{Call, HookedStore};

const HOST: &str = "host";

/// An archive, and the contents whose units a killed writer has put into packs.
struct InterruptedCapture {
    store: Arc<MemoryStore>,
    archive: Archive,
    random: SeededRandom,
    clock: ManualClock,
    content: Vec<Vec<u8>>,
    killed: WriterId,
}

fn interrupted(seed: u64) -> InterruptedCapture {
    let random = SeededRandom::new(seed);
    let store = Arc::new(MemoryStore::default());
    let archive = Archive::create(Arc::clone(&store) as Arc<dyn Store>, UNITS, &random).unwrap();
    let clock = ManualClock::starting_at(5);
    let content = units(&random, 9);
    let mut writer = archive.writer(&clock, &random, HOST).unwrap();
    add_all(&archive, &mut writer, "web", &content);
    writer.put_packs().unwrap();
    let killed = writer.id();
    drop(writer);
    InterruptedCapture { store, archive, random, clock, content, killed }
}

fn is_host(host: &str) -> bool {
    host == HOST
}

#[test]
fn the_next_capture_of_the_host_stores_nothing_again() {
    let InterruptedCapture { archive, random, clock, content, .. } = interrupted(1);
    let mut other = archive.writer(&clock, &random, "other").unwrap();
    assert_eq!(other.reuse(&|host| host == "other").unwrap(), 0, "its host has left nothing");
    let mut writer = archive.writer(&clock, &random, HOST).unwrap();
    assert_eq!(writer.reuse(&is_host).unwrap(), 10, "units, and the header of their chunk");
    let draft = add_all(&archive, &mut writer, "web", &content);
    assert_eq!(writer.stored_bytes(), 0);
    let (web, _) = writer.commit(draft).unwrap();
    assert_eq!(contents(&archive, &web).unwrap(), content);
    let report = archive.check(CheckOptions { data: true }, &mut |_, _| ()).unwrap();
    assert_eq!((report.damages, report.copies, report.leftovers), (Vec::new(), 0, 0));
    let mut again = archive.writer(&clock, &random, HOST).unwrap();
    assert_eq!(again.reuse(&is_host).unwrap(), 0, "they are named");
}

/// A writer that was given up before: its packs may go at any time.
#[test]
fn packs_of_a_writer_that_was_given_up_are_not_used() {
    let InterruptedCapture { archive, random, clock, killed, store, content } = interrupted(2);
    let mut writer = archive.writer(&clock, &random, HOST).unwrap();
    let position = archive.state.read().position;
    let change = Change::WriterGivenUp { writer: killed };
    assert!(archive.append(position, writer.id(), &clock, &random, change).unwrap());
    assert_eq!(writer.reuse(&is_host).unwrap(), 0);
    // The state refuses an entry that names them all the same.
    let pack = store.objects().keys().find_map(|name| Folder::Packs.id_of(name)).unwrap();
    let segment = ObjectId { writer: writer.id(), random: [1; 8] };
    let change = Change::PacksReplaced { old: Vec::new(), new: vec![pack], segment };
    assert!(matches!(writer.append(position + 1, change), Err(ArchiveError::Ledger { .. })));
    let draft = add_all(&archive, &mut writer, "web", &content);
    assert!(writer.stored_bytes() > 0);
    writer.commit(draft).unwrap();
}

#[test]
fn damaged_packs_are_left_alone() {
    for way in 0..3 {
        let InterruptedCapture { store, archive, random, clock, content, .. } = interrupted(3);
        let (name, mut pack) =
            store.objects().into_iter().find(|(name, _)| name.as_str().starts_with("packs/")).unwrap();
        match way {
            0 => pack.truncate(200),
            1 => drop(pack.drain(100..150)),
            _ => *pack.last_mut().unwrap() ^= 1,
        }
        store.put(&name, &[&pack]).unwrap();
        let mut writer = archive.writer(&clock, &random, HOST).unwrap();
        assert_eq!(writer.reuse(&is_host).unwrap(), 0, "{way}");
        let draft = add_all(&archive, &mut writer, "web", &content);
        let (web, _) = writer.commit(draft).unwrap();
        assert_eq!(contents(&archive, &web).unwrap(), content);
    }
}

/// Regression: an owner that threw its work away deleted packs that another had named.
#[test]
fn a_writer_that_abandons_its_packs_leaves_those_that_another_has_named() {
    let random = SeededRandom::new(14);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let owner = Archive::create(Arc::clone(&store), UNITS, &random).unwrap();
    let archive = Archive::open(store).unwrap();
    let clock = ManualClock::starting_at(5);
    let content = units(&random, 9);
    let mut slow = owner.writer(&clock, &random, HOST).unwrap();
    add_all(&owner, &mut slow, "web", &content);
    slow.put_packs().unwrap();
    let mut fast = archive.writer(&clock, &random, HOST).unwrap();
    assert_eq!(fast.reuse(&is_host).unwrap(), 10);
    let draft = add_all(&archive, &mut fast, "web", &content);
    let (web, _) = fast.commit(draft).unwrap();
    slow.abandon();
    assert_eq!(contents(&archive, &web).unwrap(), content);
}

/// The owner has not ended, whatever others think. It begins again, and relies on the packs that another has named.
#[test]
fn a_writer_whose_packs_another_has_named_begins_again() {
    let random = SeededRandom::new(4);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let archive = Archive::create(store, UNITS, &random).unwrap();
    let clock = ManualClock::starting_at(5);
    let content = units(&random, 9);
    let mut slow = archive.writer(&clock, &random, HOST).unwrap();
    let id = slow.id();
    let draft = add_all(&archive, &mut slow, "web", &content);
    slow.put_packs().unwrap();
    let mut fast = archive.writer(&clock, &random, HOST).unwrap();
    assert_eq!(fast.reuse(&is_host).unwrap(), 10);
    assert!(matches!(slow.commit(draft), Err(ArchiveError::Retired(_))));
    let draft = add_all(&archive, &mut slow, "web", &content);
    let (web, _) = slow.commit(draft).unwrap();
    assert_ne!(slow.id(), id);
    assert_eq!(contents(&archive, &web).unwrap(), content);
    let report = archive.check(CheckOptions { data: true }, &mut |_, _| ()).unwrap();
    assert_eq!((report.damages, report.copies), (Vec::new(), 0));
}

/// Regression: a pack whose folder belongs to another user failed the capture.
#[test]
fn a_pack_that_cannot_be_made_durable_is_left_out() {
    let InterruptedCapture { store, random, clock, content, .. } = interrupted(15);
    let not_owned = HookedStore::new(store, |call, name| match call == Call::Create && name.starts_with("packs/") {
        true => {
            let (name, source) = (name.to_owned(), std::io::ErrorKind::PermissionDenied.into());
            Err(StoreError::Io { action: "write", name, source })
        }
        false => Ok(()),
    });
    let archive = Archive::open(Arc::new(not_owned)).unwrap();
    let mut writer = archive.writer(&clock, &random, HOST).unwrap();
    assert_eq!(writer.reuse(&is_host).unwrap(), 0);
    let draft = add_all(&archive, &mut writer, "web", &content);
    let (web, _) = writer.commit(draft).unwrap();
    assert_eq!(contents(&archive, &web).unwrap(), content);
}
