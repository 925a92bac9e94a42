//! Arguments of `onefold image ...`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use glob::Pattern;
use onefold_image::ImageName;
use onefold_net::MACHINE_NAME_CHARS_MAX;

use super::examples::examples;
use super::image_server::{ImageServerOptions, ServeArgs};
use super::key::{Acceptance, SigningKey};
use super::number::number_from;
use super::place::{ArchiveArg, StoreOptions};
use super::values::{InputFormat, OutputFormat};
use crate::byte_rate::ByteRate;
use crate::size::ByteSize;

/// The verbs of `onefold image`.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Store the content of a disk in an archive
    ///
    /// Takes everything except what the file systems on the disk call free with certainty. Content that the archive has
    /// already is not stored again. Each capture of a name is a new version of the image.
    #[command(after_help = examples([
        "onefold image capture /srv/archive web.qcow2 web",
        "onefold image capture --rate 50M --each /var/lib/libvirt/images s3://backup/images",
    ]))]
    Capture(CaptureArgs),
    /// List the images of an archive
    #[command(after_help = examples([
        "onefold image list /srv/archive",
        "onefold image list --json s3://backup/images",
    ]))]
    List(ListArgs),
    /// Show what an image holds and how it was captured
    #[command(after_help = examples([
        "onefold image show /srv/archive web",
        "onefold image show /srv/archive web@2",
    ]))]
    Show(ShowArgs),
    /// Write an image to a disk, a partition or a file
    ///
    /// All checks come before the first write. The disk does not boot until all of the image is on it. Content that the
    /// disk has in its place already is neither fetched nor written, so a killed installation continues where it
    /// stopped. Every byte from a server of images is verified.
    ///
    /// The result has two tables. The first one is in bytes: data of the image (`needed`), of that already on the
    /// target (`found`) and from `seeds`; `received` in compressed form, and `twice` by multicast; `written`, and zeros
    /// that the target had to make (`zeroed`). The second one has the bytes of each stage, and the seconds of all
    /// threads in it.
    #[command(after_help = examples([
        "onefold image install --fit --verify /srv/archive web@2 /dev/sdb",
        "onefold image install --ca lab.pem https://imager:7443 web /dev/nvme0n1 --seed old.qcow2",
    ]))]
    Install(InstallArgs),
    /// Write an image to a new image file, or as a stream
    #[command(after_help = examples([
        "onefold image export /srv/archive web web.qcow2",
        "onefold image export /srv/archive web@2 - | zstd -o web.raw.zst",
    ]))]
    Export(ExportArgs),
    /// Serve the images of an archive to other machines, until the command is interrupted
    ///
    /// `image install --pin FINGERPRINT https://HOST:7443 IMAGE DISK` installs them there, with the fingerprint that
    /// the server prints when it starts. Any HTTP client reads an image as `https://HOST:7443/v1/images/IMAGE/raw`.
    /// New images are served as soon as they are captured.
    #[command(after_help = examples([
        "onefold image serve --interface eth1 --multicast 239.192.3.7 /srv/archive",
        "onefold image serve --status https://imager:7443 --ca lab.pem --watch",
    ]))]
    Serve(Box<ServeArgs>),
    /// Remove versions of images from an archive; `archive gc` frees what they alone use
    #[command(after_help = examples([
        "onefold image rm /srv/archive web@1 web@2",
        "onefold image rm --dry-run --keep-last 3 --keep-monthly 12 /srv/archive 'web-*'",
    ]))]
    Rm(RmArgs),
    /// Sign an image with a secret key
    ///
    /// The signature lies beside the image and covers every byte of it. An image may have signatures of several keys.
    #[command(after_help = examples([
        "onefold image sign /srv/archive web builder",
        "onefold image sign --password-file /etc/onefold/password /srv/archive web@2 builder",
    ]))]
    Sign(SignArgs),
    /// Verify the signatures of an image
    ///
    /// Succeeds if one of the keys that are trusted for the name has signed it, or the key that is given.
    #[command(after_help = examples([
        "onefold image verify /srv/archive web",
        "onefold image verify --key builder.pub /srv/archive web@2",
    ]))]
    Verify(VerifyArgs),
}

/// An image, and one of its versions if it is named: `web` or `web@2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageRef {
    pub(crate) name: ImageName,
    /// Without one, the newest is meant.
    pub(crate) version: Option<u32>,
}

impl FromStr for ImageRef {
    type Err = String;

    fn from_str(text: &str) -> Result<ImageRef, String> {
        let (name, version) = match text.split_once('@') {
            None => (text, None),
            Some((name, version)) => {
                let is_number = !version.starts_with('+');
                let number = version.parse().ok().filter(|number: &u32| is_number && *number > 0);
                (name, Some(number.ok_or("a version is a number from 1 on, as in `web@2`")?))
            }
        };
        Ok(ImageRef { name: parse_name(name)?, version })
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            None => write!(f, "{}", self.name),
            Some(version) => write!(f, "{}@{version}", self.name),
        }
    }
}

