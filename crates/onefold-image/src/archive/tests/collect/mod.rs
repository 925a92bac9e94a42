//! Collections: what they delete, what they keep, and what they do beside others.

mod beside;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::*;
use crate::archive::ledger::entry;
use crate::format::ledger::Change;
use crate::store::faulty::FaultyStore;
use crate::store::hooked::{Call, HookedStore};

/// An archive on a store whose listings say when objects were stored. Some units fill a pack.
struct Bench {
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
    archive: Archive,
    random: SeededRandom,
}

/// Options of a collection that deletes at once.
pub(super) fn options() -> CollectOptions<'static> {
    let usual = CollectOptions::new(Path::new("/tmp"));
    CollectOptions { delay: Duration::ZERO, memory_bytes: COLLECT_BYTES_MIN, host: "collector", ..usual }
}

/// Packs of at most this length and one unit.
const PACK_BYTES: u64 = 2000;

impl Bench {
    fn new(seed: u64) -> Bench {
        let clock = Arc::new(ManualClock::starting_at(1000));
        let store = Arc::new(MemoryStore::with_clock(Arc::clone(&clock) as Arc<dyn Clock>));
        let random = SeededRandom::new(seed);
        let mut archive = Archive::create(Arc::clone(&store) as Arc<dyn Store>, UNITS, &random).unwrap();
        archive.limits.pack_bytes = PACK_BYTES;
        Bench { clock, store, archive, random }
    }

    /// Returns what another host sees.
    fn other(&self) -> Archive {
        other(Arc::clone(&self.store) as Arc<dyn Store>)
    }

    fn writer(&self) -> Writer<'_> {
        self.archive.writer(&*self.clock, &self.random, "host").unwrap()
    }

    fn capture(&self, name: &str, content: &[Vec<u8>]) -> ImageVersion {
        let mut writer = self.writer();
        let draft = add_all(&self.archive, &mut writer, name, content);
        writer.commit(draft).unwrap().0
    }

    fn remove(&self, image: &ImageVersion) {
        self.archive.remove(image, &*self.clock, &self.random).unwrap();
    }

    fn collect(&self, options: &CollectOptions<'_>) -> CollectReport {
        self.other().collect(options, &*self.clock, &self.random, &mut |_, _| ()).unwrap()
    }

    /// Checks that an image reads exactly, and that the archive has no damage.
    fn verify(&self, images: &[(&ImageVersion, &[Vec<u8>])]) {
        let archive = self.other();
        for (image, expected) in images {
            assert_eq!(contents(&archive, image).unwrap(), *expected, "{image}");
        }
        let report = archive.check(CheckOptions { data: true }, &mut |_, _| ()).unwrap();
        assert_eq!(report.damages, []);
    }

    /// Returns the names of all objects in a folder.
    fn names(&self, prefix: &str) -> Vec<ObjectName> {
        self.store.objects().into_keys().filter(|name| name.as_str().starts_with(prefix)).collect()
    }

    /// Returns the bytes of all objects except those of the ledger.
    fn bytes(&self) -> u64 {
        let objects = self.store.objects();
        let objects = objects.iter().filter(|(name, _)| !name.as_str().starts_with("ledger/"));
        objects.map(|(_, object)| object.len() as u64).sum()
    }
}

fn other(store: Arc<dyn Store>) -> Archive {
    let mut archive = Archive::open(store).unwrap();
    archive.limits.pack_bytes = PACK_BYTES;
    archive
}

/// Units of 512 bytes that do not compress.
fn noise(random: &SeededRandom, count: usize) -> Vec<Vec<u8>> {
    let unit = |_| {
        let mut plain = vec![0; 512];
        random.fill(&mut plain).unwrap();
        plain
    };
    (0..count).map(unit).collect()
}

