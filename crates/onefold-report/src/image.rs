//! The images of an analysis. The caller opens them.

use onefold_disk::{Disk, DiskError};

/// An open image: its disk, and a check whether it changes meanwhile.
pub struct WatchedDisk {
    /// Its bytes.
    pub disk: Box<dyn Disk>,
    /// Returns whether the image has changed since it was opened. Its numbers then describe no single moment.
    pub has_changed: Box<dyn Fn() -> bool + Send>,
    /// Whether a machine had the image open for writing when it was opened.
    pub has_writer: bool,
}

impl std::fmt::Debug for WatchedDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchedDisk").field("size_bytes", &self.disk.size_bytes()).finish_non_exhaustive()
    }
}

/// Function that opens an image when its turn comes. It may be called several times.
pub type ImageOpener = Box<dyn Fn() -> Result<WatchedDisk, DiskError> + Sync>;

/// An image to analyse.
pub struct Image {
    /// Its name, as results show it.
    pub name: String,
    /// Approximate length, for the estimate of the remaining time. The exact length is known after opening.
    pub about_bytes: u64,
    /// Space that its files occupy now.
    pub allocated_bytes: u64,
    /// Its group: an index into the names of groups.
    pub group: Option<usize>,
    /// Whether its blocks lie in a plain file, so that a file system could share them there.
    pub is_plain: bool,
    /// Whether opening it makes a copy, which takes space until it is closed. No two such images are open at once.
    pub is_copied: bool,
    /// Opens it.
    pub open: ImageOpener,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image").field("name", &self.name).finish_non_exhaustive()
    }
}