fn parse_name(text: &str) -> Result<ImageName, String> {
    ImageName::new(text).map_err(|error| error.to_string())
}

/// Arguments of `capture`.
#[derive(Args, Debug)]
pub(crate) struct CaptureArgs {
    #[command(flatten)]
    pub(crate) archive: ArchiveArg,
    /// The disk: an image file (raw, qcow2, VMDK, or another format that qemu-img reads), a block device, or an image
    /// of another archive, as ARCHIVE#IMAGE
    #[arg(value_name = "IMAGE", required_unless_present = "each", conflicts_with = "each")]
    pub(crate) source: Option<PathBuf>,
    /// Name of the image in the archive; without it the file's own name without its ending
    #[arg(value_parser = parse_name)]
    pub(crate) name: Option<ImageName>,
    /// Capture all images in this folder and below, each named after its file, or the newest version of each image of
    /// this archive; a failure does not stop the rest
    #[arg(long, value_name = "FOLDER")]
    pub(crate) each: Option<PathBuf>,
    /// Format of the images; by default, it is detected from their first bytes
    #[arg(long, value_enum)]
    pub(crate) format: Option<InputFormat>,
    /// Also accept backing files in this folder and below it, besides the image's own folder
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) backing_from: Vec<PathBuf>,
    /// Take only one partition; the image is a disk that begins with its first sector
    #[arg(long, value_name = "NUMBER", value_parser = number_from(1_u32), conflicts_with = "each")]
    pub(crate) partition: Option<u32>,
    /// Take free blocks that are not zero, too
    #[arg(long)]
    pub(crate) all: bool,
    /// Take places that nothing reads as they are: the log of a clean ext journal, and inode tables that were never
    /// used. Otherwise they become zeros
    #[arg(long)]
    pub(crate) exact: bool,
    /// Level of compression by Zstandard
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=19))]
    pub(crate) level: i32,
    /// Read at most this many bytes of the disk a second
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<ByteRate>,
    /// Upper limit of buffers, at least 64M
    #[arg(long, value_name = "SIZE", default_value = "512M")]
    pub(crate) memory: ByteSize,
    /// Sign each image with this secret key
    #[arg(long, value_name = "KEY")]
    pub(crate) sign: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) signing: SigningKey,
    #[command(flatten)]
    pub(crate) acceptance: Acceptance,
}

/// Arguments of `list`.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) archive: ArchiveArg,
}

/// Arguments of `show`.
#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) archive: ArchiveArg,
    /// The image, such as `web` (its newest version) or `web@2`
    pub(crate) image: ImageRef,
}

/// Treatment of the parts of a target that the image does not fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FreeSectors {
    /// They keep what is there, a former user's data too
    Leave,
    /// They read as zeros
    Zero,
    /// They are given back to the device or file system below, if it takes them
    Discard,
}

/// Arguments of `install`.
#[derive(Args, Debug)]
pub(crate) struct InstallArgs {
    /// The archive: a folder, or `s3://BUCKET/PREFIX`; or a server of images, `https://HOST[:PORT]`
    #[arg(value_name = "ARCHIVE")]
    pub(crate) archive: PathBuf,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    #[command(flatten)]
    pub(crate) server: ImageServerOptions,
    /// The image, such as `web` (its newest version) or `web@2`
    pub(crate) image: ImageRef,
    /// A disk, a partition or a file; a missing file is created
    #[arg(value_name = "DISK")]
    pub(crate) target: PathBuf,
    /// Overwrite what the target holds
    #[arg(long)]
    pub(crate) force: bool,
    /// Write the image to this place in the target, a multiple of 512 bytes; nothing outside of it is touched
    #[arg(long, value_name = "BYTES", default_value = "0", conflicts_with = "fit")]
    pub(crate) offset: ByteSize,
    /// Move the backup of the GPT to the end of a larger target, and let the table cover all of it
    #[arg(long)]
    pub(crate) fit: bool,
    /// Treatment of blocks that are free in the image, and of the rest of a larger target
    #[arg(long, value_enum, default_value_t = FreeSectors::Leave)]
    pub(crate) free: FreeSectors,
    /// Read everything that the image defines back from the target, past the cache, and compare it
    #[arg(long)]
    pub(crate) verify: bool,
    /// A disk, image file or archived image that has a part of the image. That part is read from it, and not from the
    /// archive. May be given several times
    #[arg(long, value_name = "DISK")]
    pub(crate) seed: Vec<PathBuf>,
    /// Write everything, without a comparison of the target with the image. This saves a little time if the target has
    /// no part of the image
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Check everything and write nothing; tells how a target that exists differs from the image, by guest file
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write and read at most this many bytes of the target a second
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<ByteRate>,
    /// Upper limit of buffers, at least 64M
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub(crate) memory: ByteSize,
    /// Receive the image by multicast from a server without TLS, with the key in this file. From a server with TLS an
    /// image comes by multicast without this option, if the server sends it so. Chunks that do not arrive are requested
    /// over HTTP
    #[arg(long, value_name = "FILE")]
    pub(crate) multicast_key: Option<PathBuf>,
    /// The name of this machine in the log and the status of the server; without it the host name
    #[arg(long = "as", value_name = "NAME", value_parser = parse_machine_name)]
    pub(crate) machine_name: Option<String>,
    #[command(flatten)]
    pub(crate) acceptance: Acceptance,
}