#[test]
fn packs_of_removed_images_are_retired_and_deleted_after_the_delay() {
    let bench = Bench::new(1);
    let content = noise(&bench.random, 20);
    let web = bench.capture("web", &content[..10]);
    let mail = bench.capture("mail", &content[10..]);
    let all = bench.bytes();
    assert_eq!(bench.collect(&options()).deleted, Amount::default(), "everything is needed");
    bench.remove(&web);

    let delayed = CollectOptions { delay: Duration::from_secs(3600), ..options() };
    let before = bench.store.objects();
    let dry = bench.collect(&CollectOptions { dry_run: true, ..delayed });
    assert_eq!(bench.store.objects(), before, "a dry run changes nothing");
    let report = bench.collect(&delayed);
    assert_eq!(report.deleted, Amount::default());
    assert_eq!((dry.retired, dry.waiting.objects), (report.retired, report.retired.objects + 1));
    // Beside the packs, a manifest and a segment.
    assert!(report.retired.objects >= 3 && report.waiting.objects == report.retired.objects + 2, "{report:?}");
    assert_eq!(bench.bytes(), all);
    bench.clock.advance_seconds(3500);
    assert_eq!(bench.collect(&delayed).deleted, Amount::default());
    bench.clock.advance_seconds(200);
    let last = bench.collect(&delayed);
    assert_eq!((last.deleted, last.waiting), (report.waiting, Amount::default()));
    assert_eq!(bench.bytes(), all - last.deleted.bytes);
    assert_eq!(bench.names("manifests/").len(), 1);
    bench.verify(&[(&mail, &content[10..])]);
}

/// A collection finds the announced gain: bytes of packs that it retires, and bytes that are not needed in packs that
/// stay.
#[test]
fn the_gain_of_a_removal_is_what_a_collection_finds_after_it() {
    let bench = Bench::new(1);
    let content = noise(&bench.random, 20);
    // Mail needs a half of the units of the first image, in some of its packs.
    let every_second = |from: usize| content[from..].iter().step_by(2).cloned().collect::<Vec<_>>();
    let web = bench.capture("web", &content[..14]);
    let mail = bench.capture("mail", &[&every_second(7)[..4], &content[14..]].concat());
    let gain = |images: &[ImageVersion]| {
        bench.other().gain_of_removal(images, Path::new("/tmp"), COLLECT_BYTES_MIN, &mut |_, _| ()).unwrap()
    };
    assert_eq!(gain(&[]), RemovalGain::default());
    let before = bench.store.objects();
    let of_web = gain(std::slice::from_ref(&web));
    assert_eq!(bench.store.objects(), before, "it changes nothing");
    // Ten units of content, and the header of the chunk.
    assert_eq!(of_web.units, 11, "{of_web:?}");
    assert!(of_web.bytes > 11 * 512 / 2 && of_web.whole_pack_bytes > 0, "{of_web:?}");
    assert!(of_web.whole_pack_bytes < of_web.bytes, "some packs stay: {of_web:?}");
    let both = gain(&[web.clone(), mail.clone()]);
    assert_eq!((both.units, both.bytes), (22, both.whole_pack_bytes), "nothing needs any pack: {both:?}");

    bench.remove(&web);
    // No pack is rewritten.
    let found = bench.collect(&CollectOptions { needed_percent: 0, dry_run: true, ..options() });
    assert_eq!(found.kept_bytes, of_web.bytes - of_web.whole_pack_bytes, "{found:?}");
    assert!(found.retired.bytes > of_web.whole_pack_bytes, "headers and tables of packs come on top: {found:?}");
    assert!(found.retired.bytes < of_web.whole_pack_bytes * 2, "{found:?}");
    assert_eq!(gain(&[web]), RemovalGain::default(), "it is gone already");
}

