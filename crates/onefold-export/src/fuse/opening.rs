//! The answer to an opening: how the kernel treats the content of the file, and the handle by which it names the
//! opening.

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
}

/// An opened file.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenReply {
    pub(super) handle: u64,
    pub(super) caching: ContentCaching,
}

impl OpenReply {
    /// Returns the flags that tell the kernel how to treat the content. `bypasses_cache` says whether it keeps its page
    /// cache coherent with direct I/O that it passes on.
    pub(super) fn flags(self, bypasses_cache: bool) -> u32 {
        match self.caching {
            // Kernels before 6.6 neither allow shared mappings of such a file nor drop cached pages that a direct write
            // makes stale. On these kernels, the kernel's own O_DIRECT path does both.
            ContentCaching::Bypass if bypasses_cache => DIRECT_IO | PARALLEL_DIRECT_WRITES,
            ContentCaching::Bypass | ContentCaching::Keep => KEEP_CACHE,
            ContentCaching::Drop => 0,
        }
    }
}
