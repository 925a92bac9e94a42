//! What the kernel is told about an opened file: how it treats the content, and the handle by which it names the opening.

/// Set in the handle of an opening whose writes bypass the page cache, whatever `fcntl(2)` makes of its flags later.
const BYPASSES_CACHE: u64 = 1 << 63;

/// Flags of the answer to an opening.
const DIRECT_IO: u32 = 1;
const KEEP_CACHE: u32 = 1 << 1;
pub(super) const NOFLUSH: u32 = 1 << 5;
const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

/// How the kernel treats the content of an opened file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentCaching {
    /// The page cache's content of the file is still valid.
    Keep,
    /// The page cache drops what it has of the file, so that the first read reaches the daemon.
    Drop,
    /// Reads and writes bypass the page cache, and several writes may be in progress.
    Bypass,
    /// Writes bypass the page cache one after another. What others have cached stays, except the written ranges.
    BypassInOrder,
}

/// An opened file.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenReply {
    pub(super) handle: u64,
    pub(super) caching: ContentCaching,
}

impl OpenReply {
    /// Returns the opening with this number, which is below 2^63.
    pub(super) fn new(number: u64, caching: ContentCaching) -> OpenReply {
        let mark = if caching == ContentCaching::BypassInOrder { BYPASSES_CACHE } else { 0 };
        OpenReply { handle: number | mark, caching }
    }

    /// Returns the flags that tell the kernel how to treat the content. `bypasses_cache` says whether it keeps its page
    /// cache coherent with direct I/O that it passes on.
    pub(super) fn flags(self, bypasses_cache: bool) -> u32 {
        match self.caching {
            // Kernels before 6.6 neither allow shared mappings of such a file nor drop cached pages that a direct write
            // makes stale. On these kernels, the kernel's own O_DIRECT path does both.
            ContentCaching::Bypass if bypasses_cache => DIRECT_IO | PARALLEL_DIRECT_WRITES,
            ContentCaching::BypassInOrder if bypasses_cache => DIRECT_IO | KEEP_CACHE,
            ContentCaching::Bypass | ContentCaching::BypassInOrder | ContentCaching::Keep => KEEP_CACHE,
            ContentCaching::Drop => 0,
        }
    }
}

/// Returns whether writes through the opening of this handle bypass the cache although it was not opened with
/// `O_DIRECT`.
pub(super) fn bypasses_cache(handle: u64) -> bool {
    handle & BYPASSES_CACHE != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_tells_whether_writes_bypass_the_cache() {
        for (caching, bypasses) in
            [(ContentCaching::Keep, false), (ContentCaching::Bypass, false), (ContentCaching::BypassInOrder, true)]
        {
            let opened = OpenReply::new(7, caching);
            assert_eq!((bypasses_cache(opened.handle), opened.caching), (bypasses, caching));
            assert_eq!(opened.handle & u64::from(u32::MAX), 7);
        }
    }
}