#[test]
fn signatures_of_removed_images_go_with_their_manifests() {
    use crate::signature::{KeyFiles, SecretKey};
    let bench = Bench::new(1);
    let KeyFiles { public, secret_text } = SecretKey::create(None).unwrap();
    let key = SecretKey::open(&secret_text, None).unwrap();
    let content = noise(&bench.random, 2);
    let images = ["web", "db"].map(|name| bench.capture(name, &content));
    for image in bench.archive.images() {
        let signature = key.sign(&bench.archive.signed_bytes(&image).unwrap(), "test").unwrap();
        assert!(bench.archive.add_signature(&image, &public, &signature, &*bench.clock).unwrap());
    }
    bench.collect(&options());
    assert_eq!(bench.names("signatures/").len(), 2, "both images are there");
    bench.remove(&images[0]);
    let later = CollectOptions { delay: Duration::from_secs(100), ..options() };
    bench.collect(&later);
    assert_eq!(bench.names("signatures/").len(), 2, "readers may need it");
    bench.clock.advance_seconds(200);
    bench.collect(&later);
    let archive = bench.other();
    let left = archive.find(&images[1].name, None).unwrap();
    assert_eq!(bench.names("signatures/"), [Archive::signature_names(&left, public.id()).1]);
    assert_eq!(archive.signers(&left, [&public].into_iter()).unwrap(), [public.id()]);
}

#[test]
fn what_a_dry_run_says_comes_free() {
    let bench = Bench::new(2);
    let content = noise(&bench.random, 60);
    let web = bench.capture("web", &content[..40]);
    // Each pack of the first image has units that the second one needs, and others.
    let some: Vec<Vec<u8>> = content.iter().step_by(3).cloned().collect();
    let mail = bench.capture("mail", &some);
    bench.remove(&web);
    let dry = bench.collect(&CollectOptions { dry_run: true, ..options() });
    let before = bench.bytes();
    let report = bench.collect(&options());
    assert!(report.rewritten.objects > 5 && report.written_bytes > 0, "{report:?}");
    assert_eq!(dry.rewritten, report.rewritten);
    let freed = before - bench.bytes();
    // Frames, tables and a segment come new.
    let said = dry.deleted.bytes - dry.written_bytes;
    assert!(freed.abs_diff(said) < freed / 5, "{freed} {said}");
    bench.verify(&[(&mail, &some)]);
    assert_eq!(bench.collect(&options()).rewritten, Amount::default(), "nothing is left to do");
}

#[test]
fn packs_that_are_mostly_needed_stay() {
    let bench = Bench::new(3);
    let content = noise(&bench.random, 3);
    let web = bench.capture("web", &content);
    let mail = bench.capture("mail", &content[..2]);
    bench.remove(&web);
    let keeps = CollectOptions { needed_percent: 30, ..options() };
    let report = bench.collect(&keeps);
    assert_eq!(report.rewritten, Amount::default());
    assert!(report.kept_bytes > 512, "{report:?}");
    assert!(bench.collect(&options()).rewritten.objects > 0);
    bench.verify(&[(&mail, &content[..2])]);
}

#[test]
fn rewritten_units_get_shorter_and_never_longer() {
    let mut bench = Bench::new(4);
    bench.archive.limits.pack_bytes = 1 << 20;
    let mut content = noise(&bench.random, 4);
    // Text that a higher level compresses better.
    let words = ["archive ", "image ", "unit ", "pack ", "of ", "a "];
    let word = |random: &SeededRandom| words[usize::try_from(random.below(6)).unwrap()];
    for _ in 0..4 {
        let mut text = Vec::new();
        while text.len() < 30 << 10 {
            text.extend_from_slice(word(&bench.random).as_bytes());
        }
        text.truncate(30 << 10);
        content.push(text);
    }
    let web = bench.capture("web", &content);
    let kept: Vec<Vec<u8>> = content.iter().skip(1).step_by(2).cloned().collect();
    let mail = bench.capture("mail", &kept);
    bench.remove(&web);
    let lengths = |kept: &[Vec<u8>]| {
        let archive = bench.other();
        let name = |plain: &Vec<u8>| archive.descriptor().key.name(plain);
        kept.iter().map(|plain| archive.stored(&name(plain)).unwrap().unwrap().stored_bytes).collect::<Vec<u32>>()
    };
    let before = lengths(&kept);
    let report = bench.collect(&CollectOptions { needed_percent: 100, level: Some(19), ..options() });
    assert!(report.rewritten.objects > 0);
    let after = lengths(&kept);
    assert_eq!(after[..2], before[..2], "noise keeps its form");
    assert!(after[2] < before[2] && after[3] < before[3], "{before:?} {after:?}");
    bench.verify(&[(&mail, &kept)]);
}

