//! What the C library's allocator is told, so that a daemon's memory stays within its setting.
//!
//! glibc maps large allocations and gives them back when they are freed, but only until the first one is freed: from
//! then on it takes allocations of that size from its arenas, one of them for each thread, where small ones are put
//! into the gaps and keep what is around them. A daemon with `--memory 64M` came to 163 MiB like that, and to 73 MiB
//! with a threshold that stays.

/// Allocations from this size on, in bytes, are mapped by themselves: buffers of requests, not what is kept of single
/// blocks. It is what glibc begins with.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: i32 = 128 << 10;
/// Unused bytes at the end of an arena that are kept: where memory is short, what was given back is hard to get again.
#[cfg(target_env = "gnu")]
const UNUSED_BYTES_MAX: i32 = 8 << 20;
/// Arenas: more than threads that allocate at once only hold more gaps.
#[cfg(target_env = "gnu")]
const ARENAS_MAX: i32 = 2;

/// Tells the allocator to give back what is freed. To be called before there are threads.
///
/// Other C libraries than glibc are left as they are: theirs do so anyway.
pub(crate) fn give_back_what_is_freed() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN),
        (libc::M_TRIM_THRESHOLD, UNUSED_BYTES_MAX),
        (libc::M_ARENA_MAX, ARENAS_MAX),
    ] {
        #[expect(unsafe_code, reason = "the C library has no safe form of it")]
        // SAFETY: it takes two numbers and sets one of the allocator's own; what it refuses (and says by its result)
        // changes nothing, and only more memory would be kept.
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

    #[test]
    fn a_freed_buffer_is_given_back_also_after_others_of_its_size() {
        give_back_what_is_freed();
        drop(black_box(vec![1_u8; 1 << 20]));
        let before = resident_bytes();
        // Small ones between large ones, and the small ones stay.
        let kept: Vec<(Vec<u8>, Vec<u8>)> = (0..64).map(|_| (vec![1; 1 << 20], vec![1; 64])).collect();
        let small: Vec<Vec<u8>> = black_box(kept).into_iter().map(|(_, small)| small).collect();
        let more = resident_bytes().saturating_sub(before);
        assert!(more < 16 << 20, "{more} bytes of 64 MiB are still there, beside {} small buffers", small.len());
    }
}
