//! The reference copy: the expected content of every file, and the expected names of images.
//!
//! It follows the writes of writers and the losses that the rules allow, and for the engine's own files the engine's
//! writes. It knows nothing of device blocks, counts or sharing.

use std::collections::BTreeMap;

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};

use super::content::{Content, cut, merged};
use super::files::FileNo;
use super::names::{FolderNo, Name};
use super::sparse::SparseArray;

#[derive(Debug, Default)]
struct FileCopy {
    length: u64,
    /// Missing blocks are zeros.
    blocks: SparseArray<Content>,
}

/// The reference copy of all files.
#[derive(Debug, Default)]
pub(super) struct ReferenceCopy {
    copies: Vec<Option<FileCopy>>,
    /// The names of images.
    names: BTreeMap<(FolderNo, Name), FileNo>,
    /// Number of changes of names.
    names_version: u64,
}

impl ReferenceCopy {
    pub(super) fn add(&mut self, no: FileNo) {
        if self.copies.len() <= no.index() {
            self.copies.resize_with(no.index() + 1, || None);
        }
        self.copies[no.index()] = Some(FileCopy::default());
    }

    pub(super) fn remove(&mut self, no: FileNo) {
        self.copies[no.index()] = None;
    }

    fn copy(&self, no: FileNo) -> &FileCopy {
        self.copies[no.index()].as_ref().expect("every file has a copy")
    }

    fn copy_mut(&mut self, no: FileNo) -> &mut FileCopy {
        self.copies[no.index()].as_mut().expect("every file has a copy")
    }

    /// Returns the number of files.
    pub(super) fn file_count(&self) -> usize {
        self.copies.iter().flatten().count()
    }

    pub(super) fn length(&self, no: FileNo) -> u64 {
        self.copy(no).length
    }

    pub(super) fn get(&self, no: FileNo, index: u64) -> Option<&Content> {
        self.copy(no).blocks.get(index)
    }

    /// Returns the existing blocks, in order.
    pub(super) fn blocks(&self, no: FileNo) -> impl Iterator<Item = (u64, &Content)> {
        self.copy(no).blocks.iter_from(0)
    }

    /// Sets the content of a block.
    pub(super) fn set(&mut self, no: FileNo, index: u64, content: Option<Content>) {
        self.copy_mut(no).blocks.set(index, content);
    }

    /// Writes bytes within a block. `whole` is the block that the file system made of it. If the write covers the whole
    /// block, the copy uses that, which costs a pointer.
    pub(super) fn write(&mut self, no: FileNo, index: u64, within: usize, bytes: &[u8], whole: &Content) {
        let content =
            if bytes.len() == BLOCK_BYTES { whole.clone() } else { merged(self.get(no, index), within, bytes) };
        self.set(no, index, Some(content));
    }

    pub(super) fn set_length(&mut self, no: FileNo, length: u64) {
        let copy = self.copy_mut(no);
        if length < copy.length {
            for index in copy.blocks.indices_from(length.div_ceil(BLOCK_BYTES_U64)) {
                copy.blocks.set(index, None);
            }
            let (tail, within) = (length / BLOCK_BYTES_U64, length % BLOCK_BYTES_U64);
            if let Some(content) = copy.blocks.get(tail) {
                let kept = cut(content, usize::try_from(within).expect("below a block's length"));
                copy.blocks.set(tail, Some(kept));
            }
        }
        copy.length = length;
    }

    /// Sets or removes the image behind a name.
    pub(super) fn set_name(&mut self, folder: FolderNo, name: &Name, image: Option<FileNo>) {
        let key = (folder, name.clone());
        let before = match image {
            Some(no) => self.names.insert(key, no),
            None => self.names.remove(&key),
        };
        self.names_version += u64::from(before != image);
    }

    /// Returns the image that a name should lead to.
    pub(super) fn name(&self, folder: FolderNo, name: &Name) -> Option<FileNo> {
        self.names.get(&(folder, name.clone())).copied()
    }

    /// Returns the names of images.
    pub(super) fn names(&self) -> impl Iterator<Item = (FolderNo, &Name, FileNo)> {
        self.names.iter().map(|((folder, name), no)| (*folder, name, *no))
    }

    /// Returns a number that changes with the names.
    pub(super) fn names_version(&self) -> u64 {
        self.names_version
    }
}