/// Two captures that do not know of each other store the same units.
fn twice(bench: &Bench, content: &[Vec<u8>]) -> [ImageVersion; 2] {
    let mut writers = [bench.writer(), bench.writer()];
    let drafts = writers.each_mut().map(|writer| add_all(&bench.archive, writer, "web", content));
    let [first, second] = &mut writers;
    let [one, other] = drafts;
    [first.commit(one).unwrap().0, second.commit(other).unwrap().0]
}

#[test]
fn of_several_copies_one_stays() {
    let bench = Bench::new(5);
    let content = noise(&bench.random, 10);
    let images = twice(&bench, &content);
    let packs = bench.names("packs/").len();
    let report = bench.collect(&options());
    assert_eq!(report.retired.objects, packs as u64 / 2, "{report:?}");
    assert_eq!(bench.names("packs/").len(), packs / 2);
    bench.verify(&[(&images[0], &content), (&images[1], &content)]);
}

#[test]
fn a_copy_stays_as_long_as_the_other_one_is_damaged() {
    let bench = Bench::new(6);
    let content = noise(&bench.random, 4);
    let images = twice(&bench, &content);
    // In each pair of copies, one after the other is damaged, whichever a collection prefers.
    for pack in bench.names("packs/") {
        let objects = bench.store.objects();
        let mut bytes = objects[&pack].clone();
        bytes[64 + 16 + 100] ^= 1;
        let damaged = Bench { store: Arc::new(MemoryStore::of(objects)), ..Bench::new(6) };
        damaged.store.put(&pack, &[&bytes]).unwrap();
        let archive = damaged.other();
        archive.collect(&options(), &*bench.clock, &bench.random, &mut |_, _| ()).unwrap();
        for image in &images {
            assert_eq!(contents(&damaged.other(), image).unwrap(), content, "{pack}");
        }
    }
}

#[test]
fn objects_of_unknown_writers_stay() {
    let bench = Bench::new(10);
    let foreign = Folder::Packs.object(ObjectId { writer: WriterId([7; 16]), random: [7; 8] });
    bench.store.put(&foreign, &[b"copied before the ledger"]).unwrap();
    bench.clock.advance_seconds(1_000_000);
    let report = bench.collect(&options());
    assert_eq!((report.foreign.objects, report.deleted), (1, Amount::default()));
    assert_eq!(bench.names("packs/"), [foreign]);
}

#[test]
fn nothing_is_deleted_where_entries_are_missing_or_needs_unknown() {
    let bench = Bench::new(11);
    let content = noise(&bench.random, 10);
    let web = bench.capture("web", &content[..5]);
    bench.capture("mail", &content[5..]);
    bench.remove(&web);
    let objects = bench.store.objects();
    let collect = |store: MemoryStore| {
        let store = Arc::new(store);
        let archive = Archive::open(Arc::clone(&store) as Arc<dyn Store>).unwrap();
        let collected = archive.collect(&options(), &*bench.clock, &bench.random, &mut |_, _| ());
        let packs = store.objects().into_keys().filter(|name| name.as_str().starts_with("packs/")).count();
        (collected, packs)
    };
    let packs = bench.names("packs/").len();
    let mut holed = objects.clone();
    holed.remove(&LedgerEntry::object_name(3)).unwrap();
    let (collected, left) = collect(MemoryStore::of(holed));
    assert!(matches!(collected, Err(ArchiveError::Ledger { position: 3, .. })), "{collected:?}");
    assert_eq!(left, packs);
    let mail = bench.archive.images()[0].clone();
    let mut headless = objects.clone();
    headless.remove(&Folder::Manifests.object(mail.manifest)).unwrap();
    let (collected, left) = collect(MemoryStore::of(headless));
    assert!(matches!(collected, Err(ArchiveError::Unknown { .. })), "{collected:?}");
    assert_eq!(left, packs);
    // Without the pack of the header, nobody can tell which other packs the image needs.
    let chunk = bench.archive.manifest(&mail).unwrap().chunks[0];
    let pack = bench.archive.stored(&chunk).unwrap().unwrap().pack;
    let mut headless = objects.clone();
    headless.remove(&Folder::Packs.object(pack)).unwrap();
    let (collected, left) = collect(MemoryStore::of(headless));
    assert!(matches!(collected, Err(ArchiveError::Unknown { .. })), "{collected:?}");
    assert_eq!(left, packs - 1);
}

