//! Ownership of images that are open on this host: other hosts leave them to it, or ask it.
//!
//! A hypervisor's locks on its images tell other hosts nothing. So the watch takes the lock of each image that a
//! process has open for writing, and keeps it until no process has. Before the watch notices the process, other hosts
//! may share in the image. That is as safe as any sharing, and only costs exchanges between the hosts about each
//! other's locks.

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

    /// Takes the locks of images that are open, and releases the others. Returns the open images.
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
            // Another host may hold it only for the time of a pass, so taking it is tried again.
            if !self.kept.contains(handle) && state.keep(&Subject::File(handle.clone()))? {
                self.kept.insert(handle.clone());
            }
        }
        Ok(open)
    }
}
