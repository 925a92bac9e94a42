//! Tests of the index: in memory, in runs, and with a cache that may be anything.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::run::{BLOCK_BYTES, IndexRun, RunError};
use super::run_writer::RunWriter;
use super::*;
use crate::WriterId;
use crate::archive::objects::Folder;
use crate::archive::state::{HeldPack, Part};
use crate::format::segment::Segment;
use crate::store::{MemoryStore, ObjectName};

const ARCHIVE: ArchiveId = ArchiveId([7; 16]);

fn id(number: u32) -> ObjectId {
    let mut random = [0; 8];
    random[..4].copy_from_slice(&number.to_le_bytes());
    ObjectId { writer: WriterId([1; 16]), random }
}

fn name(prefix: u64) -> UnitName {
    let mut name = [0; 32];
    name[..8].copy_from_slice(&prefix.to_be_bytes());
    UnitName(name)
}

/// Returns a prefix as keyed digests have them.
fn mixed(number: u64) -> u64 {
    u64::from_be_bytes(*blake3::hash(&number.to_le_bytes()).as_bytes().first_chunk().unwrap())
}

/// A store with segments, and the state that names them.
struct Site {
    store: MemoryStore,
    state: State,
    tables: Tables,
}

impl Site {
    fn new() -> Site {
        Site { store: MemoryStore::default(), state: State::default(), tables: Tables::default() }
    }

    /// Adds a pack with units of these prefixes, and its segment of the same name.
    fn add(&mut self, number: u32, prefixes: &[u64]) {
        let entry = |(at, prefix): (u32, &u64)| IndexEntry {
            prefix: *prefix,
            pack: 0,
            offset: 64 + at,
            stored_bytes: 100 + number,
        };
        let mut entries: Vec<IndexEntry> = (0u32..).zip(prefixes).map(entry).collect();
        entries.sort_by_key(|entry| (entry.prefix, entry.offset));
        let object = Segment { packs: vec![id(number)], entries }.encode(ARCHIVE, id(number)).unwrap();
        self.store.put(&segment_name(number), &[&object]).unwrap();
        let position = self.state.position;
        self.state.parts.insert(position, Part::new(id(number), vec![id(number)]));
        self.state.live.insert(id(number), HeldPack { brought: position, part: position });
        self.state.position += 1;
    }

    fn retire(&mut self, number: u32) {
        let held = self.state.live.remove(&id(number)).unwrap();
        self.state.parts.remove(&held.part);
        self.state.position += 1;
    }

    fn reading(&self) -> IndexSource<'_> {
        IndexSource { store: &self.store, archive: ARCHIVE, state: &self.state, tables: &self.tables }
    }

    /// Returns the index of the site in this room.
    fn index(&self, room: &IndexRoom) -> Index {
        let mut index = Index::with_room(room.clone());
        index.read_on(&self.reading()).unwrap();
        index
    }
}

fn segment_name(number: u32) -> ObjectName {
    Folder::Segments.object(id(number))
}

/// Returns the packs that may have a prefix, in the order of lengths.
fn packs(index: &Index, prefix: u64) -> Vec<ObjectId> {
    index.places(name(prefix), |_| true).unwrap().places.iter().map(|place| place.pack).collect()
}

/// Returns a room for this many units in memory, with files in `folder`.
fn room(units: usize, folder: &Path, has_cache: bool) -> IndexRoom {
    let memory_bytes = units * RECENT_SHARE * size_of::<IndexEntry>();
    IndexRoom { memory_bytes, cache: has_cache.then(|| folder.join("cache")), temporary: folder.to_owned() }
}

fn cached(folder: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(folder.join("cache")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        folders.flat_map(|folder| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path())).collect();
    paths.sort();
    paths
}

