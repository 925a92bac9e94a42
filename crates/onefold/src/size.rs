//! Sizes in the form that people write: `100G`, `64MiB`, `4096`.

use std::fmt;
use std::str::FromStr;

pub(crate) use onefold_block::size::human;

/// A number of bytes given on the command line. All units are powers of 1024, with or without `iB` or `B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteSize(pub(crate) u64);

const UNITS: [char; 5] = ['K', 'M', 'G', 'T', 'P'];

/// Why a text is not a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SizeError {
    #[error("expected a number with an optional unit, such as 100G or 64MiB")]
    NotASize,
    #[error("larger than any size this machine can count")]
    TooLarge,
    #[error("not a whole number of bytes")]
    Fractional,
}

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<ByteSize, SizeError> {
        let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(number_end);
        let multiplier = multiplier(unit).ok_or(SizeError::NotASize)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || fraction.contains('.') || (fraction.is_empty() && number.contains('.')) {
            return Err(SizeError::NotASize);
        }
        let whole: u64 = whole.parse().map_err(|_| SizeError::TooLarge)?;
        let whole_bytes = whole.checked_mul(multiplier).ok_or(SizeError::TooLarge)?;
        whole_bytes.checked_add(fraction_bytes(fraction, multiplier)?).map(ByteSize).ok_or(SizeError::TooLarge)
    }
}

/// Returns the number of bytes in a unit: none, `K` to `P`, then optionally `B` or `iB`, in either case.
fn multiplier(unit: &str) -> Option<u64> {
    let unit = unit.trim_start().to_ascii_uppercase();
    let (letter, rest) = match unit.chars().next() {
        None => return Some(1),
        Some('B') if unit.len() == 1 => return Some(1),
        Some(letter) => (letter, &unit[letter.len_utf8()..]),
    };
    let power = UNITS.iter().position(|&known| known == letter)?;
    matches!(rest, "" | "B" | "IB").then(|| 1024_u64 << (10 * power))
}

/// Returns the bytes of a decimal fraction of a unit, which must be a whole number.
fn fraction_bytes(fraction: &str, multiplier: u64) -> Result<u64, SizeError> {
    if fraction.is_empty() {
        return Ok(0);
    }
    // Nine digits reach below a byte for every unit up to a gibibyte; more would only be noise.
    if fraction.len() > 9 {
        return Err(SizeError::Fractional);
    }
    let numerator: u64 = fraction.parse().map_err(|_| SizeError::NotASize)?;
    let denominator = 10_u128.pow(u32::try_from(fraction.len()).map_err(|_| SizeError::Fractional)?);
    let bytes = u128::from(numerator) * u128::from(multiplier);
    if multiplier == 1 && numerator != 0 {
        return Err(SizeError::Fractional);
    }
    u64::try_from(bytes / denominator).map_err(|_| SizeError::TooLarge)
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&human(self.0))
    }
}

/// Returns `number` with thousands separators, to make columns of exact bytes readable.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a number of things in words: "1 file", "1,200 files". `noun` gets an `s` if there is not one.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Result<u64, SizeError> {
        text.parse::<ByteSize>().map(|size| size.0)
    }

    #[test]
    fn units_are_powers_of_1024_however_they_are_written() {
        for text in ["64M", "64m", "64MiB", "64MB", "64 MiB", "65536K", "67108864", "67108864B", "0.0625G"] {
            assert_eq!(bytes(text), Ok(64 << 20), "{text}");
        }
        assert_eq!(bytes("100G"), Ok(100 << 30));
        assert_eq!(bytes("16T"), Ok(16 << 40));
        assert_eq!(bytes("1P"), Ok(1 << 50));
        assert_eq!(bytes("1.5k"), Ok(1536));
        assert_eq!(bytes("0"), Ok(0));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "G", "-1", "1X", "1GG", "1iB", "1Ki", "1.2.3G", ".5G", "5.", "5.G", "ten", "0x10", "1é"] {
            assert_eq!(bytes(text), Err(SizeError::NotASize), "{text}");
        }
    }

    #[test]
    fn sizes_beyond_64_bits_are_refused_not_wrapped() {
        for text in ["18446744073709551616", "16384P", "99999999999999999999999T", "20000000P"] {
            assert_eq!(bytes(text), Err(SizeError::TooLarge), "{text}");
        }
        assert_eq!(bytes("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(bytes("16383P"), Ok(16383 << 50));
    }

    #[test]
    fn a_fraction_of_a_byte_is_refused() {
        assert_eq!(bytes("1.5"), Err(SizeError::Fractional));
        assert_eq!(bytes("1.5B"), Err(SizeError::Fractional));
        assert_eq!(bytes("1.0000000000G"), Err(SizeError::Fractional));
        assert_eq!(bytes("1.0"), Ok(1));
    }

    #[test]
    fn sizes_are_shown_in_the_unit_that_fits() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(1024), "1.00 KiB");
        assert_eq!(human((2 << 30) - 1), "1.99 GiB");
        assert_eq!(human(u64::MAX), "16383.99 PiB");
        assert_eq!(format!("{:>10}|", ByteSize(1 << 20)), "  1.00 MiB|");
    }

    #[test]
    fn one_thing_is_not_several() {
        assert_eq!(
            [0, 1, 2, 1000].map(|number| counted(number, "unit")),
            ["0 units", "1 unit", "2 units", "1,000 units"]
        );
    }

    #[test]
    fn exact_numbers_are_grouped_by_thousands() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(1_234_567_890), "1,234,567,890");
    }
}
