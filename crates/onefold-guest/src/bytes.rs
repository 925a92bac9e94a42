//! Reads numbers from untrusted bytes: a read past the end of a structure returns `None` and never panics.

/// The bytes of a structure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    /// Returns its length in bytes.
    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    /// Returns `length` bytes from byte `at`.
    pub(crate) fn part(self, at: usize, length: usize) -> Option<Bytes<'a>> {
        self.0.get(at..at.checked_add(length)?).map(Bytes)
    }

    /// Returns everything from byte `at`.
    pub(crate) fn from(self, at: usize) -> Option<Bytes<'a>> {
        self.0.get(at..).map(Bytes)
    }

    /// Returns `N` bytes from byte `at`.
    pub(crate) fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at.checked_add(N)?)?.try_into().ok()
    }

    /// Returns the byte at `at`.
    pub(crate) fn u8(self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    /// Returns the little-endian number of two bytes at `at`.
    pub(crate) fn le16(self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_le_bytes)
    }

    /// Returns the little-endian number of four bytes at `at`.
    pub(crate) fn le32(self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    /// Returns the little-endian number of eight bytes at `at`.
    pub(crate) fn le64(self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_le_bytes)
    }

    /// Returns the big-endian number of two bytes at `at`.
    pub(crate) fn be16(self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_be_bytes)
    }

    /// Returns the big-endian number of four bytes at `at`.
    pub(crate) fn be32(self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_be_bytes)
    }

    /// Returns the big-endian number of eight bytes at `at`.
    pub(crate) fn be64(self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_be_bytes)
    }
}

/// Returns a UUID in the text form that tools print.
pub(crate) fn uuid_text(uuid: [u8; 16]) -> String {
    let number = u128::from_be_bytes(uuid);
    let (top, version) = (number >> 96, (number >> 64) & 0xffff);
    let (middle, variant, rest) = ((number >> 80) & 0xffff, (number >> 48) & 0xffff, number & 0xffff_ffff_ffff);
    format!("{top:08x}-{middle:04x}-{version:04x}-{variant:04x}-{rest:012x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_printed_in_its_order() {
        let uuid = std::array::from_fn(|at| u8::try_from(at * 17).unwrap());
        assert_eq!(uuid_text(uuid), "00112233-4455-6677-8899-aabbccddeeff");
    }
}
