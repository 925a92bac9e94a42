//! Files: their length, their times, and the device block behind each of their blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};
use onefold_substrate::{MappedExtent, Refusal};

use super::blocks::PhysicalNo;
use super::content::Content;
use super::holes::ExclusiveOpening;
use super::host::HostNo;
use super::locks::Lock;
use super::rights::Ownership;
use super::sparse::SparseArray;

/// Extended attributes, by name.
pub(super) type AttributeMap = BTreeMap<String, Vec<u8>>;

/// Number of an existing file. Numbers are reused, like those of inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FileNo(pub(super) u32);

impl FileNo {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A file.
#[derive(Debug, Default)]
pub(super) struct File {
    /// Number of earlier files with the same number.
    pub(super) generation: u32,
    pub(super) owned: Ownership,
    pub(super) length: u64,
    /// The device block behind each of its blocks; the others are holes.
    pub(super) map: SparseArray<PhysicalNo>,
    /// The generation in which each of its blocks last changed.
    pub(super) touched: BTreeMap<u64, u64>,
    /// Number of its names.
    pub(super) names: u32,
    /// Number of its openings.
    pub(super) opens: u32,
    /// Number of removals of its names that may still be undone.
    pub(super) pins: u32,
    pub(super) modified: u64,
    pub(super) changed: u64,
    /// Whether it belongs to the writers: hosts may only share its blocks.
    pub(super) is_image: bool,
    pub(super) refusal: Option<Refusal>,
    /// User number of its owner. A change of owner is durable at once.
    pub(super) owner: u32,
    /// Extended attributes. Their changes are durable at once.
    pub(super) attributes: AttributeMap,
    pub(super) unsynced: UnsyncedState,
    pub(super) lock: Option<Lock>,
    /// The host through which a writer has it open, where that matters.
    pub(super) in_use: Option<HostNo>,
    /// The opening that has exclusive use of it on its host.
    pub(super) exclusive: Option<ExclusiveOpening>,
    /// An earlier answer about its extents, with the offset that was asked for.
    pub(super) told: Option<(u64, Rc<[MappedExtent]>)>,
}

impl File {
    /// Returns the device block behind one of its blocks; `None` is a hole.
    pub(super) fn block(&self, index: u64) -> Option<PhysicalNo> {
        self.map.get(index).copied()
    }

    /// Returns the number of blocks in its length.
    pub(super) fn block_count(&self) -> u64 {
        self.length.div_ceil(BLOCK_BYTES_U64)
    }
}

/// The part of a file that its host's crash may undo.
#[derive(Debug, Default)]
pub(super) struct UnsyncedState {
    /// The only host that changed the file since all of it was durable.
    pub(super) by: Option<HostNo>,
    /// The durable content of blocks that have changed since.
    pub(super) blocks: BTreeMap<u64, Option<Content>>,
    /// Blocks whose share a crash may undo: if it had two steps, the second.
    pub(super) shared: BTreeSet<u64>,
    /// Holes of such shares that were filled.
    pub(super) filled: BTreeSet<u64>,
    /// The durable length, if the present one is not.
    pub(super) length: Option<u64>,
    /// Modification time of the durable content.
    pub(super) modified: u64,
}

/// All files, by number.
#[derive(Debug, Default)]
pub(super) struct FileTable {
    slots: Vec<Option<File>>,
    /// Number of earlier files for each number.
    generations: Vec<u32>,
    free: Vec<FileNo>,
}

impl FileTable {
    /// Gives a new file a number, a used one if any is free.
    pub(super) fn add(&mut self) -> FileNo {
        let no = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.generations.push(0);
            FileNo(u32::try_from(self.slots.len() - 1).expect("fewer files than steps"))
        });
        let generation = self.generations[no.index()];
        self.slots[no.index()] = Some(File { generation, ..File::default() });
        no
    }

    pub(super) fn remove(&mut self, no: FileNo) {
        self.slots[no.index()] = None;
        self.generations[no.index()] += 1;
        self.free.push(no);
    }

    pub(super) fn find(&self, no: FileNo) -> Option<&File> {
        self.slots[no.index()].as_ref()
    }

    /// Returns a file that has a name or is open, so that it exists.
    pub(super) fn get(&self, no: FileNo) -> &File {
        self.find(no).expect("a file with a name, or an open one, exists")
    }

    pub(super) fn get_mut(&mut self, no: FileNo) -> &mut File {
        self.slots[no.index()].as_mut().expect("a file with a name, or an open one, exists")
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut File> {
        self.slots.iter_mut().flatten()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (FileNo, &File)> {
        self.slots.iter().zip(0..).filter_map(|(file, number)| file.as_ref().map(|file| (FileNo(number), file)))
    }
}

/// Splits a range of bytes at block boundaries: block, offset within it, number of bytes.
pub(super) fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = usize::try_from(at % BLOCK_BYTES_U64).expect("below a block's length");
        let count = (BLOCK_BYTES - within).min(length - done);
        done += count;
        (count > 0).then_some((at / BLOCK_BYTES_U64, within, count))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_split_at_the_bounds_of_blocks() {
        assert_eq!(pieces(4000, 5000).collect::<Vec<_>>(), [(0, 4000, 96), (1, 0, 4096), (2, 0, 808)]);
        assert_eq!(pieces(8192, 4096).collect::<Vec<_>>(), [(2, 0, 4096)]);
        assert_eq!(pieces(5, 0).count(), 0);
    }
}
