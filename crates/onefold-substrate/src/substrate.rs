//! All substrate traits in one bound.

use crate::copy_hints::CopyHints;
use crate::exclusive::Exclusive;
use crate::locks::Locks;
use crate::names::Names;
use crate::sharing::Sharing;
use crate::whole_extents::WholeExtents;

/// A file system whose files can share blocks, as mounted on one host.
pub trait Substrate: Names + Locks + Sharing + Exclusive + WholeExtents + CopyHints {}

impl<T: Names + Locks + Sharing + Exclusive + WholeExtents + CopyHints> Substrate for T {}
