//! Arguments of `onefold share`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use onefold_share::domain::label::Label;
use onefold_share::files::Tier;
use onefold_share::watch::Window;

use super::examples::examples;
use super::number::{number, number_from};
use super::share_common::ShareCommonCommand;
use super::share_work::{ConsentArgs, RootArgs, WorkArgs};
use super::values::parse_duration;
use crate::size::ByteSize;

/// The verbs of `onefold share`.
#[derive(Debug, Subcommand)]
pub(crate) enum ShareCommand {
    /// Find equal blocks of image files and have the file system share them, once
    ///
    /// Files stay plain files with the content that they have: the kernel compares blocks before it shares them. Files
    /// that did not change since they were last read are not read again. What is known is kept in the root of the file
    /// system, in `.onefold` for root and in `.onefold-NUMBER` for the user with that number, and may be deleted at any
    /// time.
    #[command(after_help = examples([
        "onefold share run /var/lib/libvirt/images",
        "onefold share run --dry-run --include '*.raw' /srv/vm",
    ]))]
    Run(ShareRunArgs),
    /// Find equal files of the guests in image files and have the file system share their blocks, once
    ///
    /// The package databases and file maps of the guests tell which files to compare: files with equal digests and
    /// lengths, and files of no package with equal paths and lengths (--tiers). The kernel compares the files before it
    /// shares their blocks. So no guest has to be trusted, and every image keeps its content. The command reads raw and
    /// qcow2 images, and packages of dpkg; `share run` shares everything else. Images may be in use.
    #[command(after_help = examples([
        "onefold share files /var/lib/libvirt/images",
        "onefold share files --since template.raw --dry-run /srv/vm",
    ]))]
    Files(ShareGuestsArgs),
    /// Share again and again as files change, when the machine has time, until a signal stops it
    ///
    /// The command stays in the foreground, for a service manager, and prints a line each time that it shared. Images
    /// that a process of this host has open for writing are kept for this host: other hosts leave them alone. SIGTERM
    /// ends the command within a second or so.
    #[command(after_help = examples([
        "onefold share watch /var/lib/libvirt/images",
        "onefold share watch --window 22:00-06:00 --rate 50M --cpu-limit 50 /srv/vm",
    ]))]
    Watch(ShareWatchArgs),
    /// Fill the holes that a host has left in images where it died while it shared (OCFS2)
    ///
    /// `run` and `watch` do so themselves when they begin. Before a script starts the machines of a dead host on
    /// another host, it calls this command. The command leaves alone images that were written to since then and images
    /// that are open; it names them and fails. Without such holes it ends at once.
    #[command(after_help = examples(["onefold share mend /srv/vm", "onefold share mend --accept-changed /srv/vm"]))]
    Mend(ShareMendArgs),
    /// Show what is known of a file system's images, what is pending, and which hosts work on it
    ///
    /// It also tells how many bytes of each image lie where its template has them, in a common volume, shared with
    /// other images, or by themselves. The command only looks. It makes and changes nothing, and other commands do not
    /// wait for it.
    #[command(after_help = examples([
        "onefold share status /srv/vm",
        "onefold share status --since template.raw --details /srv/vm",
    ]))]
    Status(ShareStatusArgs),
    /// Show what the index of a file system holds
    #[command(after_help = examples(["onefold share index /srv/vm", "onefold share index --dump /srv/vm | sort"]))]
    Index(ShareIndexArgs),
    /// Say where a block of a file lies, its state, which files share it, and why or why not
    ///
    /// It also names the file of the guest that has the block, and the package of that file.
    #[command(after_help = examples([
        "onefold share explain /srv/vm/web.raw",
        "onefold share explain /srv/vm/web.raw 20M",
    ]))]
    Explain(ShareExplainArgs),
    /// Keep files from being shared
    ///
    /// Sets the attribute `user.onefold.share` to `off`. The attribute of a folder holds for all files and folders
    /// below it that have none of their own. Blocks that are shared already stay shared.
    #[command(after_help = examples([
        "onefold share exclude /srv/vm/db.raw",
        "onefold share exclude /srv/vm/scratch /srv/vm/swap.raw",
    ]))]
    Exclude(ShareFilesArgs),
    /// Undo `exclude`
    ///
    /// Removes the attribute `user.onefold.share`, or sets it to `on` where a folder above has `off`.
    #[command(after_help = examples([
        "onefold share include /srv/vm/db.raw",
        "onefold share include /srv/vm/scratch/web.raw",
    ]))]
    Include(ShareFilesArgs),
    /// Show or set the sharing domain of files: blocks are shared within a domain only
    #[command(subcommand)]
    Domain(ShareDomainCommand),
    /// Clone an image so that the next run need not read the clone
    ///
    /// The clone shares all blocks of the image as it is at one moment. It belongs to the user who makes it, and has
    /// the permissions of a copy. If the image has not changed since a run read it, no run has to read the clone. If it
    /// has changed, the next run reads the clone.
    /// The command records the image as the template of the clone, for `share status`.
    #[command(after_help = examples([
        "onefold share clone /srv/vm/template.raw /srv/vm/web.raw",
        "onefold share clone --force /srv/vm/template.raw /srv/vm/scratch.raw",
    ]))]
    Clone(ShareCloneArgs),
    /// Keep the files of packages that several machines have in a volume of their own
    #[command(subcommand)]
    Common(ShareCommonCommand),
}

