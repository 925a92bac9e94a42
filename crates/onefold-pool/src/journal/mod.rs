//! The journal: appending transactions, and reading them back after a crash.

pub(crate) mod log;
pub(crate) mod replay;