/// Parses the name of a machine.
fn parse_machine_name(text: &str) -> Result<String, String> {
    let is_name = (1..=MACHINE_NAME_CHARS_MAX).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    match is_name {
        true => Ok(text.to_owned()),
        false => Err(format!("expected 1 to {MACHINE_NAME_CHARS_MAX} characters, without control characters")),
    }
}

/// Arguments of `export`.
#[derive(Args, Debug)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) archive: ArchiveArg,
    /// The image, such as `web` (its newest version) or `web@2`
    pub(crate) image: ImageRef,
    /// The image file to make, which must not exist yet; a directory, which takes the image under its own name; or `-`,
    /// which writes a raw image to standard output
    pub(crate) output: PathBuf,
    /// Format of the image file; without it the ending of its name decides, and any other name means raw
    #[arg(long, value_enum)]
    pub(crate) format: Option<OutputFormat>,
    /// Export a damaged image, too: what cannot be read becomes zeros, and is listed
    #[arg(long)]
    pub(crate) damaged: bool,
    /// Write at most this many bytes a second
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<ByteRate>,
    /// Upper limit of buffers, at least 64M
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub(crate) memory: ByteSize,
    #[command(flatten)]
    pub(crate) acceptance: Acceptance,
}

/// Arguments of `rm`.
#[derive(Args, Debug)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    pub(crate) archive: ArchiveArg,
    /// The version to remove, such as `web@1`; with a --keep option a name, such as `web`, or a pattern such as `web-*`
    #[arg(required = true, value_name = "IMAGE@VERSION")]
    pub(crate) images: Vec<RemovalTarget>,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    /// Say what would be removed and what `archive gc` would free then, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Which versions of each name stay. A version stays if any of these keeps it.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct KeepArgs {
    /// Remove all versions of the names but the newest N
    #[arg(long, value_name = "N", value_parser = number_from(1_usize))]
    pub(crate) keep_last: Option<usize>,
    /// Keep the newest version of each of the last N days that have one
    #[arg(long, value_name = "N", value_parser = number_from(1_usize))]
    pub(crate) keep_daily: Option<usize>,
    /// Keep the newest version of each of the last N weeks that have one
    #[arg(long, value_name = "N", value_parser = number_from(1_usize))]
    pub(crate) keep_weekly: Option<usize>,
    /// Keep the newest version of each of the last N months that have one
    #[arg(long, value_name = "N", value_parser = number_from(1_usize))]
    pub(crate) keep_monthly: Option<usize>,
}

impl KeepArgs {
    /// Returns whether one of them is given.
    pub(crate) fn is_some(&self) -> bool {
        [self.keep_last, self.keep_daily, self.keep_weekly, self.keep_monthly].iter().any(Option::is_some)
    }
}

/// Target of `rm`: an image, or all images whose names a pattern matches.
#[derive(Clone, Debug)]
pub(crate) enum RemovalTarget {
    Image(ImageRef),
    Pattern(Pattern),
}

impl FromStr for RemovalTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<RemovalTarget, String> {
        if text.contains(['*', '?', '[']) {
            return Pattern::new(text).map(RemovalTarget::Pattern).map_err(|error| error.msg.to_owned());
        }
        text.parse().map(RemovalTarget::Image)
    }
}

impl fmt::Display for RemovalTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemovalTarget::Image(image) => image.fmt(f),
            RemovalTarget::Pattern(pattern) => pattern.fmt(f),
        }
    }
}

/// Arguments of `sign`.
#[derive(Args, Debug)]
pub(crate) struct SignArgs {
    #[command(flatten)]
    pub(crate) archive: ArchiveArg,
    /// The image, such as `web` (its newest version) or `web@2`
    pub(crate) image: ImageRef,
    /// The file of the secret key
    pub(crate) key: PathBuf,
    #[command(flatten)]
    pub(crate) signing: SigningKey,
}

/// Arguments of `verify`.
#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) archive: ArchiveArg,
    /// The image, such as `web` (its newest version) or `web@2`
    pub(crate) image: ImageRef,
    /// A public key, as a file or in base 64, instead of those that are trusted
    #[arg(long)]
    pub(crate) key: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_named_with_or_without_its_version() {
        let parse = |text: &str| text.parse::<ImageRef>();
        assert_eq!(parse("web").unwrap().version, None);
        assert_eq!(
            parse("debian/12@7").unwrap(),
            ImageRef { name: ImageName::new("debian/12").unwrap(), version: Some(7) }
        );
        assert_eq!(parse("web@2").unwrap().to_string(), "web@2");
        for text in ["", "@1", "web@", "web@0", "web@-1", "web@+1", "web@1@2", "web@4294967296", "../x", "a b"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
