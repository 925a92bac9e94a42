//! An archive as a server reads it: chunks are put together from stored units when they are asked for.
//!
//! A chunk is built by copying. Only its header is decompressed, to learn its units. Which stored form a unit has may
//! change with time, as another pack has it in fewer bytes, and so may the bytes of a chunk. Its [`Form`] tells such
//! bytes apart; the content is the same.

mod ahead;
mod comparison;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::UnitName;
use crate::archive::{Archive, ArchiveError, WantedUnit};
use crate::format::FormatError;
use crate::format::chunk_header::ChunkHeader;
use crate::format::pack::{UNIT_HEADER_BYTES, UnitHeader};
use crate::format::wire::{CHUNK_BYTES_MAX, NAMES_MAX, UNITS_BYTES_MAX, units_of};
use crate::recent::RecentCache;
use comparison::HeaderBuilder;

pub use comparison::ChunkMethod;

/// An archive whose chunks are served. Threads share it. Calls read the store, and may wait for it.
pub struct ServedArchive {
    archive: Arc<Archive>,
    /// Stored units, whichever image they belong to.
    recent: Mutex<RecentCache<UnitName, StoredBytes>>,
    method: ChunkMethod,
    /// Used only if headers are built when chunks are requested.
    builder: HeaderBuilder,
}

/// A unit in its stored form.
#[derive(Clone, Debug)]
struct StoredBytes {
    /// With its header in front.
    bytes: Arc<[u8]>,
    crc: u32,
}

/// Which bytes a chunk has. Two forms of a chunk have the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form(u64);

impl Form {
    /// Returns its first 32 bits, which packets of multicast have room for.
    #[must_use]
    pub fn short(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A chunk as it is sent.
#[derive(Clone, Debug)]
pub struct ServedChunk {
    /// Its bytes, in pieces that follow one another.
    pub pieces: Vec<Arc<[u8]>>,
    /// Length of all pieces.
    pub length_bytes: usize,
    /// Which bytes these are.
    pub form: Form,
}

impl fmt::Debug for ServedArchive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedArchive").field("archive", &self.archive).finish_non_exhaustive()
    }
}

impl StoredBytes {
    fn of(header: UnitHeader, stored: &[u8]) -> StoredBytes {
        let bytes: Arc<[u8]> = [&header.encode()[..], stored].concat().into();
        StoredBytes { crc: crc32c::crc32c(&bytes), bytes }
    }
}

impl ServedArchive {
    /// Returns an archive that keeps about `memory_bytes` of recently sent units. Each call takes up to 16 MiB beside
    /// them.
    #[must_use]
    pub fn new(archive: Arc<Archive>, memory_bytes: usize) -> ServedArchive {
        ServedArchive {
            archive,
            recent: Mutex::new(RecentCache::new(memory_bytes)),
            method: ChunkMethod::OnDemand,
            builder: HeaderBuilder::default(),
        }
    }

    /// Returns the same archive with another way to make chunks. Chunks that are to be made beforehand are made now.
    ///
    /// # Errors
    /// When one of these cannot be made or kept.
    pub fn with_method(self, method: ChunkMethod) -> Result<ServedArchive, ArchiveError> {
        if let ChunkMethod::Prebuilt(store) = &method {
            comparison::prebuild(&self.archive, &**store, &|name| self.chunk(name))?;
        }
        Ok(ServedArchive { method, ..self })
    }

    /// Returns the archive.
    #[must_use]
    pub fn archive(&self) -> &Arc<Archive> {
        &self.archive
    }

    /// Returns the chunk whose header has this name. Its units are as their packs have them, intact or not.
    ///
    /// # Errors
    /// When the header is lost, damaged or none, a unit is lost, the chunk is too long, or the store fails.
    pub fn chunk(&self, name: &UnitName) -> Result<ServedChunk, ArchiveError> {
        let on_demand = |(stored, header)| chunk_of(name, self.units_behind(name, stored, &header)?);
        match &self.method {
            ChunkMethod::OnDemand => on_demand(self.header(name)?),
            ChunkMethod::HeadersAtServe => on_demand(self.builder.header(&self.archive, name)?),
            ChunkMethod::Prebuilt(store) => match comparison::prebuilt(&**store, name)? {
                Some(chunk) => Ok(chunk),
                None => on_demand(self.header(name)?),
            },
            ChunkMethod::Recompress => {
                let (stored, header) = self.header(name)?;
                comparison::recompressed(name, self.units_behind(name, stored, &header)?)
            }
        }
    }