#[test]
fn units_are_found_in_all_parts_the_shortest_form_first_wherever_the_parts_lie() {
    let folder = tempfile::tempdir().unwrap();
    for units in [0, 1, 7, 40, 10_000] {
        let mut site = Site::new();
        let mut index = Index::with_room(room(units, folder.path(), false));
        for pack in 0..50 {
            site.add(pack, &[mixed(u64::from(pack)), 1000, 2000 + u64::from(pack % 5)]);
            index.read_on(&site.reading()).unwrap();
            let lengths: Vec<usize> = index.runs.iter().map(|(_, run)| run.used()).collect();
            assert!(lengths.windows(2).all(|two| two[0] >= 2 * two[1]), "{lengths:?}");
        }
        assert_eq!(index.runs.is_empty(), units == 10_000);
        assert_eq!(index.units, 150);
        for pack in 0..50 {
            let found = index.places(name(mixed(u64::from(pack))), |_| true).unwrap();
            let place = ClaimedPlace { pack: id(pack), offset: 64, stored_bytes: 100 + pack };
            assert_eq!(found, ClaimedPlaces { places: vec![place], is_crowded: false }, "{units} units in memory");
        }
        assert_eq!(packs(&index, 1000), (0..50).map(id).collect::<Vec<_>>());
        assert_eq!(packs(&index, 2003).len(), 10);
        assert_eq!(packs(&index, 500), []);

        (0..50).filter(|pack| *pack != 3).for_each(|pack| site.retire(pack));
        index.read_on(&site.reading()).unwrap();
        assert_eq!((index.units, packs(&index, 1000)), (3, vec![id(3)]));
        assert_eq!(packs(&index, mixed(4)), []);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the files have no names");
}

#[test]
fn captures_stop_before_an_archive_has_more_units_than_are_read() {
    let index = Index { units: 10, ..Index::default() };
    assert!(index.check_room(0, 11).is_ok() && index.check_room(5, 16).is_ok());
    for (added, units_max) in [(0, 10), (5, 15), (UNITS_MAX, UNITS_MAX)] {
        assert!(matches!(index.check_room(added, units_max), Err(ArchiveError::TooLarge { .. })));
    }
}

#[test]
fn a_unit_with_places_without_end_is_looked_for_in_some_of_them_that_are_live() {
    let folder = tempfile::tempdir().unwrap();
    for units in [0, 1_000_000] {
        let mut site = Site::new();
        site.add(1, &[7; 5000]);
        site.add(2, &[7; 3]);
        let index = site.index(&room(units, folder.path(), false));
        let all = index.places(name(7), |_| true).unwrap();
        assert!(all.places.len() == PLACES_MAX && all.is_crowded);
        let live = index.places(name(7), |pack| pack == id(2)).unwrap();
        assert_eq!(live.places.len(), 3, "those of packs that are gone take no room");
        assert!(!live.is_crowded);
    }
    // Where a run has more than may be looked at, the answer says so.
    let mut site = Site::new();
    site.add(1, &[7; 20_000]);
    let index = site.index(&room(0, folder.path(), false));
    let none = index.places(name(7), |_| false).unwrap();
    assert!(none.places.is_empty() && none.is_crowded);
}

#[test]
fn a_long_segment_is_read_in_pieces_and_a_damaged_one_is_rebuilt() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = Site::new();
    let prefixes: Vec<u64> = (0..300_000).map(mixed).collect();
    site.add(1, &prefixes);
    let index = site.index(&room(1_000_000, folder.path(), false));
    assert_eq!((index.units, index.runs.len(), index.memory.units()), (300_000, 1, 0));
    for number in (0..300_000).step_by(1000) {
        let places = index.places(name(mixed(number)), |_| true).unwrap().places;
        assert_eq!(u64::from(places[0].offset), 64 + number);
    }
    // There is no pack, so a damaged segment leaves nothing. Its first pieces must not count.
    let object = site.store.get(&segment_name(1), crate::store::ByteRange::Whole).unwrap();
    for at in [100, 3_000_000, object.len() - 1, object.len()] {
        let mut damaged = object.clone();
        match damaged.get_mut(at) {
            Some(byte) => *byte ^= 1,
            None => damaged.push(0),
        }
        site.store.put(&segment_name(1), &[&damaged]).unwrap();
        assert_eq!(site.index(&room(1_000_000, folder.path(), false)).units, 0, "byte {at}");
    }
    site.store.put(&segment_name(1), &[&object[..object.len() / 2]]).unwrap();
    assert_eq!(site.index(&room(1_000_000, folder.path(), false)).units, 0);
}

#[test]
fn the_cache_spares_reading_segments_and_follows_the_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let room = room(40, folder.path(), true);
    let mut site = Site::new();
    for pack in 0..20 {
        site.add(pack, &[mixed(u64::from(pack)), 1000]);
    }
    assert_eq!(site.index(&room).units, 40);
    assert_eq!(cached(folder.path()).len(), 1);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder.path().join("cache")), mode(&cached(folder.path())[0])), (0o700, 0o600));

    // Without its segment, a pack is known only from the cache: it has no table here.
    (0..20).for_each(|pack| site.store.delete(&segment_name(pack)).unwrap());
    let index = site.index(&room);
    assert_eq!((index.units, packs(&index, 1000).len()), (40, 20));

    // A pack that is gone has no places, and one whose segment was replaced is read from the new one.
    site.retire(7);
    site.add(21, &[mixed(21)]);
    let held = site.state.live[&id(9)];
    site.state.parts.get_mut(&held.part).unwrap().segment = id(99);
    let index = site.index(&room);
    assert_eq!(packs(&index, mixed(21)), [id(21)]);
    assert_eq!(packs(&index, mixed(7)), []);
    assert_eq!(packs(&index, mixed(9)), [], "its new segment is not there");
    assert_eq!(packs(&index, mixed(8)), [id(8)]);
    assert_eq!(index.units, 37);
}

