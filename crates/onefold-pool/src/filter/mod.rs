//! The fingerprint filter: an in-memory table from fingerprint prefixes to the fingerprint store pages that may hold
//! them. It may name wrong pages, so the caller confirms on the store page; it never forgets an entry that it accepted.
//!
//! At large scale it is linear hashing (`directory`): the low bits of a fingerprint's prefix choose a region, and the
//! filter grows by splitting one region at a time. At small scale a region is a quotient table packed to the bit
//! (`region`): the next bits choose a bucket, and the last ones are stored as a tag beside the page number. Regions
//! live in cells that are packed without holes (`arena`). When full, that takes about 3.85 bytes per block in a pool of
//! 10^8 blocks, in which one look-up of a new block in 170 names a page in vain; docs/decisions/0004 has the
//! arithmetic.
//!
//! This module does no I/O and takes no locks. Memory has a hard limit: once it is reached, entries are refused, and
//! their blocks are not found until a later pass finds room.

mod arena;
mod batch;
mod candidates;
mod directory;
mod geometry;
mod packed;
mod region;
mod regions;
mod saved;
#[cfg(test)]
mod tests;

use std::fmt;
use std::hint::black_box;

use onefold_block::Fingerprint;

use directory::RegionPlace;
use geometry::FilterGeometry;
use region::{ENTRIES_MAX, Region, RegionEntry, RegionShape};
use regions::Regions;

pub use batch::{Batch, BatchPart, PackedEntry, Packer};
pub use candidates::CandidatePages;
pub use region::RegionFault;
pub use saved::{CHUNK_BYTES, LoadError, Loader, SavedFilter};

/// Average number of entries at which regions are split; each then holds between half and twice that. With more, each
/// change would move more memory; with fewer, the regions' own bytes would matter.
const REGION_ENTRIES: usize = 512;
/// Room for the entries of a region that is rewritten; a rare larger one gets more, which is freed afterwards.
const SCRATCH_ENTRIES: usize = 4 * REGION_ENTRIES;

/// Number of look-ups whose memory accesses overlap.
const LOOKUP_BATCH: usize = 32;

/// Memory of a filter without regions.
const FIXED_BYTES: u64 = (size_of::<Filter>() + SCRATCH_ENTRIES * size_of::<RegionEntry>()) as u64;

/// Index of a fingerprint store page in the pool, counted from 0 without holes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorePageNo(pub u64);

impl fmt::Display for StorePageNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "store page {}", self.0)
    }
}

/// Options of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterOptions {
    /// Number of blocks that the pool can hold. More may come; each doubling beyond it doubles the look-ups that err.
    pub blocks_max: u64,
    /// Number of fingerprint store pages.
    pub pages: u64,
    /// Maximum memory of the filter, in bytes, all included.
    pub memory_bytes_max: u64,
    /// The paper's n: bits that choose a bucket. By default, as many as suit the number of entries.
    pub index_bits: Option<u8>,
    /// The paper's k: bits that distinguish the entries of a bucket. By default, so many that one look-up in a hundred
    /// errs at `blocks_max`.
    pub tag_bits: Option<u8>,
}

/// Whether a block can be found by its fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Coverage {
    /// The filter names its page from now on.
    Indexed,
    /// There was no room for it: the filter does not have it.
    Refused,
}

/// An entry outside the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyedPage {
    key: u64,
    page: StorePageNo,
}

/// The filter.
///
/// Invariants, which [`Filter::check`] checks: every region's cell has the region's number, and there are no other
/// cells; its number of buckets matches its header, and its entries are in order; every page is one of the pool's; the
/// total number of entries is the counted one; memory is within its limit.
#[derive(Debug)]
pub struct Filter {
    geometry: FilterGeometry,
    pages: u64,
    memory_bytes_max: u64,
    regions: Regions,
    /// Buffer for the entries of a region that is rewritten.
    scratch: Vec<RegionEntry>,
    entry_count: u64,
    refused_count: u64,
}

impl Filter {
    /// Returns an empty filter.
    #[must_use]
    pub fn new(options: &FilterOptions) -> Filter {
        let geometry = FilterGeometry::new(options);
        Filter {
            geometry,
            pages: options.pages,
            memory_bytes_max: options.memory_bytes_max,
            regions: no_regions(options.memory_bytes_max),
            scratch: Vec::with_capacity(SCRATCH_ENTRIES),
            entry_count: 0,
            refused_count: 0,
        }
    }

