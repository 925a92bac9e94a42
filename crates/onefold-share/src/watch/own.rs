//! Images that are open on this host are this host's: other hosts leave them, or ask it.
//!
//! What a hypervisor locks on its images says nothing to other hosts. So the watch takes the lock of each image that a
//! process has open for writing, and keeps it until none has. Until it has noticed, others may share in the image;
//! that is as safe as anything, and only costs both hosts the way to each other's locks.

use std::collections::BTreeSet;
use std::path::Path;

use onefold_substrate::{FileHandle, Machine, OpenImages, Substrate};

use crate::selection::Selection;
use crate::state::files::Marks;
use crate::state::locks::Subject;
use crate::state::{State, StateError};

/// The images whose locks are kept.
#[derive(Debug, Default)]
pub(super) struct Owner {
    kept: BTreeSet<FileHandle>,
}

impl Owner {
    pub(super) fn count(&self) -> u64 {
        self.kept.len() as u64
    }

    /// Takes the locks of images that are open, and lets go of the others. Returns what is open.
    pub(super) fn own<S: Substrate>(
        &mut self,
        state: &State<'_, S>,
        files: &Marks,
        machine: &dyn Machine,
        selection: &Selection<'_>,
    ) -> Result<OpenImages, StateError> {
        let images: Vec<&Path> = files.iter().map(|mark| &*mark.path).filter(|path| selection.contains(path)).collect();
        let open = machine.open_for_writing(&images).map_err(StateError::at(Path::new("/proc")))?;
        self.kept.retain(|handle| {
            let is_open = open.handles.contains(handle);
            if !is_open {
                state.let_go(&Subject::File(handle.clone()));
            }
            is_open
        });
        for handle in &open.handles {
            // Who has it now may have it for the time of a pass only: it is tried again.
            if !self.kept.contains(handle) && state.keep(&Subject::File(handle.clone()))? {
                self.kept.insert(handle.clone());
            }
        }
        Ok(open)
    }
}
