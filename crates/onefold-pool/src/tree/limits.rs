//! Bounds of the names tree.

/// Maximum length of an item's value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1024;

/// Maximum level of a page: even a tree of pages a third full would then hold more items than there are block numbers.
pub(super) const LEVEL_MAX: u8 = 11;
