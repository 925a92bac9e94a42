//! The files of a pool that this process has locked as a whole.

use std::collections::HashSet;

use crate::attr::Ino;
use crate::sync::Mutex;

/// The files of a pool that this process has locked as a whole.
#[derive(Debug, Default)]
pub(crate) struct FileLocks {
    pub(crate) locked: Mutex<HashSet<Ino>>,
}
