//! The first request of a connection, in which kernel and door agree on a version and on abilities.

use super::fields::{Fields, MalformedRequest};

/// Version of the protocol that this door speaks.
const MAJOR: u32 = 7;
const MINOR: u32 = 39;
/// Oldest minor version that it speaks.
const MINOR_MIN: u32 = 31;
/// The minor version from which on the kernel has a second word of abilities.
const MINOR_OF_MORE_FLAGS: u32 = 36;

/// Bytes of a page, the kernel's unit for the size of requests.
const PAGE_BYTES: u32 = 4096;

/// Why a connection could not be set up.
#[derive(Debug, thiserror::Error)]
pub(in crate::fuse) enum InitError {
    #[error(transparent)]
    Malformed(#[from] MalformedRequest),
    #[error("the kernel speaks FUSE {major}.{minor}, and {MAJOR}.{MINOR_MIN} (Linux 5.4) is the oldest that will do")]
    TooOld { major: u32, minor: u32 },
}

/// The abilities of one side of a connection: the bits of both of its words of flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fuse) struct InitFlags(pub(in crate::fuse) u64);

impl InitFlags {
    pub(in crate::fuse) const ASYNC_READ: InitFlags = InitFlags(1);
    pub(in crate::fuse) const EXPORT_SUPPORT: InitFlags = InitFlags(1 << 4);
    pub(in crate::fuse) const BIG_WRITES: InitFlags = InitFlags(1 << 5);
    pub(in crate::fuse) const DONT_MASK: InitFlags = InitFlags(1 << 6);
    pub(in crate::fuse) const DO_READDIRPLUS: InitFlags = InitFlags(1 << 13);
    pub(in crate::fuse) const READDIRPLUS_AUTO: InitFlags = InitFlags(1 << 14);
    pub(in crate::fuse) const ASYNC_DIO: InitFlags = InitFlags(1 << 15);
    pub(in crate::fuse) const WRITEBACK_CACHE: InitFlags = InitFlags(1 << 16);
    pub(in crate::fuse) const PARALLEL_DIROPS: InitFlags = InitFlags(1 << 18);
    pub(in crate::fuse) const POSIX_ACL: InitFlags = InitFlags(1 << 20);
    pub(in crate::fuse) const MAX_PAGES: InitFlags = InitFlags(1 << 22);
    pub(in crate::fuse) const CACHE_SYMLINKS: InitFlags = InitFlags(1 << 23);
    pub(in crate::fuse) const EXPLICIT_INVAL_DATA: InitFlags = InitFlags(1 << 25);
    pub(in crate::fuse) const HANDLE_KILLPRIV_V2: InitFlags = InitFlags(1 << 28);
    pub(in crate::fuse) const SETXATTR_EXT: InitFlags = InitFlags(1 << 29);
    pub(in crate::fuse) const INIT_EXT: InitFlags = InitFlags(1 << 30);
    pub(in crate::fuse) const DIRECT_IO_ALLOW_MMAP: InitFlags = InitFlags(1 << 36);

    pub(in crate::fuse) fn has(self, other: InitFlags) -> bool {
        self.0 & other.0 == other.0
    }

    pub(in crate::fuse) fn and(self, other: InitFlags) -> InitFlags {
        InitFlags(self.0 | other.0)
    }

    fn common(self, other: InitFlags) -> InitFlags {
        InitFlags(self.0 & other.0)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the two words of flags")]
    fn words(self) -> (u32, u32) {
        (self.0 as u32, (self.0 >> 32) as u32)
    }
}

/// The kernel's offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fuse) struct InitRequest {
    readahead_bytes: u32,
    abilities: InitFlags,
}

impl InitRequest {
    /// The opcode of the request.
    pub(in crate::fuse) const OPCODE: u32 = super::opcode::INIT;

    /// Decodes the body of an `INIT` request.
    ///
    /// # Errors
    /// [`InitError::TooOld`] for a version that this door does not speak.
    pub(in crate::fuse) fn decode(body: &[u8]) -> Result<InitRequest, InitError> {
        let mut fields = Fields::new(body);
        let (major, minor) = (fields.u32()?, fields.u32()?);
        // A kernel of a later major version would ask again with a common version. No such version exists.
        if major != MAJOR || minor < MINOR_MIN {
            return Err(InitError::TooOld { major, minor });
        }
        let (readahead_bytes, low) = (fields.u32()?, fields.u32()?);
        let has_more = minor >= MINOR_OF_MORE_FLAGS && InitFlags(low.into()).has(InitFlags::INIT_EXT);
        let high = if has_more { fields.u32()? } else { 0 };
        Ok(InitRequest { readahead_bytes, abilities: InitFlags(u64::from(high) << 32 | u64::from(low)) })
    }
}

/// The part of the offer that this door accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fuse) struct InitReply {
    pub(in crate::fuse) abilities: InitFlags,
    readahead_bytes: u32,
    request_bytes_max: u32,
    background_requests_max: u16,
}