    /// Returns the units of a chunk: its header, which is given, and those that the header names.
    fn units_behind(
        &self,
        name: &UnitName,
        stored: StoredBytes,
        header: &ChunkHeader,
    ) -> Result<Vec<StoredBytes>, ArchiveError> {
        let units = units_of(header);
        let mut room = Room { chunk: *name, left_bytes: CHUNK_BYTES_MAX };
        room.take(stored.bytes.len())?;
        let mut found: Vec<Option<StoredBytes>> = Vec::with_capacity(units.len());
        {
            let mut recent = self.recent.lock();
            for (unit, plain_bytes) in &units {
                found.push(recent.get(unit).filter(|stored| has_plain_bytes(stored, *plain_bytes)));
            }
        }
        found.iter().flatten().try_for_each(|stored| room.take(stored.bytes.len()))?;
        let missing: Vec<usize> = (0..units.len()).filter(|index| found[*index].is_none()).collect();
        let want = |index: &usize| WantedUnit { name: units[*index].0, plain_bytes: Some(units[*index].1) };
        let wanted: Vec<WantedUnit> = missing.iter().map(want).collect();
        self.archive.read_unverified(&wanted, &mut |at, header, bytes| {
            room.take(UNIT_HEADER_BYTES as usize + bytes.len())?;
            let stored = StoredBytes::of(header, bytes);
            self.keep(wanted[at].name, &stored);
            found[missing[at]] = Some(stored);
            Ok(())
        })?;
        Ok(std::iter::once(stored).chain(found.into_iter().flatten()).collect())
    }

    /// Returns whether a chunk has all of these units. Its own header counts as one.
    ///
    /// # Errors
    /// When the header is lost, damaged or none, or the store fails.
    pub fn has_units(&self, chunk: &UnitName, names: &[UnitName]) -> Result<bool, ArchiveError> {
        let (_, header) = self.header(chunk)?;
        let units: HashSet<UnitName> = header.units.iter().map(|unit| unit.name).collect();
        Ok(names.iter().all(|name| name == chunk || units.contains(name)))
    }

    /// Returns the first of these units in their stored form, all intact. One answer has a bounded length, so the last
    /// units may be left out, but never the first one.
    ///
    /// # Errors
    /// When the names are none or too many, a unit is lost or damaged in all packs that have it, or the store fails.
    pub fn units(&self, names: &[UnitName]) -> Result<Vec<Arc<[u8]>>, ArchiveError> {
        let mut wanted = Vec::new();
        let mut left_bytes = UNITS_BYTES_MAX;
        for name in names.iter().take(NAMES_MAX) {
            let stored_bytes = self.archive.stored(name)?.map_or(0, |stored| stored.stored_bytes + UNIT_HEADER_BYTES);
            match left_bytes.checked_sub(stored_bytes as usize) {
                None if !wanted.is_empty() => break,
                left => left_bytes = left.unwrap_or(0),
            }
            wanted.push(WantedUnit { name: *name, plain_bytes: None });
        }
        let mut found: Vec<Option<Arc<[u8]>>> = vec![None; wanted.len()];
        self.archive.read_verified(&wanted, &mut |index, header, stored, _| {
            let stored = StoredBytes::of(header, stored);
            self.keep(wanted[index].name, &stored);
            found[index] = Some(stored.bytes);
            Ok(())
        })?;
        // Another copy than the expected one may be longer, so the answer may have to end sooner still.
        let mut bytes = 0;
        let fits = |unit: &Arc<[u8]>| {
            bytes += unit.len();
            bytes <= UNITS_BYTES_MAX
        };
        Ok(found.into_iter().flatten().take_while(fits).collect())
    }

    /// Returns the stored form of a header, and the header.
    fn header(&self, name: &UnitName) -> Result<(StoredBytes, ChunkHeader), ArchiveError> {
        if let Some(found) = self.recent_header(name)? {
            return Ok(found);
        }
        let mut found = None;
        self.archive.read_verified(
            &[WantedUnit { name: *name, plain_bytes: None }],
            &mut |_, header, stored, plain| {
                found = Some((StoredBytes::of(header, stored), ChunkHeader::decode(plain)));
                Ok(())
            },
        )?;
        let (stored, header) = found.ok_or(ArchiveError::Lost { unit: *name })?;
        let header = valid(name, header)?;
        self.keep(*name, &stored);
        Ok((stored, header))
    }

