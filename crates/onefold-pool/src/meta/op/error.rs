//! Why an operation does not take effect.

use onefold_block::BlockNo;

use crate::error::PoolError;
use crate::format::header::BlockKind;
use crate::meta::group_run::GroupRun;
use crate::tree::TreeError;

/// Why an operation was rolled back.
#[derive(Debug)]
pub(crate) enum OpError {
    /// Blocks are missing in memory (noted in the operation); read them and retry.
    Fault,
    /// Allocation needs this block group, which has not been initialised.
    NeedGroup(u64),
    /// Metadata needs some of these free blocks, which must be written first: the backing file may have no room for
    /// them.
    NeedWritten(Vec<GroupRun>),
    /// The running transaction has no room for it; commit and retry.
    TransactionFull,
    /// This data block has the maximum number of references: make a copy of it and retry.
    CountFull(BlockNo),
    /// The operation fails.
    Fail(PoolError),
}

/// Result of a step of an operation.
pub(crate) type OpResult<T> = Result<T, OpError>;

impl From<PoolError> for OpError {
    fn from(error: PoolError) -> OpError {
        OpError::Fail(error)
    }
}

impl From<TreeError> for OpError {
    fn from(error: TreeError) -> OpError {
        let (block, what) = match error {
            TreeError::Corrupt { page, what } => (page, what.to_string()),
            TreeError::ValueTooLong { bytes } => (BlockNo(0), format!("a value of {bytes} bytes does not fit")),
        };
        OpError::Fail(PoolError::Damaged { structure: BlockKind::TreePage.name(), block, what })
    }
}

/// Returns the error for a damaged structure.
pub(crate) fn damaged(structure: &'static str, block: BlockNo, what: impl Into<String>) -> OpError {
    OpError::Fail(PoolError::Damaged { structure, block, what: what.into() })
}
