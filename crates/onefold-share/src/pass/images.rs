//! The image files of a pass: which are there, which may be worked on.

use std::collections::BTreeMap;
use std::io;

use onefold_block::substrate::Access;
use onefold_block::{BLOCK_BYTES_U64, Substrate};

use crate::format::{FileBlock, FileNo};
use crate::state::files::Files;
use crate::state::locks::{Held, Subject};
use crate::state::{State, StateError};

/// All files that a pass has come across. Their locks are held until it ends.
pub(super) struct Images<'a, 'b, S: Substrate> {
    state: &'a State<'b, S>,
    files: &'a Files,
    known: BTreeMap<FileNo, Image<S>>,
}

/// An image file.
pub(super) enum Image<S: Substrate> {
    /// It is there, and this host's to share from and into until the pass ends.
    Owned(Owned<S>),
    /// Another host, or a door, has it.
    Elsewhere {
        /// How many whole blocks it has.
        blocks: u64,
    },
    /// It is gone, or another file has its name.
    Gone,
}

/// A file that is this host's.
pub(super) struct Owned<S: Substrate> {
    blocks: u64,
    _lock: Held<S>,
}

impl<'a, 'b, S: Substrate> Images<'a, 'b, S> {
    pub(super) fn new(state: &'a State<'b, S>, files: &'a Files) -> Images<'a, 'b, S> {
        Images { state, files, known: BTreeMap::new() }
    }

    /// Returns what a file is, and takes its lock where it can.
    pub(super) fn get(&mut self, number: FileNo) -> Result<&Image<S>, StateError> {
        if !self.known.contains_key(&number) {
            let image = self.look(number)?;
            self.known.insert(number, image);
        }
        Ok(&self.known[&number])
    }

    /// Returns the files that were looked for in vain. They may have been renamed since they were seen: what was known of them
    /// is dropped, and must be found again.
    pub(super) fn gone(&self) -> impl Iterator<Item = FileNo> {
        self.known.iter().filter(|(_, image)| matches!(image, Image::Gone)).map(|(number, _)| *number)
    }

    /// Tells whether a block is within a file that is there.
    pub(super) fn has(&mut self, number: FileNo, block: FileBlock) -> Result<bool, StateError> {
        Ok(match self.get(number)? {
            Image::Owned(Owned { blocks, .. }) | Image::Elsewhere { blocks } => block.0 < *blocks,
            Image::Gone => false,
        })
    }

    /// Tells whether a file is this host's.
    pub(super) fn is_owned(&mut self, number: FileNo) -> Result<bool, StateError> {
        Ok(matches!(self.get(number)?, Image::Owned(_)))
    }

    /// Opens a file that is this host's; by its name, and only if that still leads to it.
    pub(super) fn open(&self, number: FileNo, access: Access) -> io::Result<S::File> {
        let mark = self.files.get(number).ok_or(io::ErrorKind::NotFound)?;
        let file = self.state.substrate().open(&mark.path, access)?;
        if self.state.substrate().stat(&file)?.handle != mark.handle {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(file)
    }

    /// Returns the path of a file, for messages.
    pub(super) fn path(&self, number: FileNo) -> std::path::PathBuf {
        self.files.get(number).map(|mark| mark.path.clone()).unwrap_or_default()
    }

    fn look(&self, number: FileNo) -> Result<Image<S>, StateError> {
        let Some(mark) = self.files.get(number) else { return Ok(Image::Gone) };
        let Ok(file) = self.open(number, Access::Read) else { return Ok(Image::Gone) };
        let Ok(stat) = self.state.substrate().stat(&file) else { return Ok(Image::Gone) };
        let blocks = stat.length / BLOCK_BYTES_U64;
        Ok(match self.state.try_lock(&Subject::File(mark.handle.clone()))? {
            Some(lock) => Image::Owned(Owned { blocks, _lock: lock }),
            None => Image::Elsewhere { blocks },
        })
    }
}