    /// Adds an entry: the fingerprint of a stored block, and the page that holds it. Adding an existing entry stores it
    /// twice, so that it must be removed twice. Refused if the memory limit is reached, or if thousands of blocks
    /// already have the fingerprint.
    ///
    /// # Panics
    /// When the pool lacks the page.
    pub fn insert(&mut self, fingerprint: Fingerprint, page: StorePageNo) -> Coverage {
        assert!(page.0 < self.pages, "{page} is past the end of the pool's {}", self.pages);
        self.insert_key(self.geometry.key(fingerprint), page)
    }

    fn insert_key(&mut self, key: u64, page: StorePageNo) -> Coverage {
        let place = self.regions.locate(key);
        if !self.insert_at(place, RegionEntry { remainder: key >> place.bits, page: page.0 }) {
            self.refused_count = self.refused_count.saturating_add(1);
            return Coverage::Refused;
        }
        self.entry_count += 1;
        if self.entry_count > (self.regions.len() * REGION_ENTRIES) as u64 {
            self.split();
        }
        Coverage::Indexed
    }

    /// Returns all entries, for a filter with the same parameters.
    #[must_use]
    pub fn into_entries(self) -> Vec<KeyedPage> {
        let mut all = Vec::with_capacity(usize::try_from(self.entry_count).unwrap_or(0));
        let mut entries = Vec::new();
        for number in 0..self.regions.len() as u64 {
            let place = self.regions.locate(number);
            let Some(words) = self.regions.words(place.region) else { continue };
            Region::new(words, self.shape(words, place)).unpack(&mut entries);
            let keyed = entries.drain(..).map(|RegionEntry { remainder, page }| KeyedPage {
                key: remainder << place.bits | number,
                page: StorePageNo(page),
            });
            all.extend(keyed);
        }
        all
    }

    /// Adds an entry from another filter.
    pub fn insert_keyed(&mut self, entry: KeyedPage) -> Coverage {
        self.insert_key(entry.key, entry.page)
    }

    /// Removes one entry with this prefix and page; returns false if there is none, because it was refused.
    pub fn remove(&mut self, fingerprint: Fingerprint, page: StorePageNo) -> bool {
        let removed = self.remove_if_there(fingerprint, page);
        if !removed {
            self.refused_count = self.refused_count.saturating_sub(1);
        }
        removed
    }

    /// Removes one entry with this prefix and page, if it exists. A missing one was not refused either: it is still on
    /// its way into the filter.
    pub fn remove_if_there(&mut self, fingerprint: Fingerprint, page: StorePageNo) -> bool {
        let (place, remainder) = self.locate(fingerprint);
        let removed = self.remove_at(place, RegionEntry { remainder, page: page.0 });
        self.entry_count -= u64::from(removed);
        removed
    }

    /// Returns the pages that may hold `fingerprint`.
    #[must_use]
    pub fn candidates(&self, fingerprint: Fingerprint) -> CandidatePages {
        let mut candidates = CandidatePages::default();
        let (place, remainder) = self.locate(fingerprint);
        if let Some(words) = self.regions.words(place.region) {
            Region::new(words, self.shape(words, place)).candidates(remainder, &mut candidates);
        }
        candidates
    }

    /// Returns the pages for each of many fingerprints, in less time than one by one: a look-up mostly waits for
    /// memory, and here the waits overlap.
    #[must_use]
    pub fn candidates_each(&self, fingerprints: &[Fingerprint]) -> Vec<CandidatePages> {
        let mut candidates = Vec::with_capacity(fingerprints.len());
        for batch in fingerprints.chunks(LOOKUP_BATCH) {
            candidates.extend(self.bring_near(batch.iter().copied()).into_iter().take(batch.len()).map(|place| {
                let mut candidates = CandidatePages::default();
                if let Some((place, remainder, words)) = place {
                    Region::new(words, self.shape(words, place)).candidates(remainder, &mut candidates);
                }
                candidates
            }));
        }
        candidates
    }

    /// Removes entries like [`Filter::remove`], in less time than one by one.
    pub fn remove_each(&mut self, entries: &[(Fingerprint, StorePageNo)]) {
        for batch in entries.chunks(LOOKUP_BATCH) {
            // Regions that move meanwhile are only slower.
            self.bring_near(batch.iter().map(|(fingerprint, _)| *fingerprint));
            for &(fingerprint, page) in batch {
                self.remove(fingerprint, page);
            }
        }
    }

