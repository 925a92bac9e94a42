//! How many bits of a fingerprint the filter keeps, and why.
//!
//! A look-up of a new block names a page in vain if a stored block shares its prefix. With N stored blocks and prefixes
//! of t bits, that happens N / 2^t times per look-up. The prefix is the paper's n + k: n bits choose a bucket, and k
//! bits distinguish the blocks of a bucket. Only their sum determines how often the filter errs. The division
//! determines memory and time; unless the user sets it, each region chooses it anew as it fills.

use onefold_block::Fingerprint;

use super::FilterOptions;

/// Number of look-ups per false page that the default prefix allows at full capacity.
const LOOKUPS_PER_FALSE_PAGE: u64 = 100;
/// Minimum memory per block, all included: it limits the number of blocks for a given memory.
const ENTRY_BYTES_MIN: u64 = 3;
/// Maximum length of a prefix. Longer ones would only cost memory: at 2^40 blocks one look-up in 2^16 errs.
const PREFIX_BITS_MAX: u32 = 56;

/// The division of a fingerprint's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilterGeometry {
    /// The paper's n + k.
    pub(super) prefix_bits: u32,
    /// The paper's n: it limits the number of buckets in a region.
    pub(super) index_bits: u32,
}

impl FilterGeometry {
    /// Chooses the values that `options` leave open and bounds the given ones: a prefix is at least long enough to
    /// distinguish as many blocks as the filter is for, and at most 56 bits.
    pub(super) fn new(options: &FilterOptions) -> FilterGeometry {
        let entries_expected = options.blocks_max.min(options.memory_bytes_max / ENTRY_BYTES_MIN).max(1);
        let entry_bits = ceil_log2(entries_expected).min(PREFIX_BITS_MAX);
        let prefix_default = ceil_log2(entries_expected.saturating_mul(LOOKUPS_PER_FALSE_PAGE));
        let wish = |bits: Option<u8>| bits.map(u32::from);
        let prefix_bits = match (wish(options.index_bits), wish(options.tag_bits)) {
            (Some(index_bits), Some(tag_bits)) => index_bits + tag_bits,
            (Some(index_bits), None) => prefix_default.max(index_bits),
            (None, Some(tag_bits)) => entry_bits + tag_bits,
            (None, None) => prefix_default,
        }
        .clamp(entry_bits, PREFIX_BITS_MAX);
        let index_bits = match options.index_bits {
            Some(index_bits) => u32::from(index_bits),
            None => entry_bits,
        }
        .min(prefix_bits);
        FilterGeometry { prefix_bits, index_bits }
    }

    /// Returns the prefix of a fingerprint.
    pub(super) fn key(&self, fingerprint: Fingerprint) -> u64 {
        // Shifts in two steps: a prefix of no bits is zero, and a shift by the whole width is invalid.
        fingerprint.prefix_u64() >> 1 >> (63 - self.prefix_bits)
    }

    /// Returns the maximum number of bits for choosing a bucket within a region that `region_bits` chose.
    pub(super) fn bucket_bits_max(&self, region_bits: u32) -> u32 {
        self.index_bits.saturating_sub(region_bits)
    }
}

/// Returns the exponent of the smallest power of two that is not below `value`.
pub(super) fn ceil_log2(value: u64) -> u32 {
    u64::BITS - value.saturating_sub(1).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(blocks_max: u64) -> FilterOptions {
        FilterOptions { blocks_max, pages: 1, memory_bytes_max: u64::MAX, index_bits: None, tag_bits: None }
    }

    #[test]
    fn the_default_prefix_errs_in_at_most_one_look_up_of_a_hundred() {
        for exponent in 0..44 {
            for blocks_max in [1_u64 << exponent, (1 << exponent) + 1, 3 << exponent] {
                let geometry = FilterGeometry::new(&options(blocks_max));
                let false_pages_per_100 = (blocks_max as f64) * 100.0 / 2.0_f64.powi(geometry.prefix_bits as i32);
                assert!(false_pages_per_100 <= 1.0, "{blocks_max} blocks: {false_pages_per_100} %");
                assert!(false_pages_per_100 > 0.5, "{blocks_max} blocks: a bit too many");
            }
        }
    }

    #[test]
    fn wishes_are_honoured_and_bounded() {
        let of = |index_bits, tag_bits| {
            let geometry = FilterGeometry::new(&FilterOptions { index_bits, tag_bits, ..options(1 << 20) });
            (geometry.index_bits, geometry.prefix_bits)
        };
        assert_eq!(of(Some(19), Some(24)), (19, 43), "the paper's");
        assert_eq!(of(Some(12), None), (12, 27));
        assert_eq!(of(None, Some(10)), (20, 30));
        assert_eq!(of(Some(0), Some(0)), (0, 20), "long enough to tell the blocks apart");
        assert_eq!(of(Some(255), Some(255)), (56, 56));
        assert_eq!(of(None, None), (20, 27));
    }

    #[test]
    fn a_limit_of_memory_shortens_the_prefix() {
        let limited = FilterOptions { memory_bytes_max: 3 << 10, ..options(1 << 40) };
        assert_eq!(FilterGeometry::new(&limited), FilterGeometry::new(&options(1 << 10)));
        assert_eq!(
            FilterGeometry::new(&FilterOptions { memory_bytes_max: 0, ..limited }),
            FilterGeometry::new(&options(1))
        );
    }

    #[test]
    fn logarithms_round_up() {
        let table = [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1 << 63, 63), (u64::MAX, 64)];
        for (value, expected) in table {
            assert_eq!(ceil_log2(value), expected, "{value}");
        }
    }
}
