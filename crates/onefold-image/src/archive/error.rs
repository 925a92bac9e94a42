//! Why an archive cannot do what it is asked.

use crate::format::FormatError;
use crate::store::StoreError;
use crate::{ImageVersion, UnitName, WriterId};

/// Why an archive cannot do what it is asked.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The store fails.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An object is not what it should be.
    #[error("the object `{name}` is damaged")]
    Damaged {
        /// Its name.
        name: String,
        /// What is wrong.
        source: FormatError,
    },
    /// There is no archive here.
    #[error("there is no archive here")]
    NoArchive,
    /// There are objects here already.
    #[error("there are objects here already, as `{name}`")]
    NotEmpty {
        /// One of them.
        name: String,
    },
    /// The store breaks its contract.
    #[error("the store cannot hold an archive: {what}")]
    Unfit {
        /// What it does.
        what: &'static str,
    },
    /// The ledger says something that cannot be.
    #[error("the ledger is damaged at entry {position}: {what}")]
    Ledger {
        /// Number of the entry.
        position: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// No pack that is read has a unit.
    #[error("the unit {unit} is lost: no pack has it")]
    Lost {
        /// The unit.
        unit: UnitName,
    },
    /// The bytes of a unit are damaged, in every pack that has them.
    #[error("the unit {unit} is damaged in `{pack}`")]
    DamagedUnit {
        /// The unit.
        unit: UnitName,
        /// The pack.
        pack: String,
    },
    /// There is no such image any more.
    #[error("there is no image {image}")]
    NoImage {
        /// The image.
        image: ImageVersion,
    },
    /// While an image was captured, packs went that it relies on: these units have to be added again.
    #[error("{} units that the image needs were removed meanwhile", .0.len())]
    Retired(Vec<UnitName>),
    /// A writer was silent for so long that another host gave it up.
    #[error("the writer {writer} was given up by another host")]
    GivenUp {
        /// The writer.
        writer: WriterId,
    },
    /// Nobody knows whether an entry was made: the store answers with errors.
    #[error("the store does not say whether the change was made")]
    Doubtful(#[source] StoreError),
    /// The index would take more memory than it may.
    #[error("the archive has more than {units_max} units, which this version of Onefold does not index")]
    TooLarge {
        /// Maximum number of units.
        units_max: usize,
    },
    /// What is to be stored has a form that the format cannot hold.
    #[error("this cannot be stored")]
    Unstorable(#[from] FormatError),
    /// The operating system has no randomness, or a library no memory.
    #[error("the system refuses {what}")]
    System {
        /// What is refused.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
}
