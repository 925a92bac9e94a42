//! Space that a pool needs in addition to the blocks themselves.

use onefold_block::BLOCK_BYTES_U64;

/// Blocks of a block group.
const GROUP_BLOCKS: u64 = 32_768;
/// Of these: the bitmap, and 193 pages of fingerprints.
const GROUP_FIXED_BLOCKS: u64 = 194;
/// Bytes per content in a host's index of shared blocks (DeDe's average entry).
const INDEX_ENTRY_BYTES: u64 = 23;

/// Returns a pool's fixed metadata for `blocks` stored blocks: their share of bitmaps and fingerprint stores.
pub(crate) fn fixed_bytes(blocks: u64) -> u64 {
    let stores = u128::from(blocks) * u128::from(GROUP_FIXED_BLOCKS * BLOCK_BYTES_U64);
    u64::try_from(stores.div_ceil(u128::from(GROUP_BLOCKS - GROUP_FIXED_BLOCKS))).unwrap_or(u64::MAX)
}

/// Returns the size of a file map with this many nodes.
pub(crate) fn map_bytes(nodes: u64) -> u64 {
    nodes.saturating_mul(BLOCK_BYTES_U64)
}

/// Returns the size of an index of `contents` different blocks.
pub(crate) fn index_bytes(contents: u64) -> u64 {
    contents.saturating_mul(INDEX_ENTRY_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_group_needs_its_own_fixed_blocks() {
        assert_eq!(fixed_bytes(GROUP_BLOCKS - GROUP_FIXED_BLOCKS), GROUP_FIXED_BLOCKS * BLOCK_BYTES_U64);
        assert_eq!(fixed_bytes(0), 0);
        assert!(fixed_bytes(u64::MAX) > u64::MAX / 200, "no overflow");
    }
}
