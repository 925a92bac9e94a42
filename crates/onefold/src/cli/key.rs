//! Arguments of `onefold key ...`, and of the verbs of images that sign and verify.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::examples::examples;
use super::number::number_from;

/// The verbs of `onefold key`.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a pair of keys: one that signs images, and one that verifies their signatures
    ///
    /// The files have the form of minisign. A password protects the secret key.
    #[command(after_help = examples([
        "onefold key create builder",
        "onefold key create --password-file /etc/onefold/password builder",
    ]))]
    Create(CreateArgs),
    /// Trust a key for the images of some names
    ///
    /// Once any key is trusted, `image install` and `image export` refuse an image without the signature of a key that
    /// is trusted for its name.
    #[command(after_help = examples([
        "onefold key trust builder.pub 'web-*'",
        "onefold key trust --note builder2 builder.pub web db",
    ]))]
    Trust(TrustArgs),
    /// List the keys that are trusted
    #[command(after_help = examples(["onefold key list", "onefold key list --json"]))]
    List,
}

/// Arguments of `create`.
#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// The file of the secret key to make; the public key gets the same name with `.pub`
    pub(crate) file: PathBuf,
    /// Protect the secret key by nothing but the permissions of its file
    #[arg(long, conflicts_with = "password_file")]
    pub(crate) no_password: bool,
    /// Take the password from the first line of a file instead of the terminal
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}

/// Arguments of `trust`.
#[derive(Args, Debug)]
pub(crate) struct TrustArgs {
    /// The public key: its file, or the key itself in base 64
    pub(crate) key: String,
    /// The names of the images that the key may sign; `*` stands for any characters
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// A note beside the key, such as the name of its owner
    #[arg(long, default_value = "")]
    pub(crate) note: String,
}

/// A secret key that signs an image.
#[derive(Args, Debug)]
pub(crate) struct SigningKey {
    /// Take the password of the key from the first line of a file instead of the terminal
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}

/// Which images a verb accepts.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Acceptance {
    /// Accept an archived image that no trusted key has signed
    #[arg(long)]
    pub(crate) unsigned: bool,
    /// Refuse an archived image of a lower version, such as one of an archive that was restored from a backup
    #[arg(long, value_name = "VERSION", value_parser = number_from(1_u32))]
    pub(crate) at_least: Option<u32>,
}
