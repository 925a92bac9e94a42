//! Giant allocations are noticed: a length field must not decide how much memory is taken.

use onefold_testing::allocator::Watched;
pub use onefold_testing::allocator::{largest_bytes, live_bytes_peak};

/// The largest single allocation that hostile input may cause, in bytes: what a pool's journal may be long, of which
/// a superblock may claim the most, and a margin.
pub const ALLOCATION_BYTES_MAX: usize = 65 << 20;

/// The most memory in use at any moment while targets run, in bytes.
pub const LIVE_BYTES_MAX: usize = 1 << 30;

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// Checks that nothing giant was allocated so far.
///
/// # Panics
/// When [`ALLOCATION_BYTES_MAX`] or [`LIVE_BYTES_MAX`] was passed.
pub fn assert_bounded() {
    let (largest, peak) = (largest_bytes(), live_bytes_peak());
    assert!(largest <= ALLOCATION_BYTES_MAX, "an allocation of {largest} bytes");
    assert!(peak <= LIVE_BYTES_MAX, "{peak} bytes in use at once");
}
