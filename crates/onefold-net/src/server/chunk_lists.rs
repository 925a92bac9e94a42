//! Which chunks an image has, and in which order, for clients that state an image.
//!
//! An address with a digest does not say which images its content belongs to. So a client names the manifest. The
//! rights of a token to the image are rights to the chunks of the manifest, and the order of the chunks tells which one
//! is likely to be requested next. For one request, at most one manifest is read.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onefold_image::archive::ArchiveError;
use onefold_image::{ImageName, UnitName};
use parking_lot::Mutex;

/// A list without requests for so long gives its room to lists of other images.
const LIST_AGE: Duration = Duration::from_secs(600);

/// The chunks of recently read manifests.
#[derive(Debug)]
pub(super) struct ChunkLists {
    lists: Mutex<Vec<ChunkList>>,
    /// Held while a manifest is read, so that memory for one is enough.
    reading: Mutex<()>,
    bytes_max: usize,
}

/// The chunks of one image.
#[derive(Clone, Debug)]
struct ChunkList {
    /// Digest of the manifest.
    manifest: [u8; 32],
    image: ImageName,
    /// In the order of the image.
    chunks: Arc<[UnitName]>,
    /// Positions of the chunks in the order of their names.
    by_name: Arc<[u32]>,
    /// Time of the last request.
    used: Instant,
}

impl ChunkList {
    fn new(manifest: [u8; 32], image: ImageName, chunks: Vec<UnitName>, now: Instant) -> ChunkList {
        let mut by_name: Vec<u32> = (0..).take(chunks.len()).collect();
        by_name.sort_unstable_by_key(|position| chunks[*position as usize]);
        ChunkList { manifest, image, chunks: chunks.into(), by_name: by_name.into(), used: now }
    }

    /// Returns the position of a chunk.
    fn position(&self, name: &UnitName) -> Option<usize> {
        let at = self.by_name.binary_search_by(|position| self.chunks[*position as usize].cmp(name)).ok()?;
        Some(self.by_name[at] as usize)
    }

    fn bytes(&self) -> usize {
        list_bytes(self.chunks.len())
    }
}

/// Returns the memory of a list of so many chunks, in bytes.
fn list_bytes(chunks: usize) -> usize {
    size_of::<ChunkList>() + chunks * (size_of::<UnitName>() + size_of::<u32>())
}

