//! The journal: appends transactions, reads them back after a crash, and salvages a damaged log.

pub(crate) mod log;
pub(crate) mod replay;
pub(crate) mod salvage;
