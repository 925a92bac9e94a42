//! Arguments of `onefold pool ...`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::examples::examples;
use super::key::Acceptance;
use super::number::number;
use super::temporary::TemporaryArg;
use super::values::{
    DiscardWhen, InputFormat, KernelOptionName, OutputFormat, PrefetchWhen, StBlocksCover, Stores, Switch,
    UnprovenNamesArg, VerificationArg, parse_duration,
};
use crate::byte_rate::ByteRate;
use crate::size::ByteSize;

/// The verbs of `onefold pool`.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Make a new, empty pool in a file or on a partition
    #[command(after_help = examples([
        "onefold pool create --size 100G images.pool",
        "onefold pool create --label guests /dev/vg0/images",
    ]))]
    Create(CreateArgs),
    /// Mount a pool; returns when the mount is ready
    #[command(after_help = examples([
        "onefold pool mount images.pool /mnt/images",
        "onefold pool mount --memory 4G --noatime /dev/vg0/images /mnt/images",
    ]))]
    Mount(MountArgs),
    /// Unmount a pool; returns when everything is on disk
    #[command(after_help = examples(["onefold pool umount /mnt/images", "onefold pool umount images.pool"]))]
    Umount(UmountArgs),
    /// Look for damage, changing nothing unless --repair is given
    #[command(after_help = examples([
        "onefold pool check images.pool",
        "onefold pool check --data --repair images.pool",
    ]))]
    Check(CheckArgs),
    /// Show how much is stored and saved, in bytes that add up
    #[command(after_help = examples([
        "onefold pool stat /mnt/images",
        "onefold pool stat images.pool vm-001.raw vm-002.raw",
    ]))]
    Stat(StatArgs),
    /// List the pools of this host: mounted ones, and those that fstab and the service unit mount
    #[command(after_help = examples(["onefold pool list", "onefold pool list --json /data"]))]
    List(ListArgs),
    /// List the files of a directory of a pool, mounted or not, with the space that deleting each would free
    #[command(after_help = examples(["onefold pool ls images.pool", "onefold pool ls /mnt/images templates"]))]
    Ls(LsArgs),
    /// Extend the pool to the present size of its file or partition
    #[command(after_help = examples(["onefold pool grow --size 200G images.pool", "onefold pool grow /mnt/images"]))]
    Grow(GrowArgs),
    /// Read all data of a pool and compare it with its fingerprints
    #[command(after_help = examples(["onefold pool scrub /mnt/images", "onefold pool scrub --rate 50M /mnt/images"]))]
    Scrub(ScrubArgs),
    /// Discard the pool's free blocks on the disk below it
    #[command(after_help = examples(["onefold pool trim /mnt/images", "onefold pool trim images.pool"]))]
    Trim(TrimArgs),
    /// Find equal blocks that writes did not find, and store each once
    ///
    /// Writes miss equal blocks if the memory does not suffice for all fingerprints, or while deduplication is switched
    /// off. All data is read once; blocks are compared before they are shared.
    #[command(after_help = examples([
        "onefold pool dedup images.pool",
        "onefold pool dedup --files --memory 4G images.pool",
    ]))]
    Dedup(DedupArgs),
    /// Copy disk images into a pool
    #[command(after_help = examples([
        "onefold pool import images.pool debian.qcow2 windows.vmdk",
        "onefold pool import --skip-existing --to templates/ /mnt/images /srv/templates",
    ]))]
    Import(ImportArgs),
    /// Copy a file of a pool out as a disk image
    #[command(after_help = examples([
        "onefold pool export images.pool vm-001.raw vm-001.qcow2",
        "onefold pool export /mnt/images vm-001.raw - | zstd -o vm-001.raw.zst",
    ]))]
    Export(ExportArgs),
    /// Make instant copies of a file inside a pool
    #[command(after_help = examples([
        "onefold pool clone /mnt/images base.raw vm1.raw",
        "onefold pool clone /mnt/images base.raw vm-%03d.raw --count 100",
    ]))]
    Clone(CloneArgs),
}

/// Arguments of `create`.
#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// The file or partition that becomes a pool
    pub(crate) path: PathBuf,
    /// Make the file this long first (sparse); by default, the file or partition is used as it is
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<ByteSize>,
    /// A name for people, at most 64 bytes
    #[arg(long, default_value = "")]
    pub(crate) label: String,
    /// Size of the journal; by default, it depends on the size of the pool
    #[arg(long, value_name = "SIZE")]
    pub(crate) journal_size: Option<ByteSize>,
    /// Place of the fingerprint stores
    #[arg(long, value_enum, default_value_t = Stores::InGroups)]
    pub(crate) stores: Stores,
    /// Whether new files share equal blocks unless told otherwise
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub(crate) dedup: Switch,
    /// Overwrite what the file or partition holds: a pool, another file system, or unknown data
    #[arg(long)]
    pub(crate) force: bool,
}

