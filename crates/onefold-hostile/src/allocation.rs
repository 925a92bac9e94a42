//! Detects giant allocations: a length field must not decide how much memory is taken.

use onefold_testing::allocator::CountingAllocator;
pub use onefold_testing::allocator::{largest_bytes, live_bytes_peak};

/// Maximum size of a single allocation that hostile input may cause, in bytes: the maximum length of a pool's journal,
/// which a superblock may claim, and a margin.
pub const ALLOCATION_BYTES_MAX: usize = 65 << 20;

/// Maximum memory in use at any moment while targets run, in bytes.
pub const LIVE_BYTES_MAX: usize = 1 << 30;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Asserts that no giant allocation has happened so far.
///
/// # Panics
/// When [`ALLOCATION_BYTES_MAX`] or [`LIVE_BYTES_MAX`] was exceeded.
pub fn assert_bounded() {
    let (largest, peak) = (largest_bytes(), live_bytes_peak());
    assert!(largest <= ALLOCATION_BYTES_MAX, "an allocation of {largest} bytes");
    assert!(peak <= LIVE_BYTES_MAX, "{peak} bytes in use at once");
}
