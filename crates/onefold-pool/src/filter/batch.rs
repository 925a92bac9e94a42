//! Adds many entries at once, for example after a mount that must read every fingerprint store.
//!
//! Inserting a single entry moves half a region. A batch is sorted first, so that each region is unpacked, merged with
//! all its new entries, and packed only once. At eight bytes per entry a batch is about twice as large as the filter's
//! form of it. The first batch may take all memory that the filter will have, and later ones what is left of it. So a
//! pool of 2^28 blocks is done in a handful of batches, and in a tenth of the time of as many inserts.
//!
//! An entry is packed into 64 bits: its key, and its page counted from the batch's first. Batches are divided by the
//! keys' lowest bits, which also choose regions: a *part* holds the entries of the batch for some regions. Parts are
//! sorted and merged one after another, so that a caller that holds a lock for it can release it in between.

use onefold_block::Fingerprint;

use super::directory::RegionPlace;
use super::geometry::FilterGeometry;
use super::packed;
use super::region::RegionEntry;
use super::{Filter, REGION_ENTRIES, StorePageNo};

/// Approximate number of entries in a part: they fit in a processor's cache while they are sorted.
const PART_ENTRIES: u64 = 1 << 18;
const PART_BITS_MAX: u32 = 10;
/// Approximate memory per entry, all included.
const ENTRY_BYTES: u64 = 4;
/// Maximum number of entries in a region for merging; beyond it, single inserts are used, which handle full buckets.
const MERGED_ENTRIES_MAX: usize = 1 << 12;

/// Entries on their way into a filter.
#[derive(Debug)]
pub struct Batch {
    geometry: FilterGeometry,
    first_page: u64,
    parts: Vec<Vec<u64>>,
    entry_count: u64,
}

/// Packs entries for one batch.
#[derive(Clone, Copy, Debug)]
pub struct Packer {
    geometry: FilterGeometry,
    first_page: u64,
}

/// An entry in the form that a batch keeps.
#[derive(Clone, Copy, Debug)]
pub struct PackedEntry(u64);

/// The entries of a batch for some of the regions.
#[derive(Debug)]
pub struct BatchPart {
    geometry: FilterGeometry,
    first_page: u64,
    entries: Vec<u64>,
    /// Entries before this one are in the filter.
    taken: usize,
    /// Number of low bits of a key that determine the order of the entries first; `None` before the first sort.
    sorted_by: Option<u32>,
}

impl Batch {
    /// Returns an empty batch of about `entries_expected` entries for this filter, on pages from `first_page` on.
    #[must_use]
    pub fn new(filter: &Filter, first_page: StorePageNo, entries_expected: u64) -> Batch {
        let part_bits = (entries_expected / PART_ENTRIES).checked_ilog2().map_or(0, |bits| bits + 1).min(PART_BITS_MAX);
        let part_bits = part_bits.min(filter.geometry.prefix_bits);
        // A hash spreads entries evenly, so parts differ little; unused room is never touched.
        let room = usize::try_from((entries_expected >> part_bits) * 33 / 32 + 64).unwrap_or(0);
        let parts = (0..1_usize << part_bits).map(|_| Vec::with_capacity(room)).collect();
        Batch { geometry: filter.geometry, first_page: first_page.0, parts, entry_count: 0 }
    }

    /// Returns the maximum number of pages in a batch: all those of a pool, unless the user wants long prefixes.
    #[must_use]
    pub fn pages_max(filter: &Filter) -> u64 {
        1 << page_bits(filter.geometry)
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn entry_count(&self) -> u64 {
        self.entry_count
    }

    /// Returns the packer of entries for this batch, which any thread can use.
    #[must_use]
    pub fn packer(&self) -> Packer {
        Packer { geometry: self.geometry, first_page: self.first_page }
    }

    /// Adds an entry; see [`Filter::insert`].
    ///
    /// # Panics
    /// See [`Packer::pack`].
    pub fn add(&mut self, fingerprint: Fingerprint, page: StorePageNo) {
        self.add_packed(self.packer().pack(fingerprint, page));
    }

    /// Adds an entry of this batch's packer.
    pub fn add_packed(&mut self, entry: PackedEntry) {
        let part = entry.0 >> page_bits(self.geometry) & (self.parts.len() as u64 - 1);
        let part = usize::try_from(part).expect("below the number of parts");
        self.parts[part].push(entry.0);
        self.entry_count += 1;
    }

    /// Removes and returns the next part, without the entries on pages for which `skips` returns true. `None` after the
    /// last.
    pub fn take_part(&mut self, skips: impl Fn(StorePageNo) -> bool) -> Option<BatchPart> {
        let mut entries = self.parts.pop()?;
        let (geometry, first_page) = (self.geometry, self.first_page);
        let page_mask = packed::mask(page_bits(geometry));
        self.entry_count -= entries.len() as u64;
        entries.retain(|entry| !skips(StorePageNo(first_page + (entry & page_mask))));
        Some(BatchPart { geometry, first_page, entries, taken: 0, sorted_by: None })
    }
}

impl Packer {
    /// Returns an entry for [`Batch::add_packed`].
    ///
    /// # Panics
    /// When the page is not within [`Batch::pages_max`] pages from the batch's first.
    #[must_use]
    pub fn pack(&self, fingerprint: Fingerprint, page: StorePageNo) -> PackedEntry {
        let page_bits = page_bits(self.geometry);
        let offset = page.0.checked_sub(self.first_page).filter(|offset| offset >> page_bits == 0);
        let offset = offset.expect("the page is one of the batch's");
        PackedEntry(self.geometry.key(fingerprint) << page_bits | offset)
    }
}

/// Returns the number of bits for the page in a packed entry.
fn page_bits(geometry: FilterGeometry) -> u32 {
    u64::BITS - geometry.prefix_bits
}

impl BatchPart {
    /// Returns whether all entries are in the filter.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.taken == self.entries.len()
    }

