//! Results of comparing and sharing.

use std::fmt;
use std::io;

/// The outcome of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ComparisonResult {
    /// The ranges were equal, and share their blocks now.
    Shared,
    /// The ranges differ; nothing was changed.
    Differ,
}

/// Why a range was not shared.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// The file system refuses this file as it is.
    #[error("{0}")]
    Refused(Refusal),
    /// The file system has no room for the metadata.
    #[error("the file system is full")]
    Full,
    /// Another operation is using the file system or the file. The caller may try again later.
    #[error("the file system is busy with the file")]
    Busy,
    /// Reading or writing failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Why a file cannot be shared until a user changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It is immutable.
    Immutable,
    /// It is in use as swap space.
    Swap,
    /// Its blocks are overwritten in place (`nodatacow`), but those of the other file are not.
    NoCopyOnWrite,
    /// The two files cannot share with each other: they have different file systems or reference trees.
    Apart,
    /// The caller may not write to it.
    NotPermitted,
    /// Sharing is switched off for it, or for the other file.
    SwitchedOff,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Immutable => "it is immutable",
            Refusal::Swap => "it is in use as swap space",
            Refusal::NoCopyOnWrite => "it is overwritten in place (nodatacow), the other file is not",
            Refusal::Apart => {
                "the file system cannot share blocks between these two files; on OCFS2, because one was cloned by other means"
            }
            Refusal::NotPermitted => "the user who runs this may not write it",
            Refusal::SwitchedOff => "sharing is switched off for it",
        })
    }
}
