//! Files of a guest that belong to packages.

use onefold_guest::tree::GuestFile;

/// A file that belongs to a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OwnedFile {
    pub(super) file: GuestFile,
    /// MD5 digest by the package database.
    pub(super) digest: [u8; 16],
    /// Its package, by its index in the list of the image.
    pub(super) package: Option<u32>,
    /// Whether its package is one of the later ones.
    pub(super) is_later: bool,
    /// Whether its content may enter a common volume.
    pub(super) is_content: bool,
}
