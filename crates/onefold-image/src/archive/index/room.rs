//! Where the index of an archive gets its room.

use std::path::{Path, PathBuf};

/// Where the index of an archive gets its room.
#[derive(Clone, Debug)]
pub struct IndexRoom {
    /// Approximate memory, in bytes.
    pub memory_bytes: usize,
    /// The folder that keeps parts of indexes for other processes of this user; `None` for none. Only this user may
    /// have access to it.
    pub cache: Option<PathBuf>,
    /// The folder for unnamed temporary files, for an index that neither memory nor the cache has room for.
    pub temporary: PathBuf,
}

impl IndexRoom {
    /// Returns the room in memory and in a folder for temporary files.
    #[must_use]
    pub fn new(memory_bytes: usize, temporary: &Path) -> IndexRoom {
        IndexRoom { memory_bytes, cache: None, temporary: temporary.to_owned() }
    }
}

impl Default for IndexRoom {
    fn default() -> IndexRoom {
        IndexRoom::new(64 << 20, Path::new("/var/tmp"))
    }
}