/// How a pool is opened, by a mount or by a command that works on an unmounted pool.
#[derive(Args, Clone, Debug)]
pub(crate) struct OpenArgs {
    /// Upper limit of filter, caches and buffers together
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub(crate) memory: ByteSize,
}

/// Arguments of `mount`.
#[derive(Args, Debug)]
pub(crate) struct MountArgs {
    /// The pool's file or partition
    pub(crate) pool: PathBuf,
    /// The directory to mount it on
    pub(crate) mountpoint: PathBuf,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Stay in the foreground and log to standard error
    #[arg(long, short = 'f')]
    pub(crate) foreground: bool,
    /// Change nothing, not even by recovery
    #[arg(long)]
    pub(crate) read_only: bool,
    /// How a block with a known fingerprint is confirmed to be equal
    #[arg(long, value_enum, default_value_t = VerificationArg::Fingerprint)]
    pub(crate) verify: VerificationArg,
    /// How much of a fingerprint store a look-up reads
    #[arg(long, value_enum, default_value_t = PrefetchWhen::Adaptive)]
    pub(crate) prefetch: PrefetchWhen,
    /// Whether metadata goes through the journal; off is for experiments: a crash may leave the pool damaged
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub(crate) journal: Switch,
    /// Whether equal blocks are shared while the pool is mounted this time
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub(crate) dedup: Switch,
    /// Maximum time that a change waits for its commit (a number of seconds, or with ms, s, min)
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub(crate) commit_interval: Duration,
    /// Bits of a fingerprint that choose its place in the filter (the paper's n); by default, they depend on the size
    #[arg(long, value_name = "N", value_parser = number(8..=40_u8))]
    pub(crate) filter_index_bits: Option<u8>,
    /// Bits of a fingerprint kept in the filter (the paper's k); by default, they depend on the size
    #[arg(long, value_name = "K", value_parser = number(1..=32_u8))]
    pub(crate) filter_tag_bits: Option<u8>,
    /// Let other users use the mount (the default for root)
    #[arg(long, overrides_with = "no_allow_other")]
    pub(crate) allow_other: bool,
    /// Keep other users out
    #[arg(long)]
    pub(crate) no_allow_other: bool,
    /// Do not record times of access
    #[arg(long)]
    pub(crate) noatime: bool,
    /// Record a time of access with the first read after each opening of a file, not by the rule of relatime; the
    /// kernel then forgets what it has cached of a file when it is opened
    #[arg(long, overrides_with = "noatime")]
    pub(crate) strictatime: bool,
    /// Bytes that st_blocks of a file counts; `user.onefold.st_blocks` of a file or folder takes precedence
    #[arg(long, value_enum, value_name = "WHAT", default_value = "auto")]
    pub(crate) st_blocks: StBlocksCover,
    /// Whether freed blocks are discarded on the disk below, in batches and slowly: a sparse file then shrinks by
    /// itself
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    pub(crate) discard: DiscardWhen,
    /// Let the kernel gather small buffered writes; fsync or close then reports a full pool
    #[arg(long)]
    pub(crate) writeback_cache: bool,
    /// The device is a thin volume, which can run out of room without warning: answer writes only when they are stored
    #[arg(long)]
    pub(crate) thin: bool,
    /// Number of threads that serve requests; by default eight, or one per 16 MiB of memory if that is less
    #[arg(long, value_name = "COUNT", value_parser = number(1..=64_u16))]
    pub(crate) threads: Option<u16>,
    /// Whether threads poll for a moment before they sleep, while a processor is idle: this answers small requests
    /// sooner
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub(crate) polling: Switch,
    /// An option of mount(8) that the kernel implements for any file system
    #[arg(long, hide = true, value_name = "OPTION")]
    pub(crate) kernel_option: Vec<KernelOptionName>,
    /// Report on standard output when the mount is ready, then leave the terminal
    #[arg(long, hide = true)]
    pub(crate) report_ready: bool,
}

/// Arguments of `umount`.
#[derive(Args, Debug)]
pub(crate) struct UmountArgs {
    /// The mount point, or the pool's file or partition
    pub(crate) target: PathBuf,
}

