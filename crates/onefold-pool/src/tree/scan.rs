//! Reading items in key order.

use std::ops::{Bound, ControlFlow, RangeBounds};

use onefold_block::BlockNo;

use super::path::PagePath;
use super::{Defect, Key, Pages};

/// Passes the items whose keys lie in `range` to `visit`, in key order, until it breaks; returns how the scan ended.
///
/// An operation that is repeated after an error passes its items again, so `visit` should collect them in something
/// that the caller clears. Reads only the pages that hold items of the range, and at most one before and after.
///
/// # Errors
/// See [`Pages::page`]; or a page on the path is corrupt. Keys that do not ascend are an error, so a scan ends even if
/// damaged pages form a loop.
pub fn scan<P: Pages, B>(
    pages: &mut P,
    root: BlockNo,
    range: impl RangeBounds<Key>,
    mut visit: impl FnMut(Key, &[u8]) -> ControlFlow<B>,
) -> Result<ControlFlow<B>, P::Error> {
    let start = match range.start_bound() {
        Bound::Included(key) | Bound::Excluded(key) => *key,
        Bound::Unbounded => Key::MIN,
    };
    let is_past = |key: &Key| match range.end_bound() {
        Bound::Included(end) => key > end,
        Bound::Excluded(end) => key >= end,
        Bound::Unbounded => false,
    };
    let mut path = PagePath::to_leaf_of(pages, root, &start)?;
    let mut first = path.node(pages)?.search(&start)?.unwrap_or_else(|index| index);
    let mut previous = None;
    loop {
        let node = path.node(pages)?;
        for index in first..node.header.count {
            let key = node.key(index)?;
            if previous.is_some_and(|previous| key <= previous) {
                return Err(Defect::KeyOrder { index }.of(node.at).into());
            }
            previous = Some(key);
            if is_past(&key) {
                return Ok(ControlFlow::Continue(()));
            }
            if !range.contains(&key) {
                continue;
            }
            if let ControlFlow::Break(result) = visit(key, node.value(index)?) {
                return Ok(ControlFlow::Break(result));
            }
        }
        if !path.advance(pages, is_past)? {
            return Ok(ControlFlow::Continue(()));
        }
        first = 0;
    }
}

/// Returns the first item whose key is `from` or above.
///
/// # Errors
/// See [`Pages::page`]; or a page on the path is corrupt.
pub fn first_at_or_after<P: Pages>(
    pages: &mut P,
    root: BlockNo,
    from: &Key,
) -> Result<Option<(Key, Vec<u8>)>, P::Error> {
    let end = scan(pages, root, *from.., |key, value| ControlFlow::Break((key, value.to_vec())))?;
    Ok(end.break_value())
}

/// Returns the last item whose key is below `before`.
///
/// # Errors
/// See [`Pages::page`]; or a page on the path is corrupt.
pub fn last_before<P: Pages>(pages: &mut P, root: BlockNo, before: &Key) -> Result<Option<(Key, Vec<u8>)>, P::Error> {
    let mut path = PagePath::to_leaf_of(pages, root, before)?;
    let mut end = path.node(pages)?.search(before)?.unwrap_or_else(|index| index);
    if end == 0 {
        if !path.retreat(pages)? {
            return Ok(None);
        }
        end = path.node(pages)?.header.count;
    }
    let node = path.node(pages)?;
    Ok(Some((node.key(end - 1)?, node.value(end - 1)?.to_vec())))
}
