//! Encodes numbers, and decodes them from untrusted bytes.

use super::FormatError;

/// Appends the fields of a structure to its bytes.
#[derive(Debug, Default)]
pub(super) struct Encoder(pub(super) Vec<u8>);

impl Encoder {
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Encoder {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn u8(&mut self, value: u8) -> &mut Encoder {
        self.bytes(&[value])
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Encoder {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Encoder {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Encoder {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends a number with seven bits in each byte, lowest bits first. The highest bit says that more bytes follow.
    pub(super) fn variable(&mut self, mut value: u64) -> &mut Encoder {
        while value >= 0x80 {
            self.0.push(low_bits(value) | 0x80);
            value >>= 7;
        }
        self.u8(low_bits(value))
    }

    /// Appends a distance that may be negative: its absolute value, then its sign in the lowest bit.
    pub(super) fn distance(&mut self, from: u64, to: u64) -> &mut Encoder {
        self.variable(if to >= from { (to - from) << 1 } else { ((from - to) << 1) | 1 })
    }

    /// Appends the number of elements that follow.
    pub(super) fn count(&mut self, count: usize) -> &mut Encoder {
        self.u32(u32::try_from(count).expect("each structure checks its counts before it is encoded"))
    }

    /// Appends a text after its length.
    pub(super) fn text(&mut self, text: &str) -> &mut Encoder {
        self.u16(u16::try_from(text.len()).expect("each structure checks its texts before it is encoded"));
        self.bytes(text.as_bytes())
    }
}

/// Returns the lowest seven bits.
fn low_bits(value: u64) -> u8 {
    u8::try_from(value & 0x7f).expect("seven bits fit")
}

/// Takes the fields of a structure from its bytes, from first to last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decoder<'a> {
    structure: &'static str,
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub(super) fn new(structure: &'static str, bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { structure, rest: bytes }
    }

    /// Returns how many bytes are left.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn bytes(&mut self, length: usize) -> Result<&'a [u8], FormatError> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(self.wrong_length())?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>().ok_or(self.wrong_length())?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub(super) fn u8(&mut self) -> Result<u8, FormatError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, FormatError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, FormatError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, FormatError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Returns a number that [`Encoder::variable`] wrote. A longer form than necessary is an error.
    pub(super) fn variable(&mut self) -> Result<u64, FormatError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if (bits << shift) >> shift != bits || (byte == 0 && shift > 0) {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.wrong("a number is not in its shortest form"))
    }

    /// Returns the end of a distance from `from` that [`Encoder::distance`] wrote.
    pub(super) fn distance(&mut self, from: u64) -> Result<u64, FormatError> {
        let coded = self.variable()?;
        let size = coded >> 1;
        let to = if coded & 1 == 0 { from.checked_add(size) } else { from.checked_sub(size).filter(|_| size > 0) };
        to.ok_or(self.wrong("a place is out of bounds"))
    }

    /// Returns the number of elements that follow, each of at least `bytes_min` bytes. Fails if the remaining bytes
    /// cannot hold that many.
    pub(super) fn count(&mut self, bytes_min: usize) -> Result<usize, FormatError> {
        let count = self.u32()?;
        self.there(u64::from(count), bytes_min)
    }

    /// Returns `count` if the remaining bytes can hold that many elements of at least `bytes_min` bytes.
    pub(super) fn there(&self, count: u64, bytes_min: usize) -> Result<usize, FormatError> {
        let count = usize::try_from(count).map_err(|_| self.wrong_length())?;
        match count.checked_mul(bytes_min) {
            Some(bytes) if bytes <= self.left() => Ok(count),
            _ => Err(self.wrong_length()),
        }
    }

    /// Returns a text of at most `bytes_max` bytes.
    pub(super) fn text(&mut self, bytes_max: usize) -> Result<&'a str, FormatError> {
        let length = usize::from(self.u16()?);
        if length > bytes_max {
            return Err(self.wrong("a text is too long"));
        }
        std::str::from_utf8(self.bytes(length)?).map_err(|_| self.wrong("a text is not UTF-8"))
    }

    /// Takes `N` reserved bytes, which must be 0.
    pub(super) fn zeros<const N: usize>(&mut self) -> Result<(), FormatError> {
        if self.array::<N>()? == [0; N] { Ok(()) } else { Err(self.wrong("a field for later use is not 0")) }
    }

    /// Succeeds if nothing is left.
    pub(super) fn end(&self) -> Result<(), FormatError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.wrong_length()) }
    }

    pub(super) fn wrong(&self, what: &'static str) -> FormatError {
        FormatError::Value { structure: self.structure, what }
    }

    fn wrong_length(&self) -> FormatError {
        FormatError::Length { structure: self.structure }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_variable_length_return() {
        for value in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::from(u32::MAX), 1 << 55, u64::MAX] {
            let mut encoder = Encoder::default();
            encoder.variable(value);
            let mut decoder = Decoder::new("number", &encoder.0);
            assert_eq!(decoder.variable(), Ok(value));
            decoder.end().unwrap();
            for length in 0..encoder.0.len() {
                assert!(Decoder::new("number", &encoder.0[..length]).variable().is_err());
            }
        }
    }

    #[test]
    fn a_number_has_one_form() {
        for bytes in
            [&[0x80, 0][..], &[0xff, 0x80, 0], &[0xff; 10], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]]
        {
            assert!(Decoder::new("number", bytes).variable().is_err(), "{bytes:?}");
        }
        assert!(Decoder::new("place", &[1]).distance(5).is_err(), "no distance has a sign of its own");
    }

    #[test]
    fn distances_go_both_ways() {
        for (from, to) in [(0, 0), (5, 9), (9, 5), (0, 1 << 55), (1 << 55, 0)] {
            let mut encoder = Encoder::default();
            encoder.distance(from, to);
            assert_eq!(Decoder::new("place", &encoder.0).distance(from), Ok(to));
        }
        let mut encoder = Encoder::default();
        encoder.distance(9, 5);
        assert!(Decoder::new("place", &encoder.0).distance(3).is_err());
    }

    #[test]
    fn counts_are_bounded_by_what_is_there() {
        let bytes = [2, 0, 0, 0, 1, 1, 1, 1];
        assert_eq!(Decoder::new("list", &bytes).count(2), Ok(2));
        assert!(Decoder::new("list", &bytes).count(3).is_err());
        assert!(Decoder::new("list", &[0xff; 20]).count(1).is_err());
        assert!(Decoder::new("list", &bytes).there(u64::MAX, 1 << 20).is_err());
    }
}
