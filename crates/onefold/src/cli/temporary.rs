//! The option for the folder of temporary files.

use std::path::PathBuf;

use clap::Args;
use onefold_disk::temporary_folder;

/// Where the temporary files of a verb go.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TemporaryArg {
    /// Folder for temporary files; by default $TMPDIR, or /var/tmp
    #[arg(long, value_name = "DIRECTORY")]
    temporary: Option<PathBuf>,
}

impl TemporaryArg {
    /// Returns the folder.
    pub(crate) fn folder(&self) -> PathBuf {
        self.temporary.clone().unwrap_or_else(temporary_folder)
    }
}
