//! Buffers that O_DIRECT accepts: page-aligned and a whole number of blocks long.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::BLOCK_BYTES;

/// One block of memory at an address that every device accepts.
#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; BLOCK_BYTES]);

const ZERO_PAGE: Page = Page([0; BLOCK_BYTES]);
const _: () = assert!(size_of::<Page>() == BLOCK_BYTES, "pages lie side by side without gaps");

/// A buffer aligned to [`BLOCK_BYTES`] and a whole number of blocks long; reads and writes through it are not copied.
///
/// A buffer from a [`BufferPool`] returns there when dropped.
pub struct AlignedBuffer {
    pages: Box<[Page]>,
    pool: Weak<Shelf>,
}

impl AlignedBuffer {
    /// Returns a buffer of `block_count` zero blocks.
    #[must_use]
    pub fn zeroed(block_count: usize) -> AlignedBuffer {
        AlignedBuffer { pages: vec![ZERO_PAGE; block_count].into_boxed_slice(), pool: Weak::new() }
    }

    /// Returns a buffer that holds `bytes`, with its last block padded with zeros.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::zeroed(bytes.len().div_ceil(BLOCK_BYTES));
        buffer[..bytes.len()].copy_from_slice(bytes);
        buffer
    }

    /// Returns the number of blocks.
    #[must_use]
    pub fn block_count(&self) -> usize {
        self.pages.len()
    }

    /// Returns the block at `index`, or `None` past the end.
    #[must_use]
    pub fn block(&self, index: usize) -> Option<&[u8; BLOCK_BYTES]> {
        self.pages.get(index).map(|page| &page.0)
    }

    /// Returns the block at `index` for changing, or `None` past the end.
    #[must_use]
    pub fn block_mut(&mut self, index: usize) -> Option<&mut [u8; BLOCK_BYTES]> {
        self.pages.get_mut(index).map(|page| &mut page.0)
    }

    /// Returns the blocks in order.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = &[u8; BLOCK_BYTES]> + DoubleEndedIterator {
        self.pages.iter().map(|page| &page.0)
    }

    /// Returns the blocks in order, for changing.
    pub fn blocks_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [u8; BLOCK_BYTES]> + DoubleEndedIterator {
        self.pages.iter_mut().map(|page| &mut page.0)
    }
}

/// Returns whether O_DIRECT accepts `bytes` as it is.
#[must_use]
pub fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(BLOCK_BYTES) && bytes.len().is_multiple_of(BLOCK_BYTES)
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    #[expect(unsafe_code, reason = "pages are seen as the bytes they are made of")]
    fn deref(&self) -> &[u8] {
        // SAFETY: the pages are one allocation of `len * BLOCK_BYTES` initialised bytes without padding (asserted
        // above), borrowed for as long as the result; u8 has no alignment or validity demands.
        unsafe { slice::from_raw_parts(self.pages.as_ptr().cast(), self.pages.len() * BLOCK_BYTES) }
    }
}

impl DerefMut for AlignedBuffer {
    #[expect(unsafe_code, reason = "pages are seen as the bytes they are made of")]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the exclusive borrow of `self` makes this the only access to the bytes; any
        // written bytes are a valid `Page`.
        unsafe { slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.pages.len() * BLOCK_BYTES) }
    }
}

impl Clone for AlignedBuffer {
    fn clone(&self) -> AlignedBuffer {
        AlignedBuffer { pages: self.pages.clone(), pool: Weak::new() }
    }
}

impl PartialEq for AlignedBuffer {
    fn eq(&self, other: &AlignedBuffer) -> bool {
        **self == **other
    }
}

impl Eq for AlignedBuffer {}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuffer").field("blocks", &self.block_count()).finish_non_exhaustive()
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if let Some(shelf) = self.pool.upgrade() {
            shelf.put(std::mem::take(&mut self.pages));
        }
    }
}

/// Keeps dropped buffers of one size for reuse, which saves allocating and zeroing fresh pages.
///
/// Bounded: the pool frees buffers beyond its capacity, and an empty pool allocates fresh ones.
#[derive(Clone, Debug)]
pub struct BufferPool {
    shelf: Arc<Shelf>,
}

