//! The limit on open files of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit on open files to the highest that the system grants. Many systems begin with 1,024, which is less
/// than a run over many images or a server of many machines has open.
pub(crate) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If the limit cannot be raised, opening one more file fails with the system's own error.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