impl InitReply {
    /// Returns the reply that accepts the `wanted` part of `offered`, with requests of at most `request_bytes_max`
    /// bytes.
    pub(in crate::fuse) fn new(
        offered: InitRequest,
        wanted: InitFlags,
        request_bytes_max: u32,
        background_requests_max: u16,
    ) -> InitReply {
        InitReply {
            abilities: offered.abilities.common(wanted),
            readahead_bytes: offered.readahead_bytes.min(request_bytes_max),
            request_bytes_max,
            background_requests_max,
        }
    }

    /// | bytes | field |
    /// |---|---|
    /// | 0..8 | version |
    /// | 8..16 | readahead, flags |
    /// | 16..20 | requests in the background, and from how many on it is congested |
    /// | 20..28 | largest write, granularity of times in nanoseconds |
    /// | 28..32 | largest request in pages, alignment of mappings |
    /// | 32..36 | more flags |
    /// | 36..64 | unused |
    pub(in crate::fuse) fn encode(&self) -> Vec<u8> {
        let (low, high) = self.abilities.words();
        let congestion = self.background_requests_max / 4 * 3;
        let pages = u16::try_from(self.request_bytes_max / PAGE_BYTES).unwrap_or(u16::MAX);
        let mut bytes = Vec::with_capacity(64);
        for word in [MAJOR, MINOR, self.readahead_bytes, low] {
            bytes.extend(word.to_ne_bytes());
        }
        for half in [self.background_requests_max, congestion] {
            bytes.extend(half.to_ne_bytes());
        }
        for word in [self.request_bytes_max, 1] {
            bytes.extend(word.to_ne_bytes());
        }
        for half in [pages, 0] {
            bytes.extend(half.to_ne_bytes());
        }
        bytes.extend(high.to_ne_bytes());
        bytes.resize(64, 0);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(major: u32, minor: u32, low: u32, high: u32) -> Vec<u8> {
        [major, minor, 131_072, low, high, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn only_what_both_sides_have_is_agreed_on() {
        let request = InitRequest::decode(&offer(7, 44, 1 << 30 | 1 << 4 | 1, 1 << 4)).unwrap();
        let wanted = InitFlags::EXPORT_SUPPORT.and(InitFlags::DIRECT_IO_ALLOW_MMAP).and(InitFlags::POSIX_ACL);
        let reply = InitReply::new(request, wanted, 1 << 20, 128);
        assert_eq!(reply.abilities, InitFlags::EXPORT_SUPPORT.and(InitFlags::DIRECT_IO_ALLOW_MMAP));
        let bytes = reply.encode();
        assert_eq!(bytes.len(), 64);
        assert_eq!(bytes[8..12], 131_072u32.to_ne_bytes(), "readahead is what the kernel offers");
        assert_eq!(bytes[20..24], (1u32 << 20).to_ne_bytes());
        assert_eq!(bytes[28..30], 256u16.to_ne_bytes());
        assert_eq!(bytes[32..36], (1u32 << 4).to_ne_bytes());
    }

    #[test]
    fn the_second_word_counts_only_where_the_kernel_says_that_it_is_there() {
        let old = InitRequest::decode(&offer(7, 31, 1 << 4, u32::MAX)).unwrap();
        assert_eq!(old.abilities, InitFlags::EXPORT_SUPPORT);
    }

    #[test]
    fn versions_that_are_not_spoken_are_refused() {
        assert!(matches!(InitRequest::decode(&offer(7, 30, 0, 0)), Err(InitError::TooOld { major: 7, minor: 30 })));
        assert!(matches!(InitRequest::decode(&offer(8, 0, 0, 0)), Err(InitError::TooOld { .. })));
        assert!(matches!(InitRequest::decode(&[7, 0, 0]), Err(InitError::Malformed(_))));
    }
}
