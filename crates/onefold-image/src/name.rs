//! Names and identities: of archives, writers, objects, units and images.

use std::fmt;

/// Identity of an archive: 16 random bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArchiveId(pub [u8; 16]);

/// Identity of one writer: 16 random bytes, new for each capture and each collection. A host gets a new one for each
/// run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriterId(pub [u8; 16]);

/// Identity of a pack, manifest or segment: the writer that made it, and 8 random bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The writer.
    pub writer: WriterId,
    /// Random part, which distinguishes the writer's objects.
    pub random: [u8; 8],
}

/// Key for the names of units. The descriptor of an archive holds it.
#[derive(Clone, PartialEq, Eq)]
pub struct UnitKey(pub [u8; 32]);

/// Name of a unit: the keyed BLAKE3 digest of its plain bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitName(pub [u8; 32]);

impl UnitKey {
    /// Returns the name of a unit with these plain bytes.
    #[must_use]
    pub fn name(&self, plain: &[u8]) -> UnitName {
        UnitName(*blake3::keyed_hash(&self.0, plain).as_bytes())
    }
}

impl UnitName {
    /// Returns the first eight bytes as a number, by which the index finds the unit. Sorted names have sorted prefixes.
    #[must_use]
    pub fn prefix(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

/// Writes bytes as hexadecimal digits.
fn hexadecimal(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

macro_rules! shown_in_hexadecimal {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                hexadecimal(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                hexadecimal(&self.0, f)
            }
        }
    )*};
}

shown_in_hexadecimal!(ArchiveId, WriterId, UnitName);

impl UnitName {
    /// Parses the form in which it is displayed.
    #[must_use]
    pub fn from_name(name: &str) -> Option<UnitName> {
        parse_hexadecimal(name).map(UnitName)
    }
}

impl ObjectId {
    /// Parses the form in which it is displayed.
    #[must_use]
    pub fn from_name(name: &str) -> Option<ObjectId> {
        let (writer, random) = name.split_once('/')?;
        Some(ObjectId { writer: WriterId(parse_hexadecimal(writer)?), random: parse_hexadecimal(random)? })
    }
}

/// Returns the bytes that lower-case hexadecimal digits stand for.
fn parse_hexadecimal<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * N || !text.bytes().all(is_digit) {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.writer)?;
        hexadecimal(&self.random, f)
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for UnitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnitKey(..)")
    }
}

/// Maximum length of the name of an image, in bytes.
pub(crate) const IMAGE_NAME_BYTES_MAX: usize = 200;

/// Name of an image: 1 to 200 letters, digits, `.`, `_`, `-` and `+` of ASCII, and `/` between parts that begin with a
/// letter or digit. So no name looks like a path to a parent folder, an option or a version.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageName(String);

/// Why a text is not a valid name of an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageNameError {
    /// The text is empty or has more than 200 bytes.
    #[error("a name has 1 to {IMAGE_NAME_BYTES_MAX} bytes, and this has {0}")]
    Length(usize),
    /// The text has an invalid character.
    #[error("a name has letters, digits and `.`, `_`, `-`, `+`, `/`, and this has {0:?}")]
    Character(char),
    /// One of its parts does not begin with a letter or digit.
    #[error("each part of a name begins with a letter or a digit")]
    Begin,
}

impl ImageName {
    /// Parses a name.
    ///
    /// # Errors
    /// When `text` is not a valid name.
    pub fn new(text: &str) -> Result<ImageName, ImageNameError> {
        if text.is_empty() || text.len() > IMAGE_NAME_BYTES_MAX {
            return Err(ImageNameError::Length(text.len()));
        }
        let is_allowed = |character: char| character.is_ascii_alphanumeric() || "._-+/".contains(character);
        if let Some(other) = text.chars().find(|character| !is_allowed(*character)) {
            return Err(ImageNameError::Character(other));
        }
        if !text.split('/').all(|part| part.starts_with(|first: char| first.is_ascii_alphanumeric())) {
            return Err(ImageNameError::Begin);
        }
        Ok(ImageName(text.to_owned()))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One version of an image. Versions of a name count from 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageVersion {
    /// The image.
    pub name: ImageName,
    /// The version.
    pub version: u32,
}

impl fmt::Display for ImageVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images_are_checked() {
        for name in ["web", "debian/12.5", "a+b_c-d", "0", &"x".repeat(200)] {
            assert_eq!(ImageName::new(name).unwrap().as_str(), name);
        }
        assert_eq!(ImageName::new(""), Err(ImageNameError::Length(0)));
        assert_eq!(ImageName::new(&"x".repeat(201)), Err(ImageNameError::Length(201)));
        for (name, character) in [("a b", ' '), ("a@1", '@'), ("ä", 'ä'), ("a\n", '\n'), ("a#b", '#')] {
            assert_eq!(ImageName::new(name), Err(ImageNameError::Character(character)));
        }
        for name in ["../x", "a/../b", "-x", "/a", "a/", "a//b", ".", "a/.b"] {
            assert_eq!(ImageName::new(name), Err(ImageNameError::Begin), "{name}");
        }
    }

    #[test]
    fn prefixes_are_in_the_order_of_names() {
        let key = UnitKey([7; 32]);
        let mut names: Vec<UnitName> = (0u8..50).map(|byte| key.name(&[byte])).collect();
        names.sort();
        assert!(names.is_sorted_by_key(UnitName::prefix));
    }
}
