//! A pass over all items of the names tree of an opened pool.

use std::ops::ControlFlow;

use crate::engine::Engine;
use crate::error::Result;
use crate::tree::{self, Key};

/// Number of items that one operation reads or changes.
pub(super) const ITEMS_PER_STEP: usize = 64;

/// Passes all items to `visit`, some in each operation.
pub(super) fn each_item(engine: &Engine, mut visit: impl FnMut(Key, &[u8])) -> Result<()> {
    let mut next = Key::MIN;
    loop {
        let some = engine.view(|op| {
            let root = op.tree_root();
            let mut some: Vec<(Key, Vec<u8>)> = Vec::with_capacity(ITEMS_PER_STEP);
            let _ = tree::scan(op, root, next.., |key, value| {
                some.push((key, value.to_vec()));
                if some.len() == ITEMS_PER_STEP { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            Ok(some)
        })?;
        for (key, value) in &some {
            visit(*key, value);
        }
        match some.last() {
            Some((last, _)) if some.len() == ITEMS_PER_STEP => match last.successor() {
                Some(key) => next = key,
                None => return Ok(()),
            },
            _ => return Ok(()),
        }
    }
}
