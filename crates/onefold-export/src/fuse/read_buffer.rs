//! A page-aligned buffer for each thread that answers reads: the device reads into it, and the kernel copies out of it.

use std::cell::RefCell;

use onefold_block::{AlignedBuffer, BLOCK_BYTES};

/// Enough for most reads: the largest request that is negotiated.
const USUAL_BYTES: usize = 1 << 20;

thread_local! {
    static BUFFER: RefCell<AlignedBuffer> = RefCell::new(AlignedBuffer::zeroed(USUAL_BYTES / BLOCK_BYTES));
}

/// Calls `use_it` with `bytes` bytes of this thread's buffer, whose content is arbitrary. If the buffer is too small,
/// it grows and stays that large. Calls must not be nested.
pub(super) fn with<R>(bytes: usize, use_it: impl FnOnce(&mut [u8]) -> R) -> R {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < bytes {
            *buffer = AlignedBuffer::zeroed(bytes.div_ceil(BLOCK_BYTES));
        }
        use_it(&mut buffer[..bytes])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_size_is_served_and_aligned() {
        for bytes in [0, 1, BLOCK_BYTES, USUAL_BYTES, USUAL_BYTES + 1] {
            with(bytes, |buffer| {
                assert_eq!(buffer.len(), bytes);
                assert!(buffer.as_ptr().addr().is_multiple_of(BLOCK_BYTES));
            });
        }
    }

    #[test]
    fn the_same_memory_is_used_again() {
        let first = with(BLOCK_BYTES, |buffer| buffer.as_ptr().addr());
        assert_eq!(with(2 * BLOCK_BYTES, |buffer| buffer.as_ptr().addr()), first);
    }
}
