//! The journal: appending transactions, reading them back after a crash, and what can be read of a damaged one.

pub(crate) mod log;
pub(crate) mod replay;
pub(crate) mod salvage;