/// The verbs of `onefold share domain`.
#[derive(Debug, Subcommand)]
pub(crate) enum ShareDomainCommand {
    /// Show which domain files belong to, and why; of a folder, which one files that are made there get
    #[command(after_help = examples([
        "onefold share domain show /srv/vm",
        "onefold share domain show /srv/vm/web.raw /srv/vm/db.raw",
    ]))]
    Show(ShareFilesArgs),
    /// Put a file, or all files of a folder, into a domain
    ///
    /// Sets the attribute `trusted.onefold.domain`, which only root can set or see. The attribute of a folder holds for
    /// all files and folders below it that have none of their own. The next run reads the files anew in their domain.
    /// Blocks that they share already stay shared.
    #[command(after_help = examples([
        "onefold share domain set /srv/vm/customer-a customer-a",
        "onefold share domain set /srv/vm owner",
    ]))]
    Set(ShareDomainSetArgs),
    /// Undo `set`
    #[command(after_help = examples([
        "onefold share domain clear /srv/vm/customer-a",
        "onefold share domain clear /srv/vm/web.raw /srv/vm/db.raw",
    ]))]
    Clear(ShareFilesArgs),
}

/// Arguments of `share domain set`.
#[derive(Args, Debug)]
pub(crate) struct ShareDomainSetArgs {
    /// A file, or a folder with all that is in it
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// A name (a letter, then letters, digits, `.`, `_` and `-`), the number of a user for that user's domain, or
    /// `owner`, so that each file belongs to its owner's
    #[arg(value_name = "DOMAIN", value_parser = parse_label)]
    pub(crate) domain: Label,
}

fn parse_label(text: &str) -> Result<Label, String> {
    Label::parse(text.as_bytes()).map_err(|why| why.to_string())
}

/// Arguments of `share status`.
#[derive(Args, Debug)]
pub(crate) struct ShareStatusArgs {
    /// A file or folder on the file system
    #[arg(value_name = "PATH", default_value = ".")]
    pub(crate) path: PathBuf,
    /// Also show the index and the arena, which are Onefold's own notes
    #[arg(long)]
    pub(crate) details: bool,
    #[command(flatten)]
    pub(crate) template: TemplateArgs,
}

/// The template of images.
#[derive(Args, Debug)]
pub(crate) struct TemplateArgs {
    /// The template of images that were not made by `share clone`, which records it. Name also a recorded template that
    /// no run has read
    #[arg(long, value_name = "IMAGE")]
    pub(crate) since: Option<PathBuf>,
}

