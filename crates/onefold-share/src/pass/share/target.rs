//! The files on both sides of a share, as long as they are open.

use std::collections::BTreeMap;
use std::rc::Rc;

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::Substrate;

use crate::extents::Extents;
use crate::format::FileNo;
use crate::pass::images::Hold;
use crate::pass::runs::Source;
use crate::slices::Slices;
use crate::state::maps::Moved;

/// A file and its map.
pub(super) struct Mapped<S: Substrate> {
    pub(super) file: Rc<S::File>,
    pub(super) map: Extents,
}

/// The file whose targets are on.
pub(super) struct TargetFile<S: Substrate> {
    pub(super) number: FileNo,
    /// Given up before the file is closed.
    pub(super) hold: Hold<S>,
    /// None where it cannot be opened, or shares nothing.
    pub(super) opened: Option<Mapped<S>>,
    /// Whether it could not be opened for now.
    pub(super) is_failing: bool,
    /// Where what was shared of it lies now.
    pub(super) moved: Vec<Moved>,
    /// In which whole extents its data lies, where that counts.
    pub(super) slices: Slices,
}

/// What targets share with.
pub(super) struct Sources<S: Substrate> {
    /// A file that is one hole.
    pub(super) zeros: S::File,
    pub(super) arenas: BTreeMap<u32, Mapped<S>>,
}

impl<S: Substrate> Sources<S> {
    /// Returns the file that a source is in, and where, in bytes; the arena file has been loaded.
    pub(super) fn place(&self, source: Source) -> (&S::File, u64) {
        match source {
            Source::Zeros => (&self.zeros, 0),
            Source::Slot(slot) => (&self.arenas[&slot.arena()].file, slot.index() * BLOCK_BYTES_U64),
        }
    }
}