#[test]
fn a_run_of_no_use_leaves_the_cache_unless_it_knows_more_than_the_ledger_that_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let room = room(4, folder.path(), true);
    let mut site = Site::new();
    site.add(1, &[1, 2, 3]);
    site.index(&room);
    let older = std::mem::take(&mut site.state);
    assert_eq!(site.index(&room).units, 0);
    assert_eq!(cached(folder.path()).len(), 1, "this ledger may be behind");
    site.state = older;
    // Regression: another process merged segments, and a run of the new one was removed by those that had not read
    // that.
    let position = site.state.live[&id(1)].part;
    site.state.parts.get_mut(&position).unwrap().segment = id(50);
    assert_eq!(site.index(&room).units, 0);
    assert_eq!(cached(folder.path()).len(), 1, "a later entry may name the segment");
    site.state.parts.get_mut(&position).unwrap().segment = id(1);
    site.retire(1);
    let moment = onefold_block::Timestamp { seconds: 0, nanoseconds: 0 };
    site.state.dropped.insert((Folder::Packs, id(1)), moment);
    site.state.dropped.insert((Folder::Segments, id(1)), moment);
    assert_eq!(site.index(&room).units, 0);
    assert_eq!(cached(folder.path()).len(), 0);
}

/// Regression: such runs stayed for ever, and hid others if they were many. An archive that was put back from a copy
/// has them.
#[test]
fn a_run_that_only_a_later_ledger_can_use_leaves_the_cache_after_some_days() {
    let folder = tempfile::tempdir().unwrap();
    let room = room(4, folder.path(), true);
    let mut site = Site::new();
    site.add(1, &[1, 2, 3]);
    site.index(&room);
    site.state = State::default();
    let [path] = &cached(folder.path())[..] else { panic!("one run") };
    for (days, left) in [(6, 1), (8, 0)] {
        let then = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
        fs::File::open(path).unwrap().set_modified(then).unwrap();
        assert_eq!((site.index(&room).units, cached(folder.path()).len()), (0, left), "{days} days");
    }
}

#[test]
fn a_cache_that_others_can_reach_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    fs::create_dir(&cache).unwrap();
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o770)).unwrap();
    let mut site = Site::new();
    site.add(1, &[1, 2, 3]);
    assert_eq!(site.index(&room(4, folder.path(), true)).units, 3);
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 0);
}

#[test]
fn whatever_the_cache_holds_all_units_are_found_in_their_places() {
    let folder = tempfile::tempdir().unwrap();
    let room = room(400, folder.path(), true);
    let mut site = Site::new();
    let prefixes: Vec<u64> = (0..4000).map(mixed).collect();
    (0..4).for_each(|pack| site.add(pack, &prefixes[pack as usize * 1000..][..1000]));
    site.index(&room);
    let [path] = &cached(folder.path())[..] else { panic!("one run") };
    let sound = fs::read(path).unwrap();
    let check = |bytes: &[u8], what: &str| {
        cached(folder.path()).iter().for_each(|path| fs::remove_file(path).unwrap());
        fs::write(path, bytes).unwrap();
        let mut index = site.index(&room);
        for (number, prefix) in (0..).zip(&prefixes) {
            let expected =
                ClaimedPlace { pack: id(number / 1000), offset: 64 + number % 1000, stored_bytes: 100 + number / 1000 };
            let found = (0..3).find_map(|_| match index.places(name(*prefix), |_| true) {
                Ok(found) => Some(found.places),
                Err(broken) => {
                    index.drop_broken(broken);
                    index.read_on(&site.reading()).unwrap();
                    None
                }
            });
            assert_eq!(found, Some(vec![expected]), "{what}");
        }
    };
    check(&sound, "sound");
    for length in [0, 1, BLOCK_BYTES, sound.len() / 2, sound.len() - 1] {
        check(&sound[..length], &format!("cut to {length}"));
    }
    let blocks = sound.len() / BLOCK_BYTES;
    for at in (0..sound.len()).step_by(sound.len() / 97).chain((0..blocks).map(|block| block * BLOCK_BYTES)) {
        let mut changed = sound.clone();
        changed[at] ^= 0x10;
        check(&changed, &format!("byte {at} changed"));
    }
    let mut zeroed = sound.clone();
    zeroed[2 * BLOCK_BYTES..3 * BLOCK_BYTES].fill(0);
    check(&zeroed, "a block of zeros");
    let mut swapped = sound.clone();
    swapped[2 * BLOCK_BYTES..4 * BLOCK_BYTES].rotate_left(BLOCK_BYTES);
    check(&swapped, "blocks swapped");
}

