//! Measures look-ups in the index of an archive of very many units whose packs exist only as far as they are asked for:
//! `index_speed FOLDER UNITS MEMORY_MIB`. Prints one JSON object.
//!
//! The folder gets the segments, 20 bytes for each unit, and the cache of the index. The tables of packs are made when
//! they are read.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use onefold_block::Timestamp;
use onefold_block::random::SeededRandom;
use onefold_image::archive::{Archive, IndexRoom};
use onefold_image::format::descriptor::UnitKind;
use onefold_image::format::ledger::{Change, LedgerEntry};
use onefold_image::format::pack::{Codec, PackBuilder, TableEntry, UnitHeader};
use onefold_image::format::segment::{IndexEntry, Segment};
use onefold_image::store::{ByteRange, Creation, FolderStore, ListedObject, ObjectName, Store, StoreError};
use onefold_image::{ArchiveId, ObjectId, UnitName, WriterId};

/// Units of a pack: 32 MiB of units of about 32 KiB.
const PACK_UNITS: u64 = 1000;
/// Packs of a segment.
const SEGMENT_PACKS: u64 = 2000;
const WRITER: WriterId = WriterId([5; 16]);
/// Number of look-ups of each kind.
const LOOKUPS: u64 = 2_000_000;

type Done<T> = Result<T, Box<dyn Error>>;

fn main() -> Done<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, units, memory_mib] = &arguments[..] else {
        return Err("usage: index_speed FOLDER UNITS MEMORY_MIB".into());
    };
    let (folder, units) = (PathBuf::from(folder), units.parse::<u64>()?.next_multiple_of(PACK_UNITS));
    let memory_bytes = memory_mib.parse::<usize>()? << 20;
    let store = make(&folder, units)?;
    // The peak counts from here.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let cold = open(&store, &folder, memory_bytes)?;
    let warm = open(&store, &folder, memory_bytes)?;
    let archive = warm.archive;

    let begun = Instant::now();
    for number in 0..LOOKUPS {
        if archive.stored(&name(units + number))?.is_some() {
            return Err("a unit is found that is not there".into());
        }
    }
    let new = LOOKUPS as f64 / begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let known = LOOKUPS.min(units);
    for number in units / 3..units / 3 + known {
        if archive.stored(&name(number % units))?.is_none() {
            return Err("a unit is not found".into());
        }
    }
    let in_order = known as f64 / begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let scattered = known / 20;
    for number in 0..scattered {
        if archive.stored(&name(mixed(number) % units))?.is_none() {
            return Err("a unit is not found".into());
        }
    }
    let at_random = scattered as f64 / begun.elapsed().as_secs_f64();
    println!(r#"{{ "units": {units}, "new_per_second": {new:.0}, "known_per_second": {in_order:.0},"#);
    println!(r#""random_per_second": {at_random:.0}, "first_open_seconds": {:.2},"#, cold.seconds);
    println!(r#""open_seconds": {:.3}, "index_bytes": {},"#, warm.seconds, warm.index_bytes);
    println!(r#""memory_peak_bytes": {} }}"#, peak_bytes()?);
    Ok(())
}

struct OpenedArchive {
    archive: Archive,
    seconds: f64,
    index_bytes: usize,
}

fn open(store: &Arc<dyn Store>, folder: &Path, memory_bytes: usize) -> Done<OpenedArchive> {
    let begun = Instant::now();
    let archive = Archive::open(Arc::clone(store))?;
    let room = IndexRoom::new(memory_bytes, folder);
    archive.set_index_room(IndexRoom { cache: Some(folder.join("cache")), ..room });
    let index_bytes = archive.index_bytes()?;
    Ok(OpenedArchive { archive, seconds: begun.elapsed().as_secs_f64(), index_bytes })
}

/// Returns the highest resident memory of the process so far.
fn peak_bytes() -> Done<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}

/// Returns well-mixed bits, another number for each one.
fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

fn name(number: u64) -> UnitName {
    let mut name = [0; 32];
    name[..8].copy_from_slice(&mixed(number).to_be_bytes());
    name[8..16].copy_from_slice(&number.to_be_bytes());
    UnitName(name)
}

fn pack_id(number: u64) -> ObjectId {
    ObjectId { writer: WRITER, random: number.to_be_bytes() }
}

/// Makes the archive: the ledger and the segments.
fn make(folder: &Path, units: u64) -> Done<Arc<dyn Store>> {
    let path = folder.join("archive");
    std::fs::create_dir(&path)?;
    let inner = FolderStore::open(&path)?;
    let archive = Archive::create(
        Arc::new(FolderStore::open(&path)?),
        UnitKind::Files { unit_bytes: 128 << 10 },
        &SeededRandom::new(1),
    )?;
    let archive = archive.descriptor().archive;
    let mut ledger = Ledger { store: &inner, archive, position: 0, previous: [0; 32] };
    ledger.add(Change::WriterBegins { host: "host".to_owned() })?;
    let packs = units / PACK_UNITS;
    let (_, places) = make_pack(archive, 0);
    for first in (0..packs).step_by(usize::try_from(SEGMENT_PACKS)?) {
        let last = (first + SEGMENT_PACKS).min(packs);
        let mut entries = Vec::new();
        for (number, pack) in (0_u32..).zip(first..last) {
            entries.extend((pack * PACK_UNITS..).zip(&places).map(|(unit, place)| IndexEntry {
                prefix: mixed(unit),
                pack: number,
                offset: place.offset,
                stored_bytes: place.stored_bytes,
            }));
        }
        entries.sort_unstable_by_key(|entry| (entry.prefix, entry.pack, entry.offset));
        let segment = Segment { packs: (first..last).map(pack_id).collect(), entries };
        let id = pack_id(first);
        let name = ObjectName::new(&format!("segments/{id}")).ok_or("a name")?;
        inner.put(&name, &[&segment.encode(archive, id)?])?;
        ledger.add(Change::PacksReplaced { old: Vec::new(), new: segment.packs, segment: id })?;
    }
    Ok(Arc::new(SyntheticFolder { inner, archive }))
}

struct Ledger<'l> {
    store: &'l dyn Store,
    archive: ArchiveId,
    position: u64,
    previous: [u8; 32],
}

impl Ledger<'_> {
    fn add(&mut self, change: Change) -> Done<()> {
        let (archive, position, previous) = (self.archive, self.position, self.previous);
        let made = Timestamp { seconds: 1, nanoseconds: 0 };
        let entry = LedgerEntry { archive, position, previous, writer: WRITER, token: [1; 16], made, change };
        let object = entry.encode()?;
        self.store.create(&LedgerEntry::object_name(position), &object)?;
        self.previous = *blake3::hash(&object).as_bytes();
        self.position += 1;
        Ok(())
    }
}

