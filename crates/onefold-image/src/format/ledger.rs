//! Entries of the ledger: the only thing of an archive that grows, and what decides which images exist.

use onefold_block::Timestamp;

use crate::{ArchiveId, ImageVersion, ObjectId, UnitName, WriterId};

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The archive.
    pub archive: ArchiveId,
    /// Its number; the first entry has 0.
    pub position: u64,
    /// BLAKE3 digest of the whole entry before it; zeros in the first one.
    pub previous: [u8; 32],
    /// Who made it.
    pub writer: WriterId,
    /// Random bytes by which the writer recognises its own entry after a lost answer.
    pub token: [u8; 16],
    /// When it was made, by the writer's clock. Nothing safe depends on it.
    pub made: Timestamp,
    /// What it changes.
    pub change: Change,
}

/// What an entry changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A writer begins. Objects with its name belong to it from now on.
    WriterBegins {
        /// The host that it runs on, at most 64 bytes.
        host: String,
    },
    /// An image was captured.
    ImageAdded {
        /// Name and version.
        image: ImageVersion,
        /// Its manifest.
        manifest: ObjectId,
        /// BLAKE3 digest of the manifest's object.
        digest: [u8; 32],
        /// Packs that it brings along, and that no entry names so far.
        packs: Vec<ObjectId>,
        /// The segment of the index with their units, if it brings any.
        segment: Option<ObjectId>,
    },
    /// An image was removed.
    ImageRemoved {
        /// Name and version.
        image: ImageVersion,
    },
    /// No image needs these packs here; they may be deleted any time later.
    PacksRetired {
        /// The packs.
        packs: Vec<ObjectId>,
    },
    /// What is needed of some packs stands in others.
    PacksReplaced {
        /// The packs that may be deleted any time later.
        old: Vec<ObjectId>,
        /// Those that hold the units now.
        new: Vec<ObjectId>,
        /// The segment of the index of the new ones.
        segment: ObjectId,
    },
    /// Segments became one.
    SegmentsMerged {
        /// The old ones.
        old: Vec<ObjectId>,
        /// The new one.
        new: ObjectId,
    },
    /// A writer was silent for so long that its objects may be collected.
    WriterGivenUp {
        /// The writer.
        writer: WriterId,
    },
    /// Units that no pack holds whole any more, so that no capture relies on them.
    UnitsLost {
        /// Their names.
        units: Vec<UnitName>,
    },
}
