//! A region: the entries whose keys begin alike, in buckets, packed to the bit.
//!
//! A key without the bits that chose the region is the entry's *remainder*. Its upper bits choose one of the region's
//! 2^b buckets; its lower bits, the *tag*, are stored. In memory and in the saved filter, a region consists of these
//! words:
//!
//! | words  | field   | notes                                                                                     |
//! |--------|---------|-------------------------------------------------------------------------------------------|
//! | 0      | header  | bits 0..32 region number, 32..48 entry count, 48..56 b, 56..64 bits of a page number      |
//! | 1..1+m | bitmap  | bucket after bucket: a zero for each entry, then a one; entry count + 2^b bits in m words |
//! | 1+m..  | entries | entry after entry: tag, then page number, without space between                           |
//!
//! Unused bits are zero. With as many buckets as entries this costs 2 bits per entry beside tag and page. Each halving
//! of the number of buckets would cost half a bit less in the bitmap and one more in the tags.

#[cfg(test)]
mod tests;

use super::StorePageNo;
use super::arena;
use super::candidates::CandidatePages;
use super::geometry::ceil_log2;
use super::packed;

/// Maximum number of entries in one region, far more than chance ever brings together.
pub(super) const ENTRIES_MAX: usize = u16::MAX as usize;

/// Maximum number of entries in one bucket. Only thousands of equal fingerprints reach it: their region keeps room for
/// others.
const BUCKET_ENTRIES_MAX: usize = 1 << 12;

/// One stored block: the remainder of its key, and the store page that holds its fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RegionEntry {
    pub(super) remainder: u64,
    pub(super) page: u64,
}

impl RegionEntry {
    /// Returns the entry in its form for either half of its region.
    pub(super) fn halved(&self) -> RegionEntry {
        RegionEntry { remainder: self.remainder >> 1, page: self.page }
    }
}

/// The widths that determine the layout of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionShape {
    pub(super) count: usize,
    pub(super) bucket_bits: u32,
    pub(super) page_bits: u32,
    pub(super) remainder_bits: u32,
}

impl RegionShape {
    /// Returns the shape that holds `entries` in the fewest bits, with at most 2^`bucket_bits_max` buckets.
    pub(super) fn fitting(entries: &[RegionEntry], remainder_bits: u32, bucket_bits_max: u32) -> RegionShape {
        let page_bits = entries.iter().map(|entry| bits_of(entry.page)).max().unwrap_or(0);
        let bucket_bits = ceil_log2(entries.len() as u64).min(bucket_bits_max).min(remainder_bits);
        RegionShape { count: entries.len(), bucket_bits, page_bits, remainder_bits }
    }

    /// Decodes the shape from a region's header, unchecked.
    pub(super) fn read(words: &[u64], remainder_bits: u32) -> RegionShape {
        let field = |at, width| u32::try_from(packed::get(words, at, width)).expect("no field is wider");
        RegionShape {
            count: field(32, 16) as usize,
            bucket_bits: field(48, 8),
            page_bits: field(56, 8),
            remainder_bits,
        }
    }

    /// Writes the header, except the region's number.
    fn write(&self, words: &mut [u64]) {
        packed::put(words, 32, 16, self.count as u64);
        packed::put(words, 48, 8, u64::from(self.bucket_bits));
        packed::put(words, 56, 8, u64::from(self.page_bits));
    }

    /// Returns whether the widths are possible: the check that [`RegionShape::read`] omits.
    pub(super) fn is_possible(&self, bucket_bits_max: u32) -> bool {
        self.bucket_bits <= self.remainder_bits.min(bucket_bits_max)
            && self.page_bits <= u64::BITS
            && 1_usize.checked_shl(self.bucket_bits).is_some_and(|buckets| buckets <= 4 * ENTRIES_MAX)
    }

    /// Returns the shape with `count` entries.
    pub(super) fn with_count(&self, count: usize) -> RegionShape {
        RegionShape { count, ..*self }
    }

    /// Returns whether another entry fits in place; otherwise the region must be rewritten in a better shape.
    pub(super) fn suits_one_more(&self, page: u64, bucket_bits_max: u32) -> bool {
        let more_buckets = self.bucket_bits < self.remainder_bits.min(bucket_bits_max);
        bits_of(page) <= self.page_bits && !(more_buckets && self.count + 1 > 1 << self.bucket_bits)
    }