    /// Brings the memory that a look-up of up to [`LOOKUP_BATCH`] fingerprints needs into the processor's cache, with
    /// overlapping waits. Returns the place of each.
    fn bring_near(
        &self,
        fingerprints: impl Iterator<Item = Fingerprint>,
    ) -> [Option<(RegionPlace, u64, &[u64])>; LOOKUP_BATCH] {
        // Each pass requests the memory for the next one; none of its steps waits for another.
        let mut places = [None; LOOKUP_BATCH];
        for (place, fingerprint) in places.iter_mut().zip(fingerprints) {
            let (found, remainder) = self.locate(fingerprint);
            *place = self.regions.words(found.region).map(|words| (found, remainder, words));
        }
        let touched = places.iter().flatten().fold(0, |sum, (_, _, words)| sum ^ words[0]);
        black_box(touched);
        let touched = places.iter().flatten().fold(0, |sum, &(place, remainder, words)| {
            sum ^ Region::new(words, self.shape(words, place)).near(remainder)
        });
        black_box(touched);
        places
    }

    /// Removes all entries, and resets the number of refused ones.
    pub fn clear(&mut self) {
        self.regions = no_regions(self.memory_bytes_max);
        self.entry_count = 0;
        self.refused_count = 0;
    }

    /// Notes that the pool now has `pages` fingerprint store pages, never fewer than before. Costs nothing: page
    /// numbers are as wide as each region needs them.
    pub fn grow(&mut self, pages: u64) {
        self.pages = self.pages.max(pages);
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn entry_count(&self) -> u64 {
        self.entry_count
    }

    /// Returns the number of entries that were refused and not removed since: stored blocks that cannot be found.
    #[must_use]
    pub fn refused_count(&self) -> u64 {
        self.refused_count
    }

    /// Returns the memory of the filter in bytes, all included.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        FIXED_BYTES + self.regions.memory_bytes()
    }

    /// Returns the paper's n in force: the maximum number of bits that choose a bucket.
    #[must_use]
    pub fn index_bits(&self) -> u8 {
        u8::try_from(self.geometry.index_bits).expect("bounded by the prefix")
    }

    /// Returns the paper's k in force: the bits of the prefix beyond the index bits.
    #[must_use]
    pub fn tag_bits(&self) -> u8 {
        u8::try_from(self.geometry.prefix_bits - self.geometry.index_bits).expect("bounded by the prefix")
    }

