//! Reads packs for a check. Several threads read them, because most of the time goes into decompression.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use super::Sample;
use crate::archive::objects::{Folder, damaged, read_whole};
use crate::archive::units::decompressor;
use crate::archive::{Archive, ArchiveError};
use crate::format::FormatError;
use crate::format::pack::{PACK_BYTES_MAX, Pack, TableEntry, UNIT_HEADER_BYTES, decode_pack, length_of};
use crate::store::{ByteRange, ObjectName, Store, StoreError};
use crate::{ArchiveId, ObjectId};

/// Maximum number of threads. Each thread holds one pack in memory.
const THREADS_MAX: usize = 4;

/// Content of a pack that was checked.
#[derive(Debug)]
pub(super) struct PackFound {
    /// Its units. Only the intact ones if the data was read.
    pub(super) units: Vec<TableEntry>,
    pub(super) verified_bytes: u64,
    pub(super) damage: Option<String>,
}

/// Returns the lengths of all packs in the store.
pub(super) fn lengths(archive: &Archive) -> Result<HashMap<ObjectName, u64>, ArchiveError> {
    let mut lengths = HashMap::new();
    let mut after = None;
    loop {
        let listed = archive.store().list(Folder::Packs.prefix(), after.as_ref())?;
        let Some(last) = listed.last() else {
            return Ok(lengths);
        };
        after = Some(last.name.clone());
        lengths.extend(listed.into_iter().map(|listed| (listed.name, listed.length_bytes)));
    }
}

/// Returns the packs of a sample. The seed alone decides which packs they are, and the part how many.
pub(super) fn choose(packs: &[ObjectId], lengths: &HashMap<ObjectName, u64>, sample: Sample) -> HashSet<ObjectId> {
    let rank = |pack: &ObjectId| {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&sample.seed.to_le_bytes()).update(&pack.writer.0).update(&pack.random);
        *hasher.finalize().as_bytes()
    };
    let length = |pack: &ObjectId| lengths.get(&Folder::Packs.object(*pack)).copied().unwrap_or(0);
    let mut ranked: Vec<ObjectId> = packs.to_vec();
    ranked.sort_by_cached_key(rank);
    let total: u128 = packs.iter().map(|pack| u128::from(length(pack))).sum();
    let wanted = total * u128::from(sample.millionths) / 1_000_000;
    let mut read = 0;
    let is_wanted = |pack: &ObjectId| {
        let is_wanted = read == 0 || read < wanted;
        read += u128::from(length(pack));
        is_wanted
    };
    ranked.into_iter().take_while(is_wanted).collect()
}

/// Reads packs, and calls `each` with the number and the content of each pack. The order is arbitrary. Stops when
/// `each` returns an error.
pub(super) fn read_all(
    archive: &Archive,
    packs: &[ObjectId],
    lengths: &HashMap<ObjectName, u64>,
    is_read: &(dyn Fn(ObjectId) -> bool + Sync),
    each: &mut dyn FnMut(usize, Result<PackFound, ArchiveError>) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    if !archive.limits.threads {
        let packs = packs.iter().enumerate();
        return packs
            .into_iter()
            .try_for_each(|(number, pack)| each(number, read(archive, *pack, lengths, is_read(*pack))));
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel(THREADS_MAX);
        for _ in 0..processors.min(THREADS_MAX).min(packs.len()) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some((number, pack)) = take(packs, next) {
                    // The receiver is gone after an error has ended the check.
                    if sender.send((number, read(archive, pack, lengths, is_read(pack)))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        receiver.iter().try_for_each(|(number, found)| each(number, found))
    })
}

/// Takes the next pack that no thread has taken yet.
fn take(packs: &[ObjectId], next: &AtomicUsize) -> Option<(usize, ObjectId)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    packs.get(number).map(|pack| (number, *pack))
}

/// Reads a whole pack or only its table.
fn read(
    archive: &Archive,
    pack: ObjectId,
    lengths: &HashMap<ObjectName, u64>,
    data: bool,
) -> Result<PackFound, ArchiveError> {
    let name = Folder::Packs.object(pack);
    if data {
        return read_data(archive, archive.descriptor().archive, pack, &name);
    }
    let table = archive.table(pack)?;
    let is_whole = match lengths.get(&name) {
        Some(length_bytes) => *length_bytes == length_of(&table),
        // It was stored after the listing, or the listing lags behind.
        None => ends_at(archive.store(), &name, length_of(&table))?,
    };
    if !is_whole {
        return Err(damaged(&name)(FormatError::Length { structure: "pack" }));
    }
    Ok(PackFound { units: table.to_vec(), verified_bytes: 0, damage: None })
}

/// Returns whether an object has this length.
fn ends_at(store: &dyn Store, name: &ObjectName, length_bytes: u64) -> Result<bool, StoreError> {
    let last_and_next = ByteRange::From { offset: length_bytes.saturating_sub(1), length_bytes: 2 };
    Ok(store.get(name, last_and_next)?.len() == 1)
}

/// Reads a whole pack, and verifies each unit.
fn read_data(archive: &Archive, id: ArchiveId, pack: ObjectId, name: &ObjectName) -> Result<PackFound, ArchiveError> {
    let bytes = read_whole(archive.store(), name, PACK_BYTES_MAX)?;
    let Pack { table: mut units, is_unchanged } = decode_pack(id, pack, &bytes).map_err(damaged(name))?;
    let all = units.len();
    let mut decompressor = decompressor()?;
    let mut plain = Vec::new();
    units.retain(|entry| {
        let start = entry.offset as usize;
        let unit = &bytes[start..start + (UNIT_HEADER_BYTES + entry.stored_bytes) as usize];
        archive.decode_unit(&mut decompressor, entry.name, unit, &mut plain)
            && plain.len() == entry.plain_bytes as usize
    });
    let damage = match all - units.len() {
        0 if is_unchanged => None,
        0 => Some("bytes of it changed, though all units are whole".to_owned()),
        lost => Some(format!("{lost} of its {all} units are damaged")),
    };
    Ok(PackFound { units, verified_bytes: bytes.len() as u64, damage })
}