    fn keep(&self, name: UnitName, stored: &StoredBytes) {
        self.recent.lock().insert(name, stored.clone(), stored.bytes.len());
    }
}

/// Returns a decoded header, or that the unit with this name is none.
fn valid(name: &UnitName, header: Result<ChunkHeader, FormatError>) -> Result<ChunkHeader, ArchiveError> {
    header.map_err(|source| ArchiveError::refused(format!("unit {name}"), source))
}

/// Room that a chunk has left.
struct Room {
    chunk: UnitName,
    left_bytes: usize,
}

impl Room {
    fn take(&mut self, bytes: usize) -> Result<(), ArchiveError> {
        let left_bytes = self.left_bytes.checked_sub(bytes);
        self.left_bytes =
            left_bytes.ok_or(ArchiveError::LongChunk { chunk: self.chunk, bytes_max: CHUNK_BYTES_MAX })?;
        Ok(())
    }
}

/// Returns the chunk that has these units, of which the first one is its header.
fn chunk_of(name: &UnitName, units: Vec<StoredBytes>) -> Result<ServedChunk, ArchiveError> {
    let mut room = Room { chunk: *name, left_bytes: CHUNK_BYTES_MAX };
    units.iter().try_for_each(|unit| room.take(unit.bytes.len()))?;
    Ok(ServedChunk {
        form: form_of(&units),
        length_bytes: CHUNK_BYTES_MAX - room.left_bytes,
        pieces: units.into_iter().map(|unit| unit.bytes).collect(),
    })
}

/// Returns whether the header of a stored unit says that it has so many plain bytes.
fn has_plain_bytes(stored: &StoredBytes, plain_bytes: u32) -> bool {
    let header = stored.bytes.get(..UNIT_HEADER_BYTES as usize).map(UnitHeader::decode);
    matches!(header, Some(Ok(header)) if header.plain_bytes == plain_bytes)
}

/// Returns the form of a chunk with these units. It depends on each of their bytes.
fn form_of(units: &[StoredBytes]) -> Form {
    let mut hasher = blake3::Hasher::new();
    for unit in units {
        hasher.update(&unit.crc.to_le_bytes());
        hasher.update(&(unit.bytes.len() as u64).to_le_bytes());
    }
    let mut form = [0; 8];
    form.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    Form(u64::from_le_bytes(form))
}

#[cfg(test)]
mod tests {
    use onefold_block::random::SeededRandom;

    use super::*;
    use crate::archive::Archive;
    use crate::compress::Decompressor;
    use crate::format::wire::StoredUnits;
    use crate::placed::pieces;
    use crate::store::{ByteRange, Store};
    use crate::test_images::{TestImage, image};

    const SIZE: u64 = 1 << 20;

    /// Returns what a message has, each unit with its name.
    fn decoded(archive: &Archive, message: &[u8]) -> Vec<(UnitName, Vec<u8>)> {
        let mut decompressor = Decompressor::new().unwrap();
        let decode = |unit: Result<(UnitHeader, &[u8]), _>| {
            let (header, stored) = unit.unwrap();
            let mut plain = Vec::new();
            assert!(decompressor.decompress(header, stored, &mut plain));
            (archive.descriptor().key.name(&plain), plain)
        };
        StoredUnits::of(message).map(decode).collect()
    }

    /// Writes the content of a chunk to its places. Returns the header.
    pub(super) fn unpack(archive: &Archive, chunk: &ServedChunk, onto: &mut [u8]) -> UnitName {
        let bytes = chunk.pieces.concat();
        assert_eq!(bytes.len(), chunk.length_bytes);
        let mut units = decoded(archive, &bytes).into_iter();
        let (name, header) = units.next().unwrap();
        let header = ChunkHeader::decode(&header).unwrap();
        let units: std::collections::HashMap<UnitName, Vec<u8>> = units.collect();
        for unit in &header.units {
            for piece in pieces(unit, onto.len() as u64) {
                let at = usize::try_from(piece.on_disk).unwrap();
                let plain = &units[&unit.name][piece.in_unit..][..piece.length];
                onto[at..at + piece.length].copy_from_slice(plain);
            }
        }
        name
    }

