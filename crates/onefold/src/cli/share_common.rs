//! Arguments of `onefold share common`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::examples::examples;

use crate::size::ByteSize;

/// The verbs of `onefold share common`.
#[derive(Debug, Subcommand)]
pub(crate) enum ShareCommonCommand {
    /// Make an empty common volume
    ///
    /// An ext4 image that takes up room for what is in it only. It belongs to the owner of its folder if root makes it,
    /// otherwise to the user that does; nobody else may read it. It serves the sharing domain that it belongs to as a
    /// file. Needs mke2fs, tune2fs, debugfs and e2fsck (package e2fsprogs).
    #[command(after_help = examples([
        "onefold share common create /srv/vm/common.img",
        "onefold share common create --size 20G /srv/vm/common.img",
    ]))]
    Create(ShareCommonCreateArgs),
    /// Add the files of packages to a common volume
    ///
    /// Content comes by clone from an image that has the packages installed, and takes no room of its own; or from
    /// package archives, which dpkg-deb unpacks without privileges. Configuration files are left out. A changed and
    /// checked clone takes the place of the volume in one step: a process that has it mounted keeps the old one.
    #[command(after_help = examples([
        "onefold share common add --from web.raw --package nginx /srv/vm",
        "onefold share common add /srv/vm nginx_1.26.3-3_amd64.deb",
    ]))]
    Add(ShareCommonAddArgs),
    /// List the packages in a common volume
    #[command(after_help = examples([
        "onefold share common ls /srv/vm",
        "onefold share common ls --json /srv/vm/common.img",
    ]))]
    Ls(ShareCommonLookArgs),
    /// Check the file system of a common volume, and compare all content with its digests
    #[command(after_help = examples([
        "onefold share common check /srv/vm",
        "onefold share common check --json /srv/vm/common.img",
    ]))]
    Check(ShareCommonLookArgs),
    /// Remove the files of packages from a common volume
    ///
    /// Images that share these blocks keep them.
    #[command(after_help = examples([
        "onefold share common rm /srv/vm nginx",
        "onefold share common rm /srv/vm libssl3_3.0.15-1_amd64 nginx",
    ]))]
    Rm(ShareCommonRemoveArgs),
}

/// Arguments of `share common create`.
#[derive(Args, Debug)]
pub(crate) struct ShareCommonCreateArgs {
    /// The file to make, on XFS or Btrfs with reflinks
    #[arg(value_name = "FILE")]
    pub(crate) path: PathBuf,
    /// The length of the image, and so the most that it can hold
    #[arg(long, value_name = "SIZE", default_value = "64G")]
    pub(crate) size: ByteSize,
}

/// Arguments of `share common add`.
#[derive(Args, Debug)]
pub(crate) struct ShareCommonAddArgs {
    /// The common volume, or its folder
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Package archives of Debian, of which all files but those of configuration are added
    #[arg(value_name = "DEB", required_unless_present = "from", conflicts_with = "from")]
    pub(crate) archives: Vec<PathBuf>,
    /// A raw image in which the packages are installed, on the same file system
    #[arg(long, value_name = "IMAGE")]
    pub(crate) from: Option<PathBuf>,
    /// Name of a package in the image; may be given several times. Without it, all its packages are added
    #[arg(long, value_name = "NAME", requires = "from")]
    pub(crate) package: Vec<String>,
}

/// Arguments of verbs that look at a common volume.
#[derive(Args, Debug)]
pub(crate) struct ShareCommonLookArgs {
    /// The common volume, or its folder
    #[arg(value_name = "PATH", default_value = ".")]
    pub(crate) path: PathBuf,
}

/// Arguments of `share common rm`.
#[derive(Args, Debug)]
pub(crate) struct ShareCommonRemoveArgs {
    /// The common volume, or its folder
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Packages: NAME, or NAME_VERSION_ARCHITECTURE as `ls` shows it
    #[arg(value_name = "PACKAGE", required = true)]
    pub(crate) packages: Vec<String>,
}
