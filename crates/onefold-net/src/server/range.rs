//! Conditions and ranges of a request for a body of known length.

use hyper::header::{HeaderMap, HeaderName, IF_NONE_MATCH, IF_RANGE, RANGE};

/// The part of a body that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestedRange {
    /// All of it.
    Whole,
    /// The bytes from `start` to `end`, which is behind the last one.
    Part {
        /// First byte.
        start: u64,
        /// Byte behind the last one.
        end: u64,
    },
    /// A range without any byte of the body.
    Nothing,
    /// The client has the body.
    NotModified,
}

/// Returns what a request asks of a body with this length and validator. What makes no sense counts as absent, as the
/// standard wants (RFC 9110, sections 13 and 14).
pub(super) fn asked(headers: &HeaderMap, validator: &str, length_bytes: u64) -> RequestedRange {
    if text(headers, IF_NONE_MATCH).is_some_and(|tags| tags.split(',').any(|tag| is_match(tag, validator))) {
        return RequestedRange::NotModified;
    }
    let is_for_another = headers.contains_key(IF_RANGE) && text(headers, IF_RANGE) != Some(validator);
    match text(headers, RANGE) {
        Some(range) if !is_for_another => part(range, length_bytes),
        _ => RequestedRange::Whole,
    }
}

/// Compares a tag of `If-None-Match`, where weak tags count, too.
fn is_match(tag: &str, validator: &str) -> bool {
    let tag = tag.trim();
    tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == validator
}

/// Returns the value of a header that is there once.
fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value.trim())
}

/// Returns what a range asks. Several ranges get the whole body.
fn part(range: &str, length_bytes: u64) -> RequestedRange {
    let Some((first, last)) = range.strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
        return RequestedRange::Whole;
    };
    let (start, end) = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => (first, last.saturating_add(1).min(length_bytes)),
        (Some(first), None) if last.is_empty() => (first, length_bytes),
        (None, Some(count)) if first.is_empty() => (length_bytes.saturating_sub(count), length_bytes),
        _ => return RequestedRange::Whole,
    };
    if start < end { RequestedRange::Part { start, end } } else { RequestedRange::Nothing }
}

/// Returns a number without sign. One that is too large for any body is as good as the largest.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    const TAG: &str = "\"abc\"";

    fn asked_with(pairs: &[(HeaderName, &str)]) -> RequestedRange {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        asked(&headers, TAG, 1000)
    }

    #[test]
    fn single_ranges_are_parts_within_the_body() {
        for (range, start, end) in [
            ("bytes=0-511", 0, 512),
            ("bytes=999-999", 999, 1000),
            ("bytes=10-", 10, 1000),
            ("bytes=500-5000", 500, 1000),
            ("bytes=-1", 999, 1000),
            ("bytes=-5000", 0, 1000),
            ("bytes=0-99999999999999999999999999", 0, 1000),
        ] {
            assert_eq!(asked_with(&[(RANGE, range)]), RequestedRange::Part { start, end }, "{range}");
        }
    }

    #[test]
    fn ranges_without_a_byte_are_told_from_texts_that_are_none() {
        for range in ["bytes=1000-", "bytes=1000-2000", "bytes=-0", "bytes=99999999999999999999-"] {
            assert_eq!(asked_with(&[(RANGE, range)]), RequestedRange::Nothing, "{range}");
        }
        for range in ["bytes=0-1,5-6", "bytes=5-4", "bytes=-", "bytes=a-b", "bytes=+1-2", "bytes= 1-2", "lines=0-5", ""]
        {
            assert_eq!(asked_with(&[(RANGE, range)]), RequestedRange::Whole, "{range}");
        }
        assert_eq!(asked_with(&[(RANGE, "bytes=0-1"), (RANGE, "bytes=2-3")]), RequestedRange::Whole, "two headers");
    }

    #[test]
    fn a_range_for_another_body_gets_the_whole_one() {
        let range = (RANGE, "bytes=0-1");
        assert_eq!(asked_with(&[range.clone(), (IF_RANGE, TAG)]), RequestedRange::Part { start: 0, end: 2 });
        for other in ["\"abd\"", "W/\"abc\"", "Fri, 27 Nov 2026 09:00:00 GMT"] {
            assert_eq!(asked_with(&[range.clone(), (IF_RANGE, other)]), RequestedRange::Whole, "{other}");
        }
    }

    #[test]
    fn a_client_that_has_the_body_is_told_so() {
        for tags in [TAG, "W/\"abc\"", "\"x\", \"abc\"", "*"] {
            assert_eq!(
                asked_with(&[(IF_NONE_MATCH, tags), (RANGE, "bytes=0-1")]),
                RequestedRange::NotModified,
                "{tags}"
            );
        }
        assert_eq!(asked_with(&[(IF_NONE_MATCH, "\"x\"")]), RequestedRange::Whole);
    }
}
