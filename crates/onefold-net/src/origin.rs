//! From where a client knows the name of a chunk or a unit. An address with a digest names no image, so a client states
//! it in headers of its requests: rights of tokens are rights to images, and the server reads the next chunks of an
//! image ahead.

use onefold_image::UnitName;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

const MANIFEST: HeaderName = HeaderName::from_static("onefold-manifest");
const CHUNK: HeaderName = HeaderName::from_static("onefold-chunk");

/// The place where a client has read a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Digest of the manifest of the image.
    pub(crate) manifest: Option<UnitName>,
    /// The chunk that has a unit.
    pub(crate) chunk: Option<UnitName>,
}

impl Origin {
    /// Returns the origin that the headers of a request state.
    pub(crate) fn of(headers: &HeaderMap) -> Origin {
        let name = |header: HeaderName| UnitName::from_name(headers.get(header)?.to_str().ok()?);
        Origin { manifest: name(MANIFEST), chunk: name(CHUNK) }
    }

    /// Returns the headers that state the origin.
    pub(crate) fn headers(self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (header, name) in [(MANIFEST, self.manifest), (CHUNK, self.chunk)] {
            if let Some(value) = name.and_then(|name| HeaderValue::try_from(name.to_string()).ok()) {
                headers.insert(header, value);
            }
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_read_as_it_was_stated() {
        let (one, two) = (Some(UnitName([1; 32])), Some(UnitName([2; 32])));
        for (manifest, chunk) in [(None, None), (one, None), (one, two), (None, two)] {
            let origin = Origin { manifest, chunk };
            assert_eq!(Origin::of(&origin.headers()), origin);
        }
        let mut headers = HeaderMap::new();
        headers.insert(MANIFEST, HeaderValue::from_static("../1"));
        assert_eq!(Origin::of(&headers), Origin::default());
    }
}
