//! Other ways to make chunks, for comparison only: those of the original Frisbee, and those whose work a stored header
//! and stored units avoid.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Form, ServedChunk, StoredBytes, chunk_of};
use crate::UnitName;
use crate::archive::{Archive, ArchiveError, WantedUnit};
use crate::compress::{Compressor, Decompressor, LEVEL};
use crate::format::chunk_header::ChunkHeader;
use crate::format::pack::{UNIT_HEADER_BYTES, UnitHeader};
use crate::format::wire::CHUNK_BYTES_MAX;
use crate::store::{ByteRange, ObjectName, Store, StoreError};

/// How chunks are made. All ways but the first one are for comparison.
#[derive(Clone, Debug, Default)]
pub enum ChunkMethod {
    /// The stored header and the stored units are put together when a client requests the chunk.
    #[default]
    OnDemand,
    /// All chunks are made beforehand and kept in a store. Those of later images are made on demand.
    Prebuilt(Arc<dyn Store>),
    /// As on demand, but each unit is decompressed, and compressed again.
    Recompress,
    /// As on demand, but the header is not read: all headers of the image are built up to that of the chunk.
    HeadersAtServe,
}

/// Bytes in front of a chunk in a store: its form.
const FORM_BYTES: usize = 8;
/// Headers that are read at once as the list of the units of an image.
const LIST_HEADERS: usize = 64;

fn object(name: &UnitName) -> ObjectName {
    ObjectName::new(&format!("chunks/{name}")).expect("digits make a name")
}

/// Puts the chunks of all images into a store, unless it has them.
///
/// # Errors
/// Those of `make`, and when one of the stores fails.
pub(super) fn prebuild(
    archive: &Archive,
    store: &dyn Store,
    make: &dyn Fn(&UnitName) -> Result<ServedChunk, ArchiveError>,
) -> Result<(), ArchiveError> {
    let mut known = HashSet::new();
    let mut last: Option<ObjectName> = None;
    loop {
        let listed = store.list("chunks/", last.as_ref())?;
        let Some(object) = listed.last() else { break };
        last = Some(object.name.clone());
        known.extend(listed.into_iter().map(|object| object.name));
    }
    for image in archive.images() {
        for name in archive.manifest(&image)?.chunks {
            let object = object(&name);
            if !known.contains(&object) {
                let chunk = make(&name)?;
                let form = chunk.form.0.to_le_bytes();
                let parts = std::iter::once(&form[..]).chain(chunk.pieces.iter().map(|piece| &**piece));
                store.put(&object, &parts.collect::<Vec<_>>())?;
                known.insert(object);
            }
        }
    }
    Ok(())
}

/// Returns a chunk that was made beforehand; `None` if it was not.
///
/// # Errors
/// When the store fails, or the chunk is too long.
pub(super) fn prebuilt(store: &dyn Store, name: &UnitName) -> Result<Option<ServedChunk>, ArchiveError> {
    let length_bytes = (FORM_BYTES + CHUNK_BYTES_MAX + 1) as u64;
    let bytes = match store.get(&object(name), ByteRange::From { offset: 0, length_bytes }) {
        Err(StoreError::Missing(_)) => return Ok(None),
        bytes => bytes?,
    };
    let Some((form, chunk)) = bytes.split_first_chunk::<FORM_BYTES>() else { return Ok(None) };
    if chunk.len() > CHUNK_BYTES_MAX {
        return Err(ArchiveError::LongChunk { chunk: *name, bytes_max: CHUNK_BYTES_MAX });
    }
    let form = Form(u64::from_le_bytes(*form));
    Ok(Some(ServedChunk { pieces: vec![chunk.into()], length_bytes: chunk.len(), form }))
}

/// Decompresses the units of a chunk, all but its header, and compresses them again. Damaged ones stay as they are.
///
/// # Errors
/// When Zstandard fails, or the chunk becomes too long.
pub(super) fn recompressed(name: &UnitName, mut units: Vec<StoredBytes>) -> Result<ServedChunk, ArchiveError> {
    let refused = |source: io::Error| ArchiveError::System { what: "memory to compress", source };
    let mut decompressor = Decompressor::new().map_err(refused)?;
    let mut compressor = Compressor::new(LEVEL).map_err(refused)?;
    let (mut plain, mut stored) = (Vec::new(), Vec::new());
    for unit in units.iter_mut().skip(1) {
        let Some((header, bytes)) = unit.bytes.split_at_checked(UNIT_HEADER_BYTES as usize) else { continue };
        let is_intact =
            UnitHeader::decode(header).is_ok_and(|header| decompressor.decompress(header, bytes, &mut plain));
        if is_intact {
            let header = compressor.compress(&plain, &mut stored).map_err(refused)?;
            *unit = StoredBytes::of(header, &stored);
        }
    }
    chunk_of(name, units)
}

