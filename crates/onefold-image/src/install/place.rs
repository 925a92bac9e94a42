//! A place in a target.

use std::io;

use super::target::Target;

/// Consecutive bytes of a target, which are a target of their own. Nothing outside of them is touched.
pub struct TargetPlace<'t> {
    target: &'t dyn Target,
    offset: u64,
    length_bytes: u64,
}

impl<'t> TargetPlace<'t> {
    /// Returns `length_bytes` from `offset` on, as far as the target has them.
    #[must_use]
    pub fn new(target: &'t dyn Target, offset: u64, length_bytes: u64) -> TargetPlace<'t> {
        let length_bytes = length_bytes.min(target.length_bytes().saturating_sub(offset));
        TargetPlace { target, offset, length_bytes }
    }
}

impl std::fmt::Debug for TargetPlace<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TargetPlace { target: _, offset, length_bytes } = self;
        f.debug_struct("TargetPlace")
            .field("offset", offset)
            .field("length_bytes", length_bytes)
            .finish_non_exhaustive()
    }
}

impl Target for TargetPlace<'_> {
    fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    fn is_blank(&self) -> bool {
        self.target.is_blank()
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.target.write(self.offset + offset, from)
    }

    fn zero(&self, offset: u64, length_bytes: u64) -> io::Result<u64> {
        self.target.zero(self.offset + offset, length_bytes)
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> io::Result<u64> {
        self.target.discard(self.offset + offset, length_bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.target.sync()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.target.read(self.offset + offset, into)
    }
}