/// Arguments of `share mend`.
#[derive(Args, Debug)]
pub(crate) struct ShareMendArgs {
    /// A file or folder on the file system
    #[arg(value_name = "PATH", default_value = ".")]
    pub(crate) path: PathBuf,
    /// Also fill holes in images that were written to since: data that a guest has zeroed or discarded there may come
    /// back. Images whose copies are lost are not reported again
    #[arg(long)]
    pub(crate) accept_changed: bool,
    /// Treatment of images that wait under another identity of the state folder, because `.onefold/identity` was lost
    /// or replaced. Without this option they are reported and left alone, and their last copies stay
    #[arg(long, value_name = "ACTION")]
    pub(crate) foreign: Option<ForeignAction>,
    #[command(flatten)]
    pub(crate) root: RootArgs,
}

/// Treatment of images that wait under another identity, by `share mend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ForeignAction {
    /// Fill their holes as those of the other images
    Mend,
    /// Name them and give them up: holes stay, and their content is lost
    GiveUp,
}

/// Arguments of `share index`.
#[derive(Args, Debug)]
pub(crate) struct ShareIndexArgs {
    /// A file or folder on the file system
    #[arg(value_name = "PATH", default_value = ".")]
    pub(crate) path: PathBuf,
    /// Print each entry as a line: its digest, and `unique FILE:BLOCK` or `shared ARENA:SLOT`, by their numbers
    #[arg(long)]
    pub(crate) dump: bool,
}

/// Arguments of `share explain`.
#[derive(Args, Debug)]
pub(crate) struct ShareExplainArgs {
    /// An image file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Any byte of a block, to explain that block; without it, the whole file is explained
    #[arg(value_name = "OFFSET")]
    pub(crate) offset: Option<ByteSize>,
    #[command(flatten)]
    pub(crate) template: TemplateArgs,
}

/// Arguments of `share exclude`, `share include`, `share domain show` and `share domain clear`.
#[derive(Args, Debug)]
pub(crate) struct ShareFilesArgs {
    /// Files, or folders; on one file system
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

/// Arguments of `share clone`.
#[derive(Args, Debug)]
pub(crate) struct ShareCloneArgs {
    /// The image
    #[arg(value_name = "SOURCE")]
    pub(crate) source: PathBuf,
    /// The clone, or a folder to put it in; on the same file system
    #[arg(value_name = "CLONE")]
    pub(crate) target: PathBuf,
    /// Replace a file that has the clone's name, in one step
    #[arg(long)]
    pub(crate) force: bool,
}

/// Arguments of `share watch`.
#[derive(Args, Debug)]
pub(crate) struct ShareWatchArgs {
    /// Image files, and folders with all that is in them; on one file system (XFS, Btrfs or OCFS2 with reflinks)
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Also share equal files of guests, as `share files` does: once at the start, then before the next scan whenever a
    /// package database has changed
    #[arg(long)]
    pub(crate) files: bool,
    /// Time between two scans for changed files and open images
    #[arg(long, value_name = "TIME", default_value = "1min", value_parser = parse_duration)]
    pub(crate) interval: Duration,
    /// Read and share only between these times of day, such as 22:00-06:00; may be given several times
    #[arg(long, value_name = "HH:MM-HH:MM")]
    pub(crate) window: Vec<Window>,
    /// Begin nothing while the load of the machine, averaged over a minute, is higher than this
    #[arg(long, value_name = "LOAD", value_parser = number_from(0.0_f64))]
    pub(crate) max_load: Option<f64>,
    /// Leave files alone whose content changed more recently than this, also with `--files`
    #[arg(long, value_name = "AGE", default_value = "0s", value_parser = parse_duration)]
    pub(crate) stable_for: Duration,
    /// Share once the blocks that wait are this part of the index. Each time, sharing reads the whole index
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = number(0..=100_u32))]
    pub(crate) batch: u32,
    /// Share fewer blocks as well once they have waited for this long
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
    pub(crate) max_wait: Duration,
    /// End, and release all locks, once no call of the file system has returned for this long; with 0, never
    #[arg(long, value_name = "TIME", default_value = "15min", value_parser = parse_duration)]
    pub(crate) max_hang: Duration,
    /// Upper limit of the logs of blocks that wait; above it, reading waits until they are shared. Without it, half the
    /// size of the index, and at least 256M
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_logs: Option<ByteSize>,
    #[command(flatten)]
    pub(crate) consent: ConsentArgs,
    #[command(flatten)]
    pub(crate) root: RootArgs,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}