#[test]
fn a_run_with_right_checksums_may_say_anything_and_nothing_breaks() {
    let folder = tempfile::tempdir().unwrap();
    let file = || tempfile::tempfile_in(folder.path()).unwrap();
    let entry = |prefix, pack, stored_bytes| IndexEntry { prefix, pack, offset: 64, stored_bytes };
    let packs = [(id(1), Some(id(1)))];
    for entries in [vec![entry(1, 0, 0)], vec![entry(1, 0, u32::MAX)], vec![entry(9, 0, 5), entry(1, 0, 5)]] {
        let mut writer = RunWriter::new(file(), ARCHIVE, 2, 1);
        entries.iter().for_each(|entry| writer.push(*entry).unwrap());
        let mut run = writer.finish(&packs).unwrap();
        run.packs_mut()[0].is_used = true;
        let merged = merge::merge(file(), ARCHIVE, std::slice::from_ref(&run), &MemoryRuns::default());
        assert!(matches!(merged, Err(MergeError::Source)), "{entries:?}");
    }
    let mut writer = RunWriter::new(file(), ARCHIVE, 1, 1);
    writer.push(entry(1, 0, 5)).unwrap();
    let run = writer.finish(&packs).unwrap();
    let copied = || run.file().try_clone().unwrap();
    assert!(matches!(IndexRun::open(copied(), ArchiveId([8; 16])), Err(RunError::Damaged)), "of another archive");
    assert!(IndexRun::open(copied(), ARCHIVE).is_ok());
    let mut later = [0; BLOCK_BYTES];
    run.file().read_exact_at(&mut later, 0).unwrap();
    later[64] += 1;
    let (content, sum) = later.split_last_chunk_mut::<4>().unwrap();
    *sum = crc32c::crc32c(content).to_le_bytes();
    run.file().write_all_at(&later, 0).unwrap();
    assert!(matches!(IndexRun::open(copied(), ARCHIVE), Err(RunError::Damaged)), "of a later version");
    for [lines, blocks, packs, units] in [
        [u64::MAX; 4],
        [u64::MAX / 64, 1, 1, 1],
        [64, u64::MAX / 4096, 1, 1],
        [64, 1, u64::MAX / 52, 1],
        [64, 1, 1, 999],
    ] {
        let head = run::Head { archive: ARCHIVE, lines, blocks, packs, units, filter_sum: 0, tail_sum: 0 };
        run.file().write_all_at(&head.encode(), 0).unwrap();
        assert!(matches!(IndexRun::open(copied(), ARCHIVE), Err(RunError::Damaged)));
    }
}

#[test]
fn an_index_with_little_memory_has_smaller_filters_and_finds_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = Site::new();
    let prefixes: Vec<u64> = (0..60_000).map(mixed).collect();
    (0..6).for_each(|pack| site.add(pack, &prefixes[pack as usize * 10_000..][..10_000]));
    let mut before = usize::MAX;
    for memory_bytes in [200_000, 40_000, 10_000] {
        let index = site.index(&IndexRoom::new(memory_bytes, folder.path()));
        let bytes: usize = index.runs.iter().map(|(_, run)| run.memory_bytes()).sum();
        assert!(bytes < before && index.memory_bytes() < 2 * memory_bytes + 10_000, "{bytes} of {memory_bytes}");
        before = bytes;
        assert!(prefixes.iter().all(|prefix| packs(&index, *prefix).len() == 1));
    }
}

#[test]
fn runs_that_cannot_be_merged_for_a_moment_stay() {
    let folder = tempfile::tempdir().unwrap();
    let temporary = folder.path().join("temporary");
    fs::create_dir(&temporary).unwrap();
    let mut site = Site::new();
    let mut index = Index::with_room(room(1, &temporary, false));
    (0..4).for_each(|pack| site.add(pack, &[mixed(u64::from(pack)), 1000]));
    index.read_on(&site.reading()).unwrap();
    assert!(!index.runs.is_empty());
    fs::remove_dir(&temporary).unwrap();
    (4..8).for_each(|pack| site.add(pack, &[mixed(u64::from(pack)), 1000]));
    assert!(matches!(index.read_on(&site.reading()), Err(ArchiveError::System { .. })));
    fs::create_dir(&temporary).unwrap();
    index.read_on(&site.reading()).unwrap();
    assert_eq!((index.units, packs(&index, 1000).len()), (16, 8));
}
