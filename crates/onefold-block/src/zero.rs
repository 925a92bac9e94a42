//! The all-zero test: such blocks are holes and take no space.

use crate::BLOCK_BYTES;

static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// Returns whether all of `bytes` are zero. An empty slice counts as zero.
///
/// Comparing with a block of zeros in the first-level cache lets the C library's `memcmp` use the widest registers that
/// the processor has. It stops at the first difference.
#[must_use]
pub fn is_zero(bytes: &[u8]) -> bool {
    // Most blocks differ at once; this check answers without a call.
    if let Some(first) = bytes.first_chunk::<8>()
        && *first != [0; 8]
    {
        return false;
    }
    bytes.chunks(BLOCK_BYTES).all(|piece| *piece == ZEROS[..piece.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_of_any_length_and_alignment_are_zero() {
        let zeros = vec![0; 3 * BLOCK_BYTES];
        for start in 0..20 {
            for length in [0, 1, 7, 8, 9, 63, 64, 511, 4095, 4096, 4097, 8192] {
                assert!(is_zero(&zeros[start..start + length]));
            }
        }
    }

    #[test]
    fn a_single_set_bit_anywhere_is_seen() {
        let mut block = [0; BLOCK_BYTES];
        for bit in 0..BLOCK_BYTES * 8 {
            block[bit / 8] = 1 << (bit % 8);
            assert!(!is_zero(&block), "bit {bit}");
            block[bit / 8] = 0;
        }
        assert!(is_zero(&block));
    }

    #[test]
    fn bytes_around_the_slice_do_not_count() {
        let mut bytes = vec![0xff; 2 * BLOCK_BYTES];
        bytes[100..100 + BLOCK_BYTES].fill(0);
        assert!(is_zero(&bytes[100..100 + BLOCK_BYTES]));
        assert!(!is_zero(&bytes[99..100 + BLOCK_BYTES]));
        assert!(!is_zero(&bytes[100..101 + BLOCK_BYTES]));
    }
}
