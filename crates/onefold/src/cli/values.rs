//! Choices on the command line, and what they mean to the pool.

use std::time::Duration;

use clap::ValueEnum;
use onefold_disk::ImageFormat;
use onefold_export::{KernelOption, StBlocks};
use onefold_pool::check::UnprovenNames;
use onefold_pool::{Dedup, Journaling, Prefetch, StorePlacement, Verification};

/// Bytes that `st_blocks` of a file counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StBlocksCover {
    /// The whole length for files with 64 MiB of data or more, so that cp clones them; mapped blocks for others
    Auto,
    /// The whole length
    Length,
    /// Mapped blocks: du then shows holes
    Mapped,
}

impl From<StBlocksCover> for StBlocks {
    fn from(cover: StBlocksCover) -> StBlocks {
        match cover {
            StBlocksCover::Auto => StBlocks::Auto,
            StBlocksCover::Length => StBlocks::Length,
            StBlocksCover::Mapped => StBlocks::Mapped,
        }
    }
}

/// An option of mount(8) that the kernel implements for any file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KernelOptionName {
    Sync,
    Dirsync,
    Lazytime,
    Nosymfollow,
}

impl From<KernelOptionName> for KernelOption {
    fn from(name: KernelOptionName) -> KernelOption {
        match name {
            KernelOptionName::Sync => KernelOption::Sync,
            KernelOptionName::Dirsync => KernelOption::Dirsync,
            KernelOptionName::Lazytime => KernelOption::Lazytime,
            KernelOptionName::Nosymfollow => KernelOption::Nosymfollow,
        }
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

impl From<Switch> for Dedup {
    fn from(switch: Switch) -> Dedup {
        match switch {
            Switch::On => Dedup::On,
            Switch::Off => Dedup::Off,
        }
    }
}

impl From<Switch> for Journaling {
    fn from(switch: Switch) -> Journaling {
        match switch {
            Switch::On => Journaling::On,
            Switch::Off => Journaling::Off,
        }
    }
}

/// When the space of freed blocks is given back to the disk below a mounted pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiscardWhen {
    /// On for a sparse file; off for a partition, and for a file that has all of its blocks
    Auto,
    /// In batches of at least 64 MiB
    On,
    /// Only by `onefold pool trim`
    Off,
}

/// Place of the fingerprint stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stores {
    /// At the front of each block group
    InGroups,
    /// All together at the end; such a pool cannot grow
    AtEnd,
}

impl From<Stores> for StorePlacement {
    fn from(stores: Stores) -> StorePlacement {
        match stores {
            Stores::InGroups => StorePlacement::InGroups,
            Stores::AtEnd => StorePlacement::AtEnd,
        }
    }
}

/// How a block with an equal fingerprint is confirmed to be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerificationArg {
    /// Equal keyed 128-bit fingerprints are equal blocks
    Fingerprint,
    /// The bytes are compared too
    Value,
}

impl From<VerificationArg> for Verification {
    fn from(by: VerificationArg) -> Verification {
        match by {
            VerificationArg::Fingerprint => Verification::Fingerprint,
            VerificationArg::Value => Verification::Value,
        }
    }
}

/// Treatment of blocks that look like pages of names, but that users may have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UnprovenNamesArg {
    /// Take them all
    Take,
    /// Leave them out; files that only they name are lost
    Leave,
}

impl From<UnprovenNamesArg> for UnprovenNames {
    fn from(names: UnprovenNamesArg) -> UnprovenNames {
        match names {
            UnprovenNamesArg::Take => UnprovenNames::Take,
            UnprovenNamesArg::Leave => UnprovenNames::Leave,
        }
    }
}

/// How much of a fingerprint store a look-up reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrefetchWhen {
    /// One page first, the whole store on a second hit near by
    Adaptive,
    /// The whole store at the first touch
    Always,
    /// Only the requested page
    Never,
}

impl From<PrefetchWhen> for Prefetch {
    fn from(when: PrefetchWhen) -> Prefetch {
        match when {
            PrefetchWhen::Adaptive => Prefetch::Adaptive,
            PrefetchWhen::Always => Prefetch::Always,
            PrefetchWhen::Never => Prefetch::Never,
        }
    }
}

/// Format of an input image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum InputFormat {
    /// The bytes of the disk, one to one
    Raw,
    /// QEMU's format, with its chain of backing files
    Qcow2,
    /// VMware's format (through qemu-img)
    Vmdk,
    /// VirtualBox's format (through qemu-img)
    Vdi,
    /// Hyper-V's format (through qemu-img)
    Vhdx,
    /// Virtual PC's format (through qemu-img)
    Vpc,
}

impl From<InputFormat> for ImageFormat {
    fn from(format: InputFormat) -> ImageFormat {
        match format {
            InputFormat::Raw => ImageFormat::Raw,
            InputFormat::Qcow2 => ImageFormat::Qcow2,
            InputFormat::Vmdk => ImageFormat::Vmdk,
            InputFormat::Vdi => ImageFormat::Vdi,
            InputFormat::Vhdx => ImageFormat::Vhdx,
            InputFormat::Vpc => ImageFormat::Vpc,
        }
    }
}

/// Format of an output image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// The bytes of the disk, one to one, sparse
    Raw,
    /// QEMU's format
    Qcow2,
    /// VMware's format, in one sparse file (through qemu-img)
    Vmdk,
}

impl OutputFormat {
    /// Returns its name in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            OutputFormat::Raw => "raw",
            OutputFormat::Qcow2 => "qcow2",
            OutputFormat::Vmdk => "vmdk",
        }
    }
}

/// Parses a time such as `5s`, `250ms`, `2min` or `1h`; a plain number is seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let number_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let number: u64 = number
        .parse()
        .map_err(|_| "expected a number with an optional unit (ms, s, min, h), such as 5s or 2min".to_owned())?;
    match unit.trim_start() {
        "ms" => Ok(Duration::from_millis(number)),
        "" | "s" => Ok(Duration::from_secs(number)),
        "m" | "min" => number.checked_mul(60).map(Duration::from_secs).ok_or_else(|| "too long a time".to_owned()),
        "h" => number.checked_mul(3600).map(Duration::from_secs).ok_or_else(|| "too long a time".to_owned()),
        other => Err(format!("unknown unit of time `{other}`: use ms, s, min or h")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_plain_numbers_are_seconds() {
        assert_eq!(parse_duration("5"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("2min"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("1h"), Ok(Duration::from_secs(3600)));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["", "s", "-5", "5d", "5.5s", "18446744073709551616", "18446744073709551615m"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
