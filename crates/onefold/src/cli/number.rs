//! Numbers on the command line, with messages that say which ones are valid.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Returns a parser of numbers in `range`.
pub(super) fn number<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let parsed = text.parse().ok().filter(|number| range.contains(number));
        parsed.ok_or_else(|| format!("expected a number from {} to {}", range.start(), range.end()))
    }
}

/// Returns a parser of numbers that are `least` or more.
pub(super) fn number_from<T>(least: T) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let parsed = text.parse().ok().filter(|number| *number >= least);
        parsed.ok_or_else(|| format!("expected a number from {least} on"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_texts_are_refused_with_the_numbers_that_are_valid() {
        assert_eq!(number(1..=64_u16)("64"), Ok(64));
        for text in ["0", "65", "x", "", "-1", "70000"] {
            assert_eq!(number(1..=64_u16)(text), Err("expected a number from 1 to 64".to_owned()));
        }
        assert_eq!(number_from(0.0)("1.5"), Ok(1.5));
        for text in ["NaN", "-1", "much"] {
            assert_eq!(number_from(0.0_f64)(text), Err("expected a number from 0 on".to_owned()));
        }
    }
}