/// Builds headers when chunks are requested. Where a chunk begins depends on the stored lengths of all units before it,
/// so the headers before it are built, too. The archive has no list of the units of an image but the stored headers,
/// which stand for one.
#[derive(Debug, Default)]
pub(super) struct HeaderBuilder {
    /// The chunks of the image of which a chunk was requested last.
    chunks: Mutex<Arc<[UnitName]>>,
}

impl HeaderBuilder {
    /// Returns the header with this name, and its stored form.
    ///
    /// # Errors
    /// When no image has such a chunk, one of its units is lost, the header or one before it is damaged, or the store
    /// fails.
    pub(super) fn header(
        &self,
        archive: &Archive,
        name: &UnitName,
    ) -> Result<(StoredBytes, ChunkHeader), ArchiveError> {
        let lost = || ArchiveError::Lost { unit: *name };
        let chunks = self.chunks_with(archive, name)?.ok_or_else(lost)?;
        for names in chunks.chunks(LIST_HEADERS) {
            for listed in headers(archive, names)? {
                let (built, stored, header) = build(archive, listed)?;
                if built == *name {
                    return Ok((stored, header));
                }
            }
        }
        Err(lost())
    }

    /// Returns the chunks, in order, of an image that has this one.
    fn chunks_with(&self, archive: &Archive, name: &UnitName) -> Result<Option<Arc<[UnitName]>>, ArchiveError> {
        let known = Arc::clone(&self.chunks.lock());
        if known.contains(name) {
            return Ok(Some(known));
        }
        for image in archive.images() {
            let chunks = archive.manifest(&image)?.chunks;
            if chunks.contains(name) {
                let chunks: Arc<[UnitName]> = chunks.into();
                *self.chunks.lock() = Arc::clone(&chunks);
                return Ok(Some(chunks));
            }
        }
        Ok(None)
    }
}

/// Reads some headers, in order.
fn headers(archive: &Archive, names: &[UnitName]) -> Result<Vec<ChunkHeader>, ArchiveError> {
    let wanted: Vec<WantedUnit> = names.iter().map(|name| WantedUnit { name: *name, plain_bytes: None }).collect();
    let mut found = vec![ChunkHeader::default(); names.len()];
    archive.read_verified(&wanted, &mut |at, _, _, plain| {
        let damaged = |source| ArchiveError::refused(format!("unit {}", names[at]), source);
        found[at] = ChunkHeader::decode(plain).map_err(damaged)?;
        Ok(())
    })?;
    Ok(found)
}

