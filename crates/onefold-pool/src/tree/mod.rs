//! The names tree: a B+tree in 4 KiB pages that maps a [`Key`] to a small value.
//!
//! Its items are inodes, directory entries, extended attributes, symbolic link targets and the orphan list; the tree
//! does not know their meaning. It reaches its pages through [`Pages`] and keeps no state outside them. So any
//! operation may be interrupted at any page access, rolled back by the owner of the pages, and repeated.
//!
//! It does not lock, cache, write or recover anything: that is the task of the implementation of [`Pages`].
//!
//! Invariants, all checked by [`check`]:
//! 1. The keys of a page ascend strictly, and lie within the range which the separators above it promise.
//! 2. An interior page's first separator is the lower end of its own range ([`Key::MIN`] in the root).
//! 3. All leaves are equally deep; a child's level is one less than its parent's.
//! 4. A page's header accounts for each byte of its cell area, and no two cells overlap.
//! 5. An interior page has two children or more; a leaf has an item or more, unless it is the root.
//! 6. Each page is at least a third full, except the root and the last page of each level: ascending inserts open a
//!    new last page for one item, which leaves the pages behind it full.

mod cells;
mod check;
mod delete;
mod error;
mod insert;
mod key;
mod limits;
mod node;
mod pages;
mod path;
mod read;
mod scan;
#[cfg(test)]
mod tests;

pub use check::{FindingSink, TreeFinding, TreeTotals, check};
pub use delete::delete;
pub use error::{Defect, TreeError};
pub use insert::{create, insert};
pub use key::Key;
pub use limits::VALUE_BYTES_MAX;
pub use pages::Pages;
pub use read::{get, get_with};
pub use scan::{first_at_or_after, last_before, scan};
