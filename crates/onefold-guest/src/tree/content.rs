//! The content of a file of a tree.

use std::io;

use super::{GuestFile, Links, Tree};
use crate::error::GuestError;
use crate::filesystem::{FileKind, FileNumber, FileSystem};

/// Maximum bytes of one read of a file.
const PIECE_BYTES: usize = 256 << 10;

/// The content of a file, read from its beginning to its end. An error of the guest comes as the source of an
/// [`io::Error`].
pub struct ContentReader<'a> {
    system: &'a dyn FileSystem,
    file: FileNumber,
    offset: u64,
}

impl io::Read for ContentReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.system.read(self.file, self.offset, into).map_err(io::Error::other)?;
        self.offset = self.offset.saturating_add(count as u64);
        Ok(count.min(into.len()))
    }
}

impl<'a> Tree<'a> {
    /// Returns the content of a file as a stream.
    #[must_use]
    pub fn content(&self, file: GuestFile) -> ContentReader<'a> {
        ContentReader { system: self.system(file.system), file: file.file, offset: 0 }
    }

    /// Returns the whole content of a regular file of at most `bytes_max` bytes. The memory depends on the bytes that
    /// were read, not on the length that the file claims.
    ///
    /// # Errors
    /// When the file is not regular or longer than that, and those of the readers.
    pub fn read_whole(&self, file: GuestFile, bytes_max: usize) -> Result<Vec<u8>, GuestError> {
        let stat = self.stat(file)?;
        if stat.kind != FileKind::Regular {
            return Err(GuestError::Unsupported("something else than a regular file"));
        }
        if stat.size_bytes > bytes_max as u64 {
            return Err(GuestError::Unsupported("a text of this length"));
        }
        let system = self.system(file.system);
        let mut bytes = Vec::new();
        loop {
            let filled = bytes.len();
            let room = PIECE_BYTES.min(bytes_max - filled).min(usize::try_from(stat.size_bytes).unwrap_or(0) - filled);
            if room == 0 {
                return Ok(bytes);
            }
            bytes.resize(filled + room, 0);
            let count = system.read(file.file, filled as u64, &mut bytes[filled..])?.min(room);
            bytes.truncate(filled + count);
            if count == 0 {
                return Ok(bytes);
            }
        }
    }

    /// Returns the whole content of the file at a path.
    ///
    /// # Errors
    /// Those of [`Tree::find`] and [`Tree::read_whole`].
    pub fn read_path(&self, path: &[u8], bytes_max: usize) -> Result<Vec<u8>, GuestError> {
        self.read_whole(self.find(path, Links::Follow)?.file, bytes_max)
    }

    /// As [`Tree::read_path`], with a limit on the steps of paths: see [`Tree::find_within`].
    ///
    /// # Errors
    /// Those of [`Tree::find_within`] and [`Tree::read_whole`].
    pub(crate) fn read_path_within(
        &self,
        path: &[u8],
        bytes_max: usize,
        steps_left: &mut u64,
    ) -> Result<Vec<u8>, GuestError> {
        self.read_whole(self.find_within(path, Links::Follow, steps_left)?.file, bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::memory::MemoryFileSystem;

    #[test]
    fn content_comes_whole_or_not_at_all() {
        let mut system = MemoryFileSystem::default();
        let long: Vec<u8> = (0..600_000_u32).flat_map(|number| number.to_le_bytes()).collect();
        system.write("/long", &long);
        system.write("/empty", "");
        let sparse = system.write("/sparse", "x");
        system.stat_mut(sparse).unwrap().size_bytes = 1 << 60;
        let tree = Tree::new(&system);
        assert_eq!(tree.read_path(b"/long", 1 << 22).unwrap(), long);
        assert_eq!(tree.read_path(b"/long", long.len()).unwrap(), long);
        assert!(tree.read_path(b"/long", long.len() - 1).is_err());
        assert!(tree.read_path(b"/empty", 0).unwrap().is_empty());
        assert!(matches!(tree.read_path(b"/sparse", 1 << 20), Err(GuestError::Unsupported(_))));
        assert!(matches!(tree.read_path(b"/", 1 << 20), Err(GuestError::Unsupported(_))));
        let mut streamed = Vec::new();
        tree.content(tree.find(b"/long", Links::Keep).unwrap().file).read_to_end(&mut streamed).unwrap();
        assert_eq!(streamed, long);
    }
}
