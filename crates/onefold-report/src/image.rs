//! The images of an analysis, which somebody else opens.

use onefold_disk::{Disk, DiskError};

/// An image that is open: its disk, and whether somebody changes it meanwhile.
pub struct WatchedDisk {
    /// Its bytes.
    pub disk: Box<dyn Disk>,
    /// Tells whether somebody changed the image since it was opened: then its numbers are of no single moment.
    pub has_changed: Box<dyn Fn() -> bool + Send>,
    /// Whether a machine had the image open for writing when it was opened.
    pub has_writer: bool,
}

impl std::fmt::Debug for WatchedDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchedDisk").field("size_bytes", &self.disk.size_bytes()).finish_non_exhaustive()
    }
}

/// What opens an image when its turn comes. It may be called several times.
pub type Open = Box<dyn Fn() -> Result<WatchedDisk, DiskError> + Sync>;

/// An image that is to be analysed.
pub struct Image {
    /// Its name, as results show it.
    pub name: String,
    /// About how long it is, for the time left; opening it tells exactly.
    pub about_bytes: u64,
    /// What its files occupy now.
    pub allocated_bytes: u64,
    /// Its group: an index into the names of groups.
    pub group: Option<usize>,
    /// Whether its blocks lie in a plain file, so that a file system could share them there.
    pub is_plain: bool,
    /// Whether opening it makes a copy of it, which takes room until it is closed: no two such images are open at once.
    pub is_copied: bool,
    /// Opens it.
    pub open: Open,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image").field("name", &self.name).finish_non_exhaustive()
    }
}
