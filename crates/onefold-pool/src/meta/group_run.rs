//! Runs of blocks.

use onefold_block::BlockNo;

/// A run of blocks within one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupRun {
    pub(crate) first: BlockNo,
    pub(crate) count: u64,
}
