//! The memory of a cache, and the pages of a disk in it.
//!
//! Pages lie in slabs, not in memory of their own: threads other than the first ask the system for each bit of memory
//! that they add, and small pieces take longer to hand out than a page takes to read.

use crate::cache_order::CacheOrder;

/// Bytes of a page: enough for a whole partition table, and less than a cluster of most images.
pub(crate) const PAGE_BYTES: usize = 16 << 10;
/// The smallest page: a sector of a small disk.
const PAGE_BYTES_MIN: usize = 512;
/// Bytes of a slab of pages. Those of its pages that are not used yet take no memory.
const SLAB_BYTES: usize = 256 << 10;

/// Memory of a cache whose disk is closed, for the cache of the next one: the system gives fresh memory page by page,
/// which takes as long as reading it.
#[derive(Debug)]
pub struct CacheMemory {
    page_bytes: usize,
    slabs: Vec<Box<[u8]>>,
}

impl CacheMemory {
    /// Returns no memory yet, for caches whose pages have this many bytes; 512 at least. Smaller pages bring less that
    /// nobody asked for into memory, and larger ones are fewer reads of a disk.
    #[must_use]
    pub fn of_pages(page_bytes: usize) -> CacheMemory {
        CacheMemory { page_bytes: page_bytes.max(PAGE_BYTES_MIN), slabs: Vec::new() }
    }

    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn pages_of_slab(&self) -> usize {
        (SLAB_BYTES / self.page_bytes).max(1)
    }

    /// Returns the memory of page `place`, if it was used before.
    fn page(&self, place: usize) -> Option<&[u8]> {
        let slab = self.slabs.get(place / self.pages_of_slab())?;
        slab.chunks_exact(self.page_bytes).nth(place % self.pages_of_slab())
    }

    /// Returns the memory of page `place`, where there are `pages_max` pages in all. Places are used in order.
    fn page_mut(&mut self, place: usize, pages_max: usize) -> Option<&mut [u8]> {
        let pages_of_slab = self.pages_of_slab();
        let slab = place / pages_of_slab;
        if slab == self.slabs.len() {
            let pages = pages_of_slab.min(pages_max.saturating_sub(place));
            self.slabs.push(vec![0; pages * self.page_bytes].into_boxed_slice());
        }
        self.slabs.get_mut(slab)?.chunks_exact_mut(self.page_bytes).nth(place % pages_of_slab)
    }

    /// Gives back what exceeds `pages_max` pages.
    fn limit(&mut self, pages_max: usize) {
        let (page_bytes, pages_of_slab) = (self.page_bytes, self.pages_of_slab());
        // The last slab of a small cache is shorter.
        self.slabs.retain(|slab| slab.len() == pages_of_slab * page_bytes);
        self.slabs.truncate(pages_max / pages_of_slab);
    }
}

impl Default for CacheMemory {
    /// Returns no memory yet, for pages of 16 KiB.
    fn default() -> CacheMemory {
        CacheMemory::of_pages(PAGE_BYTES)
    }
}

/// The cached pages of a disk.
#[derive(Debug)]
pub(crate) struct PageCache {
    memory: CacheMemory,
    pages_max: usize,
    /// The place of each page in the memory, by its number on the disk.
    places: CacheOrder<usize>,
}

impl PageCache {
    /// Returns an empty cache of at most `limit_bytes`, in whole pages.
    pub(crate) fn new(mut memory: CacheMemory, limit_bytes: usize) -> PageCache {
        let pages_max = limit_bytes / memory.page_bytes;
        memory.limit(pages_max);
        PageCache { memory, pages_max, places: CacheOrder::new() }
    }

    pub(crate) fn into_memory(self) -> CacheMemory {
        self.memory
    }

    /// Fills `into` from byte `within` of a page. Returns whether the cache has the page.
    pub(crate) fn copy(&mut self, number: u64, within: usize, into: &mut [u8]) -> bool {
        let page = self.places.get(number).and_then(|place| self.memory.page(*place));
        let Some(part) = page.and_then(|page| page.get(within..)?.get(..into.len())) else { return false };
        into.copy_from_slice(part);
        true
    }

    /// Returns how many pages from `number` on are missing one after the other, up to `count`.
    pub(crate) fn missing(&self, number: u64, count: usize) -> usize {
        (number..).take(count).take_while(|number| !self.places.has(*number)).count()
    }

    /// Keeps a page, if it is missing. If the cache is full, the page takes the place of the least recently used one.
    pub(crate) fn keep(&mut self, number: u64, page: &[u8]) {
        if self.pages_max == 0 || self.places.has(number) {
            return;
        }
        let used = self.places.len();
        let oldest = (used == self.pages_max).then(|| self.places.remove_oldest()).flatten();
        let place = oldest.unwrap_or(used);
        if let Some(memory) = self.memory.page_mut(place, self.pages_max) {
            memory.copy_from_slice(page);
            self.places.insert(number, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(cache: &mut PageCache, number: u64, byte: u8) -> bool {
        let mut into = [0; 2];
        cache.copy(number, 510, &mut into) && into == [byte; 2]
    }

    #[test]
    fn memory_grows_by_slabs_up_to_its_limit_and_is_used_again() {
        let pages_of_slab = SLAB_BYTES / 512;
        let limit_bytes = 2 * SLAB_BYTES + 3 * 512 + 100;
        let mut cache = PageCache::new(CacheMemory::of_pages(512), limit_bytes);
        let lengths = |memory: &CacheMemory| memory.slabs.iter().map(|slab| slab.len()).collect::<Vec<_>>();
        for number in 0..2000_u64 {
            cache.keep(number, &[u8::try_from(number % 251).unwrap(); 512]);
            let slabs = (usize::try_from(number).unwrap() + 1).div_ceil(pages_of_slab).min(3);
            assert_eq!(cache.memory.slabs.len(), slabs, "{number}");
        }
        assert_eq!(cache.places.len(), 2 * pages_of_slab + 3);
        for number in 2000 - 2 * pages_of_slab as u64 - 3..2000 {
            assert!(has(&mut cache, number, u8::try_from(number % 251).unwrap()), "{number}");
        }
        assert!(!has(&mut cache, 2000 - 2 * pages_of_slab as u64 - 4, 0));
        assert_eq!(lengths(&cache.memory), [SLAB_BYTES, SLAB_BYTES, 3 * 512]);
        let kept: Vec<*const u8> = cache.memory.slabs.iter().map(|slab| slab.as_ptr()).collect();
        let mut next = PageCache::new(cache.into_memory(), SLAB_BYTES + 512);
        assert_eq!(lengths(&next.memory), [SLAB_BYTES]);
        (0..600).for_each(|number| next.keep(number, &[9; 512]));
        assert_eq!((lengths(&next.memory), next.memory.slabs[0].as_ptr()), (vec![SLAB_BYTES, 512], kept[0]));
    }

    #[test]
    fn missing_pages_are_counted_up_to_the_next_known_one() {
        let mut cache = PageCache::new(CacheMemory::of_pages(512), 10 * 512);
        cache.keep(7, &[1; 512]);
        let missing = [(3, 2), (3, 9), (7, 5), (8, 5), (7, 0)].map(|(number, count)| cache.missing(number, count));
        assert_eq!(missing, [2, 4, 0, 5, 0]);
    }

    #[test]
    fn a_cache_without_room_keeps_nothing() {
        let mut cache = PageCache::new(CacheMemory::of_pages(512), 511);
        cache.keep(1, &[1; 512]);
        assert!(!has(&mut cache, 1, 1) && cache.memory.slabs.is_empty());
    }
}
