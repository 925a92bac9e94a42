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
