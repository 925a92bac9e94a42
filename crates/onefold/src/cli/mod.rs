//! The command line: the single definition from which parsing, `--help`, man pages and completions are derived.

pub(crate) mod analyze;
pub(crate) mod archive;
pub(crate) mod examples;
pub(crate) mod guest;
pub(crate) mod image;
pub(crate) mod image_server;
pub(crate) mod key;
mod number;
pub(crate) mod percent;
pub(crate) mod place;
pub(crate) mod pool;
pub(crate) mod share;
pub(crate) mod share_common;
pub(crate) mod share_work;
pub(crate) mod temporary;
pub(crate) mod values;

#[cfg(test)]
mod shared_options;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use std::ffi::OsString;
use std::path::PathBuf;

use analyze::AnalyzeArgs;
use archive::ArchiveCommand;
use examples::examples;
use guest::GuestCommand;
use image::ImageCommand;
use key::KeyCommand;
use pool::PoolCommand;
use share::ShareCommand;

/// Stores many virtual machine disk images once.
#[derive(Debug, Parser)]
#[command(name = "onefold", version, max_term_width = 110, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 damage found, 130 interrupted, 255 a bug in Onefold."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) talk: Talk,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How results and progress are shown.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Talk {
    /// Print the result as one JSON document
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Show no progress
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

/// The commands of `onefold`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Work with pools: live file systems that store equal blocks once
    ///
    /// A pool lies in a file or on a partition. It is mounted like any file system. Equal blocks of 4 KiB in its files
    /// are stored once, and copies of whole files are instant.
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Show how much space sharing equal blocks would save, reading only
    ///
    /// Reads images as the disks that they hold, and compares their blocks. Shows what each image shares with itself
    /// and with others, what other block sizes would save, which images resemble each other, and how much space a pool
    /// would take.
    #[command(after_help = examples([
        "onefold analyze /var/lib/libvirt/images",
        "onefold analyze --sample=8% --report images.html /srv/vm /srv/archive",
    ]))]
    Analyze(AnalyzeArgs),
    /// Look into disk images without mounting them, reading only
    ///
    /// Reads partitions, volumes and file systems of images with its own code: no kernel and no other program parses
    /// data that a guest wrote. Works while machines use the images, and needs only permission to read them.
    #[command(subcommand)]
    Guest(GuestCommand),
    /// Work with plain image files: have their file system share equal blocks
    ///
    /// Works on XFS and Btrfs while images are in use, and on OCFS2 with reflinks while they are not. Needs no server:
    /// any number of hosts that have the file system mounted may run it.
    #[command(subcommand)]
    Share(ShareCommand),
    /// Capture disk images into an archive, and install them again
    ///
    /// An archive holds what many disks contain once, compressed. Only what the file systems on a disk use is captured.
    #[command(subcommand)]
    Image(ImageCommand),
    /// Work with archives of disk images as a whole
    #[command(subcommand)]
    Archive(ArchiveCommand),
    /// Make keys that sign images, and tell which keys are trusted
    #[command(subcommand)]
    Key(KeyCommand),
    /// Print the completion script of a shell
    #[command(hide = true)]
    Completions {
        /// The shell to complete in
        shell: Shell,
    },
    /// Print the pools, or the files inside a pool, that may stand at a place of a command line
    #[command(hide = true)]
    CompleteWords {
        /// The number of the word to complete; the program is word 0
        index: usize,
        /// The command line so far
        #[arg(last = true)]
        words: Vec<OsString>,
    },
    /// Write the man pages into a folder
    #[command(hide = true)]
    ManPages {
        /// The folder for the pages
        folder: PathBuf,
    },
}