#[test]
fn segments_are_merged_and_every_unit_is_found() {
    let bench = Bench::new(12);
    let content = noise(&bench.random, 40);
    let images: Vec<ImageVersion> = content.chunks(4).map(|units| bench.capture("web", units)).collect();
    bench.remove(&images[0]);
    let report = bench.collect(&options());
    assert_eq!((report.merged, bench.names("segments/").len()), (9, 1), "{report:?}");
    let archive = bench.other();
    assert_eq!(archive.state.read().live_parts().len(), 1);
    let known: Vec<(&ImageVersion, &[Vec<u8>])> = images.iter().zip(content.chunks(4)).skip(1).collect();
    bench.verify(&known);
    let (_, stored) = capture(&archive, &bench.random, "mail", &content[4..]);
    assert!(stored < 1500, "{stored}: only the header is new");
    assert_eq!(bench.collect(&options()).merged, 0);
}

#[test]
fn needs_are_the_same_if_they_do_not_fit_into_memory() {
    let bench = Bench::new(14);
    let content = noise(&bench.random, 60);
    let web = bench.capture("web", &content);
    bench.capture("mail", &content[20..30]);
    bench.remove(&web);
    let reports = [COLLECT_BYTES_MIN, 1 << 30]
        .map(|memory_bytes| bench.collect(&CollectOptions { memory_bytes, dry_run: true, ..options() }));
    assert_eq!(reports[0], reports[1]);
    assert!(reports[0].retired.objects > 5 && reports[0].rewritten.objects > 0);
}

#[test]
fn an_entry_of_a_collection_names_only_packs_that_hold_units() {
    let bench = Bench::new(15);
    let content = noise(&bench.random, 5);
    let web = bench.capture("web", &content);
    bench.remove(&web);
    bench.collect(&options());
    let archive = bench.other();
    let last = archive.state.read().position - 1;
    let entry = entry(&*bench.store, archive.descriptor().archive, last).unwrap();
    assert!(matches!(entry.change, Change::PacksRetired { packs } if packs.len() == 2));
    assert_eq!((bench.names("packs/").len(), bench.names("manifests/").len()), (0, 0));
}

#[test]
fn a_small_pack_that_is_needed_is_not_rewritten_again_and_again() {
    let bench = Bench::new(16);
    bench.capture("web", &[vec![7; 512]]);
    let packs = bench.names("packs/");
    assert!(bench.store.objects()[&packs[0]].len() < 500, "its frame and table are most of it");
    let report = bench.collect(&options());
    assert_eq!((report.rewritten, report.kept_bytes), (Amount::default(), 0));
    assert_eq!(bench.names("packs/"), packs);
}

#[test]
fn a_probe_that_may_be_in_use_stays_however_short_the_silence() {
    let bench = Bench::new(19);
    bench.store.put(&ObjectName::new("probe/0123").unwrap(), &[b"probe"]).unwrap();
    bench.clock.advance_seconds(3000);
    let at_once = CollectOptions { silence: Duration::ZERO, ..options() };
    assert_eq!(bench.collect(&at_once).deleted, Amount::default());
    bench.clock.advance_seconds(1000);
    assert_eq!(bench.collect(&at_once).deleted.objects, 1);
    assert_eq!(bench.names("probe/"), []);
}
