//! Results of comparing and sharing.

use std::fmt;
use std::io;

/// What comparing showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Compared {
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
    /// There is no room for the metadata.
    #[error("the file system is full")]
    Full,
    /// Not now: another operation has the file system or the file. Worth to be tried again later.
    #[error("the file system is busy with the file")]
    Busy,
    /// Reading or writing failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Why a file is not shared as long as nobody changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It is immutable.
    Immutable,
    /// It is in use as swap space.
    Swap,
    /// Its blocks are overwritten in place (`nodatacow`), those of the other file are not.
    NoCopyOnWrite,
    /// The two files cannot share with each other: another file system, another tree of references.
    Apart,
    /// Whoever asks may not write it.
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
            Refusal::NotPermitted => "it may not be written by who runs this",
            Refusal::SwitchedOff => "sharing is switched off for it",
        })
    }
}
