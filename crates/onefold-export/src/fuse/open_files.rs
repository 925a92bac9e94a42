//! Which files the kernel has open: the only ones whose changes it may hold back.

use std::collections::HashMap;

use onefold_pool::Ino;
use parking_lot::Mutex;

/// Counts openings of files.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    openings: Mutex<HashMap<Ino, usize>>,
}

impl OpenFiles {
    pub(super) fn opened(&self, ino: Ino) {
        *self.openings.lock().entry(ino).or_default() += 1;
    }

    pub(super) fn released(&self, ino: Ino) {
        let mut openings = self.openings.lock();
        if let Some(count) = openings.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                openings.remove(&ino);
            }
        }
    }

    /// Returns the files that are open, in no order.
    pub(crate) fn list(&self) -> Vec<Ino> {
        self.openings.lock().keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_open_until_its_last_release() {
        let files = OpenFiles::default();
        files.opened(Ino(5));
        files.opened(Ino(5));
        files.released(Ino(5));
        assert_eq!(files.list(), [Ino(5)]);
        files.released(Ino(5));
        assert!(files.list().is_empty());
        files.released(Ino(6));
        assert!(files.list().is_empty());
    }
}