/// Builds the header of a chunk from its units: looks up the stored length of each, and encodes, names and compresses
/// the header. Returns its name, its stored form and itself.
fn build(archive: &Archive, listed: ChunkHeader) -> Result<(UnitName, StoredBytes, ChunkHeader), ArchiveError> {
    let mut header = ChunkHeader { region: listed.region, units: Vec::new(), zeros: listed.zeros };
    let mut stored_bytes = 0;
    for unit in listed.units {
        let stored = archive.stored(&unit.name)?.ok_or(ArchiveError::Lost { unit: unit.name })?;
        stored_bytes += stored.stored_bytes as usize;
        header.units.push(unit);
    }
    let plain = header.encode()?;
    let name = archive.descriptor().key.name(&plain);
    if stored_bytes > CHUNK_BYTES_MAX {
        return Err(ArchiveError::LongChunk { chunk: name, bytes_max: CHUNK_BYTES_MAX });
    }
    let refused = |source| ArchiveError::System { what: "memory to compress", source };
    let mut stored = Vec::new();
    let unit = Compressor::new(LEVEL).and_then(|mut zstd| zstd.compress(&plain, &mut stored)).map_err(refused)?;
    Ok((name, StoredBytes::of(unit, &stored), header))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::pack::Codec;
    use crate::served::ServedArchive;
    use crate::served::tests::unpack;
    use crate::store::MemoryStore;
    use crate::test_images::{TestImage, image};

    const SIZE: u64 = 1 << 20;

    #[test]
    fn chunks_have_the_same_content_however_they_are_made() {
        for seed in 0..4 {
            let TestImage { archive, manifest, sectors, .. } = image(seed, SIZE);
            let expected: Vec<u8> =
                sectors.iter().flat_map(|sector| sector.clone().unwrap_or_else(|| vec![0; 512])).collect();
            let on_demand = ServedArchive::new(Arc::clone(&archive), 0);
            for method in [
                ChunkMethod::Prebuilt(Arc::new(MemoryStore::default())),
                ChunkMethod::Recompress,
                ChunkMethod::HeadersAtServe,
            ] {
                let served = ServedArchive::new(Arc::clone(&archive), 0).with_method(method.clone()).unwrap();
                let mut disk = vec![0; usize::try_from(SIZE).unwrap()];
                for name in manifest.chunks.iter().rev() {
                    let chunk = served.chunk(name).unwrap();
                    assert_eq!(unpack(&archive, &chunk, &mut disk), *name);
                    // The level of compression is that of the archive, so even the bytes are the same.
                    assert_eq!(chunk.form, on_demand.chunk(name).unwrap().form, "{method:?}");
                }
                assert!(disk == expected, "seed {seed}, {method:?}");
                assert!(matches!(served.chunk(&UnitName([7; 32])), Err(ArchiveError::Lost { .. })));
            }
        }
    }

    #[test]
    fn chunks_that_were_made_beforehand_need_no_archive_and_are_made_once() {
        let TestImage { archive, store, manifest, .. } = image(4, SIZE);
        let chunks: Arc<MemoryStore> = Arc::default();
        let method = || ChunkMethod::Prebuilt(chunks.clone());
        let served = ServedArchive::new(Arc::clone(&archive), 0).with_method(method()).unwrap();
        let expected: Vec<Vec<u8>> =
            manifest.chunks.iter().map(|name| served.chunk(name).unwrap().pieces.concat()).collect();
        for object in store.list("packs/", None).unwrap() {
            store.delete(&object.name).unwrap();
        }
        let served = ServedArchive::new(archive, 0).with_method(method()).unwrap();
        for (name, expected) in manifest.chunks.iter().zip(expected) {
            assert_eq!(served.chunk(name).unwrap().pieces.concat(), expected);
        }
        let (first, last) = (object(&manifest.chunks[0]), object(manifest.chunks.last().unwrap()));
        chunks.put(&first, &[&[0; 7]]).unwrap();
        assert!(served.chunk(&manifest.chunks[0]).is_err(), "too short, and the archive has nothing");
        chunks.put(&last, &[&vec![0; FORM_BYTES + CHUNK_BYTES_MAX + 5]]).unwrap();
        assert!(matches!(served.chunk(manifest.chunks.last().unwrap()), Err(ArchiveError::LongChunk { .. })));
    }

    #[test]
    fn units_are_compressed_again_but_for_the_header_and_damaged_ones() {
        let plain = |bytes: &[u8]| {
            let length = u32::try_from(bytes.len()).unwrap();
            StoredBytes::of(UnitHeader { codec: Codec::Plain, stored_bytes: length, plain_bytes: length }, bytes)
        };
        let damaged = UnitHeader { codec: Codec::Zstd, stored_bytes: 9, plain_bytes: 999 };
        let units = vec![plain(&[1; 5000]), plain(&[2; 5000]), StoredBytes::of(damaged, b"no frame.")];
        let chunk = recompressed(&UnitName([0; 32]), units.clone()).unwrap();
        assert_eq!((&chunk.pieces[0], &chunk.pieces[2]), (&units[0].bytes, &units[2].bytes));
        let header = UnitHeader::decode(&chunk.pieces[1][..UNIT_HEADER_BYTES as usize]).unwrap();
        assert!(header.codec == Codec::Zstd && header.plain_bytes == 5000 && chunk.pieces[1].len() < 500);
        assert_eq!(chunk.length_bytes, chunk.pieces.iter().map(|piece| piece.len()).sum::<usize>());
    }

    #[test]
    fn a_header_that_is_built_needs_all_headers_before_it() {
        let TestImage { archive, store, manifest, .. } = image(5, SIZE);
        let stored = archive.stored(&manifest.chunks[0]).unwrap().unwrap();
        let pack = ObjectName::new(&format!("packs/{}", stored.pack)).unwrap();
        let mut bytes = store.get(&pack, ByteRange::Whole).unwrap();
        bytes[(stored.offset + UNIT_HEADER_BYTES) as usize] ^= 1;
        store.put(&pack, &[&bytes]).unwrap();
        let last = manifest.chunks.last().unwrap();
        let served = ServedArchive::new(archive, 0);
        assert!(served.chunk(last).is_ok());
        let served = served.with_method(ChunkMethod::HeadersAtServe).unwrap();
        assert!(
            matches!(served.chunk(last), Err(ArchiveError::DamagedUnit { unit, .. }) if unit == manifest.chunks[0])
        );
    }
}