impl ChunkLists {
    /// Returns no lists yet. They take `bytes_max` bytes, or as much as the last one alone if a request needs it.
    pub(super) fn new(bytes_max: usize) -> ChunkLists {
        ChunkLists { lists: Mutex::default(), reading: Mutex::default(), bytes_max }
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
                        Some((image, chunks)) => self.add(manifest, image, chunks),
                    },
                }
            }
        };
        Ok(may_read(&list.image) && names.iter().all(|name| list.position(name).is_some()))
    }

    /// Returns whether the chunks of a manifest are known.
    pub(super) fn are_known(&self, manifest: [u8; 32]) -> bool {
        self.find(manifest).is_some()
    }

    /// Returns the position of a chunk in an image, and the number of its chunks; `None` if the image is not known, or
    /// has no such chunk.
    pub(super) fn place(&self, manifest: [u8; 32], name: &UnitName) -> Option<(usize, usize)> {
        let list = self.find(manifest)?;
        Some((list.position(name)?, list.chunks.len()))
    }

    /// Returns the chunks at these positions of an image; none if the image is not known any more.
    pub(super) fn chunks(&self, manifest: [u8; 32], positions: Range<usize>) -> Vec<UnitName> {
        let list = self.find(manifest);
        list.and_then(|list| Some(list.chunks.get(positions)?.to_vec())).unwrap_or_default()
    }

    /// Returns a known list, which is the last one used then.
    fn find(&self, manifest: [u8; 32]) -> Option<ChunkList> {
        let mut lists = self.lists.lock();
        let at = lists.iter().position(|list| list.manifest == manifest)?;
        lists[..=at].rotate_right(1);
        lists[0].used = Instant::now();
        Some(lists[0].clone())
    }

    /// Returns how many bytes other lists leave. Removes those without requests for long.
    pub(super) fn room_bytes(&self, now: Instant) -> usize {
        let mut lists = self.lists.lock();
        lists.retain(|list| now.saturating_duration_since(list.used) < LIST_AGE);
        self.bytes_max.saturating_sub(lists.iter().map(ChunkList::bytes).sum())
    }

    /// Adds the chunks of a manifest for later requests, unless they are known, or other lists leave no room for them.
    pub(super) fn add_if_room(&self, manifest: [u8; 32], image: ImageName, chunks: Vec<UnitName>, now: Instant) {
        if list_bytes(chunks.len()) > self.room_bytes(now) {
            return;
        }
        let list = ChunkList::new(manifest, image, chunks, now);
        let mut lists = self.lists.lock();
        // Another thread may have added lists meanwhile.
        let known_bytes: usize = lists.iter().map(ChunkList::bytes).sum();
        if known_bytes + list.bytes() <= self.bytes_max && lists.iter().all(|known| known.manifest != manifest) {
            lists.insert(0, list);
        }
    }

    /// Adds the chunks of a manifest for a request that needs them, in the place of the lists that were used least
    /// recently.
    fn add(&self, manifest: [u8; 32], image: ImageName, chunks: Vec<UnitName>) -> ChunkList {
        let list = ChunkList::new(manifest, image, chunks, Instant::now());
        let mut lists = self.lists.lock();
        lists.insert(0, list.clone());
        let mut left_bytes = self.bytes_max;
        let kept = lists
            .iter()
            .take_while(|list| left_bytes.checked_sub(list.bytes()).map(|left| left_bytes = left).is_some());
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
    fn chunks_have_places_in_the_order_of_the_image() {
        let (lists, order) = (ChunkLists::new(1 << 20), [5, 2, 9, 1].map(name));
        assert!(!lists.are_known([7; 32]) && lists.place([7; 32], &name(5)).is_none());
        let read = || Ok(Some((ImageName::new("web").unwrap(), order.to_vec())));
        assert!(lists.have([7; 32], &[], &|_| true, &read).unwrap() && lists.are_known([7; 32]));
        for (position, chunk) in order.iter().enumerate() {
            assert_eq!(lists.place([7; 32], chunk), Some((position, 4)));
        }
        assert_eq!(lists.place([7; 32], &name(3)), None);
        assert_eq!(lists.chunks([7; 32], 1..3), [name(2), name(9)]);
        assert!(lists.chunks([7; 32], 1..9).is_empty() && lists.chunks([8; 32], 0..1).is_empty());
    }

    #[test]
    fn lists_have_a_bound_and_the_last_one_is_always_kept() {
        let lists = ChunkLists::new(3 * list_bytes(10));
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

    #[test]
    fn learned_lists_stay_within_the_bound_and_replace_no_list() {
        let bytes_max = 3 * list_bytes(10);
        let (lists, now) = (ChunkLists::new(bytes_max), Instant::now());
        let add = |manifest: u8, chunks: u8, now: Instant| {
            let names = (0..chunks).map(name).collect();
            lists.add_if_room([manifest; 32], ImageName::new("web").unwrap(), names, now);
            lists.lists.lock().iter().map(|list| list.manifest[0]).collect::<Vec<_>>()
        };
        let room_bytes = || lists.room_bytes(now);
        assert_eq!((add(1, 200, now), room_bytes()), (vec![], bytes_max), "it is longer than the bound");
        assert_eq!((add(1, 10, now), room_bytes()), (vec![1], bytes_max - list_bytes(10)));
        assert_eq!(add(1, 10, now), [1], "it is known");
        assert_eq!((add(2, 10, now), add(3, 11, now)), (vec![2, 1], vec![2, 1]), "there is room for ten");
        assert_eq!((add(4, 10, now), add(5, 0, now), room_bytes()), (vec![4, 2, 1], vec![4, 2, 1], 0));
        let later = now + LIST_AGE;
        lists.lists.lock()[1].used = later;
        assert_eq!(add(6, 20, later), [6, 2], "the others had no requests");
        assert_eq!(lists.room_bytes(later), bytes_max - list_bytes(10) - list_bytes(20));
    }
}