    /// Returns whether there are so few entries that the region should be rewritten with fewer buckets.
    pub(super) fn is_sparse(&self) -> bool {
        self.count * 4 < 1 << self.bucket_bits
    }

    /// Returns the number of words of a region of this shape.
    pub(super) fn words(&self) -> usize {
        1 + self.bitmap_words() + packed::words_for(self.count * self.entry_bits())
    }

    fn tag_bits(&self) -> u32 {
        self.remainder_bits - self.bucket_bits
    }

    fn entry_bits(&self) -> usize {
        (self.tag_bits() + self.page_bits) as usize
    }

    fn bitmap_bits(&self) -> usize {
        self.count + (1 << self.bucket_bits)
    }

    fn bitmap_words(&self) -> usize {
        packed::words_for(self.bitmap_bits())
    }
}

/// A region for reading.
pub(super) struct Region<'a> {
    shape: RegionShape,
    bitmap: &'a [u64],
    entries: &'a [u64],
}

/// A bucket: its entries, and the bit of the bitmap at which it begins.
struct RegionBucket {
    first: usize,
    count: usize,
    bit: usize,
}

impl Region<'_> {
    /// Returns the region in `words`, whose number follows from `shape`.
    pub(super) fn new(words: &[u64], shape: RegionShape) -> Region<'_> {
        let (bitmap, entries) = words[1..].split_at(shape.bitmap_words());
        Region { shape, bitmap, entries }
    }

    /// Adds the pages of all entries with this remainder.
    pub(super) fn candidates(&self, remainder: u64, into: &mut CandidatePages) {
        let bucket = self.bucket(remainder);
        let first = self.lower_bound(&bucket, RegionEntry { remainder, page: 0 });
        let tag = self.tag(remainder);
        for index in first..bucket.first + bucket.count {
            let (found, page) = self.entry(index);
            if found != tag {
                break;
            }
            into.add(StorePageNo(page));
        }
    }

    /// Returns a word near the place of a remainder's entry, assuming that entries are spread evenly. Reading it brings
    /// the place into the processor's cache.
    pub(super) fn near(&self, remainder: u64) -> u64 {
        let bucket = usize::try_from(remainder >> self.shape.tag_bits()).unwrap_or(0);
        let index = (bucket * self.shape.count) >> self.shape.bucket_bits;
        self.entries.get(index * self.shape.entry_bits() / 64).copied().unwrap_or(0)
    }

    /// Returns whether the bucket of this remainder is full.
    pub(super) fn is_bucket_full(&self, remainder: u64) -> bool {
        self.bucket(remainder).count >= BUCKET_ENTRIES_MAX
    }

    /// Appends all entries to `into`, in order. Nothing here branches on the region's content: no processor could
    /// predict it, and rebuilding a large filter does little else.
    pub(super) fn unpack(&self, into: &mut Vec<RegionEntry>) {
        let (first, tag_bits, bits) = (into.len(), self.shape.tag_bits(), self.shape.entry_bits());
        into.extend((0..self.shape.count).map(|index| {
            let (remainder, page) = self.entry(index);
            RegionEntry { remainder, page }
        }));
        debug_assert!(bits == 0 || self.entries.len() * 64 >= self.shape.count * bits);
        let entries = &mut into[first..];
        let (mut index, mut bucket) = (0, 0);
        for (word, &bits) in self.bitmap.iter().enumerate() {
            let mut bits = bits;
            for _ in 0..(self.shape.bitmap_bits() - word * 64).min(64) {
                // The last bits end buckets after the last entry.
                let Some(entry) = entries.get_mut(index) else { return };
                let ends = bits & 1;
                bits >>= 1;
                entry.remainder |= (bucket << tag_bits) & (ends.wrapping_sub(1));
                bucket += ends;
                index += usize::from(ends == 0);
            }
        }
    }

    /// Checks what [`RegionShape::is_possible`] cannot: the bitmap, the order of the entries, their pages, and that all
    /// unused bits are zero. `words` may be longer than the region.
    pub(super) fn check(words: &[u64], shape: RegionShape, pages: u64) -> Result<(), RegionFault> {
        let region = Region::new(words, shape);
        let ones: u32 = region.bitmap.iter().map(|word| word.count_ones()).sum();
        let buckets = 1 << shape.bucket_bits;
        let last = shape.bitmap_bits() - 1;
        if u64::from(ones) != buckets || packed::get(region.bitmap, last, 1) != 1 {
            return Err(RegionFault::Bitmap);
        }
        if (last + 1..shape.bitmap_words() * 64).any(|bit| packed::get(region.bitmap, bit, 1) != 0) {
            return Err(RegionFault::Bitmap);
        }
        let end = shape.count * shape.entry_bits();
        let used = packed::words_for(end);
        let beyond = region.entries[used..].iter().any(|&word| word != 0);
        if beyond || (!end.is_multiple_of(64) && region.entries[end / 64] >> (end % 64) != 0) {
            return Err(RegionFault::Unused);
        }
        match region.highest_page() {
            None => Err(RegionFault::Order),
            Some(page) if shape.count > 0 && page >= pages => Err(RegionFault::Page(StorePageNo(page))),
            Some(_) => Ok(()),
        }
    }

    /// Returns the highest page of all entries, or 0 without entries; `None` if they are not in order.
    ///
    /// Compares each entry only with the previous one in its bucket, as buckets are in order by themselves. Loading a
    /// saved filter does little else, so this unpacks nothing.
    fn highest_page(&self) -> Option<u64> {
        let (mut index, mut next, mut last, mut highest) = (0, 0, (0, 0), 0);
        for (word, &bits) in self.bitmap.iter().enumerate() {
            let begin = word * 64;
            let mut zeros = !bits;
            // Behind the bitmap's end there are more zeros, which are no entries.
            while zeros != 0 && index < self.shape.count {
                let at = begin + zeros.trailing_zeros() as usize;
                zeros &= zeros - 1;
                let entry = self.entry(index);
                if at == next && entry < last {
                    return None;
                }
                highest = highest.max(entry.1);
                (index, next, last) = (index + 1, at + 1, entry);
            }
        }
        Some(highest)
    }

    fn bucket(&self, remainder: u64) -> RegionBucket {
        let number = bucket_index(remainder, self.shape.tag_bits());
        let bit = if number == 0 { 0 } else { packed::select_one(self.bitmap, number - 1) + 1 };
        RegionBucket { first: bit - number, count: packed::next_one(self.bitmap, bit) - bit, bit }
    }

    fn tag(&self, remainder: u64) -> u64 {
        remainder & packed::mask(self.shape.tag_bits())
    }

    fn entry(&self, index: usize) -> (u64, u64) {
        let bits = self.shape.entry_bits();
        let at = index * bits;
        let tag_bits = self.shape.tag_bits();
        if bits < 64 {
            let both = packed::get(self.entries, at, tag_bits + self.shape.page_bits);
            return (both & packed::mask(tag_bits), both >> tag_bits);
        }
        let tag = packed::get(self.entries, at, tag_bits);
        (tag, packed::get(self.entries, at + tag_bits as usize, self.shape.page_bits))
    }

    /// Returns the first place in a bucket whose entry is not below `entry`.
    fn lower_bound(&self, bucket: &RegionBucket, entry: RegionEntry) -> usize {
        let sought = (self.tag(entry.remainder), entry.page);
        let (mut low, mut high) = (bucket.first, bucket.first + bucket.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(middle) < sought {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Writes sorted `entries` into a cell large enough for `shape`; the region's number stays.
pub(super) fn encode(words: &mut [u64], shape: RegionShape, entries: &[RegionEntry]) {
    debug_assert!(entries.is_sorted() && entries.len() == shape.count, "{shape:?} for {} entries", entries.len());
    words[1..].fill(0);
    shape.write(words);
    let tag_bits = shape.tag_bits();
    let (bitmap, packed_entries) = words[1..].split_at_mut(shape.bitmap_words());
    // All ones, except a zero for each entry: at its index among all, plus the number of buckets before it.
    let bits = shape.bitmap_bits();
    bitmap.fill(u64::MAX);
    if !bits.is_multiple_of(64) {
        bitmap[bits / 64] = packed::mask_below(bits);
    }
    let entry_bits = shape.entry_bits();
    for (index, entry) in entries.iter().enumerate() {
        let bit = index + bucket_index(entry.remainder, tag_bits);
        bitmap[bit / 64] &= !(1 << (bit % 64));
        if entry_bits < 64 {
            let both = entry.remainder & packed::mask(tag_bits) | entry.page << tag_bits;
            packed::put_next(packed_entries, index * entry_bits, tag_bits + shape.page_bits, both);
        } else {
            packed::put(packed_entries, index * entry_bits, tag_bits, entry.remainder);
            packed::put(packed_entries, index * entry_bits + tag_bits as usize, shape.page_bits, entry.page);
        }
    }
}

fn bucket_index(remainder: u64, tag_bits: u32) -> usize {
    usize::try_from(remainder >> tag_bits).expect("fewer buckets than 2^32")
}

/// Inserts an entry; returns false, without effect, if its bucket is full. The cell must have room for one more, and
/// its shape must suit it.
pub(super) fn insert(words: &mut [u64], shape: RegionShape, entry: RegionEntry) -> bool {
    let region = Region::new(words, shape);
    let bucket = region.bucket(entry.remainder);
    if bucket.count >= BUCKET_ENTRIES_MAX {
        return false;
    }
    let index = region.lower_bound(&bucket, entry);
    let after = shape.with_count(shape.count + 1);
    after.write(words);

    let bitmap_words = after.bitmap_words();
    if bitmap_words > shape.bitmap_words() {
        // The bitmap takes one more word, so all entries move up for it.
        let end = shape.words();
        words.copy_within(bitmap_words..end, bitmap_words + 1);
        words[bitmap_words] = 0;
    }
    let (bitmap, entries) = words[1..].split_at_mut(bitmap_words);
    packed::open_gap(bitmap, bucket.bit, 1, shape.bitmap_bits());
    let bits = shape.entry_bits();
    if bits > 0 {
        packed::open_gap(entries, index * bits, bits, shape.count * bits);
        packed::put(entries, index * bits, shape.tag_bits(), entry.remainder);
        packed::put(entries, index * bits + shape.tag_bits() as usize, shape.page_bits, entry.page);
    }
    true
}

/// Removes one entry equal to `entry`; returns whether there was one.
pub(super) fn remove(words: &mut [u64], shape: RegionShape, entry: RegionEntry) -> bool {
    let region = Region::new(words, shape);
    let bucket = region.bucket(entry.remainder);
    let index = region.lower_bound(&bucket, entry);
    if index == bucket.first + bucket.count || region.entry(index) != (region.tag(entry.remainder), entry.page) {
        return false;
    }
    let after = shape.with_count(shape.count - 1);
    after.write(words);

    let bitmap_words = shape.bitmap_words();
    let (bitmap, entries) = words[1..].split_at_mut(bitmap_words);
    packed::close_gap(bitmap, bucket.bit, 1, shape.bitmap_bits());
    let bits = shape.entry_bits();
    if bits > 0 {
        packed::close_gap(entries, index * bits, bits, shape.count * bits);
    }
    if after.bitmap_words() < bitmap_words {
        let end = shape.words();
        words.copy_within(bitmap_words + 1..end, bitmap_words);
        words[end - 1] = 0;
    }
    true
}

/// Damage of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionFault {
    /// It is another region.
    #[error("it says that it is region {found}")]
    Number {
        /// Its claimed number.
        found: u32,
    },
    /// Its header is impossible.
    #[error("its header gives impossible widths")]
    Shape,
    /// Its bitmap does not match its numbers of buckets and entries.
    #[error("its bitmap does not fit its numbers of buckets and entries")]
    Bitmap,
    /// Its entries are not in order.
    #[error("its entries are out of order")]
    Order,
    /// An entry names a page that the pool lacks.
    #[error("an entry names {0}, past the end of the pool")]
    Page(StorePageNo),
    /// Unused bits are not zero.
    #[error("its unused bits are not zero")]
    Unused,
}

fn bits_of(value: u64) -> u32 {
    u64::BITS - value.leading_zeros()
}

/// Returns the region's number.
pub(super) fn number(words: &[u64]) -> u32 {
    arena::owner(words)
}
