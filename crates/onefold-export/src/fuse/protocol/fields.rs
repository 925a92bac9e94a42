//! Reads the numbers and names of a request one after the other.

/// A request ends before its fields do, or a name has no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a request of the kernel is malformed")]
pub(in crate::fuse) struct MalformedRequest;

/// The part of a request that has not been read yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields { rest: bytes }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedRequest> {
        let (first, rest) = self.rest.split_first_chunk().ok_or(MalformedRequest)?;
        self.rest = rest;
        Ok(*first)
    }

    pub(super) fn u32(&mut self) -> Result<u32, MalformedRequest> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, MalformedRequest> {
        self.array().map(i32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, MalformedRequest> {
        self.array().map(u64::from_ne_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, MalformedRequest> {
        self.array().map(i64::from_ne_bytes)
    }

    /// Skips `count` bytes.
    pub(super) fn skip(&mut self, count: usize) -> Result<(), MalformedRequest> {
        self.bytes(count).map(drop)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], MalformedRequest> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(MalformedRequest)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads a name without the zero byte that ends it.
    pub(super) fn name(&mut self) -> Result<&'a [u8], MalformedRequest> {
        let end = self.rest.iter().position(|&byte| byte == 0).ok_or(MalformedRequest)?;
        let name = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_in_turn_and_end_where_the_request_does() {
        let mut bytes = 7u32.to_ne_bytes().to_vec();
        bytes.extend(u64::MAX.to_ne_bytes());
        bytes.extend(b"name\0x");
        let mut fields = Fields::new(&bytes);
        assert_eq!(fields.u32(), Ok(7));
        assert_eq!(fields.i64(), Ok(-1));
        assert_eq!(fields.name(), Ok(&b"name"[..]));
        assert_eq!(fields.name(), Err(MalformedRequest), "no zero byte ends it");
        assert_eq!(fields.bytes(2), Err(MalformedRequest));
        assert_eq!(fields.i32(), Err(MalformedRequest));
        assert_eq!(fields.bytes(1), Ok(&b"x"[..]));
        assert_eq!(fields.skip(0), Ok(()));
    }
}
