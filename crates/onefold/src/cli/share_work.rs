//! Options that several of the verbs `share run`, `share files`, `share watch` and `share mend` have.

use std::time::Duration;

use clap::Args;
use glob::Pattern;

use super::number::number;
use super::temporary::TemporaryArg;
use super::values::parse_duration;
use crate::byte_rate::ByteRate;
use crate::size::ByteSize;

/// Permissions of `share run`, `share watch` and `share mend` on OCFS2, where the state folder says which holes to
/// fill.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct RootArgs {
    /// Work on OCFS2 even if another user can replace the state folder, because that user owns the root folder of the
    /// file system or may write into it: an earlier state folder names holes that were filled long ago
    #[arg(long)]
    pub(crate) accept_writable_root: bool,
}

/// Permissions of `share run` and `share watch` on OCFS2.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ConsentArgs {
    /// Also share on OCFS2. A host that dies while it shares leaves holes there, in images that no process on it had
    /// open, until a host mends them (`share mend`). Images that are open on the host are left alone
    #[arg(long)]
    pub(crate) accept_mending: bool,
}

/// Limits of `share run` and `share watch`.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct LimitArgs {
    /// Read at most this many bytes of images a second, and share at most this many; without it, there is no limit
    #[arg(long, visible_alias = "io-limit", value_name = "RATE")]
    pub(crate) rate: Option<ByteRate>,
    /// Use at most this much processor time, in percent of one core
    #[arg(long, value_name = "PERCENT", value_parser = number(1..=100_000_u32))]
    pub(crate) cpu_limit: Option<u32>,
    /// The longest time that one call of the file system should take; a program that writes to a file of the call
    /// waits for its end
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = parse_stall)]
    pub(crate) max_stall: Duration,
}

/// Parses the longest time of a call, which has bounds.
fn parse_stall(text: &str) -> Result<Duration, String> {
    let is_allowed = |time: &Duration| (Duration::from_millis(1)..=Duration::from_millis(100)).contains(time);
    let time = parse_duration(text).ok().filter(is_allowed);
    time.ok_or_else(|| "expected a time from 1ms to 100ms, such as 20ms".to_owned())
}

/// Options by which `share run` and `share watch` make room really come free.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct SpaceArgs {
    /// On Btrfs, copy the unshared rest of an extent whose other blocks were shared, if the rest is at most this
    /// part of the extent; with 0, never
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = number(0..=100_u32))]
    pub(crate) rewrite: u32,
    /// On XFS, do not change the hint of files for copies: each small write into a shared block then reserves 128 KiB
    /// around it for minutes
    #[arg(long)]
    pub(crate) no_small_copies: bool,
}

/// Options of `share run`, `share files` and `share watch` about their files and their way of work.
#[derive(Args, Debug)]
pub(crate) struct WorkArgs {
    /// Only files whose path or name matches a pattern, such as `*.raw`; may be given several times
    #[arg(long, value_name = "PATTERN")]
    pub(crate) include: Vec<Pattern>,
    /// Leave out files and folders whose path or name matches a pattern; may be given several times
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<Pattern>,
    /// Do not share shorter runs of equal blocks; adjacent runs count as one. Short runs save less, and cost more seeks
    /// when a file is read in sequence
    #[arg(long, value_name = "SIZE", default_value = "4K")]
    pub(crate) min_run: ByteSize,
    #[command(flatten)]
    pub(crate) space: SpaceArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    /// Upper limit of memory for sorting; what does not fit goes into temporary files
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub(crate) memory: ByteSize,
    #[command(flatten)]
    pub(crate) temporary: TemporaryArg,
}
