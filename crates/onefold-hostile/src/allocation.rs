//! An allocator that notices giant allocations: a length field must not decide how much memory is taken.

#![expect(unsafe_code, reason = "an allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The largest single allocation that hostile input may cause, in bytes: what a pool's journal may be long, of which
/// a superblock may claim the most, and a margin.
pub const ALLOCATION_BYTES_MAX: usize = 65 << 20;

/// The most memory in use at any moment while targets run, in bytes.
pub const LIVE_BYTES_MAX: usize = 1 << 30;

/// The system's allocator, watched.
struct Watched;

#[global_allocator]
static ALLOCATOR: Watched = Watched;

static LARGEST_BYTES: AtomicUsize = AtomicUsize::new(0);
static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);
static LIVE_BYTES_PEAK: AtomicUsize = AtomicUsize::new(0);

fn note(gained: usize, lost: usize) {
    LARGEST_BYTES.fetch_max(gained, Ordering::Relaxed);
    // What is lost was counted when it was gained.
    LIVE_BYTES.fetch_sub(lost, Ordering::Relaxed);
    let live = LIVE_BYTES.fetch_add(gained, Ordering::Relaxed) + gained;
    LIVE_BYTES_PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call is handed to the system's allocator as it came, and its answer handed back.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same here.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note(0, layout.size());
        // SAFETY: `at` came from the system's allocator with this layout, as all that this allocator gives does.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        note(new_bytes, layout.size());
        // SAFETY: `at` came from the system's allocator with this layout, as all that this allocator gives does.
        unsafe { System.realloc(at, layout, new_bytes) }
    }
}

/// Returns the largest single allocation since the process began, in bytes.
#[must_use]
pub fn largest_bytes() -> usize {
    LARGEST_BYTES.load(Ordering::Relaxed)
}

/// Returns the most memory that was in use at once since the process began, in bytes.
#[must_use]
pub fn live_bytes_peak() -> usize {
    LIVE_BYTES_PEAK.load(Ordering::Relaxed)
}

/// Checks that nothing giant was allocated so far.
///
/// # Panics
/// When [`ALLOCATION_BYTES_MAX`] or [`LIVE_BYTES_MAX`] was passed.
pub fn assert_bounded() {
    let (largest, peak) = (largest_bytes(), live_bytes_peak());
    assert!(largest <= ALLOCATION_BYTES_MAX, "an allocation of {largest} bytes");
    assert!(peak <= LIVE_BYTES_MAX, "{peak} bytes in use at once");
}
