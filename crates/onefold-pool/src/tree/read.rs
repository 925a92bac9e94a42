//! Looking up one item.

use onefold_block::BlockNo;

use super::node::Node;
use super::{Key, Pages};

/// Returns a copy of the value of `key`.
///
/// # Errors
/// See [`Pages::page`]; or a page on the path is corrupt.
pub fn get<P: Pages>(pages: &mut P, root: BlockNo, key: &Key) -> Result<Option<Vec<u8>>, P::Error> {
    get_with(pages, root, key, <[u8]>::to_vec)
}

/// Returns the result of `read` for the value of `key`, without copying the value.
///
/// # Errors
/// See [`Pages::page`]; or a page on the path is corrupt.
pub fn get_with<P: Pages, R>(
    pages: &mut P,
    root: BlockNo,
    key: &Key,
    read: impl FnOnce(&[u8]) -> R,
) -> Result<Option<R>, P::Error> {
    let (mut at, mut parent_level) = (root, None);
    loop {
        let node = Node::open_below(at, pages.page(at)?, parent_level)?;
        if node.is_leaf() {
            return Ok(match node.search(key)? {
                Ok(index) => Some(read(node.value(index)?)),
                Err(_) => None,
            });
        }
        at = node.child(node.child_index(key)?)?;
        parent_level = Some(node.header.level);
    }
}
