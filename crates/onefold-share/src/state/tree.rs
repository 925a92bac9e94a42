//! One tree of references for all files that share.
//!
//! OCFS2 keeps the counts of shared blocks in trees. A file gets into a tree with the first block that it shares, stays
//! in it, and shares with no file of another tree. If arena files had joined the trees of the first images, images of
//! different trees could never share. So a fixed file has a block, the seed, and each file that sharing makes refers to
//! that block before anything else. Images join its tree with the first slot, unless somebody has cloned them before by
//! other means: these stay in their own tree, and are reported as such.

use std::io;
use std::path::PathBuf;

use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};
use onefold_substrate::{Access, At, ShareError, Substrate};

use super::{State, StateError, TRIES};

pub(super) const TREE: &str = "tree";
/// Content of the seed, which no image has.
const SEED: &[u8; 16] = b"onefold: a seed\n";

impl<S: Substrate> State<'_, S> {
    /// Makes a file that sharing made join the common tree, on file systems with trees. The block at `offset`, to which
    /// a shorter file is extended, is the seed from then on.
    pub(crate) fn join_tree(&self, file: &S::File, offset: u64) -> Result<(), StateError> {
        let substrate = self.substrate();
        if !self.policy().is_declared() {
            return Ok(());
        }
        let path = self.tree_path();
        let seed = self.seed()?;
        if substrate.stat(file).map_err(StateError::at(&path))?.length < offset + BLOCK_BYTES_U64 {
            substrate.set_len(file, offset + BLOCK_BYTES_U64).map_err(StateError::at(&path))?;
        }
        let source = At { file: &seed, offset: 0 };
        self.clone_seed(source, At { file, offset })
    }

    /// Makes an image join the common tree, if it is in no tree, before it is cloned as a whole, which would give it a
    /// tree of its own. Images that cannot join, or are too short, are left as they are.
    pub(crate) fn take_into_tree(&self, image: &S::File) -> Result<(), StateError> {
        let substrate = self.substrate();
        let Some(scratch) = self.clone_scratch()? else { return Ok(()) };
        let first = At { file: image, offset: 0 };
        for _ in 0..TRIES {
            let ready = substrate.prepare_clone(first, BLOCK_BYTES_U64, &scratch);
            let into = At { file: &scratch, offset: 0 };
            match ready.and_then(|()| substrate.clone_range(first, into, BLOCK_BYTES_U64)) {
                Err(ShareError::Busy) => self.pause(),
                Err(ShareError::Full) => {
                    return Err(StateError::at(&self.tree_path())(io::ErrorKind::StorageFull.into()));
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// Returns the file that [`Exclusive::prepare_clone`] needs; `None` if it needs none.
    pub(crate) fn clone_scratch(&self) -> Result<Option<S::File>, StateError> {
        if !self.policy().is_declared() {
            return Ok(None);
        }
        let scratch = self.nameless()?;
        self.join_tree(&scratch, 0)?;
        Ok(Some(scratch))
    }

    fn clone_seed(&self, source: At<'_, S::File>, into: At<'_, S::File>) -> Result<(), StateError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.substrate().clone_range(source, into, BLOCK_BYTES_U64) {
                Ok(()) => return Ok(()),
                Err(ShareError::Busy) if tries < TRIES => self.pause(),
                Err(ShareError::Io(why)) => return Err(StateError::at(&self.tree_path())(why)),
                Err(ShareError::Full) => {
                    return Err(StateError::at(&self.tree_path())(io::ErrorKind::StorageFull.into()));
                }
                Err(why @ (ShareError::Busy | ShareError::Refused(_))) => {
                    return Err(StateError::at(&self.tree_path())(io::Error::other(why)));
                }
            }
        }
    }

    /// Opens the seed's file, and makes it if there is none. If two hosts make one, the first one counts.
    fn seed(&self) -> Result<S::File, StateError> {
        let path = self.tree_path();
        for _ in 0..TRIES {
            match self.open_own(&path, Access::Read) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => return opened.map_err(StateError::at(&path)),
            }
            let mut block = [0; BLOCK_BYTES];
            block[..SEED.len()].copy_from_slice(SEED);
            let scratch = self.write_scratch(|file| {
                self.substrate().write_at(&file, 0, &block)?;
                self.substrate().sync(&file)
            })?;
            self.publish(&scratch, &path)?;
        }
        Err(StateError::Restless)
    }

    fn tree_path(&self) -> PathBuf {
        self.path("", TREE)
    }
}
