//! Settings of the C library's allocator that keep a daemon's memory within its own setting.
//!
//! glibc maps large allocations and returns them when they are freed, but only until the first one is freed. From then
//! on, it takes allocations of that size from its arenas, one per thread. There, small allocations fill the gaps, and
//! keep the memory around them in use. A daemon with `--memory 64M` grew to 163 MiB this way, and to 73 MiB with a
//! constant threshold.

/// Allocations from this size on, in bytes, are mapped separately: buffers of requests, but not records about single
/// blocks. It is glibc's initial value.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: i32 = 128 << 10;
/// Unused bytes that an arena keeps at its end: where memory is short, returned memory is hard to get back.
#[cfg(target_env = "gnu")]
const UNUSED_BYTES_MAX: i32 = 8 << 20;
/// Maximum number of arenas: more than the threads that allocate at once would only add gaps.
#[cfg(target_env = "gnu")]
const ARENAS_MAX: i32 = 2;

/// Makes the allocator return freed memory. Must be called before there are threads.
///
/// C libraries other than glibc are left alone, as they do so anyway.
pub(crate) fn give_back_what_is_freed() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN),
        (libc::M_TRIM_THRESHOLD, UNUSED_BYTES_MAX),
        (libc::M_ARENA_MAX, ARENAS_MAX),
    ] {
        #[expect(unsafe_code, reason = "the C library has no safe form of it")]
        // SAFETY: it takes two numbers and sets one of the allocator's own. If it refuses a value, which its result
        // reports, nothing changes, and the process only keeps more memory.
        unsafe {
            libc::mallopt(parameter, value);
        }
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use std::hint::black_box;

    use super::*;

    /// Returns the resident memory of this process, in bytes.
    fn resident_bytes() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
        let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
        pages * rustix::param::page_size()
    }

    /// Returns how much more memory the process has after large buffers were freed between small ones that stay.
    fn kept_bytes() -> usize {
        drop(black_box(vec![1_u8; 1 << 20]));
        let before = resident_bytes();
        let kept: Vec<(Vec<u8>, Vec<u8>)> = (0..64).map(|_| (vec![1; 1 << 20], vec![1; 64])).collect();
        let small: Vec<Vec<u8>> = black_box(kept).into_iter().map(|(_, small)| small).collect();
        let more = resident_bytes().saturating_sub(before);
        drop(black_box(small));
        more
    }

    #[test]
    fn a_freed_buffer_is_given_back_also_after_others_of_its_size() {
        give_back_what_is_freed();
        // Other tests of this process take memory meanwhile, but not each time.
        let least = (0..10).map(|_| kept_bytes()).min().unwrap_or_default();
        assert!(least < 16 << 20, "{least} bytes of 64 MiB are still there, beside 64 small buffers");
    }
}
