//! Arguments of `onefold share`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use glob::Pattern;

use crate::size::ByteSize;

/// What to do with plain image files.
#[derive(Debug, Subcommand)]
pub(crate) enum ShareCommand {
    /// Find equal blocks of image files and have the file system share them, once
    ///
    /// Files stay plain files with the content that they have: the kernel compares blocks before it shares them. Files that
    /// did not change since they were last read are not read again. What is known is kept in `.onefold` in the root of
    /// the file system, and may be deleted at any time.
    Run(ShareRunArgs),
}

/// Arguments of `share run`.
#[derive(Args, Debug)]
pub(crate) struct ShareRunArgs {
    /// Image files, and folders with all that is in them; on one file system (XFS, Btrfs or OCFS2 with reflinks)
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Only files whose path or name matches a pattern, such as `*.raw`; may be given several times
    #[arg(long, value_name = "PATTERN")]
    pub(crate) include: Vec<Pattern>,
    /// No files, and no folders, whose path or name matches a pattern; may be given several times
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<Pattern>,
    /// Leave shorter runs of equal blocks alone: they save less and cost a file more seeks when it is read in sequence
    #[arg(long, value_name = "SIZE", default_value = "4K")]
    pub(crate) min_run: ByteSize,
    /// Say what would be shared, and share nothing; what is read is kept for the next run
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Upper limit of memory for sorting; what does not fit goes into temporary files
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub(crate) memory: ByteSize,
    /// Where temporary files go; without it $TMPDIR, or /var/tmp
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) temporary: Option<PathBuf>,
}
