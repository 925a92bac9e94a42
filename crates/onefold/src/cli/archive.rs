//! Arguments of `onefold archive ...`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::examples::examples;
use super::number::{number, number_from};
use super::percent::parse_percent;
use super::place::ArchiveArg;
use super::values::{InputFormat, parse_duration};
use crate::byte_rate::ByteRate;
use crate::size::ByteSize;

/// The verbs of `onefold archive`.
#[derive(Debug, Subcommand)]
pub(crate) enum ArchiveCommand {
    /// Make a new, empty archive
    ///
    /// A folder is made if need be, a bucket is not. Both must hold no archive yet. Tests first whether the store keeps
    /// the promises on which an archive relies.
    #[command(after_help = examples([
        "onefold archive create /srv/archive",
        "onefold archive create --endpoint https://s3.example.org s3://backup/images",
    ]))]
    Create(CreateArgs),
    /// Prove that an archive has everything that its images need, changing nothing
    ///
    /// Reads ledger and tables. With --data it reads all stored bytes and compares them with their names, too; with
    /// --sample a random part of them. Names the images and the guests' files that damage hits.
    #[command(after_help = examples([
        "onefold archive check --data /srv/archive",
        "onefold archive check --sample 5% --rate 50M s3://backup/images",
    ]))]
    Check(CheckArgs),
    /// Rebuild what a damaged archive can rebuild, and store lost content again from a disk that still has it
    ///
    /// Reads all stored bytes. Rebuilds the index and the descriptor, moves intact content out of damaged packs, and
    /// notes in the ledger what is lost, so that the next capture that has it stores it again. Removes no content.
    #[command(after_help = examples([
        "onefold archive repair --dry-run /srv/archive",
        "onefold archive repair --from web.qcow2 /srv/archive",
    ]))]
    Repair(RepairArgs),
    /// Show how much an archive holds, in bytes that add up
    #[command(after_help = examples([
        "onefold archive stat /srv/archive",
        "onefold archive stat --json s3://backup/images",
    ]))]
    Stat(StatArgs),
    /// Free the space of what no image of an archive needs any more
    ///
    /// Retires units that no image needs, and deletes what was retired at least --delay ago. Captures, installations
    /// and other collections may run at the same time.
    #[command(after_help = examples([
        "onefold archive gc --dry-run /srv/archive",
        "onefold archive gc --delay 24h --rate 50M s3://backup/images",
    ]))]
    Gc(GcArgs),
    /// Test what a store can do for an archive, and measure how fast it is
    ///
    /// Works with and without an archive in the store. Writes a few objects below `probe/`, and removes them again.
    #[command(after_help = examples([
        "onefold archive probe /srv/archive",
        "onefold archive probe --endpoint https://s3.example.org --size 16M s3://backup/images",
    ]))]
    Probe(ProbeArgs),
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
    #[command(flatten)]
    pub(crate) archive: ArchiveArg,
    /// How disks are cut into units
    #[arg(long, value_enum, default_value_t = Units::Files)]
    pub(crate) unit: Units,
    /// Maximum length of a unit: a power of two from 4K to 1M; without it 256K along files, 32K at fixed places
    #[arg(long, value_name = "SIZE")]
    pub(crate) unit_size: Option<ByteSize>,
}

/// Arguments of `check`.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) archive: ArchiveArg,
    /// Also read all stored bytes and compare them with their names
    #[arg(long)]
    pub(crate) data: bool,
    /// Read only a random part of the stored bytes, such as 5%
    #[arg(long, value_name = "SHARE", value_parser = parse_percent, conflicts_with = "data")]
    pub(crate) sample: Option<u32>,
    /// Read the part that a check with this seed has read
    #[arg(long, value_name = "NUMBER", value_parser = number_from(0_u64), requires = "sample")]
    pub(crate) seed: Option<u64>,
    /// Read at most this many bytes a second
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<ByteRate>,
}

/// Arguments of `repair`.
#[derive(Args, Debug)]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    pub(crate) archive: ArchiveArg,
    /// A disk that still has lost content: an image file (raw, qcow2, VMDK, or another format that qemu-img reads), or
    /// a block device. It may be in use, and need not be the captured one
    #[arg(long, value_name = "DISK")]
    pub(crate) from: Option<PathBuf>,
    /// Format of the disk; by default, it is detected from its first bytes
    #[arg(long, value_enum, requires = "from")]
    pub(crate) format: Option<InputFormat>,
    /// Also accept backing files in this folder and below it, besides the disk's own folder
    #[arg(long, value_name = "DIRECTORY", requires = "from")]
    pub(crate) backing_from: Vec<PathBuf>,
    /// Read and write at most this many bytes of the archive a second
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<ByteRate>,
    /// Show what would be done, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Also repair an incomplete copy of an archive. Removes the marks of an unfinished copy: the archive can be used
    /// as it is, and the copy can no longer be continued
    #[arg(long)]
    pub(crate) accept_cut: bool,
    /// Upper limit of buffers for reading the disk
    #[arg(long, value_name = "SIZE", default_value = "512M")]
    pub(crate) memory: ByteSize,
}

/// Arguments of `gc`.
#[derive(Args, Debug)]
pub(crate) struct GcArgs {
    #[command(flatten)]
    pub(crate) archive: ArchiveArg,
    /// Report the bytes that would come free, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Time from the moment at which something is retired to its deletion; hosts that still read it need the time
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
    pub(crate) delay: Duration,
    /// Give up a capture that has stored nothing for this long; if it still runs, it stores its units again
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_duration)]
    pub(crate) silence: Duration,
    /// Rewrite a pack if less than this share of it is needed
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = number(0..=100_u8))]
    pub(crate) needed: u8,
    /// Compress the units of rewritten packs anew, at this level of Zstandard
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..=19))]
    pub(crate) level: Option<i32>,
    /// Upper limit of buffers, besides the index
    #[arg(long, value_name = "SIZE", default_value = "512M")]
    pub(crate) memory: ByteSize,
    /// Read and write at most this many bytes a second
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<ByteRate>,
}

/// Arguments of `stat`.
#[derive(Args, Debug)]
pub(crate) struct StatArgs {
    #[command(flatten)]
    pub(crate) archive: ArchiveArg,
}

/// Arguments of `probe`.
#[derive(Args, Debug)]
pub(crate) struct ProbeArgs {
    #[command(flatten)]
    pub(crate) archive: ArchiveArg,
    /// Length of the large objects that are written and read, at most 64M
    #[arg(long, value_name = "SIZE", default_value = "32M")]
    pub(crate) size: ByteSize,
}