    #[test]
    fn chunks_decode_to_the_content_of_the_disk_in_any_order_and_repeatedly() {
        for seed in 0..12 {
            let TestImage { archive, manifest, sectors, .. } = image(seed, SIZE);
            let random = SeededRandom::new(seed);
            // From no cache to one of all units.
            let served = ServedArchive::new(Arc::clone(&archive), usize::try_from(seed).unwrap() * (100 << 10));
            let mut disk = vec![0; usize::try_from(SIZE).unwrap()];
            let mut order: Vec<usize> = (0..2 * manifest.chunks.len()).map(|at| at % manifest.chunks.len()).collect();
            for at in (1..order.len()).rev() {
                order.swap(at, usize::try_from(random.below(at as u64 + 1)).unwrap());
            }
            for index in order {
                let chunk = served.chunk(&manifest.chunks[index]).unwrap();
                assert_eq!(unpack(&archive, &chunk, &mut disk), manifest.chunks[index]);
                assert_eq!(served.chunk(&manifest.chunks[index]).unwrap().form, chunk.form);
            }
            let expected = sectors.iter().flat_map(|sector| sector.clone().unwrap_or_else(|| vec![0; 512]));
            assert!(disk == expected.collect::<Vec<u8>>(), "seed {seed}");
        }
    }

    #[test]
    fn a_unit_alone_is_intact_where_a_chunk_has_a_damaged_one() {
        let TestImage { archive, store, manifest, .. } = image(3, SIZE);
        let served = ServedArchive::new(Arc::clone(&archive), usize::try_from(SIZE).unwrap());
        let header = archive.header(&manifest.chunks[0]).unwrap();
        let name = header.units[0].name;
        let before = served.chunk(&manifest.chunks[0]).unwrap().form;
        let stored = archive.stored(&name).unwrap().unwrap();
        let pack = crate::store::ObjectName::new(&format!("packs/{}", stored.pack)).unwrap();
        let mut bytes = store.get(&pack, ByteRange::Whole).unwrap();
        bytes[(stored.offset + UNIT_HEADER_BYTES) as usize] ^= 1;
        store.put(&pack, &[&bytes]).unwrap();
        let served = ServedArchive::new(archive, usize::try_from(SIZE).unwrap());
        let chunk = served.chunk(&manifest.chunks[0]).unwrap();
        assert_ne!(chunk.form, before, "other bytes are another form");
        assert!(matches!(served.units(&[name]), Err(ArchiveError::DamagedUnit { unit, .. }) if unit == name));
    }

    #[test]
    fn units_come_in_the_order_of_their_names_until_the_answer_is_full() {
        let TestImage { archive, manifest, .. } = image(5, SIZE);
        let served = ServedArchive::new(Arc::clone(&archive), 0);
        let names: Vec<UnitName> = manifest.chunks.iter().rev().copied().collect();
        let message = served.units(&names).unwrap().concat();
        let found: Vec<UnitName> = decoded(&archive, &message).into_iter().map(|(name, _)| name).collect();
        assert_eq!(found, names);
        let strange = UnitName([7; 32]);
        assert!(matches!(served.units(&[names[0], strange]), Err(ArchiveError::Lost { unit }) if unit == strange));
        assert!(matches!(served.chunk(&strange), Err(ArchiveError::Lost { .. })));
    }

    #[test]
    fn a_chunk_has_its_own_units_and_its_header_and_no_others() {
        let TestImage { archive, manifest, .. } = image(7, SIZE);
        let served = ServedArchive::new(Arc::clone(&archive), 0);
        let [one, other] = [manifest.chunks[0], *manifest.chunks.last().unwrap()];
        let units = |chunk: &UnitName| -> Vec<UnitName> {
            archive.header(chunk).unwrap().units.iter().map(|unit| unit.name).collect()
        };
        let (own, strange) = (units(&one), units(&other).into_iter().find(|unit| !units(&one).contains(unit)).unwrap());
        assert!(served.has_units(&one, &own).unwrap() && served.has_units(&one, &[one, own[0]]).unwrap());
        assert!(!served.has_units(&one, &[own[0], strange]).unwrap());
        assert!(!served.has_units(&one, &[other]).unwrap());
    }

    #[test]
    fn a_unit_that_is_no_header_makes_no_chunk() {
        let TestImage { archive, manifest, .. } = image(6, SIZE);
        let served = ServedArchive::new(Arc::clone(&archive), 0);
        let headers = manifest.chunks.iter().map(|chunk| archive.header(chunk).unwrap());
        let unit = headers.flat_map(|header| header.units).next().unwrap();
        assert!(matches!(served.chunk(&unit.name), Err(ArchiveError::Damaged { .. })));
    }
}