/// Arguments of `share files`.
#[derive(Args, Debug)]
pub(crate) struct ShareGuestsArgs {
    /// Image files, and folders with all that is in them; on one file system (XFS or Btrfs with reflinks)
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Properties that equal files have in common: 1 the digest in a package database, and the length; 2 the place on
    /// the disk and all that the file system records of a file, in images copied from one template; 3 path, length and
    /// time, of files of no package; 5 path and length, of such files. For tiers 3 and 5, the command reads the first,
    /// middle and last block of each file
    #[arg(long, value_name = "NUMBERS", default_value = "1,2,3,5", value_delimiter = ',', value_parser = parse_tier)]
    pub(crate) tiers: Vec<Tier>,
    /// Share only what came later: packages that are not installed in the template in the same version, and files of no
    /// package that were written after the template's packages. With a date (2026-11-01, or 2026-11-01T12:30), share
    /// what was installed or written since then, by the clocks of the guests
    #[arg(long, value_name = "IMAGE|DATE")]
    pub(crate) since: Option<PathBuf>,
    /// Share with the common volume that lies in one of the folders. Before that, the command adds content that two
    /// images hold to the volume, and removes content that only the volume refers to, unless a user added it
    #[arg(long)]
    pub(crate) common: bool,
    /// Name the packages whose files would be shared, say what would come free, and share nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Look at all images and at where their blocks lie, even if no image has changed since a run that did so. Without
    /// this switch, such a run repeats what that run has found, for a week. A tool that moves blocks, as some that
    /// defragment do, may have undone what was shared
    #[arg(long)]
    pub(crate) full: bool,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
    #[command(flatten)]
    pub(crate) experiments: ExperimentArgs,
}

/// Switches that make `share files` work as the paper's prototype did, to measure what each difference is worth.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "For experiments")]
pub(crate) struct ExperimentArgs {
    /// How files are compared first: `read` reads each candidate as a whole and computes its MD5, and the kernel
    /// compares after that
    #[arg(long, value_name = "HOW", default_value = "kernel")]
    pub(crate) compare: Comparison,
    /// Leave a file alone if one of its blocks differs; the command reads each candidate, as with `--compare read`
    #[arg(long)]
    pub(crate) whole_files: bool,
    /// Share each run of blocks by a call of its own, even if the run continues in the next file
    #[arg(long)]
    pub(crate) no_join: bool,
}

/// How files are compared first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Comparison {
    /// The kernel compares them as it shares
    Kernel,
    /// This program compares digests of whole files
    Read,
}

fn parse_tier(text: &str) -> Result<Tier, String> {
    let tier = text.trim().parse().ok().and_then(Tier::of_number);
    tier.ok_or_else(|| "tiers are 1, 2, 3 and 5".to_owned())
}

/// Arguments of `share run`.
#[derive(Args, Debug)]
pub(crate) struct ShareRunArgs {
    /// Image files, and folders with all that is in them; on one file system (XFS, Btrfs or OCFS2 with reflinks)
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Share equal files of guests first, as `share files` does, and read each shared block once
    #[arg(long)]
    pub(crate) files: bool,
    /// Say what would be shared, and share nothing; what is read is kept for the next run
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) consent: ConsentArgs,
    #[command(flatten)]
    pub(crate) root: RootArgs,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}
