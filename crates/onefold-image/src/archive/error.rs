//! Errors of an archive.

use crate::format::FormatError;
use crate::store::StoreError;
use crate::{ImageVersion, UnitName, WriterId};

/// Why an archive operation failed.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The store fails.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An object is damaged or is not the expected one.
    #[error("the object `{name}` is damaged")]
    Damaged {
        /// Its name.
        name: String,
        /// The decoder's error.
        source: FormatError,
    },
    /// A newer version of Onefold wrote an object.
    #[error("the object `{name}` is newer than this version of Onefold")]
    Newer {
        /// Its name.
        name: String,
        /// Its version and features.
        source: FormatError,
    },
    /// There is no archive here.
    #[error("there is no archive here")]
    NoArchive,
    /// The store already contains objects.
    #[error("there are objects here already, as `{name}`")]
    NotEmpty {
        /// Name of one of these objects.
        name: String,
    },
    /// The two copies of the descriptor belong to different archives, and the ledger does not decide which is the right
    /// one; or the only whole one belongs to another archive than the ledger.
    #[error(
        "no descriptor is known to belong to the ledger: `descriptor` and `descriptor.copy` differ, or one is damaged \
         and the other belongs to another archive"
    )]
    Ambiguous,
    /// Snapshots are of entries that the ledger lacks.
    #[error("the ledger ends after {entries} entries, and a snapshot tells of later ones: this is a copy that was cut")]
    Cut {
        /// Number of the ledger's entries.
        entries: u64,
    },
    /// The store breaks its contract.
    #[error("the store cannot hold an archive: {what}")]
    Unfit {
        /// How the store breaks it.
        what: &'static str,
    },
    /// The ledger contains an impossible entry, or one that hides later ones.
    #[error("the ledger is damaged at entry {position}: {what}")]
    Ledger {
        /// Number of the entry.
        position: u64,
        /// Why it is not usable.
        what: String,
    },
    /// None of the packs that are read has this unit.
    #[error("the unit {unit} is lost: no pack has it")]
    Lost {
        /// The unit.
        unit: UnitName,
    },
    /// The bytes of a unit are damaged in every pack that has it.
    #[error("the unit {unit} is damaged in `{pack}`")]
    DamagedUnit {
        /// The unit.
        unit: UnitName,
        /// The pack.
        pack: String,
    },
    /// A chunk has more bytes than are served at once. No capture makes such a chunk.
    #[error("the chunk {chunk} is stored in more than {bytes_max} bytes")]
    LongChunk {
        /// Name of its header.
        chunk: UnitName,
        /// Maximum length in bytes.
        bytes_max: usize,
    },
    /// A server of images sends something else than the unit with a name, even when it is asked for it alone.
    #[error("the server `{server}` sends wrong bytes for the unit {unit}")]
    WrongUnit {
        /// The unit.
        unit: UnitName,
        /// The server's address.
        server: String,
    },
    /// The image does not exist, or was removed.
    #[error("there is no image {image}")]
    NoImage {
        /// The image.
        image: ImageVersion,
    },
    /// It is unknown what an image needs, because its manifest or the header of a chunk cannot be read.
    #[error("it is unknown which units the image {image} needs")]
    Unknown {
        /// The image.
        image: ImageVersion,
        /// Why it cannot be read.
        source: Box<ArchiveError>,
    },
    /// An image was removed while it was read, and packs that only it needed are gone.
    #[error("the image {image} was removed meanwhile")]
    Removed {
        /// The image.
        image: ImageVersion,
    },
    /// While an image was captured, packs went that it relies on: these units have to be added again.
    #[error("{} units that the image needs were removed meanwhile", .0.len())]
    Retired(Vec<UnitName>),
    /// The writer was silent for so long that another host gave it up.
    #[error("the writer {writer} was given up by another host")]
    GivenUp {
        /// The writer.
        writer: WriterId,
    },
    /// It is unknown whether an entry was made, because the store answers with errors.
    #[error("the store does not say whether the change was made")]
    Doubtful(#[source] StoreError),
    /// The archive has as many units as an index may have.
    #[error("the archive has more than {units_max} units, which this version of Onefold does not index")]
    TooLarge {
        /// Maximum number of units.
        units_max: usize,
    },
    /// A capture would have more new units than a segment of the index can name.
    #[error("more than {units_max} units of the image are new, which is too many for one capture")]
    TooManyNew {
        /// Maximum number of units.
        units_max: usize,
    },
    /// A signature does not belong to the image and the key for which it is stored.
    #[error("the signature `{name}` is not valid")]
    BadSignature {
        /// Name of the signature's object.
        name: String,
    },
    /// A value cannot be represented in the format.
    #[error("this cannot be stored")]
    Unstorable(#[from] FormatError),
    /// The operating system provides no randomness, or a library cannot allocate memory.
    #[error("the system refuses {what}")]
    System {
        /// Operation or resource that was refused.
        what: &'static str,
        /// Error of the system.
        source: std::io::Error,
    },
}

impl ArchiveError {
    /// Returns the cause without the object's name.
    pub(super) fn cause(&self) -> String {
        match self {
            ArchiveError::Damaged { source, .. } => source.to_string(),
            ArchiveError::Ledger { what, .. } => what.clone(),
            ArchiveError::Store(StoreError::Missing(_)) => "it is missing".to_owned(),
            ArchiveError::Store(
                StoreError::Io { source, .. }
                | StoreError::Unavailable { source, .. }
                | StoreError::GaveUp { source, .. },
            ) => format!("it cannot be read: {source}"),
            ArchiveError::Store(StoreError::NotMade { source, .. }) => format!("it cannot be made: {source}"),
            ArchiveError::Store(StoreError::Refused { why, .. }) => format!("it cannot be read: {why}"),
            ArchiveError::Store(StoreError::Foreign { what, .. }) => format!("it cannot be read: {what}"),
            other => other.to_string(),
        }
    }

    /// Returns the error of an object, or a unit, that a decoder refuses.
    #[must_use]
    pub fn refused(name: String, source: FormatError) -> ArchiveError {
        match source {
            FormatError::Newer { .. } => ArchiveError::Newer { name, source },
            _ => ArchiveError::Damaged { name, source },
        }
    }
}
