//! Arguments of `onefold guest`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use glob::Pattern;

use super::examples::examples;
use super::number::number_from;
use super::values::InputFormat;
use crate::calendar;
use crate::size::ByteSize;

/// The verbs of `onefold guest`.
#[derive(Debug, Subcommand)]
pub(crate) enum GuestCommand {
    /// Show the partitions, volumes and file systems of a disk, and how far they can be trusted
    #[command(after_help = examples([
        "onefold guest info web.qcow2",
        "onefold guest info --stale /var/lib/libvirt/images",
    ]))]
    Info(GuestInfoArgs),
    /// Show how full the file systems of images are
    #[command(after_help = examples([
        "onefold guest df /var/lib/libvirt/images",
        "onefold guest df --volume vg0/home db.qcow2",
    ]))]
    Df(GuestImagesArgs),
    /// List files by their paths in the guest
    #[command(after_help = examples([
        "onefold guest ls web.qcow2 /etc",
        "onefold guest ls --long --recursive web.qcow2 /var/log",
    ]))]
    Ls(GuestLsArgs),
    /// Write the content of files to standard output
    #[command(after_help = examples([
        "onefold guest cat web.qcow2 /etc/fstab",
        "onefold guest cat '/srv/archive#web@2' /var/log/syslog | less",
    ]))]
    Cat(GuestCatArgs),
    /// Show the places of a file's content on the disk
    #[command(after_help = examples([
        "onefold guest map web.raw /boot/vmlinuz",
        "onefold guest map --json web.raw /var/lib/dpkg/status",
    ]))]
    Map(GuestMapArgs),
    /// Show which file or structure a byte of the disk belongs to
    #[command(after_help = examples(["onefold guest who web.raw 1073741824", "onefold guest who web.raw 20M 4.5G"]))]
    Who(GuestWhoArgs),
    /// Show how much space the files below folders take
    #[command(after_help = examples([
        "onefold guest du --depth 1 web.qcow2",
        "onefold guest du web.qcow2 /var /home",
    ]))]
    Du(GuestDuArgs),
    /// Find files of many images by name, time and size
    #[command(after_help = examples([
        "onefold guest find --name '*.conf' --below /etc web.qcow2",
        "onefold guest find --larger 100M --newer 2026-11-01 /var/lib/libvirt/images",
    ]))]
    Find(GuestFindArgs),
    /// List the installed packages, as recorded by their package manager
    #[command(after_help = examples([
        "onefold guest packages --name 'libssl*' /var/lib/libvirt/images",
        "onefold guest packages --verify web.qcow2",
    ]))]
    Packages(GuestPackagesArgs),
    /// Compare the packages and files of two images
    ///
    /// Content is not read if a file lies at the same place in both images and has not changed, or if both package
    /// databases record the same digest and the files have the same time. A difference in times alone does not count.
    #[command(after_help = examples([
        "onefold guest diff template.qcow2 web.qcow2",
        "onefold guest diff --below /etc '/srv/archive#web@1' '/srv/archive#web@2'",
    ]))]
    Diff(GuestDiffArgs),
    /// Write files as a tar archive to standard output
    ///
    /// Keeps owners, modes, times, hard links, devices, holes and extended attributes, in the pax format. `tar --xattrs
    /// --xattrs-include='*'` restores all of them.
    #[command(after_help = examples([
        "onefold guest tar web.qcow2 /etc > etc.tar",
        "onefold guest tar web.qcow2 /home /var/www | tar --list",
    ]))]
    Tar(GuestTarArgs),
}

/// How images are opened.
#[derive(Args, Clone, Debug)]
pub(crate) struct GuestOpenArgs {
    /// Format of the images; by default, it is detected from their first bytes
    #[arg(long, value_enum)]
    pub(crate) format: Option<InputFormat>,
    /// Also accept backing files in this folder and below it, besides the image's own folder
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) backing_from: Vec<PathBuf>,
    /// Read only one partition, with its own root as `/`
    #[arg(long, value_name = "NUMBER", value_parser = number_from(1_u32), conflicts_with = "volume")]
    pub(crate) partition: Option<u32>,
    /// Read only one logical volume, with its own root as `/`
    #[arg(long, value_name = "GROUP/NAME")]
    pub(crate) volume: Option<VolumeName>,
    /// Upper limit of the caches; the cache of each image takes a quarter of it. Lists that a verb keeps are extra
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub(crate) memory: ByteSize,
}

/// The name of a logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeName {
    pub(crate) group: String,
    pub(crate) name: String,
}

impl FromStr for VolumeName {
    type Err = String;

    fn from_str(text: &str) -> Result<VolumeName, String> {
        match text.strip_prefix("/dev/").unwrap_or(text).split_once('/') {
            Some((group, name)) if !group.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(VolumeName { group: group.to_owned(), name: name.to_owned() })
            }
            _ => Err("expected GROUP/NAME".to_owned()),
        }
    }
}

/// Arguments of `guest info`.
#[derive(Args, Debug)]
pub(crate) struct GuestInfoArgs {
    #[command(flatten)]
    pub(crate) images: GuestImagesArgs,
    /// Also read free blocks, and count the bytes that are not zero
    #[arg(long)]
    pub(crate) stale: bool,
}

/// Images, and how they are opened.
#[derive(Args, Debug)]
pub(crate) struct GuestImagesArgs {
    /// Images, block devices, archived images as ARCHIVE#IMAGE, folders of images (all files from 1 MiB on, by name),
    /// and archives (the newest version of each image)
    #[arg(required = true, value_name = "IMAGE")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) open: GuestOpenArgs,
}

