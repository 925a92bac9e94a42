//! Finds the blocks at a place of the device, in the maps of all known files.

use std::io;
use std::path::{Path, PathBuf};

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::{Access, FileHandle, MappedExtent, Substrate};

use crate::extents::Extents;
use crate::files::common;
use crate::format::{FileBlock, Slot};
use crate::state::files::Marks;
use crate::state::{State, StateError};

/// References to a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sharers {
    /// Other blocks of known files, in order of their numbers.
    pub blocks: Vec<Sharer>,
    /// Arena slots.
    pub slots: Vec<Slot>,
    /// Known files that could not be opened or mapped. They may refer to it, too.
    pub unmapped: u64,
    /// Known files that are not where the last scan found them. They may refer to it, too.
    pub absent: u64,
}

/// A block of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sharer {
    /// The file.
    pub path: PathBuf,
    /// The offset in the file, in bytes.
    pub offset: u64,
    /// Whether the file is a common volume.
    pub is_common: bool,
}

impl Sharers {
    /// Returns whether there are no references.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.slots.is_empty()
    }

    /// Adds blocks of a file.
    fn add<S: Substrate>(&mut self, substrate: &S, path: &Path, offsets: impl Iterator<Item = u64>) {
        let mut offsets = offsets.peekable();
        if offsets.peek().is_some() {
            let is_common = common::is_marked(substrate, path);
            self.blocks.extend(offsets.map(|offset| Sharer { path: path.to_owned(), offset, is_common }));
        }
    }

    /// Adds the blocks of a folder's common volume at a place, if that volume is not known otherwise.
    pub(super) fn add_volume_of<S: Substrate>(&mut self, substrate: &S, folder: &Path, place: u64) -> io::Result<()> {
        let Ok(path) = common::find(substrate, folder) else { return Ok(()) };
        if self.blocks.iter().any(|sharer| sharer.path == path) {
            return Ok(());
        }
        let file = substrate.open(&path, Access::Read)?;
        let offsets = offsets_at(substrate, &file, place)?;
        self.add(substrate, &path, offsets.into_iter());
        Ok(())
    }
}

/// Finds all references to the block at a place, except that of the block in question.
pub(super) fn find<S: Substrate>(
    state: &State<'_, S>,
    files: &Marks,
    place: u64,
    own: &FileHandle,
    block: FileBlock,
) -> Result<Sharers, StateError> {
    let substrate = state.substrate();
    let mut sharers = Sharers::default();
    for mark in files.of_files() {
        let mapped = || -> io::Result<Option<Vec<u64>>> {
            let file = substrate.open(&mark.path, Access::Read)?;
            if substrate.stat(&file)?.handle != mark.handle {
                return Ok(None);
            }
            offsets_at(substrate, &file, place).map(Some)
        };
        match mapped() {
            Ok(None) => sharers.absent += 1,
            Ok(Some(offsets)) => {
                let is_other = |offset: &u64| mark.handle != *own || *offset != block.0 * BLOCK_BYTES_U64;
                let others = offsets.into_iter().filter(is_other);
                sharers.add(substrate, &mark.path, others);
            }
            Err(error) if onefold_substrate::is_gone(&error) => sharers.absent += 1,
            Err(_) => sharers.unmapped += 1,
        }
    }
    for number in state.arenas()? {
        let Some(file) = state.open_arena(number, Access::Read)? else { continue };
        let Ok(extents) = Extents::load(substrate, &file) else {
            sharers.unmapped += 1;
            continue;
        };
        let offsets = extents.iter().filter_map(|extent| offset_at(extent, place));
        sharers.slots.extend(offsets.filter_map(|offset| Slot::new(number, offset / BLOCK_BYTES_U64)));
    }
    Ok(sharers)
}

/// Returns the offsets at which a file has blocks at a place.
fn offsets_at<S: Substrate>(substrate: &S, file: &S::File, place: u64) -> io::Result<Vec<u64>> {
    let (mut offsets, mut next) = (Vec::new(), 0);
    loop {
        let extents = substrate.extents(file, next)?;
        // A map that does not advance has ended.
        let Some(end) = extents.last().map(MappedExtent::end).filter(|end| *end > next) else { return Ok(offsets) };
        offsets.extend(extents.iter().filter_map(|extent| offset_at(extent, place)));
        next = end;
    }
}

fn offset_at(extent: &MappedExtent, place: u64) -> Option<u64> {
    let within = place.checked_sub(extent.place?)?;
    (within < extent.length && !extent.is_unwritten).then_some(extent.offset + within)
}
