//! A file that is open, and its map.

use std::rc::Rc;

use onefold_substrate::Substrate;

use crate::extents::Extents;

/// A file and its map.
pub(super) struct MappedFile<S: Substrate> {
    pub(super) file: Rc<S::File>,
    pub(super) map: Extents,
}
