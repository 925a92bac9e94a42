//! An allocator that measures the memory of the process and of each of its threads, for tests. A test program selects
//! it with `#[global_allocator]`; without that, all numbers here stay 0.

#![expect(unsafe_code, reason = "an allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator with counters.
#[derive(Debug)]
pub struct CountingAllocator;

static LARGEST_BYTES: AtomicUsize = AtomicUsize::new(0);
static PROCESS_LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);
static PROCESS_PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Bytes that this thread has allocated and not freed. Below zero if it freed memory of another thread.
    static LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<isize> = const { Cell::new(0) };
    /// Whether this thread does work that is not counted.
    static IS_UNCOUNTED: Cell<bool> = const { Cell::new(false) };
}

fn note(gained: usize, lost: usize) {
    LARGEST_BYTES.fetch_max(gained, Ordering::Relaxed);
    // Freed memory was counted when it was allocated.
    PROCESS_LIVE_BYTES.fetch_sub(lost, Ordering::Relaxed);
    let live = PROCESS_LIVE_BYTES.fetch_add(gained, Ordering::Relaxed) + gained;
    PROCESS_PEAK_BYTES.fetch_max(live, Ordering::Relaxed);
    if IS_UNCOUNTED.get() {
        return;
    }
    let live = LIVE_BYTES.get().wrapping_add_unsigned(gained).wrapping_sub_unsigned(lost);
    LIVE_BYTES.set(live);
    PEAK_BYTES.set(PEAK_BYTES.get().max(live));
}

// SAFETY: every call is passed on to the system's allocator unchanged, and so is its result.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller meets the contract of `alloc`, which is the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller meets the contract of `alloc_zeroed`, which is the same here.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note(0, layout.size());
        // SAFETY: `at` came from the system's allocator with this layout, like all memory of this allocator.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        note(new_bytes, layout.size());
        // SAFETY: `at` came from the system's allocator with this layout, like all memory of this allocator.
        unsafe { System.realloc(at, layout, new_bytes) }
    }
}

/// Returns the largest single allocation since the process began, in bytes.
#[must_use]
pub fn largest_bytes() -> usize {
    LARGEST_BYTES.load(Ordering::Relaxed)
}

/// Returns the peak memory use of the process since it began, over all threads, in bytes.
#[must_use]
pub fn live_bytes_peak() -> usize {
    PROCESS_PEAK_BYTES.load(Ordering::Relaxed)
}

/// Returns the result of `work`, and the peak by which this thread's memory use rose meanwhile, in bytes.
pub fn watched<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE_BYTES.get();
    PEAK_BYTES.set(before);
    let result = work();
    (result, PEAK_BYTES.get().abs_diff(before))
}

/// Does work whose memory [`watched`] does not count, such as that of a device whose content lies in memory only
/// because this is a test.
pub fn uncounted<T>(work: impl FnOnce() -> T) -> T {
    IS_UNCOUNTED.set(true);
    let result = work();
    IS_UNCOUNTED.set(false);
    result
}