/// Returns a pack whose units have one byte each, and its table.
fn make_pack(archive: ArchiveId, number: u64) -> (Vec<u8>, Vec<TableEntry>) {
    let mut pack = PackBuilder::new(archive, pack_id(number));
    let header = UnitHeader { codec: Codec::Plain, stored_bytes: 1, plain_bytes: 1 };
    for unit in number * PACK_UNITS..(number + 1) * PACK_UNITS {
        pack.add(name(unit), header, &[7]);
    }
    pack.finish()
}

/// A folder whose packs are made when they are read.
#[derive(Debug)]
struct SyntheticFolder {
    inner: FolderStore,
    archive: ArchiveId,
}

impl Store for SyntheticFolder {
    fn get(&self, name: &ObjectName, range: ByteRange) -> Result<Vec<u8>, StoreError> {
        let number = name.as_str().strip_prefix("packs/").and_then(|name| name.get(33..));
        let Some(number) = number.and_then(|number| u64::from_str_radix(number, 16).ok()) else {
            return self.inner.get(name, range);
        };
        let (pack, _) = make_pack(self.archive, number);
        Ok(match range {
            ByteRange::Whole => pack,
            ByteRange::From { offset, length_bytes } => {
                let length = usize::try_from(length_bytes).unwrap_or(usize::MAX);
                pack.into_iter().skip(usize::try_from(offset).unwrap_or(usize::MAX)).take(length).collect()
            }
            ByteRange::Last { length_bytes } => {
                let length = usize::try_from(length_bytes).unwrap_or(usize::MAX).min(pack.len());
                pack[pack.len() - length..].to_vec()
            }
        })
    }

    fn put(&self, name: &ObjectName, parts: &[&[u8]]) -> Result<(), StoreError> {
        self.inner.put(name, parts)
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<Creation, StoreError> {
        self.inner.create(name, bytes)
    }

    fn list(&self, prefix: &str, after: Option<&ObjectName>) -> Result<Vec<ListedObject>, StoreError> {
        self.inner.list(prefix, after)
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StoreError> {
        self.inner.delete(name)
    }
}
