//! Reads and creates objects of an archive, with their names and size limits.

use onefold_block::Random;

use super::ArchiveError;
use crate::format::FormatError;
use crate::store::{ByteRange, ObjectName, Store, StoreError};
use crate::{ObjectId, WriterId};

/// Kinds of objects, each of which has its own folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Folder {
    Packs,
    Manifests,
    Segments,
}

impl Folder {
    /// Returns the prefix of the names of its objects.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Folder::Packs => "packs/",
            Folder::Manifests => "manifests/",
            Folder::Segments => "segments/",
        }
    }

    /// Returns the name of one of its objects.
    pub(super) fn object(self, id: ObjectId) -> ObjectName {
        ObjectName::new(&format!("{}{id}", self.prefix())).expect("digits make a name")
    }

    /// Returns which of its objects has this name, if the name is one that [`Folder::object`] returns.
    pub(super) fn id_of(self, name: &ObjectName) -> Option<ObjectId> {
        let (writer, random) = name.as_str().strip_prefix(self.prefix())?.split_once('/')?;
        let is_digits = |text: &str, count| {
            text.len() == count && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
        };
        if !is_digits(writer, 32) || !is_digits(random, 16) {
            return None;
        }
        let writer = WriterId(u128::from_str_radix(writer, 16).ok()?.to_be_bytes());
        Some(ObjectId { writer, random: u64::from_str_radix(random, 16).ok()?.to_be_bytes() })
    }
}

/// Returns a whole object of at most `bytes_max` bytes.
pub(super) fn read_whole(store: &dyn Store, name: &ObjectName, bytes_max: u64) -> Result<Vec<u8>, ArchiveError> {
    // One byte more than allowed shows that the object is too long, whatever its real length.
    let object = store.get(name, ByteRange::From { offset: 0, length_bytes: bytes_max + 1 })?;
    if object.len() as u64 > bytes_max {
        return Err(damaged(name)(FormatError::Length { structure: "object" }));
    }
    Ok(object)
}

/// Returns whether an error says that the object does not exist.
pub(super) fn is_missing(error: &ArchiveError) -> bool {
    matches!(error, ArchiveError::Store(StoreError::Missing(_)))
}

/// Names the object that a decoder refuses.
pub(super) fn damaged(name: &ObjectName) -> impl FnOnce(FormatError) -> ArchiveError {
    move |source| ArchiveError::refused(name.to_string(), source)
}

/// Returns random bytes.
pub(super) fn random_bytes<const N: usize>(random: &dyn Random) -> Result<[u8; N], ArchiveError> {
    let mut bytes = [0; N];
    random.fill(&mut bytes).map_err(|source| ArchiveError::System { what: "random bytes", source })?;
    Ok(bytes)
}

/// Returns a new random name for an object of a writer.
pub(super) fn new_id(writer: WriterId, random: &dyn Random) -> Result<ObjectId, ArchiveError> {
    Ok(ObjectId { writer, random: random_bytes(random)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects_say_which_they_are() {
        let id =
            ObjectId { writer: WriterId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0xab, 12, 13, 14, 255]), random: [3; 8] };
        for folder in [Folder::Packs, Folder::Manifests, Folder::Segments] {
            assert_eq!(folder.id_of(&folder.object(id)), Some(id));
        }
        let digits = "0".repeat(32);
        for name in ["packs/0/0", &format!("packs/{digits}/{digits}"), &format!("manifests/{digits}/0123456789abcdef")]
        {
            assert_eq!(Folder::Packs.id_of(&ObjectName::new(name).unwrap()), None, "{name}");
        }
        for random in ["+123456789abcdef", "g123456789abcdef", "0123456789abcde"] {
            assert_eq!(
                ObjectName::new(&format!("packs/{digits}/{random}")).and_then(|name| Folder::Packs.id_of(&name)),
                None
            );
        }
    }
}
