//! Gives inodes their maps by changing values in the names tree, page by page.

use std::collections::BTreeMap;
use std::ops::Range;

use onefold_block::{BLOCK_BYTES, BlockDevice, BlockNo};
use onefold_pool::Ino;
use onefold_pool::format::BlockBytes;
use onefold_pool::format::header::{self, BlockKind};
use onefold_pool::format::inode::{Inode, MapRoot};
use onefold_pool::format::items;
use onefold_pool::tree::{self, Pages};

use crate::{SyntheticError, ensure_sound, read_one, write_one};

/// The tree's pages, changed in memory.
pub(crate) struct TreePages<'d> {
    device: &'d dyn BlockDevice,
    pool_tag: u32,
    pages: BTreeMap<BlockNo, Box<BlockBytes>>,
}

impl<'d> TreePages<'d> {
    pub(crate) fn new(device: &'d dyn BlockDevice, pool_tag: u32) -> TreePages<'d> {
        TreePages { device, pool_tag, pages: BTreeMap::new() }
    }

    fn load(&mut self, at: BlockNo) -> Result<&mut BlockBytes, SyntheticError> {
        if !self.pages.contains_key(&at) {
            let bytes = read_one(self.device, at)?;
            ensure_sound(&bytes, self.pool_tag, BlockKind::TreePage, at)?;
            self.pages.insert(at, Box::new(bytes));
        }
        Ok(self.pages.get_mut(&at).expect("inserted above"))
    }
}

impl Pages for TreePages<'_> {
    type Error = SyntheticError;

    fn page(&mut self, at: BlockNo) -> Result<&[u8; BLOCK_BYTES], SyntheticError> {
        self.load(at).map(|bytes| &*bytes)
    }

    fn edit(&mut self, at: BlockNo, range: Range<usize>) -> Result<&mut [u8], SyntheticError> {
        Ok(&mut self.load(at)?[range])
    }

    fn allocate(&mut self) -> Result<BlockNo, SyntheticError> {
        Err(SyntheticError::Plan("an inode with a map is no longer than one without"))
    }

    fn free(&mut self, _: BlockNo) -> Result<(), SyntheticError> {
        Err(SyntheticError::Plan("an inode with a map is no shorter than one without"))
    }
}

/// The names tree of a closed pool.
pub(crate) struct Names<'d> {
    pages: TreePages<'d>,
    root: BlockNo,
}

impl<'d> Names<'d> {
    pub(crate) fn new(pages: TreePages<'d>, root: BlockNo) -> Names<'d> {
        Names { pages, root }
    }

    /// Gives a file that is one hole a map of `blocks` blocks.
    pub(crate) fn set_map(&mut self, ino: Ino, map: MapRoot, blocks: u64) -> Result<(), SyntheticError> {
        let key = items::inode_key(ino);
        let value = tree::get(&mut self.pages, self.root, &key)?;
        let missing = || SyntheticError::Plan("a file that was just made is not there");
        let inode = value.and_then(|value| Inode::decode(ino, &value)).ok_or_else(missing)?;
        let mapped = Inode { map, mapped: blocks, ..inode };
        tree::insert(&mut self.pages, &mut self.root, &key, &mapped.encode())?;
        Ok(())
    }

    /// Writes all pages back.
    pub(crate) fn write(self) -> Result<(), SyntheticError> {
        let TreePages { device, pages, .. } = self.pages;
        for (at, mut bytes) in pages {
            header::seal(&mut bytes);
            write_one(device, at, &bytes)?;
        }
        Ok(())
    }
}
