//! Separates data blocks that files of several sharing domains name: ordinary writes give the files of all domains
//! except the block's own blocks of their own.

use onefold_block::BlockNo;

use super::each_item::each_item;
use crate::attr::{FileKind, Ino};
use crate::data::Data;
use crate::data::write::StoreRequest;
use crate::engine::Engine;
use crate::error::{PoolError, Result};
use crate::format::inode::Inode;
use crate::format::items::{self, ItemKind};
use crate::format::map_node::MapEntry;
use crate::meta::Privilege;
use crate::names::inodes::blocks_spanned;

/// Number of blocks of a file that are examined under one hold of the metadata lock.
const BLOCKS_PER_STEP: u64 = 508;

/// Examines all files, and copies blocks that belong to another domain.
///
/// # Errors
/// [`PoolError::NoSpace`]; device errors.
pub(super) fn mend(data: &Data) -> Result<()> {
    let mut result = Ok(());
    each_item(&data.engine, |key, value| {
        let is_inode = items::item_kind(&key) == Some(ItemKind::Inode);
        let inode = Inode::decode(Ino(key.ino), value).filter(|_| is_inode && result.is_ok());
        if let Some(inode) = inode.filter(|inode| inode.attr.kind == FileKind::Regular && inode.mapped > 0) {
            result = mend_file(data, &inode);
        }
    })?;
    result
}

fn mend_file(data: &Data, inode: &Inode) -> Result<()> {
    let (ino, end) = (inode.attr.ino, blocks_spanned(inode.attr.size_bytes));
    let mut first = 0;
    while first < end {
        for index in foreign_blocks(&data.engine, ino, first, (end - first).min(BLOCKS_PER_STEP))? {
            let content = match data.file_block(ino, index) {
                Ok(content) => content,
                // Unreadable blocks cannot be copied; a check continues to report them.
                Err(PoolError::Io { action: "read", .. }) => continue,
                Err(error) => return Err(error),
            };
            let blocks = [(index, &content[..])];
            data.store_blocks(&StoreRequest::now(ino, &blocks, Privilege::Normal), &mut 0, &mut |_, _| Ok(()))?;
        }
        first += BLOCKS_PER_STEP;
    }
    Ok(())
}

/// Returns the places, among `count` from `first` of a file, that name a block of another domain.
fn foreign_blocks(engine: &Engine, ino: Ino, first: u64, count: u64) -> Result<Vec<u64>> {
    engine.view(|op| {
        let inode = op.inode(ino)?;
        let mut entries = vec![MapEntry::Hole; usize::try_from(count).expect("at most 508")];
        op.map_read(&inode, first, &mut entries)?;
        let named: Vec<(u64, BlockNo)> = (first..)
            .zip(&entries)
            .filter_map(|(index, entry)| if let MapEntry::Block(block) = entry { Some((index, *block)) } else { None })
            .collect();
        op.want_entries(named.iter().map(|(_, block)| *block))?;
        let mut foreign = Vec::new();
        for (index, block) in named {
            if op.entry(block)?.domain != inode.attr.domain {
                foreign.push(index);
            }
        }
        Ok(foreign)
    })
}
