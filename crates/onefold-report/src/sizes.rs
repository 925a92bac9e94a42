//! Block sizes. The fingerprints of larger blocks are computed from those of their parts, so the bytes are hashed once
//! for all sizes.

use onefold_block::BLOCK_BYTES_U64;

use crate::record::Content;

/// Number of block sizes that are compared: 4 KiB, and each twice the previous one, up to 1 MiB.
pub(crate) const SIZES: u8 = 9;
/// Number of 4 KiB blocks in the largest block.
pub(crate) const PIECE_BLOCKS: usize = 1 << (SIZES - 1);
/// Length of the largest block.
pub(crate) const PIECE_BYTES: u64 = PIECE_BLOCKS as u64 * BLOCK_BYTES_U64;

/// Returns the block size of `level`, which is 0 for 4 KiB.
pub(crate) fn block_bytes(level: u8) -> u64 {
    BLOCK_BYTES_U64 << level
}

/// Computes the contents of blocks that consist of two smaller ones.
#[derive(Clone)]
pub(crate) struct Joiner {
    key: [u8; 32],
}

impl Joiner {
    /// Returns a joiner whose contents are unpredictable without `key`.
    pub(crate) fn new(key: [u8; 32]) -> Joiner {
        Joiner { key }
    }

    /// Replaces the blocks in `level` by blocks of twice the size; `None` is a block of zeros.
    pub(crate) fn join(&self, level: &mut Vec<Option<Content>>) {
        let pairs = level.len() / 2;
        for at in 0..pairs {
            level[at] = self.pair(level[2 * at], level[2 * at + 1]);
        }
        level.truncate(pairs);
    }

    fn pair(&self, left: Option<Content>, right: Option<Content>) -> Option<Content> {
        if left.is_none() && right.is_none() {
            return None;
        }
        // These bytes alone do not distinguish a content from zeros, but no content is expected to have a digest of
        // sixteen zero bytes.
        let bytes = |half: Option<Content>| half.map_or([0; 16], Content::to_bytes);
        let mut both = [0; 32];
        both[..16].copy_from_slice(&bytes(left));
        both[16..].copy_from_slice(&bytes(right));
        let digest = blake3::keyed_hash(&self.key, &both);
        Some(Content::of_digest(*digest.as_bytes().first_chunk().expect("32 bytes have a first 16")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(number: u8) -> Option<Content> {
        Some(Content::of_digest([number; 16]))
    }

    fn joined(blocks: &[Option<Content>]) -> Vec<Option<Content>> {
        let mut level = blocks.to_vec();
        Joiner::new([7; 32]).join(&mut level);
        level
    }

    #[test]
    fn a_block_of_zeros_is_one_whose_halves_are() {
        let pairs = joined(&[None, None, content(1), None, None, content(1)]);
        assert_eq!(pairs[0], None);
        assert!(pairs[1].is_some() && pairs[2].is_some());
        assert_ne!(pairs[1], pairs[2], "which half it is matters");
    }

    #[test]
    fn equal_halves_in_equal_order_are_equal_blocks() {
        let pairs = joined(&[content(1), content(2), content(1), content(2), content(2), content(1)]);
        assert_eq!(pairs[0], pairs[1]);
        assert_ne!(pairs[0], pairs[2]);
    }

    #[test]
    fn sizes_go_from_4_kib_to_1_mib() {
        assert_eq!(block_bytes(0), 4096);
        assert_eq!(block_bytes(SIZES - 1), 1 << 20);
        assert_eq!(PIECE_BYTES, 1 << 20);
    }
}
