//! Names of files, in the form for programs.

use std::path::Path;

/// Returns a path for a document: the name itself, which JSON escapes, not the form for messages. Bytes that are not
/// UTF-8, which JSON cannot hold, become U+FFFD.
pub(crate) fn machine_name(path: impl AsRef<Path>) -> String {
    #[expect(clippy::disallowed_methods, reason = "a program reads it; a document is escaped when it is printed")]
    path.as_ref().to_string_lossy().into_owned()
}
