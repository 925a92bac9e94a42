//! Which chunks an image has, for clients that may read some images only.
//!
//! An address with a digest does not say which images its content belongs to. So a client with a token names the
//! manifest, and its rights to the image are rights to the chunks of the manifest. For one request, at most one
//! manifest is read.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use onefold_image::archive::ArchiveError;
use onefold_image::{ImageName, UnitName};
use parking_lot::Mutex;

/// The chunks of recently read manifests.
#[derive(Debug)]
pub(super) struct ChunkLists {
    lists: Mutex<Vec<ChunkList>>,
    /// Held while a manifest is read, so that memory for one is enough.
    reading: Mutex<()>,
    bytes_max: usize,
    hasher: RandomState,
}

/// The chunks of one image.
#[derive(Clone, Debug)]
struct ChunkList {
    /// Digest of the manifest.
    manifest: [u8; 32],
    image: ImageName,
    /// A number for the name of each chunk, in order. Its 64 bits depend on a secret of this process, so no client can
    /// choose a name that has the number of another one.
    chunks: Arc<[u64]>,
}

impl ChunkLists {
    /// Returns no lists yet. They take `bytes_max` bytes, or as much as the last one alone.
    pub(super) fn new(bytes_max: usize) -> ChunkLists {
        ChunkLists { lists: Mutex::default(), reading: Mutex::default(), bytes_max, hasher: RandomState::new() }
    }

    /// Returns whether all these names are chunks of a manifest whose image `may_read` accepts. If the manifest is not
    /// known, `read` returns its image and chunks; `None` if the client may not read it, or there is none.
    ///
    /// # Errors
    /// Those of `read`.
    pub(super) fn have(
        &self,
        manifest: [u8; 32],
        names: &[UnitName],
        may_read: &dyn Fn(&ImageName) -> bool,
        read: &dyn Fn() -> Result<Option<(ImageName, Vec<UnitName>)>, ArchiveError>,
    ) -> Result<bool, ArchiveError> {
        let list = match self.find(manifest) {
            Some(list) => list,
            None => {
                let _reading = self.reading.lock();
                // Another thread may have read it meanwhile.
                match self.find(manifest) {
                    Some(list) => list,
                    None => match read()? {
                        None => return Ok(false),
                        Some((image, chunks)) => self.add(manifest, image, &chunks),
                    },
                }
            }
        };
        let has = |name: &UnitName| list.chunks.binary_search(&self.hasher.hash_one(name.0)).is_ok();
        Ok(may_read(&list.image) && names.iter().all(has))
    }

    /// Returns a known list, which is the last one used then.
    fn find(&self, manifest: [u8; 32]) -> Option<ChunkList> {
        let mut lists = self.lists.lock();
        let at = lists.iter().position(|list| list.manifest == manifest)?;
        lists[..=at].rotate_right(1);
        Some(lists[0].clone())
    }

    fn add(&self, manifest: [u8; 32], image: ImageName, chunks: &[UnitName]) -> ChunkList {
        let mut chunks: Vec<u64> = chunks.iter().map(|name| self.hasher.hash_one(name.0)).collect();
        chunks.sort_unstable();
        let list = ChunkList { manifest, image, chunks: chunks.into() };
        let mut lists = self.lists.lock();
        lists.insert(0, list.clone());
        let mut left_bytes = self.bytes_max;
        let kept = lists.iter().take_while(|list| {
            let bytes = size_of::<ChunkList>() + size_of_val(&*list.chunks);
            left_bytes.checked_sub(bytes).map(|left| left_bytes = left).is_some()
        });
        let kept = kept.count().max(1);
        lists.truncate(kept);
        list
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn name(number: u8) -> UnitName {
        UnitName([number; 32])
    }

    #[test]
    fn chunks_are_those_of_a_manifest_that_the_client_may_read() {
        let lists = ChunkLists::new(1 << 20);
        let reads = Cell::new(0);
        let image = || ImageName::new("lab/web").unwrap();
        let read = || {
            reads.set(reads.get() + 1);
            Ok(Some((image(), vec![name(1), name(2)])))
        };
        let have = |names: &[UnitName], is_allowed: bool| lists.have([7; 32], names, &|_| is_allowed, &read).unwrap();
        assert!(have(&[name(1)], true) && have(&[name(2), name(1)], true) && have(&[], true));
        assert!(!have(&[name(1), name(3)], true), "one is no chunk of it");
        assert!(!have(&[name(1)], false), "a known list gives no rights");
        assert_eq!(reads.get(), 1);
        assert!(!lists.have([8; 32], &[name(1)], &|_| true, &|| Ok(None)).unwrap());
    }

    #[test]
    fn lists_have_a_bound_and_the_last_one_is_always_kept() {
        let lists = ChunkLists::new(3 * (size_of::<ChunkList>() + 80));
        let image = || ImageName::new("web").unwrap();
        let chunks = |count: u8| (0..count).map(name).collect::<Vec<_>>();
        for manifest in 0..5 {
            let read = || Ok(Some((image(), chunks(10))));
            assert!(lists.have([manifest; 32], &[name(9)], &|_| true, &read).unwrap());
        }
        let known: Vec<u8> = lists.lists.lock().iter().map(|list| list.manifest[0]).collect();
        assert_eq!(known, [4, 3, 2]);
        let read = || Ok(Some((image(), chunks(200))));
        assert!(lists.have([9; 32], &[name(199)], &|_| true, &read).unwrap());
        assert_eq!(lists.lists.lock().len(), 1);
    }
}