    /// Returns the number of entries that are not in the filter yet.
    #[must_use]
    pub fn entries_left(&self) -> u64 {
        (self.entries.len() - self.taken) as u64
    }

    /// Returns whether the entries are in the order required by a filter of this level.
    #[must_use]
    pub fn is_sorted_by(&self, level: u32) -> bool {
        self.sorted_by == Some(level)
    }

    /// Sorts the entries for a filter whose regions are chosen by `level` bits or by one more ([`Filter::level`]).
    pub fn sort(&mut self, level: u32) {
        if self.is_sorted_by(level) {
            return;
        }
        self.entries.drain(..self.taken);
        self.taken = 0;
        let (bits, page_bits) = (self.geometry.prefix_bits, page_bits(self.geometry));
        let before = self.sorted_by.unwrap_or(0);
        let page_mask = packed::mask(page_bits);
        for entry in &mut self.entries {
            let key = turned(*entry >> page_bits, bits, bits - before);
            *entry = turned(key, bits, level) << page_bits | *entry & page_mask;
        }
        self.entries.sort_unstable();
        self.sorted_by = Some(level);
    }
}

/// Returns a number of `bits` bits with its lowest `by` bits moved to the top.
fn turned(number: u64, bits: u32, by: u32) -> u64 {
    if by == 0 || by == bits {
        return number;
    }
    (number & packed::mask(by)) << (bits - by) | number >> by
}

impl Filter {
    /// Returns the minimum number of low key bits that choose a region; some regions are chosen by one more.
    #[must_use]
    pub fn level(&self) -> u32 {
        self.regions.len().ilog2()
    }

    /// Makes up to `steps` regions towards the number that `entries` entries need, or that memory allows. Returns false
    /// when there are enough.
    pub fn make_regions(&mut self, entries: u64, steps: usize) -> bool {
        let entries = entries.min(self.memory_bytes_max / ENTRY_BYTES);
        for _ in 0..steps {
            let count = self.regions.len();
            if (count * REGION_ENTRIES) as u64 >= entries {
                return false;
            }
            self.split();
            if self.regions.len() == count {
                return false;
            }
        }
        true
    }

    /// Adds the next entries of a part, those of about `regions` regions. Does nothing if the part is not sorted for
    /// [`Filter::level`].
    pub fn absorb(&mut self, part: &mut BatchPart, regions: usize) {
        let (mut new, mut merged) = (Vec::new(), Vec::new());
        for _ in 0..regions {
            let level = self.level();
            if part.is_done() || !part.is_sorted_by(level) {
                return;
            }
            let (bits, page_bits) = (self.geometry.prefix_bits, page_bits(self.geometry));
            let shift = page_bits + bits - level;
            // All bits may belong to a region's number.
            let coarse_of = |entry: u64| entry.checked_shr(shift).unwrap_or(0);
            let coarse = coarse_of(part.entries[part.taken]);
            let run = part.entries[part.taken..].iter().take_while(|entry| coarse_of(**entry) == coarse).count();
            let run = &part.entries[part.taken..part.taken + run];
            let entry = |packed: u64| RegionEntry {
                remainder: packed >> page_bits & packed::mask(bits - level),
                page: part.first_page + (packed & packed::mask(page_bits)),
            };
            part.taken += run.len();
            let whole = self.regions.locate(coarse);
            if whole.bits == level {
                new.extend(run.iter().map(|&packed| entry(packed)));
                self.merge(whole, &mut new, &mut merged);
                continue;
            }
            for half in 0..2 {
                let place = self.regions.locate(coarse | half << level);
                let of_half = run.iter().map(|&packed| entry(packed)).filter(|entry| entry.remainder & 1 == half);
                new.extend(of_half.map(|entry| entry.halved()));
                self.merge(place, &mut new, &mut merged);
            }
        }
    }

    /// Adds sorted entries to a region; empties their list. Does not split regions.
    fn merge(&mut self, place: RegionPlace, new: &mut Vec<RegionEntry>, merged: &mut Vec<RegionEntry>) {
        if new.is_empty() {
            return;
        }
        let is_merged = self.with_entries(place, |filter, entries| {
            merged.clear();
            merge_sorted(entries, new, merged);
            merged.len() <= MERGED_ENTRIES_MAX && filter.store(place, merged)
        });
        if is_merged {
            self.entry_count += new.len() as u64;
        } else {
            for entry in new.iter() {
                if self.insert_at(place, *entry) {
                    self.entry_count += 1;
                } else {
                    self.refused_count = self.refused_count.saturating_add(1);
                }
            }
        }
        new.clear();
    }
}

/// Merges two sorted lists into a third. Without a branch on which entry is next, as no processor could predict it.
fn merge_sorted(one: &[RegionEntry], other: &[RegionEntry], into: &mut Vec<RegionEntry>) {
    let (mut at_one, mut at_other) = (0, 0);
    while at_one < one.len() && at_other < other.len() {
        let (first, second) = (one[at_one], other[at_other]);
        let is_first = first <= second;
        into.push(if is_first { first } else { second });
        at_one += usize::from(is_first);
        at_other += usize::from(!is_first);
    }
    into.extend_from_slice(&one[at_one..]);
    into.extend_from_slice(&other[at_other..]);
}