impl BufferPool {
    /// Returns an empty pool for buffers of `block_count` blocks that keeps at most `bytes_max` bytes of unused ones.
    #[must_use]
    pub fn new(block_count: usize, bytes_max: usize) -> BufferPool {
        let buffers_max = bytes_max / (block_count.max(1) * BLOCK_BYTES);
        BufferPool { shelf: Arc::new(Shelf { block_count, buffers_max, unused: Mutex::new(Vec::new()) }) }
    }

    /// Returns a buffer of the pool's size. Its content is whatever its last user left in it.
    #[must_use]
    pub fn take(&self) -> AlignedBuffer {
        let unused = self.shelf.unused.lock().pop();
        let pages = unused.unwrap_or_else(|| vec![ZERO_PAGE; self.shelf.block_count].into_boxed_slice());
        AlignedBuffer { pages, pool: Arc::downgrade(&self.shelf) }
    }

    /// Returns the number of bytes kept for reuse.
    #[must_use]
    pub fn unused_bytes(&self) -> usize {
        self.shelf.unused.lock().len() * self.shelf.block_count * BLOCK_BYTES
    }
}

/// The unused buffers of a pool.
struct Shelf {
    block_count: usize,
    buffers_max: usize,
    unused: Mutex<Vec<Box<[Page]>>>,
}

impl Shelf {
    fn put(&self, pages: Box<[Page]>) {
        let mut unused = self.unused.lock();
        if unused.len() < self.buffers_max {
            unused.push(pages);
        }
    }
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf").field("block_count", &self.block_count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_any_size_are_aligned_and_zero() {
        for block_count in [0, 1, 2, 7, 256] {
            let buffer = AlignedBuffer::zeroed(block_count);
            assert!(is_aligned(&buffer));
            assert_eq!(buffer.len(), block_count * BLOCK_BYTES);
            assert!(buffer.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn a_slice_that_starts_or_ends_inside_a_block_is_not_aligned() {
        let buffer = AlignedBuffer::zeroed(2);
        assert!(!is_aligned(&buffer[1..]));
        assert!(!is_aligned(&buffer[512..BLOCK_BYTES + 512]));
        assert!(!is_aligned(&buffer[..100]));
        assert!(is_aligned(&buffer[BLOCK_BYTES..]));
    }

    #[test]
    fn blocks_and_bytes_are_two_views_of_one_content() {
        let mut buffer = AlignedBuffer::zeroed(3);
        for (number, block) in (1..).zip(buffer.blocks_mut()) {
            block.fill(number);
        }
        assert!(buffer[..BLOCK_BYTES].iter().all(|&byte| byte == 1));
        assert!(buffer[2 * BLOCK_BYTES..].iter().all(|&byte| byte == 3));
        buffer[BLOCK_BYTES] = 9;
        assert_eq!(buffer.block(1).unwrap()[0], 9);
        assert_eq!(buffer.blocks().len(), 3);
        assert!(buffer.block(3).is_none());
    }

    #[test]
    fn a_copy_is_filled_up_with_zeros() {
        let buffer = AlignedBuffer::copy_of(&[7; BLOCK_BYTES + 1]);
        assert_eq!(buffer.block_count(), 2);
        assert_eq!(buffer[BLOCK_BYTES], 7);
        assert!(buffer[BLOCK_BYTES + 1..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_pool_hands_out_the_memory_it_got_back() {
        let pool = BufferPool::new(4, 64 * BLOCK_BYTES);
        let mut first = pool.take();
        first.fill(5);
        let address = first.as_ptr().addr();
        drop(first);
        let second = pool.take();
        assert_eq!(second.as_ptr().addr(), address);
        assert_eq!(second[0], 5, "content is left as it was");
    }

    #[test]
    fn a_pool_keeps_no_more_than_its_bound() {
        let pool = BufferPool::new(4, 9 * BLOCK_BYTES);
        let taken: Vec<_> = (0..5).map(|_| pool.take()).collect();
        assert_eq!(pool.unused_bytes(), 0);
        drop(taken);
        assert_eq!(pool.unused_bytes(), 8 * BLOCK_BYTES, "two of four blocks fit nine");
    }

    #[test]
    fn buffers_outlive_their_pool_and_clones_do_not_join_it() {
        let pool = BufferPool::new(1, BLOCK_BYTES);
        let taken = pool.take();
        drop(taken.clone());
        assert_eq!(pool.unused_bytes(), 0);
        drop(pool);
        assert_eq!(taken.len(), BLOCK_BYTES);
    }
}
