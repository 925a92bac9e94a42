//! Places of archives in buckets: `s3://BUCKET/PREFIX`.

use std::fmt;
use std::str::FromStr;

use crate::NetError;

/// A bucket, and the beginning of the names of an archive's objects in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Place {
    bucket: String,
    /// Without a `/` at its ends; empty for the whole bucket.
    prefix: String,
}

/// Beginning of the text of a place.
const SCHEME: &str = "s3://";
/// Bounds of the length of a bucket's name, and of a prefix, in bytes.
const BUCKET_BYTES_MIN: usize = 3;
const BUCKET_BYTES_MAX: usize = 63;
const PREFIX_BYTES_MAX: usize = 512;

impl S3Place {
    /// Returns whether a text means a place in a bucket, even if it is not a valid one.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// Returns the name of the bucket.
    #[must_use]
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Returns the key of an object in the bucket, or the beginning of keys.
    #[must_use]
    pub fn key(&self, name: &str) -> String {
        match self.prefix.as_str() {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        }
    }

    /// Returns the name of an object by its key in the bucket; `None` for an object outside the prefix.
    #[must_use]
    pub fn name<'a>(&self, key: &'a str) -> Option<&'a str> {
        match self.prefix.as_str() {
            "" => Some(key),
            prefix => key.strip_prefix(prefix)?.strip_prefix('/'),
        }
    }
}

impl FromStr for S3Place {
    type Err = NetError;

    fn from_str(text: &str) -> Result<S3Place, NetError> {
        let wrong = |what| NetError::Place { text: text.to_owned(), what };
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| wrong("it does not begin with `s3://`"))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        if !(BUCKET_BYTES_MIN..=BUCKET_BYTES_MAX).contains(&bucket.len())
            || !bucket.bytes().all(is_allowed)
            || !bucket.starts_with(|first: char| first.is_ascii_alphanumeric())
        {
            return Err(wrong("a bucket's name has 3 to 63 letters, digits, `-`, `.` and `_`"));
        }
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let is_part = |part: &str| !part.is_empty() && part != "." && part != ".." && part.bytes().all(is_allowed);
        if prefix.len() > PREFIX_BYTES_MAX || !(prefix.is_empty() || prefix.split('/').all(is_part)) {
            return Err(wrong("a prefix has letters, digits, `-`, `.` and `_`, in parts that `/` separates"));
        }
        Ok(S3Place { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

impl fmt::Display for S3Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.bucket)?;
        if !self.prefix.is_empty() {
            write!(f, "/{}", self.prefix)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_bucket_with_or_without_a_prefix() {
        let place: S3Place = "s3://images/site-1/web/".parse().unwrap();
        assert_eq!((place.bucket(), place.to_string().as_str()), ("images", "s3://images/site-1/web"));
        assert_eq!(place.key("ledger/00"), "site-1/web/ledger/00");
        assert_eq!(place.name("site-1/web/ledger/00"), Some("ledger/00"));
        assert_eq!((place.name("site-1/webs/x"), place.name("ledger/00")), (None, None));
        let whole: S3Place = "s3://images".parse().unwrap();
        assert_eq!((whole.key("descriptor").as_str(), whole.name("descriptor")), ("descriptor", Some("descriptor")));
    }

    #[test]
    fn other_texts_are_no_places() {
        for text in ["s3://", "s3://a", "s3:///web", "s3://-ab", "s3://im ages", "s3://images//web", "s3://images/../x"]
        {
            assert!(S3Place::is_meant(text));
            assert!(text.parse::<S3Place>().is_err(), "{text}");
        }
        assert!("s3://images/a?x=y".parse::<S3Place>().is_err());
        assert!(!S3Place::is_meant("/srv/archive") && !S3Place::is_meant("s3:/x"));
    }
}
