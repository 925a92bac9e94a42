//! Reads the packs of the next chunks ahead, along their headers, so that a request for one of them finds its units in
//! memory.

use std::collections::HashSet;

use super::{ChunkMethod, Room, ServedArchive, StoredBytes, has_plain_bytes, valid};
use crate::UnitName;
use crate::archive::{ArchiveError, WantedUnit};
use crate::compress::Decompressor;
use crate::format::chunk_header::ChunkHeader;
use crate::format::pack::{UNIT_HEADER_BYTES, UnitHeader};
use crate::format::wire::{CHUNK_BYTES_MAX, units_of};

impl ServedArchive {
    /// Reads the headers and the units of chunks that are likely to be requested next, and keeps them with the recent
    /// units. One read serves all of them where they are neighbours, and units in memory are not read again. Does
    /// nothing where chunks are not made on demand.
    ///
    /// # Errors
    /// When a header is damaged, a unit is lost, the units take more bytes than the longest chunk, or the store fails.
    /// Units that were read before are kept.
    pub fn read_ahead(&self, chunks: &[UnitName]) -> Result<(), ArchiveError> {
        if !matches!(self.method, ChunkMethod::OnDemand) {
            return Ok(());
        }
        let mut known = HashSet::new();
        let mut wanted = Vec::new();
        for header in self.headers(chunks)? {
            for (name, plain_bytes) in units_of(&header) {
                let is_kept = self.recent.lock().get(&name).is_some_and(|unit| has_plain_bytes(&unit, plain_bytes));
                if !is_kept && known.insert(name) {
                    wanted.push(WantedUnit { name, plain_bytes: Some(plain_bytes) });
                }
            }
        }
        let Some(first) = chunks.first() else { return Ok(()) };
        let mut room = Room { chunk: *first, left_bytes: CHUNK_BYTES_MAX };
        self.archive.read_unverified(&wanted, &mut |at, header, bytes| {
            room.take(UNIT_HEADER_BYTES as usize + bytes.len())?;
            self.keep(wanted[at].name, &StoredBytes::of(header, bytes));
            Ok(())
        })
    }

    /// Returns the headers of chunks, and keeps those that were read.
    fn headers(&self, chunks: &[UnitName]) -> Result<Vec<ChunkHeader>, ArchiveError> {
        let mut headers = Vec::with_capacity(chunks.len());
        let mut wanted = Vec::new();
        for name in chunks {
            match self.recent_header(name)? {
                Some((_, header)) => headers.push(header),
                None => wanted.push(WantedUnit { name: *name, plain_bytes: None }),
            }
        }
        self.archive.read_verified(&wanted, &mut |at, header, stored, plain| {
            headers.push(valid(&wanted[at].name, ChunkHeader::decode(plain))?);
            self.keep(wanted[at].name, &StoredBytes::of(header, stored));
            Ok(())
        })?;
        Ok(headers)
    }

    /// Returns a header that is in memory, and its stored form; `None` if it is not, or is damaged there.
    pub(super) fn recent_header(&self, name: &UnitName) -> Result<Option<(StoredBytes, ChunkHeader)>, ArchiveError> {
        let Some(kept) = self.recent.lock().get(name) else { return Ok(None) };
        let mut decompressor =
            Decompressor::new().map_err(|source| ArchiveError::System { what: "memory to decompress", source })?;
        let mut plain = Vec::new();
        let Some((header, stored)) = kept.bytes.split_at_checked(UNIT_HEADER_BYTES as usize) else { return Ok(None) };
        let is_unit = UnitHeader::decode(header)
            .is_ok_and(|header| decompressor.decompress(header, stored, &mut plain))
            && self.archive.descriptor().key.name(&plain) == *name;
        match is_unit {
            true => Ok(Some((kept, valid(name, ChunkHeader::decode(&plain))?))),
            false => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::archive::Archive;
    use crate::store::hooked::{Call, HookedStore};
    use crate::test_images::{TestImage, image};

    /// An archive whose reads of packs are counted.
    struct CountedArchive {
        served: ServedArchive,
        chunks: Vec<UnitName>,
        reads: Arc<AtomicUsize>,
    }

    impl CountedArchive {
        fn new(memory_bytes: usize) -> CountedArchive {
            let TestImage { store, manifest, .. } = image(9, 2 << 20);
            let reads = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&reads);
            let hooked = HookedStore::new(store, move |call, name| {
                let is_read = matches!(call, Call::Get(_)) && name.starts_with("packs/");
                count.fetch_add(usize::from(is_read), Ordering::Relaxed);
                Ok(())
            });
            let archive = Arc::new(Archive::open(Arc::new(hooked)).unwrap());
            CountedArchive { served: ServedArchive::new(archive, memory_bytes), chunks: manifest.chunks, reads }
        }

        /// Returns how many reads `work` makes.
        fn reads_of(&self, work: impl FnOnce(&ServedArchive)) -> usize {
            let before = self.reads.load(Ordering::Relaxed);
            work(&self.served);
            self.reads.load(Ordering::Relaxed) - before
        }
    }

    #[test]
    fn a_chunk_that_was_read_ahead_takes_no_read_and_has_the_same_bytes() {
        let (ahead, other) = (CountedArchive::new(8 << 20), CountedArchive::new(0));
        let next = &ahead.chunks[3..7];
        assert!(next.iter().collect::<HashSet<_>>().len() == 4);
        let by_request = other.reads_of(|served| next.iter().for_each(|name| drop(served.chunk(name).unwrap())));
        let at_once = ahead.reads_of(|served| served.read_ahead(next).unwrap());
        assert!(at_once > 0 && at_once < by_request, "{at_once} reads instead of {by_request}");
        for name in next {
            let reads = ahead.reads_of(|served| {
                let (chunk, expected) = (served.chunk(name).unwrap(), other.served.chunk(name).unwrap());
                assert!(chunk.pieces.concat() == expected.pieces.concat() && chunk.form == expected.form);
            });
            assert_eq!(reads, 0);
        }
        assert_eq!(ahead.reads_of(|served| served.read_ahead(next).unwrap()), 0, "all of it is in memory");
        assert!(ahead.reads_of(|served| drop(served.chunk(&ahead.chunks[9]).unwrap())) > 0);
    }

    #[test]
    fn a_header_that_is_damaged_in_memory_is_read_again() {
        let CountedArchive { served, chunks, .. } = CountedArchive::new(8 << 20);
        let expected = served.chunk(&chunks[0]).unwrap().pieces.concat();
        let mut kept = served.recent.lock().get(&chunks[0]).unwrap();
        let mut bytes = kept.bytes.to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        kept.bytes = bytes.into();
        served.keep(chunks[0], &kept);
        assert_eq!(served.chunk(&chunks[0]).unwrap().pieces.concat(), expected);
    }

    #[test]
    fn names_that_are_no_chunks_are_refused() {
        let CountedArchive { served, chunks, .. } = CountedArchive::new(8 << 20);
        let unit = served.archive.header(&chunks[0]).unwrap().units[0].name;
        assert!(matches!(served.read_ahead(&[unit]), Err(ArchiveError::Damaged { .. })));
        assert!(matches!(served.read_ahead(&[UnitName([7; 32])]), Err(ArchiveError::Lost { .. })));
    }
}
