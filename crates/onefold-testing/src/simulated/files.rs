//! Files: a length, times, and which block of the device each of their blocks is.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};
use onefold_substrate::{MappedExtent, Refusal};

use super::blocks::PhysicalNo;
use super::content::Content;
use super::holes::Exclusive;
use super::host::HostNo;
use super::locks::Lock;
use super::rights::Owned;
use super::sparse::Sparse;

/// Extended attributes, by name.
pub(super) type Attributes = BTreeMap<String, Vec<u8>>;

/// A file, as long as it exists. Numbers are given out again, as those of inodes are.
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
    /// How many files bore the number before.
    pub(super) generation: u32,
    pub(super) owned: Owned,
    pub(super) length: u64,
    /// Which block of the device each of its blocks is; the rest are holes.
    pub(super) map: Sparse<PhysicalNo>,
    /// In which generation each of its blocks became another one.
    pub(super) touched: BTreeMap<u64, u64>,
    /// How many names lead to it.
    pub(super) names: u32,
    /// How often it is open.
    pub(super) opens: u32,
    /// How many removals of its names may still be undone.
    pub(super) pins: u32,
    pub(super) modified: u64,
    pub(super) changed: u64,
    /// Whether it belongs to the writers: hosts may share its blocks, and nothing else.
    pub(super) is_image: bool,
    pub(super) refusal: Option<Refusal>,
    /// User number of its owner. A change of it is durable at once.
    pub(super) owner: u32,
    /// Extended attributes. Their changes are durable at once.
    pub(super) attributes: Attributes,
    pub(super) unsynced: Unsynced,
    pub(super) lock: Option<Lock>,
    /// Through which host a writer has it open, where that is a matter.
    pub(super) in_use: Option<HostNo>,
    /// Who has it for itself, on its host.
    pub(super) exclusive: Option<Exclusive>,
    /// An earlier answer about where its data lies, and from which offset on.
    pub(super) told: Option<(u64, Rc<[MappedExtent]>)>,
}

impl File {
    /// Returns which block of the device one of its blocks is; none is a hole.
    pub(super) fn block(&self, index: u64) -> Option<PhysicalNo> {
        self.map.get(index).copied()
    }

    /// Returns how many blocks the length takes.
    pub(super) fn block_count(&self) -> u64 {
        self.length.div_ceil(BLOCK_BYTES_U64)
    }
}

/// What the crash of a host may take from a file.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    /// The one host that changed it since all of it was durable.
    pub(super) by: Option<HostNo>,
    /// The durable content of blocks that were changed since.
    pub(super) blocks: BTreeMap<u64, Option<Content>>,
    /// Blocks that were shared in two steps, of which the second may be lost.
    pub(super) shared: BTreeSet<u64>,
    /// Holes of such that were filled.
    pub(super) filled: BTreeSet<u64>,
    /// The durable length, if the present one is not.
    pub(super) length: Option<u64>,
    /// When the durable content was changed last.
    pub(super) modified: u64,
}

/// All files, by number.
#[derive(Debug, Default)]
pub(super) struct Marks {
    slots: Vec<Option<File>>,
    /// How many files bore each number before.
    generations: Vec<u32>,
    free: Vec<FileNo>,
}

impl Marks {
    /// Gives a new file a number, one that was given before if there is one.
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

    /// Returns a file that has a name or is open, so that it is there.
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

/// Splits a range of bytes at the bounds of blocks: which block, from where in it, how many bytes.
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