/// An image, and how it is opened.
#[derive(Args, Debug)]
pub(crate) struct GuestImageArgs {
    /// The image, a block device, or an archived image as ARCHIVE#IMAGE
    pub(crate) image: PathBuf,
    #[command(flatten)]
    pub(crate) open: GuestOpenArgs,
}

/// Arguments of `guest ls`.
#[derive(Args, Debug)]
pub(crate) struct GuestLsArgs {
    #[command(flatten)]
    pub(crate) image: GuestImageArgs,
    /// Files and folders of the guest
    #[arg(value_name = "PATH", default_value = "/")]
    pub(crate) paths: Vec<OsString>,
    /// Also show type, mode, links, owner, size and time (UTC)
    #[arg(long, short)]
    pub(crate) long: bool,
    /// Also list all folders below
    #[arg(long, short = 'R')]
    pub(crate) recursive: bool,
    /// Print raw names, each followed by a zero byte, for programs
    #[arg(long, short = '0', conflicts_with = "long")]
    pub(crate) null: bool,
}

/// Arguments of `guest cat`.
#[derive(Args, Debug)]
pub(crate) struct GuestCatArgs {
    #[command(flatten)]
    pub(crate) image: GuestImageArgs,
    /// Files of the guest
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// Arguments of `guest map`.
#[derive(Args, Debug)]
pub(crate) struct GuestMapArgs {
    #[command(flatten)]
    pub(crate) image: GuestImageArgs,
    /// A file of the guest
    pub(crate) path: OsString,
}

/// Arguments of `guest who`.
#[derive(Args, Debug)]
pub(crate) struct GuestWhoArgs {
    #[command(flatten)]
    pub(crate) image: GuestImageArgs,
    /// Bytes of the disk, such as 20M
    #[arg(required = true, value_name = "BYTE")]
    pub(crate) places: Vec<ByteSize>,
}

/// Arguments of `guest du`.
#[derive(Args, Debug)]
pub(crate) struct GuestDuArgs {
    #[command(flatten)]
    pub(crate) image: GuestImageArgs,
    /// Folders of the guest
    #[arg(value_name = "PATH", default_value = "/")]
    pub(crate) paths: Vec<OsString>,
    /// Show folders at most this many levels below the named ones
    #[arg(long, short, value_name = "LEVELS", value_parser = number_from(0_u32))]
    pub(crate) depth: Option<u32>,
    /// Print bytes, a tab and the raw path of each folder and named file, followed by a zero byte, for programs
    #[arg(long, short = '0')]
    pub(crate) null: bool,
}

/// Arguments of `guest find`.
#[derive(Args, Debug)]
pub(crate) struct GuestFindArgs {
    #[command(flatten)]
    pub(crate) images: GuestImagesArgs,
    /// Only files whose name matches a pattern such as `*.conf`; a pattern with a slash is compared with the whole path
    #[arg(long, value_name = "PATTERN")]
    pub(crate) name: Option<Pattern>,
    /// Only files below a folder of the guest
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub(crate) below: OsString,
    /// Only files that changed at a time or later: 2026-11-01, or 2026-11-01T12:30 (UTC)
    #[arg(long, value_name = "TIME", value_parser = calendar::parse)]
    pub(crate) newer: Option<i64>,
    /// Only files that are larger
    #[arg(long, value_name = "SIZE")]
    pub(crate) larger: Option<ByteSize>,
    /// Only files that belong to no package
    #[arg(long)]
    pub(crate) unowned: bool,
    /// Print raw paths, each followed by a zero byte, for programs
    #[arg(long, short = '0')]
    pub(crate) null: bool,
}

/// Arguments of `guest packages`.
#[derive(Args, Debug)]
pub(crate) struct GuestPackagesArgs {
    #[command(flatten)]
    pub(crate) images: GuestImagesArgs,
    /// Only packages whose name matches a pattern such as `libssl*`
    #[arg(long, value_name = "PATTERN")]
    pub(crate) name: Option<Pattern>,
    /// Also list the files of each package
    #[arg(long)]
    pub(crate) files: bool,
    /// Also show since when each package is installed, and its earlier changes (times of the guest's clock)
    #[arg(long)]
    pub(crate) history: bool,
    /// Instead read all files that have a recorded digest, and list those that differ; configuration files come last
    #[arg(long, conflicts_with_all = ["files", "history"])]
    pub(crate) verify: bool,
}

/// Arguments of `guest diff`.
#[derive(Args, Debug)]
pub(crate) struct GuestDiffArgs {
    /// The first image; two versions of an archived one, as ARCHIVE#IMAGE@1 and ARCHIVE#IMAGE@2, for example
    pub(crate) one: PathBuf,
    /// The second image
    pub(crate) two: PathBuf,
    #[command(flatten)]
    pub(crate) open: GuestOpenArgs,
    /// Only files below a folder of the guests
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub(crate) below: OsString,
    /// Read all content, even if it is known to be equal
    #[arg(long)]
    pub(crate) content: bool,
}

/// Arguments of `guest tar`.
#[derive(Args, Debug)]
pub(crate) struct GuestTarArgs {
    #[command(flatten)]
    pub(crate) image: GuestImageArgs,
    /// Files and folders of the guest
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_has_a_group_and_a_name() {
        let name = VolumeName { group: "vg".to_owned(), name: "root".to_owned() };
        assert_eq!("vg/root".parse(), Ok(name.clone()));
        assert_eq!("/dev/vg/root".parse(), Ok(name));
        for text in ["", "vg", "/root", "vg/", "a/b/c"] {
            assert!(text.parse::<VolumeName>().is_err(), "{text}");
        }
    }
}
