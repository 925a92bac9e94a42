//! An allocator that watches what each thread takes, for tests of memory. A test program makes it its own with
//! `#[global_allocator]`.

#![expect(unsafe_code, reason = "an allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, watched.
pub struct Watched;

thread_local! {
    /// What this thread has taken and not given back, and the most that was. Below zero where it gave back another's.
    static LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<isize> = const { Cell::new(0) };
    /// Whether this thread does what is not counted.
    static IS_UNCOUNTED: Cell<bool> = const { Cell::new(false) };
}

fn note(gained: usize, lost: usize) {
    if IS_UNCOUNTED.get() {
        return;
    }
    let live = LIVE_BYTES.get().wrapping_add_unsigned(gained).wrapping_sub_unsigned(lost);
    LIVE_BYTES.set(live);
    PEAK_BYTES.set(PEAK_BYTES.get().max(live));
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

/// Returns what `work` returns, and the most memory that was in use meanwhile beyond what was before, in bytes.
pub fn watched<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE_BYTES.get();
    PEAK_BYTES.set(before);
    let result = work();
    (result, usize::try_from(PEAK_BYTES.get() - before).expect("the most is no less than what was before"))
}

/// Does work whose memory is not counted: that of a device whose content lies in memory only because this is a test.
pub fn uncounted<T>(work: impl FnOnce() -> T) -> T {
    IS_UNCOUNTED.set(true);
    let result = work();
    IS_UNCOUNTED.set(false);
    result
}
