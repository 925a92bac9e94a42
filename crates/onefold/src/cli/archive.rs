//! Arguments of `onefold archive ...`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::size::ByteSize;

/// The verbs of `onefold archive`.
#[derive(Debug, Subcommand)]
pub(crate) enum ArchiveCommand {
    /// Make a new, empty archive in a folder
    Create(CreateArgs),
    /// Prove that all that the images of an archive need is there, changing nothing
    ///
    /// Reads ledger and tables. With --data it reads all stored bytes and compares them with their names, too.
    Check(CheckArgs),
    /// Show how much an archive holds, in bytes that add up
    Stat(StatArgs),
}

/// How disks are cut into units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Units {
    /// Along guests' files: equal files share wherever they lie
    Files,
    /// At multiples of the unit's size on the disk
    Fixed,
}

/// Arguments of `create`.
#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// The folder; it is made if need be, and must hold no archive
    pub(crate) archive: PathBuf,
    /// How disks are cut into units
    #[arg(long, value_enum, default_value_t = Units::Files)]
    pub(crate) unit: Units,
    /// Maximum length of a unit: a power of two from 4K to 1M; without it 128K along files, 32K at fixed places
    #[arg(long, value_name = "SIZE")]
    pub(crate) unit_size: Option<ByteSize>,
}

/// Arguments of `check`.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The archive's folder
    pub(crate) archive: PathBuf,
    /// Also read all stored bytes and compare them with their names
    #[arg(long)]
    pub(crate) data: bool,
}

/// Arguments of `stat`.
#[derive(Args, Debug)]
pub(crate) struct StatArgs {
    /// The archive's folder
    pub(crate) archive: PathBuf,
}
