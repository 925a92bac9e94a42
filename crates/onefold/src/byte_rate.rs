//! Rates in the form that people write: `50M`, `50MB/s`, `50MiB/s`.

use std::num::NonZeroU64;
use std::str::FromStr;

use crate::size::{ByteSize, SizeError};

/// A number of bytes per second given on the command line: a size, with or without `/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteRate(pub(crate) NonZeroU64);

/// Why a text is not a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RateError {
    #[error("expected a size per second, such as 50M or 50MiB/s")]
    NotARate,
    #[error("expected at least one byte per second")]
    Zero,
    #[error(transparent)]
    Size(SizeError),
}

impl FromStr for ByteRate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<ByteRate, RateError> {
        let size = match text.rsplit_once('/') {
            None => text,
            Some((size, "s")) => size,
            Some(_) => return Err(RateError::NotARate),
        };
        let ByteSize(bytes) = size.parse().map_err(|error| match error {
            SizeError::NotASize => RateError::NotARate,
            error => RateError::Size(error),
        })?;
        NonZeroU64::new(bytes).map(ByteRate).ok_or(RateError::Zero)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_size_per_second() {
        let rate = |text: &str| text.parse::<ByteRate>().map(|rate| rate.0.get());
        for text in ["50M", "50MB/s", "50M/s", "50MiB", "50 MiB/s"] {
            assert_eq!(rate(text), Ok(50 << 20), "{text}");
        }
        for text in ["50M/min", "50M/", "/s", "M/s", "50M/s/s", "fast"] {
            assert_eq!(rate(text), Err(RateError::NotARate), "{text}");
        }
        assert_eq!(rate("0/s"), Err(RateError::Zero));
        assert_eq!(rate("16384P/s"), Err(RateError::Size(SizeError::TooLarge)));
    }
}