/// Arguments of `check`.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The pool's file or partition; it must not be mounted
    pub(crate) pool: PathBuf,
    /// Also read all data and compare it with its fingerprints
    #[arg(long)]
    pub(crate) data: bool,
    /// Repair what can be repaired
    #[arg(long)]
    pub(crate) repair: bool,
    /// Treatment of blocks that look like pages of names, but that users of a pool of the first version may
    /// have written; by default, a repair that finds some fails
    #[arg(long, value_enum, requires = "repair")]
    pub(crate) unproven_names: Option<UnprovenNamesArg>,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}

/// Arguments of `stat`.
#[derive(Args, Debug)]
pub(crate) struct StatArgs {
    /// The mount point, or the pool's file or partition
    pub(crate) target: PathBuf,
    /// Files of the pool to show one by one: paths below the mount point, or names inside the pool
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<PathBuf>,
    /// Show all files of the pool one by one
    #[arg(long, conflicts_with = "names")]
    pub(crate) files: bool,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}

/// Arguments of `list`.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Further pools to list: files, partitions, or folders whose files are looked at
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}

/// Arguments of `ls`.
#[derive(Args, Debug)]
pub(crate) struct LsArgs {
    /// The mount point, or the pool's file or partition
    pub(crate) target: PathBuf,
    /// The directory in the pool; its root without it
    pub(crate) directory: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}

/// Arguments of `grow`.
#[derive(Args, Debug)]
pub(crate) struct GrowArgs {
    /// The mount point, or the pool's file or partition
    pub(crate) target: PathBuf,
    /// Make the pool's file this long first (sparse)
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<ByteSize>,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}

/// Arguments of `scrub`.
#[derive(Args, Debug)]
pub(crate) struct ScrubArgs {
    /// The mount point, or the pool's file or partition
    pub(crate) target: PathBuf,
    /// Read at most this many bytes a second
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<ByteRate>,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}

/// Arguments of `trim`.
#[derive(Args, Debug)]
pub(crate) struct TrimArgs {
    /// The mount point, or the pool's file or partition
    pub(crate) target: PathBuf,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}

/// Arguments of `dedup`.
#[derive(Args, Debug)]
pub(crate) struct DedupArgs {
    /// The pool's file or partition; it must not be mounted
    pub(crate) pool: PathBuf,
    /// Share equal files of the guests in raw images of the pool first, as `share files` does, and read each shared
    /// block once
    #[arg(long)]
    pub(crate) files: bool,
    /// Say what would be freed, and share nothing; this reads all data
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) temporary: TemporaryArg,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}

/// Arguments of `import`.
#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// The mount point, or the pool's file or partition
    pub(crate) target: PathBuf,
    /// The images: raw, qcow2, VMDK, or another format that qemu-img reads; archived ones, as ARCHIVE#IMAGE; or
    /// folders, whose files with the ending of an image are taken
    #[arg(required = true, value_name = "IMAGE")]
    pub(crate) images: Vec<PathBuf>,
    /// Name in the pool (one image), or an existing directory of the pool (several);
    /// without it the image's own name with its ending changed to .raw
    #[arg(long, value_name = "NAME")]
    pub(crate) to: Option<PathBuf>,
    /// Skip images whose names exist in the pool, whatever those files hold
    #[arg(long)]
    pub(crate) skip_existing: bool,
    /// Format of the images; by default, it is detected from their first bytes
    #[arg(long, value_enum)]
    pub(crate) format: Option<InputFormat>,
    /// Also accept backing files in this folder and below it, besides the image's own folder
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) backing_from: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) acceptance: Acceptance,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}

/// Arguments of `export`.
#[derive(Args, Debug)]
pub(crate) struct ExportArgs {
    /// The mount point, or the pool's file or partition
    pub(crate) target: PathBuf,
    /// The files in the pool
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<PathBuf>,
    /// The image to make, which must not exist yet; a directory that takes images under their own names; or `-`, which
    /// writes a raw image to standard output
    pub(crate) output: PathBuf,
    /// Format of the image; without it the ending of the file's name decides, and any other name means raw
    #[arg(long, value_enum)]
    pub(crate) format: Option<OutputFormat>,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}

/// Arguments of `clone`.
#[derive(Args, Debug)]
pub(crate) struct CloneArgs {
    /// The mount point, or the pool's file or partition
    pub(crate) target: PathBuf,
    /// The file in the pool to copy
    #[arg(value_name = "NAME")]
    pub(crate) source: PathBuf,
    /// Name of the copy; with --count, `%d` or `%03d` in it becomes the number
    #[arg(value_name = "COPY")]
    pub(crate) destination: PathBuf,
    /// Make this many copies, numbered from 1
    #[arg(long, value_parser = number(1..=1_000_000_u32))]
    pub(crate) count: Option<u32>,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}
