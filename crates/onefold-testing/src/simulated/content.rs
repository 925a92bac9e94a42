//! The content of blocks.

use std::rc::Rc;

use onefold_block::BLOCK_BYTES;
use onefold_block::zero::is_zero;

/// The content of one block. Immutable: a write replaces it by another one. So a reference copy costs a pointer, and so
/// do most comparisons with it.
pub(super) type Content = Rc<[u8; BLOCK_BYTES]>;

/// Returns whether two blocks read the same; `None` is a hole, which reads as zeros.
pub(super) fn reads_same(one: Option<&Content>, other: Option<&Content>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => Rc::ptr_eq(one, other) || one == other,
        (Some(block), None) | (None, Some(block)) => is_zero(&block[..]),
    }
}

/// Returns the content of a block after `bytes` were written into it at offset `at`.
pub(super) fn merged(before: Option<&Content>, at: usize, bytes: &[u8]) -> Content {
    let mut block = before.map_or([0; BLOCK_BYTES], |content| **content);
    block[at..at + bytes.len()].copy_from_slice(bytes);
    Rc::new(block)
}

/// Returns the content of a block of which only the first `length` bytes are kept.
pub(super) fn cut(before: &Content, length: usize) -> Content {
    let mut block = **before;
    block[length..].fill(0);
    Rc::new(block)
}

/// The contents from which writers draw: few, so that duplicates are common. The first is zeros.
#[derive(Debug)]
pub(super) struct Palette(Vec<Content>);

impl Palette {
    /// Returns a palette of `count` distinct contents, including zeros.
    pub(super) fn new(count: u32) -> Palette {
        let patterned = |number: u32| {
            let mut block = [0; BLOCK_BYTES];
            for (word, index) in block.as_chunks_mut::<8>().0.iter_mut().zip(0u32..) {
                *word = (u64::from(number) << 32 | u64::from(index)).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
            }
            block
        };
        let patterned = (1..count.max(2)).map(|number| Rc::new(patterned(number)));
        Palette(std::iter::once(Rc::new([0; BLOCK_BYTES])).chain(patterned).collect())
    }

    /// Returns the number of contents.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the content of this index.
    pub(super) fn get(&self, index: usize) -> &Content {
        &self.0[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_distinct_and_equal_bytes_read_the_same_wherever_they_are() {
        let palette = Palette::new(40);
        for one in 0..palette.len() {
            for other in 0..palette.len() {
                let copy = Rc::new(**palette.get(other));
                assert_eq!(reads_same(Some(palette.get(one)), Some(&copy)), one == other);
            }
            assert_eq!(reads_same(Some(palette.get(one)), None), one == 0);
        }
    }

    #[test]
    fn a_partial_write_keeps_what_is_around_it() {
        let palette = Palette::new(2);
        let block = merged(Some(palette.get(1)), 10, &[7; 5]);
        assert_eq!(
            (&block[..10], &block[10..15], &block[15..]),
            (&palette.get(1)[..10], &[7; 5][..], &palette.get(1)[15..])
        );
        let short = cut(&block, 12);
        assert_eq!((&short[..12], is_zero(&short[12..])), (&block[..12], true));
    }
}
