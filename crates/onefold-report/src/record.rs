//! One block that is not zero: its content and its place, packed so that sorting brings equal contents together.
//!
//! | word | bits   | field   | notes                                                                       |
//! |------|--------|---------|-----------------------------------------------------------------------------|
//! | 0    | 56..64 | variant | which grid of blocks: size and shift                                        |
//! | 0    | 0..56  | content | first 56 bits of the fingerprint                                            |
//! | 1    | 24..64 | content | the 40 bits after them                                                      |
//! | 1    | 0..24  | image   | in the given order                                                          |
//! | 2    | 24..64 | index   | of the block in its image, in blocks of its variant's size                  |
//! | 2    | 8..24  | owner   | what the block belongs to, by its number in the image; 0 without            |
//! | 2    | 0..8   | lists   | which counts it belongs to                                                  |
//!
//! Order: variant, content, image, index. So the first of a content's records is where an ordered import of the images
//! would store it.

use onefold_sort::Row;

/// Maximum number of images that can be distinguished.
pub(crate) const IMAGES_MAX: usize = 1 << 24;
/// Maximum number of blocks of an image: 4 PiB of them.
pub(crate) const BLOCKS_MAX: u64 = 1 << 40;

/// Bits of a fingerprint that are kept. With a secret key, the probability that two different blocks among 2^38 (a
/// pebibyte) are taken for equal is below one in a million.
const CONTENT_BITS: u32 = 96;

/// The content of a block: the beginning of its fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Content(u128);

impl Content {
    /// Returns the content with these first 16 bytes of a digest.
    pub(crate) fn of_digest(digest: [u8; 16]) -> Content {
        Content(u128::from_be_bytes(digest) >> (128 - CONTENT_BITS))
    }

    /// Returns the content as bytes, for digests of digests.
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

/// The counts to which a block belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListSet(u8);

impl ListSet {
    /// Images without changes.
    pub(crate) const AS_IT_IS: ListSet = ListSet(1);
    /// As if every partition began at a whole block.
    pub(crate) const REALIGNED: ListSet = ListSet(2);
    /// As if the data area of every FAT did, too.
    pub(crate) const WITH_DATA_AREAS: ListSet = ListSet(4);

    /// Returns the union of both: the block lies the same way in all of them.
    pub(crate) const fn and(self, other: ListSet) -> ListSet {
        ListSet(self.0 | other.0)
    }

    /// Returns the lists for blocks of partitions that lie at whole blocks, whether moved or not. Blocks that nothing
    /// moves lie the same way in the lists that follow.
    pub(crate) const fn with_partitions_moved(has_data_areas: bool) -> ListSet {
        if has_data_areas { ListSet::REALIGNED } else { ListSet::REALIGNED.and(ListSet::WITH_DATA_AREAS) }
    }

    /// Returns the lists for the blocks of an image at their original places. `has_moved` says whether a partition
    /// begins inside a block, `has_data_areas` whether the data area of a FAT does.
    pub(crate) const fn as_they_lie(has_moved: bool, has_data_areas: bool) -> ListSet {
        if has_moved {
            ListSet::AS_IT_IS
        } else {
            ListSet::AS_IT_IS.and(ListSet::with_partitions_moved(has_data_areas))
        }
    }

    pub(crate) fn has(self, one: ListSet) -> bool {
        self.0 & one.0 != 0
    }
}

/// A block that is not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) variant: u8,
    pub(crate) content: Content,
    /// Below [`IMAGES_MAX`].
    pub(crate) image: usize,
    /// Below [`BLOCKS_MAX`].
    pub(crate) index: u64,
    pub(crate) lists: ListSet,
    /// Only for blocks of 4 KiB at their original places, if owners of blocks are requested.
    pub(crate) owner: u16,
}

impl Record {
    pub(crate) fn encode(self) -> Row {
        debug_assert!(self.image < IMAGES_MAX && self.index < BLOCKS_MAX, "{self:?}");
        let bytes = self.content.0.to_be_bytes();
        let high = u64::from_be_bytes([0, bytes[4], bytes[5], bytes[6], bytes[7], bytes[8], bytes[9], bytes[10]]);
        let low = u64::from_be_bytes([0, 0, 0, bytes[11], bytes[12], bytes[13], bytes[14], bytes[15]]);
        let image = self.image as u64;
        let owner = u64::from(self.owner) << 8;
        [u64::from(self.variant) << 56 | high, low << 24 | image, self.index << 24 | owner | u64::from(self.lists.0)]
    }

    pub(crate) fn decode([first, second, third]: Row) -> Record {
        let [variant, ..] = first.to_be_bytes();
        let [.., owner_high, owner_low, lists] = third.to_be_bytes();
        Record {
            variant,
            content: Content(u128::from(first & ((1 << 56) - 1)) << 40 | u128::from(second >> 24)),
            image: usize::try_from(second & 0xff_ffff).expect("24 bits fit"),
            index: third >> 24,
            lists: ListSet(lists),
            owner: u16::from_be_bytes([owner_high, owner_low]),
        }
    }
}

/// Returns a place in an image as one number, which sorts in the order of images.
pub(crate) fn place(image: usize, index: u64) -> u64 {
    (image as u64) << 40 | index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_packing_and_sort_by_content_then_place() {
        let mut digest = [0; 16];
        let mut rows = Vec::new();
        for (variant, byte, image, index, lists, owner) in [
            (0, 0, 0, 0, ListSet::AS_IT_IS, 9),
            (0, 1, 0, BLOCKS_MAX - 1, ListSet::AS_IT_IS.and(ListSet::REALIGNED), u16::MAX),
            (0, 1, 1, 0, ListSet::REALIGNED, 0),
            (0, 1, IMAGES_MAX - 1, 3, ListSet::AS_IT_IS, 300),
            (0, 0xff, 0, 1, ListSet::AS_IT_IS, 1),
            (200, 0, 0, 0, ListSet::AS_IT_IS.and(ListSet::REALIGNED).and(ListSet::WITH_DATA_AREAS), 0),
            (200, 0, 0, 1, ListSet::WITH_DATA_AREAS, 0),
        ] {
            digest.fill(byte);
            let record = Record { variant, content: Content::of_digest(digest), image, index, lists, owner };
            assert_eq!(Record::decode(record.encode()), record);
            rows.push(record.encode());
        }
        assert!(rows.is_sorted());
    }

    #[test]
    fn contents_keep_the_first_96_bits() {
        let mut digest = [7; 16];
        let whole = Content::of_digest(digest);
        digest[11] ^= 1;
        assert_ne!(Content::of_digest(digest), whole);
        digest[11] ^= 1;
        digest[12] ^= 1;
        assert_eq!(Content::of_digest(digest), whole);
    }
}