    /// Checks the invariants.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<(), String> {
        let mut cells = 0;
        let mut entries = 0;
        for number in (0..).take(self.regions.len()) {
            let place = self.regions.locate(u64::from(number));
            let Some(words) = self.regions.words(number) else { continue };
            let shape = self.shape(words, place);
            if region::number(words) != number {
                return Err(format!("region {number}: its cell is region {}'s", region::number(words)));
            }
            if shape.count == 0 || !shape.is_possible(self.bucket_bits_max(place)) || shape.words() > words.len() {
                return Err(format!("region {number}: {shape:?} in a cell of {} words", words.len()));
            }
            Region::check(words, shape, self.pages).map_err(|fault| format!("region {number}: {fault}"))?;
            cells += 1;
            entries += shape.count as u64;
        }
        if cells != self.regions.cell_count() {
            return Err(format!("{} cells for {cells} regions with entries", self.regions.cell_count()));
        }
        if entries != self.entry_count {
            return Err(format!("{entries} entries, counted as {}", self.entry_count));
        }
        if entries > 0 && self.memory_bytes() > self.memory_bytes_max {
            return Err(format!("{} bytes of memory, {} allowed", self.memory_bytes(), self.memory_bytes_max));
        }
        Ok(())
    }

    fn locate(&self, fingerprint: Fingerprint) -> (RegionPlace, u64) {
        let key = self.geometry.key(fingerprint);
        let place = self.regions.locate(key);
        (place, key >> place.bits)
    }

    fn remainder_bits(&self, place: RegionPlace) -> u32 {
        self.geometry.prefix_bits - place.bits
    }

    fn bucket_bits_max(&self, place: RegionPlace) -> u32 {
        self.geometry.bucket_bits_max(place.bits)
    }

    fn shape(&self, words: &[u64], place: RegionPlace) -> RegionShape {
        RegionShape::read(words, self.remainder_bits(place))
    }

    /// Adds an entry to a region; returns false if there is no room for it.
    fn insert_at(&mut self, place: RegionPlace, entry: RegionEntry) -> bool {
        let Some(words) = self.regions.words(place.region) else {
            return self.store(place, &[entry]);
        };
        let shape = self.shape(words, place);
        if shape.count == ENTRIES_MAX {
            return false;
        }
        if !shape.suits_one_more(entry.page, self.bucket_bits_max(place)) {
            if Region::new(words, shape).is_bucket_full(entry.remainder) {
                return false;
            }
            return self.with_entries(place, |filter, entries| {
                let index = entries.partition_point(|other| *other < entry);
                entries.insert(index, entry);
                filter.store(place, entries)
            });
        }
        match self.regions.reserve(place.region, shape.with_count(shape.count + 1).words()) {
            Some(words) => region::insert(words, shape, entry),
            None => false,
        }
    }

    /// Removes an entry from a region; returns false if there is no equal one.
    fn remove_at(&mut self, place: RegionPlace, entry: RegionEntry) -> bool {
        let remainder_bits = self.remainder_bits(place);
        let Some(words) = self.regions.words_mut(place.region) else { return false };
        let shape = RegionShape::read(words, remainder_bits);
        if !region::remove(words, shape, entry) {
            return false;
        }
        let after = shape.with_count(shape.count - 1);
        if after.count == 0 {
            self.regions.free(place.region);
        } else if after.is_sparse() {
            // If memory is too short even to rewrite fewer entries, the region stays as it is.
            let _ = self.with_entries(place, |filter, entries| filter.store(place, entries));
        } else {
            self.regions.shrink(place.region, after.words());
        }
        true
    }

    /// Splits the next region in two. Does nothing if there is no memory for it, or no bit left to split by: regions
    /// then grow instead.
    fn split(&mut self) {
        let whole = self.regions.next_to_split();
        let Ok(sibling) = u32::try_from(self.regions.len()) else { return };
        if whole.bits == self.geometry.prefix_bits || !self.regions.push() {
            return;
        }
        let halves = [whole.region, sibling].map(|region| RegionPlace { region, bits: whole.bits + 1 });
        let stored = self.with_entries(whole, |filter, entries| {
            // Both halves stay sorted, as the bit that separates them is the lowest of the remainder.
            let upper: Vec<RegionEntry> =
                entries.iter().filter(|entry| entry.remainder & 1 == 1).map(RegionEntry::halved).collect();
            entries.retain(|entry| entry.remainder & 1 == 0);
            entries.iter_mut().for_each(|entry| *entry = entry.halved());
            filter.store(halves[1], &upper) && filter.store(halves[0], entries)
        });
        if !stored {
            self.regions.pop();
        }
    }

    /// Rewrites a region with these sorted entries. Returns false, without effect, if there is no memory for it.
    fn store(&mut self, place: RegionPlace, entries: &[RegionEntry]) -> bool {
        if entries.is_empty() {
            self.regions.free(place.region);
            return true;
        }
        let shape = RegionShape::fitting(entries, self.remainder_bits(place), self.bucket_bits_max(place));
        match self.regions.reserve(place.region, shape.words()) {
            Some(words) => region::encode(words, shape, entries),
            None => return false,
        }
        self.regions.shrink(place.region, shape.words());
        true
    }

    /// Unpacks a region's entries into the scratch buffer and runs `work` on them.
    fn with_entries<R>(&mut self, place: RegionPlace, work: impl FnOnce(&mut Filter, &mut Vec<RegionEntry>) -> R) -> R {
        let mut entries = std::mem::take(&mut self.scratch);
        entries.clear();
        if let Some(words) = self.regions.words(place.region) {
            Region::new(words, self.shape(words, place)).unpack(&mut entries);
        }
        let result = work(self, &mut entries);
        entries.clear();
        entries.shrink_to(SCRATCH_ENTRIES);
        self.scratch = entries;
        result
    }
}

/// Returns the regions of an empty filter.
fn no_regions(memory_bytes_max: u64) -> Regions {
    Regions::new(memory_bytes_max.saturating_sub(FIXED_BYTES))
}
